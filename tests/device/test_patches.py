"""Filters that step by whole folds of columns, as fewer columns of more channels (kernels/fold.py)."""

from __future__ import annotations

import pytest
from here import EMULATED_AND_GPU, agrees
from test_gpu_path import _configs, runtime

from tilewright.kernels import family_of
from tilewright.kernels.fold import folded
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["runtime"]  # a fixture

FOLDED = (
    "n2c3h8w12k20r4s4u4-f16-nhwc+bias+relu",
    "n1c5h6w9k17r2s3u2x3-bf16-nhwc2nchw+add",
    "n2c16h9w8k33r3s2p1x0u1x2-f16-nhwc+maxpool2",  # rows overlap, and are padded
    "n1c3h32w48k24r16s16u16-f16",  # nchw: copied
    "n2c3h16w24k20r8s8u8-bf16-nchw2nhwc+bias",
    "n2c3h17w24k20r8s8u9x8p1x0-i8+relu",
    "n1c4h8w16k36r4s4u4-i8-nhwc+maxpool2+requant",
    "n1c3h9w14k24r9s7u9x7-tf32-nhwc",
    "n1c4h20w33k18r20s11u20x11-tf32",  # a filter of more rows than an image with padding may have
    "n1c12h14w10k40r7s5u7x5-accurate-nhwc+bias",
    "n2c8h4w18k20r4s9u4x9-f8-nhwc",
    "n1c8h8w16k20r8s8u8-f8+bias",
)
OVERLAPPING = (  # the columns of a fold
    ("n2c1h1w48k20r1s16u1x4-f16+bias", 4),  # one channel: nchw is nhwc
    ("n1c1h3w40k18r2s10p1x5u1x5-bf16-nhwc", 5),
    ("n1c6h7w24k20r3s12p1x0u2x8-i8-nhwc+relu", 4),
    ("n2c3h8w12k20r4s4u4p0x2-f16-nhwc+maxpool2", 2),
    ("n1c16h5w18k24r3s6p1.1.2.4u1x2-f8-nhwc2nchw", 2),
    ("n2c1h1w96k20r1s32u1x8-tf32-nchw2nhwc+add", 8),
    ("n1c2h1w800k24r1s320p0x80u1x80-accurate-nhwc+bias", 80),
    ("n2c1h1w96k20r1s32u1x8-f32+bias", 8),
    ("n1c1h3w60k18r2s10p1x5u1x5-f32-nchw2nhwc+relu", 5),
    ("n2c6h7w24k20r3s12p1x4u2x8-f32-nhwc+add", 4),
    ("n1c12h4w36k24r2s4p0x2u2x2-f32-nhwc+maxpool2", 2),
    ("n2c3h8w12k20r4s4u4-f32-nhwc+bias", 4),
)
AS_THEY_ARE = (
    "n1c3h8w13k20r4s4u4-f16-nhwc",  # a row ends inside a patch
    "n1c8h8w12k16r4s4u4g2-f16-nhwc",
    "n1c3h8w12k20r4s4u4-f16",  # few numbers, gathered without a copy
    "n1c12h14w10k40r7s5u7x5-accurate",  # the fallback reads x as it is
    "n1c64h1w4k20r1s4u1x4-f16",  # one pixel: channels that would be in another order
    "n1c8h8w12k16r4s4u3-f16-nhwc",
    "n1c64h8w12k16r4s4u2-f16",  # nchw: a copy pays where columns do not overlap
    "n1c64h8w12k16r4s4u2p1-f16-nhwc",
    "n1c64h8w12k16r1s4d2u1x2-f16-nhwc",
)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize("name", ("mma", "hopper"))
@pytest.mark.parametrize("text", FOLDED)
def test_patches_are_right(text: str, name: str, device: str, runtime: Runtime) -> None:
    problem, kind = Problem.parse(text), family_of(name)
    if reason := kind.refuses(problem, runtime.device):
        assert name == "hopper" and problem.requantised, reason
        return
    assert kind.inner(problem, runtime.device).c == problem.c * problem.s
    for shift, config in enumerate(_configs(kind, problem, runtime)):
        agrees(Plan.make(runtime, problem, config), shift=4 * shift)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(
    ("text", "fold", "name"),
    [
        (text, fold, name)
        for text, fold in OVERLAPPING
        for name in (("gemm",) if Problem.parse(text).precision == "f32" else ("mma", "hopper"))
    ],
)
def test_folds_that_overlap_are_right(text: str, fold: int, name: str, device: str, runtime: Runtime) -> None:
    problem, kind = Problem.parse(text), family_of(name)
    inner = kind.inner(problem, runtime.device)
    assert (inner.c, inner.s, inner.q) == (problem.c * fold, problem.s // fold, problem.q)
    for shift, config in enumerate(_configs(kind, problem, runtime)):
        agrees(Plan.make(runtime, problem, config), shift=4 * shift)


@pytest.mark.parametrize("text", AS_THEY_ARE)
def test_what_is_no_row_of_patches_stays_as_it_is(text: str) -> None:
    problem = Problem.parse(text)
    assert folded(problem) is problem


@pytest.mark.parametrize(
    "text",
    (
        "n1c3h32w32k16r16s16u16-f32",  # filters of many taps and few channels
        "n1c2h9w40k12r1s13p0x6u1x3-f32-nhwc+bias",
        "n2c3h14w15k20r7s5u7x5-f32-nchw2nhwc",
    ),
)
@pytest.mark.parametrize("device", EMULATED_AND_GPU)
def test_columns_of_many_taps(text: str, device: str, runtime: Runtime) -> None:
    problem, kind = Problem.parse(text), family_of("im2col")
    for config in _configs(kind, problem, runtime):
        agrees(Plan.make(runtime, problem, config))
