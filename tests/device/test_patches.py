"""Filters that do not overlap along a row, as fewer columns of more channels (kernels/fold.py)."""

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
AS_THEY_ARE = (
    "n1c3h8w13k20r4s4u4-f16-nhwc",  # a row ends inside a patch
    "n1c3h8w12k20r4s4u4p0x2-f16-nhwc",
    "n1c8h8w12k16r4s4u4g2-f16-nhwc",
    "n1c3h8w12k20r4s4u4-f16",  # few numbers, gathered without a copy
    "n1c12h14w10k40r7s5u7x5-accurate",  # the fallback reads x as it is
    "n1c64h1w4k20r1s4u1x4-f16",  # one pixel: channels that would be in another order
    "n1c8h8w12k16r4s4u3-f16-nhwc",
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
