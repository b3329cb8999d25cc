"""The grouped_mma family: small groups on tensor cores, in all shapes, dtypes and epilogues."""

from __future__ import annotations

import pytest
from here import EMULATED_AND_GPU, agrees
from test_gpu_path import runtime

from tilewright.kernels.family import Config
from tilewright.plans.plan import Plan
from tilewright.problem import Problem

__all__ = ["runtime"]  # a fixture

BASE = dict(combine=0, nt=1, wn=1, bw=1, tw=8, pt=1, th=2, wm=1, mb=4)
LAYERS = (
    ("n1c16h9w7k16r3s3p1g2-f16-nhwc", {}),
    ("n2c32h11w13k32r3s3p1g4-f16-nhwc+bias+relu", dict(wn=2, bw=2, tw=16, pt=3, th=6)),
    ("n1c64h10w9k64r3s3p1g16-bf16-nhwc+silu", dict(wn=4, bw=2, pt=2, th=4)),  # two groups of 4 to a bundle
    ("n1c32h9w12k32r5s5p2g32-f16-nhwc+bias+add0.5", dict(wn=4, tw=16, pt=2)),  # eight depthwise channels
    ("n1c48h8w9k48r3s3p1g2-f16-nhwc", dict(nt=3, wn=2, pt=2, th=8, wm=2, mb=1)),  # 24 channels
    ("n1c32h8w9k64r3s3p1g2-f16-nhwc+bias", dict(nt=2, wn=4, tw=16, pt=4, th=8, mb=2)),  # 16 to 32 channels
    ("n1c24h17w15k48r3s3p1u2g3-f16-nhwc", dict(nt=2, wn=3, th=4)),  # odd numbers of pieces of a pixel
    ("n1c32h17w15k32r3s3p1u2g4-f16-nhwc", dict(wn=4, pt=2, th=4)),
    ("n2c32h13w21k32r3s5p2.1.0.3d2x3g4-bf16-nhwc", dict(bw=2, tw=16, pt=3, th=6)),  # dilated, uneven pads
    ("n1c16h21w20k16r4s5p2u3x2g2-f16-nhwc+leaky0.1", dict(wn=2, tw=16, pt=2, th=4, wm=2)),
    ("n1c64h9w8k64r1s1u2g8-f16-nhwc", dict(wn=8, th=4)),
    ("n1c16h1w60k16r1s9p0x4g2-f16-nhwc", dict(tw=32, th=1, wm=2)),
    ("n1c32h9w13k32r3s3p1g4-f16-nhwc+bias+add", dict(bw=4, pt=2, th=4)),  # runs exchanged among four bundles
    ("n1c64h7w9k64r3s3p1g4-bf16-nhwc+relu", dict(nt=2, bw=2, wm=2, th=4, mb=2)),  # runs of two words
    ("n1c128h7w9k128r3s3p1g8-i8-nhwc+bias+requant", dict(nt=2, bw=4, th=4, mb=2, wm=2)),
    ("n1c64h9w11k64r3s3p1g4-i8-nhwc+bias", dict(nt=2, wn=2, bw=2, th=4)),
    ("n1c64h9w11k64r3s3p1g8-i8-nhwc+bias+relu+requant", dict(nt=2, wn=2, bw=2, tw=16, pt=2, th=4)),
    ("n1c32h9w11k32r3s3p1u2g8-i8-nhwc+requant", dict(nt=2, th=4)),
    ("n1c64h9w11k64r3s3p1g2-i8-nhwc+add", dict(nt=2, wn=4, pt=4, th=8)),
    ("n1c32h11w14k32r3s3p1g4-f16+bias+relu", dict(wn=2, bw=2, tw=16, pt=3, th=6)),
    ("n2c32h9w13k32r3s3p1g8-bf16+add", dict(wn=2, pt=2, th=4)),  # odd rows: number by number
    ("n1c24h17w16k48r3s5p1x3u2g3-f16", dict(nt=2, wn=3, th=4)),
    ("n1c32h13w22k32r3s3p2.1.0.3d2x3u1x3g4-f16-nchw2nhwc+silu", dict(bw=2, th=4)),
    ("n2c32h12w10k32r3s3p1g4-f16-nhwc2nchw+bias", dict(bw=4, pt=2, th=4)),
    ("n1c64h9w12k64r3s3p1g4-i8+bias", dict(nt=2, wn=2, bw=2, th=4)),
    ("n1c64h9w10k64r3s3p1g8-i8+relu+requant", dict(nt=2, wn=2, tw=16, pt=2, th=4)),
    ("n1c32h12w18k32r3s3p1g4-f16+maxpool2", dict(bw=2, tw=16, th=3, combine=2)),
    ("n1c32h12w18k32r3s3p1g4-f16-nhwc+maxpool2", dict(bw=2, tw=16, th=3, combine=2)),
    ("n1c64h12w18k64r3s3p1g4-i8-nhwc+bias+maxpool2+requant", dict(nt=2, bw=2, th=4, combine=2)),
)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS)
def test_layers_of_groups(text: str, change: dict[str, int], device: str, runtime: object) -> None:
    plan = Plan.make(runtime, Problem.parse(text), Config.make("grouped_mma", BASE | change))
    agrees(plan)
    agrees(plan, shift=2 if plan.problem.dtype in ("f16", "bf16") else 1)  # and where arrays are not aligned
