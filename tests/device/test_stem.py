"""The stem family: first layers on tensor cores, in all shapes, layouts and epilogues."""

from __future__ import annotations

import pytest
from here import EMULATED_AND_GPU, agrees, verified
from test_gpu_path import runtime

from tilewright.kernels.family import Config
from tilewright.plans.plan import Plan
from tilewright.problem import Problem

__all__ = ["runtime"]  # a fixture

BASE = dict(th=2, tw=16, kt=2, wn=1, pt=1, wm=2, f=1, mb=2, combine=0)
LAYERS = (
    ("n1c3h20w24k16r3s3p1-f16-nhwc", {}),  # runs that begin anywhere in a word
    ("n2c3h24w24k32r7s7p3u2-f16-nhwc+bias+relu", dict(tw=12, kt=4)),  # and all in the middle of one
    ("n1c3h24w40k24r3s3p1-bf16-nhwc+silu", dict(tw=40, kt=3, pt=4, f=0)),
    ("n1c3h13w17k21r5s5p2-f16-nhwc+add0.5", dict(tw=17, f=0, kt=3)),  # rows that are not whole words
    ("n1c1h30w32k64r9s9p4-f16-nhwc", dict(kt=4, wn=2, wm=2, th=4)),
    ("n1c4h16w16k40r3s3p1-f16-nhwc", dict(kt=5)),
    ("n1c3h32w32k32r4s4u4-f16-nhwc", dict(th=4, tw=8, kt=4, pt=2, wm=1, mb=4)),
    ("n1c3h31w27k8r11s11u4-f16-nhwc", dict(th=1, tw=5, kt=1, wn=1, wm=1, mb=4)),
    ("n1c3h20w24k32r3s3p1-i8-nhwc", dict(kt=4, pt=2, wm=1, mb=4)),
    ("n2c3h21w26k32r7s7p3u2-i8-nhwc+bias", dict(tw=13, kt=2, wn=2, f=0)),
    ("n1c3h20w24k32r3s3p1-i8-nhwc+bias+relu+requant", dict(kt=4)),
    ("n1c3h20w24k128r3s3p1-i8-nhwc+requant", dict(kt=16)),
    ("n1c1h19w23k13r3s3p1-i8-nhwc", {}),
    ("n1c3h20w24k16r3s3p1-tf32-nhwc+bias", {}),
    ("n2c3h22w26k16r7s7p3u2-tf32-nhwc", dict(tw=13, f=0)),
    ("n1c3h20w24k16r3s3p1-f16", dict(kt=1)),
    ("n2c3h21w30k40r7s7p3u2-f16+bias+relu", dict(tw=15, kt=3, pt=4, wm=1, mb=4)),
    ("n1c3h20w64k16r3s3p1-f16", dict(tw=32, kt=1, pt=4)),
    ("n1c3h20w64k16r3s3p1-i8+requant", dict(tw=32, kt=1, pt=8, wm=1, mb=4)),
    ("n1c2h20w20k35r3s3p1-tf32", dict(tw=20, kt=2, pt=2)),
    ("n1c3h20w24k24r3s3p1-f16-nhwc2nchw+add", dict(kt=2, pt=2, f=0)),
    ("n1c3h20w24k24r3s3p1-f16-nchw2nhwc+add", dict(kt=3, pt=2, wm=1, mb=4)),
    ("n1c5h14w19k17r3s1p2.1.0.1d3-bf16-nhwc", dict(tw=20, th=3, kt=1, wn=2)),
    ("n1c3h16w24k16r3s3p1-f16-nhwc+maxpool2", dict(combine=2)),
    ("n1c3h21w24k16r3s3p1-i8-nhwc+maxpool3u2p1+requant", dict(combine=2)),
    ("n1c64h9w10k24r1s1-f16-nhwc", dict(tw=10)),
    # rows of nchw that begin anywhere in a sector: lanes exchange runs
    ("n2c3h21w44k35r3s3p1u2-f16+bias+relu", dict(th=4, kt=2, pt=4, wm=1, mb=4)),
    ("n1c3h12w38k24r3s3p1-bf16+add0.5", dict(th=4, tw=32, kt=1, pt=8, wm=1, mb=4)),
    ("n1c3h12w38k40r3s3p1-f16+add", dict(th=3, tw=38, kt=3, pt=2, wm=1, mb=4, f=0)),
    ("n2c3h19w20k35r3s3p1-tf32+bias+silu", dict(th=4, tw=20, kt=2, pt=8, wm=1, mb=4)),
    ("n1c3h19w20k24r3s3p1-i8+bias", dict(th=4, tw=20, kt=2, pt=4, wm=1, mb=4)),
    ("n1c3h19w20k24r3s3p1-i8+requant", dict(th=4, tw=20, kt=2, pt=4, wm=1, mb=4)),
    ("n2c3h21w37k35r3s3u2-f16+bias+relu", dict(th=4, tw=16, kt=2, pt=4, wm=1, mb=4)),  # or of one number
    ("n1c3h13w37k24r3s3p1-bf16+add0.5", dict(th=3, tw=37, kt=1, pt=8, wm=1, mb=4)),
    ("n2c3h19w21k35r3s3p1-tf32+add+silu", dict(th=4, tw=21, kt=2, pt=4, wm=1, mb=4)),
    ("n1c3h19w21k24r3s3p1-i8", dict(th=5, tw=21, kt=2, pt=2, wm=2, mb=4)),
    ("n1c3h14w22k20r3s3p1-f16+maxpool3u2p1", dict(th=4, tw=22, kt=2, pt=4, wm=1, mb=4, combine=2)),
    ("n1c3h16w24k16r3s3p1-f16-nhwc+bias+relu+maxpool2", dict(th=4, tw=8)),  # pooled by the block itself
    ("n2c3h21w25k16r3s3p1-i8-nhwc+maxpool3u2p1+requant", dict(th=5, tw=9, wm=1, mb=4)),
    ("n1c3h23w30k18r7s7p3u2-f16-nhwc+add+maxpool3u2p1", dict(th=3, tw=9, kt=3, wm=1, mb=4)),
    ("n1c3h15w31k20r3s3p1-bf16+bias+avgpool2", dict(th=2, tw=31, kt=2, pt=2)),
    ("n1c3h15w24k20r3s3p1-f16-nhwc2nchw+maxpool3u2p1", dict(th=5, tw=24, kt=2, pt=4)),
    ("n1c2h14w16k16r3s3p1-i8+maxpool2+requant", dict(th=4, tw=8, kt=1, wm=2)),
    # a run of sums ends past its row
    ("n1c3h10w28k32r3s3p1-i8+maxpool2+requant", dict(th=3, tw=28, kt=1, pt=8, wm=1, mb=4)),
    ("n1c3h14w16k24r3s3p1-tf32-nhwc+silu+maxpool2", dict(th=4, tw=16, kt=3, wm=2)),
    # pooled by the thread that has all four sums
    ("n1c3h16w24k16r3s3p1-f16-nhwc+bias+relu+maxpool2", dict(th=4, tw=8, pt=2, wm=1, mb=4)),
    ("n2c3h17w27k21r3s3p1-bf16-nhwc+add+silu+maxpool2", dict(th=6, tw=14, kt=3, pt=4, wm=1, mb=4)),
    ("n1c3h18w30k32r3s3p1-i8-nhwc+bias+relu+maxpool2+requant", dict(th=6, tw=14, kt=4, pt=2)),
    ("n1c3h15w31k20r5s5p2-i8-nhwc+maxpool2", dict(th=2, tw=28, kt=2, pt=2, f=0, wm=1, mb=4)),
    ("n1c3h19w23k24r7s7p3u2-f16-nhwc+bias+avgpool2", dict(th=4, tw=8, kt=3, pt=2, wm=1, mb=4)),
    ("n2c1h14w16k24r3s3p1-tf32-nhwc+add0.5+relu+maxpool2", dict(th=4, tw=16, kt=3, pt=2)),
    ("n1c3h16w48k32r3s3p1-f16+bias+relu+maxpool2", dict(th=4, tw=16, kt=2, pt=4, wm=1, mb=4)),
    ("n1c3h15w37k20r3s3p1-bf16+add+maxpool2", dict(th=4, tw=14, kt=1, pt=4, wm=1, mb=4)),
    ("n2c2h14w32k16r3s3p1-i8+maxpool2+requant", dict(th=4, tw=16, kt=1, pt=8, wm=1, mb=4)),
    ("n1c3h18w20k24r3s3p1-f16-nhwc2nchw+silu+avgpool2", dict(th=6, tw=14, kt=2, pt=2, wm=1, mb=4)),
    # columns that are staged apart, for their banks
    ("n1c16h18w24k16r3s3p1-f16-nhwc+bias", dict(kt=2)),
    ("n1c32h17w19k20r3s2p1u2-i8-nhwc", dict(tw=10, kt=3, wm=1, mb=4)),
    ("n1c8h18w24k16r3s3p1-tf32-nhwc+relu+maxpool2", dict(tw=14, th=4, kt=2, pt=2, wm=1, mb=4)),
    # lanes that take words of several planes, or rows
    ("n1c6h20w24k16r3s3p1-f16", dict(kt=1)),
    ("n2c8h18w24k40r2s2u2-bf16+bias+relu", dict(tw=12, kt=3, pt=2, wm=1, mb=4)),
    ("n1c8h20w24k16r3s3p1-i8+requant", dict(kt=1, pt=2, wm=1, mb=4)),
    ("n1c3h16w32k24r4s4u4-f16-nhwc", dict(tw=8, kt=3, wm=1, mb=4)),
    ("n1c4h16w17k20r4s3p1d2x1-f16-nchw2nhwc+add", dict(tw=17, kt=3, f=0)),
    ("n1c2h18w21k16r2s1u2x1-tf32+maxpool2", dict(th=4, tw=14, kt=1, pt=2)),
    ("n1c4h11w16k16r1s5p0x2-f16", dict(kt=1)),
)
WITH_NAN = (  # of them: words hold numbers beside a run's taps, pools of every kind
    "n1c3h20w24k16r3s3p1-f16-nhwc",
    "n2c3h24w24k32r7s7p3u2-f16-nhwc+bias+relu",
    "n1c3h24w40k24r3s3p1-bf16-nhwc+silu",
    "n1c3h20w24k16r3s3p1-tf32-nhwc+bias",
    "n2c3h21w30k40r7s7p3u2-f16+bias+relu",
    "n1c3h16w24k16r3s3p1-f16-nhwc+maxpool2",
    "n1c3h16w24k16r3s3p1-f16-nhwc+bias+relu+maxpool2",
    "n1c3h23w30k18r7s7p3u2-f16-nhwc+add+maxpool3u2p1",
    "n2c3h17w27k21r3s3p1-bf16-nhwc+add+silu+maxpool2",
    "n1c3h16w48k32r3s3p1-f16+bias+relu+maxpool2",
    "n1c16h18w24k16r3s3p1-f16-nhwc+bias",
    "n1c6h20w24k16r3s3p1-f16",
    "n1c3h16w32k24r4s4u4-f16-nhwc",
    "n1c4h16w17k20r4s3p1d2x1-f16-nchw2nhwc+add",
)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS)
def test_first_layers(text: str, change: dict[str, int], device: str, runtime: object) -> None:
    plan = Plan.make(runtime, Problem.parse(text), Config.make("stem", BASE | change))
    agrees(plan)
    agrees(plan, shift=2 if plan.problem.dtype in ("f16", "bf16") else 4)  # and where arrays are not aligned


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), [layer for layer in LAYERS if layer[0] in WITH_NAN])
def test_a_nan_stays_with_the_outputs_that_it_belongs_to(
    text: str, change: dict[str, int], device: str, runtime: object
) -> None:
    """Words hold numbers beside a run's taps: with NaN and infinity in x, in full."""
    verified(runtime, Problem.parse(text), Config.make("stem", BASE | change))
