"""The narrow family: last layers in f32 on CUDA cores, in all shapes, layouts and epilogues."""

from __future__ import annotations

import pytest
from here import EMULATED_AND_GPU, agrees, verified
from test_gpu_path import runtime

from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.plans.plan import Plan
from tilewright.problem import Problem

__all__ = ["runtime"]  # a fixture

KIND = family_of("narrow")
BASE = dict(combine=0, th=4, tw=4, depth=3, bw=8, split=1, warps=1, mb=4)
LAYERS = (
    ("n1c32h12w20k1r5s5p2-f32", dict(bw=4, depth=4)),
    ("n2c16h9w36k3r3s3p1-f32+bias+relu", {}),
    ("n1c12h9w17k3r3s3p1-f32+silu", {}),  # rows that are no whole runs
    ("n1c10h10w21k4r3s3p1-f32+add0.5", dict(th=2, depth=4)),
    ("n1c32h10w72k2r3s3p1-f32", dict(bw=16, split=4, warps=4, mb=1)),
    ("n1c32h11w160k3r3s3p1-f32", dict(th=8, depth=5, bw=32, warps=2)),  # a row of a warp
    ("n1c6h5w300k2r3s3p1-f32", dict(bw=64, warps=2)),  # of two warps
    ("n1c24h13w40k5r3s3p1-f32-nchw2nhwc+bias", dict(th=3, depth=5)),
    ("n1c16h20w48k1r5s3p2x1-f32", dict(tw=8, depth=8, bw=4)),
    ("n1c8h7w33k3r1s9p0x4-f32", dict(th=2, depth=2, bw=4)),
    ("n1c24h40w3k2r9s1p4x0-f32", dict(th=2, depth=5, bw=4)),
    ("n1c8h9w24k2r3s3p0.2.1.0-f32", dict(depth=6)),
    ("n1c8h9w24k2r3s3p4x2-f32", dict(tw=8, depth=2, bw=4)),
    ("n2c16h9w24k2r2s4p1.0.0.3-f32", dict(th=5, bw=4)),
    ("n1c64h9w20k1r1s1-f32", dict(depth=2, bw=4)),  # one tap
    ("n1c32h12w20k2r3s3p1-f32+bias+relu+maxpool2", dict(combine=2, bw=4)),
    ("n1c32h13w24k2r3s3p1-f32+maxpool3u2p1", dict(combine=2)),
)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS)
def test_last_layers(text: str, change: dict[str, int], device: str, runtime: object) -> None:
    plan = Plan.make(runtime, Problem.parse(text), Config.make("narrow", BASE | change))
    agrees(plan)
    agrees(plan, shift=4)  # and where arrays are not aligned


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS[::2])
def test_a_nan_stays_with_the_outputs_that_it_belongs_to(
    text: str, change: dict[str, int], device: str, runtime: object
) -> None:
    """With NaN and infinity in x, then in w, in full: an infinite tap meets zeros beside the image."""
    verified(runtime, Problem.parse(text), Config.make("narrow", BASE | change))
