"""The kn2row family: last layers on tensor cores, in all shapes, layouts and epilogues."""

from __future__ import annotations

import random
from typing import Any

import pytest
from here import EMULATED_AND_GPU, agrees, verified
from test_gpu_path import runtime

from tilewright.device import for_architecture
from tilewright.errors import EmptySpace
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.search import space
from tilewright.search.space import Space

__all__ = ["runtime"]  # a fixture

KIND = family_of("kn2row")
BASE = dict(combine=0, th=4, tw=14, rb=2, vx=1, pt=1, f=1, split=1, warps=2, mb=2)
LAYERS = (
    ("n1c32h12w20k1r5s5p2-f16-nhwc", dict(tw=12)),  # one chunk of channels
    ("n2c40h9w17k3r3s3p1-f16-nhwc+bias+relu", {}),  # channels past the last whole chunk
    ("n1c12h9w17k3r3s3p1-bf16-nhwc+silu", {}),  # pixels that are no whole 16 bytes
    ("n1c64h10w21k4r3s3p1-f16-nhwc+add0.5", dict(tw=21, f=0, pt=2)),
    ("n1c128h10w24k2r3s3p1-bf16-nhwc", dict(tw=22, split=4, warps=4, pt=2)),
    ("n1c64h11w13k3r3s3p1-f16-nhwc", dict(th=11, tw=13, rb=12, warps=4)),  # a tile in a single step
    ("n1c32h13w20k5r3s3p1-f16-nhwc2nchw+bias", dict(rb=3, pt=4, warps=2)),
    ("n1c32h20w24k1r5s3p3x2d2x3-f16-nhwc", dict(th=8, tw=10, rb=3)),  # dilated
    ("n1c16h9w22k8r3s3p1-f16-nhwc+bias", dict(rb=3)),
    ("n1c8h7w33k3r1s9p0x4-f16-nhwc", dict(tw=24, th=7, rb=3)),
    ("n1c24h40w3k2r9s1p4x0-f16-nhwc", dict(tw=3, th=8, rb=4)),
    ("n1c64h9w17k3r3s3p1-i8-nhwc", {}),
    ("n2c80h9w17k3r3s3p1-i8-nhwc+bias+relu+requant", dict(f=0, pt=2)),
    ("n1c7h9w17k1r5s5p2-i8-nhwc", dict(tw=12)),
    ("n1c32h9w17k3r3s3p1-tf32-nhwc+bias", dict(pt=2)),
    ("n1c20h9w17k1r3s3p0-tf32-nhwc", dict(tw=14, f=0)),
    ("n2c40h10w24k3r3s3p1-f16+bias+relu", dict(vx=8, tw=16, pt=8, rb=4)),  # runs of eight pixels
    ("n1c32h10w20k1r5s5p2-f16", dict(vx=4, tw=16, pt=4, f=0)),  # of four
    ("n1c48h9w18k4r3s3p1-bf16+add", dict(vx=2, tw=12, pt=2)),  # of two
    ("n1c64h9w17k3r3s3p1-f16+silu", dict(tw=17, pt=4)),  # pixel by pixel
    ("n1c64h9w32k2r3s3p0-f16-nchw2nhwc+bias", dict(vx=8, tw=24, pt=8, split=2)),
    ("n1c80h10w24k3r3s3p1-i8+requant", dict(vx=8, tw=16, pt=8, rb=4)),
    ("n1c64h10w20k3r3s3p1-i8+bias", dict(vx=4, tw=16, pt=4, f=0)),
    ("n1c64h9w18k3r3s3p1-i8", dict(tw=18, pt=2)),
    ("n1c24h10w20k3r3s3p1-tf32+bias", dict(vx=4, tw=16, pt=4)),
    ("n1c24h10w18k3r3s3p1-tf32", dict(vx=2, tw=12, pt=2, split=2, warps=4)),
    ("n1c16h9w17k3r3s3p1-tf32", dict(tw=17, pt=1)),
    ("n2c32h9w20k3r7s7p3-f16-nhwc+bias", dict(tw=18)),  # rows of the filter are summed: too many taps
    ("n1c80h11w17k2r9s9p4-f16-nhwc+relu", dict(tw=16, rb=4, split=1, pt=2)),
    ("n1c32h11w20k3r7s7p3-f16-nhwc+bias", dict(tw=18, th=11, rb=6, f=0)),  # a row past the last of two
    ("n1c16h13w22k5r7s5p2x3d2-bf16-nhwc+add", dict(tw=16, f=0)),  # dilated, the filter in registers
    ("n1c64h12w20k3r7s7p3-i8-nhwc+bias+requant", dict(tw=20, th=12, rb=12)),
    ("n1c64h10w24k3r7s7p3-f16+bias", dict(vx=4, tw=24, pt=4, rb=4, warps=2)),
    ("n1c24h7w19k2r7s7p3-tf32+bias", dict(tw=18, pt=2)),
    ("n1c128h7w16k3r7s7p3-i8", dict(vx=4, tw=16, pt=4, split=2, rb=4, warps=2)),
    ("n1c32h12w20k2r3s3p1-f16-nhwc+bias+relu+maxpool2", dict(combine=2)),
    ("n1c32h13w24k2r3s3p1-f16+maxpool3u2p1", dict(vx=8, combine=2, tw=16, pt=8, rb=4)),
    ("n1c64h12w20k2r3s3p1-i8-nhwc+maxpool2+requant", dict(combine=2)),
)
WITH_NAN = tuple(layer for layer in LAYERS if "-i8" not in layer[0])[::2]


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS)
def test_last_layers(text: str, change: dict[str, int], device: str, runtime: object) -> None:
    plan = Plan.make(runtime, Problem.parse(text), Config.make("kn2row", BASE | change))
    agrees(plan)
    agrees(plan, shift=2 if plan.problem.dtype in ("f16", "bf16") else 4)  # and where arrays are not aligned


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), WITH_NAN)
def test_a_nan_stays_with_the_outputs_that_it_belongs_to(
    text: str, change: dict[str, int], device: str, runtime: object
) -> None:
    """Channels, taps and pixels past the last meet zeros: with NaN and infinity in x, in full."""
    verified(runtime, Problem.parse(text), Config.make("kn2row", BASE | change))


def test_a_space_without_configs_is_soon_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search of such a layer begins with it: 12 s, where room was the last thing asked."""
    asked = 0

    class Counted(space._MemoisedRule):
        def answer(self, known: dict[str, Any]) -> bool:
            nonlocal asked
            asked += 1
            return super().answer(known)

    monkeypatch.setattr(space, "_MemoisedRule", Counted)
    problem = Problem.parse("n1c512h128w128k10r3s3p1-tf32")
    with pytest.raises(EmptySpace):
        Space(KIND, problem, for_architecture("sm_90")).sample(random.Random(0))
    assert 0 < asked < 40_000, "15,499 with the early rules of one warp and one block, 110,435 without"
