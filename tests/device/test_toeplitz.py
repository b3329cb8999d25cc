"""The toeplitz family: depthwise layers on tensor cores, in all shapes, layouts and epilogues."""

from __future__ import annotations

import numpy as np
import pytest
from here import EMULATED_AND_GPU, agrees, computed, numbers
from test_gpu_path import runtime

from tilewright.kernels.family import Config
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans.plan import Plan
from tilewright.problem import Problem

__all__ = ["runtime"]  # a fixture

BASE = dict(cb=8, th=16, wb=1, warps=2, mb=1, combine=0)
LAYERS = (
    ("n1c8h9w7k8r3s3p1g8-f16-nhwc", {}),
    ("n2c16h14w14k16r7s7p3g16-f16-nhwc+bias+relu", dict(cb=16, th=16, wb=2, warps=4)),
    ("n1c32h20w56k32r7s7p3g32-bf16-nhwc+silu", dict(cb=32, th=16, wb=7, warps=8)),
    ("n1c24h11w19k24r5s5p2g24-f16-nhwc+bias+add0.5", dict(wb=3, warps=1)),
    ("n1c8h15w17k8r3s3p1u2g8-f16-nhwc", dict(wb=2)),  # stride 2: every other piece of a row
    ("n1c8h15w41k8r5s5p2u2x3g8-bf16", dict(wb=2)),
    ("n1c6h13w21k6r3s5p2.1.0.3d2x3g6-f16+bias", dict(cb=2, th=16, wb=2)),  # dilated, uneven pads
    ("n2c5h9w37k5r9s11p4x5g5-f16+leaky0.1", dict(cb=1, wb=4, warps=1)),
    ("n1c4h33w40k4r31s31p15g4-f16", dict(cb=4, th=16, wb=3, warps=4)),
    ("n1c8h40w26k8r35s35p17g8-bf16-nhwc", dict(th=32, wb=3)),
    ("n1c8h1w64k8r1s31p0x15g8-f16-nhwc", dict(wb=8)),
    ("n1c8h20w9k8r31s1p15x0g8-f16", dict(wb=2)),
    ("n2c16h10w10k16r3s3p1g16-f16-nhwc2nchw+add", dict(wb=2)),
    ("n2c16h10w10k16r3s3p1g16-f16-nchw2nhwc+add", dict(wb=1)),
    ("n1c8h12w18k8r3s3p1g8-f16-nhwc+maxpool2", dict(wb=3, combine=2)),
    ("n1c8h12w18k8r3s3p1g8-f16+avgpool2", dict(cb=4, wb=3, combine=2)),
    ("n2c16h14w14k16r7s7p3g16-i8-nhwc", dict(cb=16, th=16, wb=2, warps=4)),
    ("n2c16h14w15k16r7s7p3g16-i8-nhwc+bias+relu+requant", dict(cb=16, th=16, wb=2, warps=4)),
    ("n1c8h40w26k8r32s32p16g8-i8-nhwc+requant", dict(th=32, wb=3)),  # as many products as give whole sums
    ("n1c5h33w37k5r31s31p15g5-i8+bias", dict(cb=1, wb=3, warps=1)),
    ("n1c6h13w21k6r3s5p2.1.0.3d2x3g6-i8+bias+requant", dict(cb=2, th=16, wb=2)),
    ("n2c16h10w10k16r3s3p1g16-i8-nhwc2nchw+add", dict(wb=2)),
    ("n2c16h10w10k16r3s3p1g16-i8-nchw2nhwc+bias+requant", dict(wb=1)),
    ("n1c8h12w18k8r3s3p1g8-i8-nhwc+maxpool2+requant", dict(wb=3, combine=2)),
    ("n2c16h14w14k16r7s7p3g16-f8-nhwc+bias+silu", dict(cb=16, th=16, wb=2, warps=4)),
    ("n1c4h33w40k4r31s31p15g4-f8+bias", dict(cb=4, th=16, wb=3, warps=4)),
    ("n1c8h12w18k8r3s3p1g8-f8-nhwc+avgpool2", dict(wb=3, combine=2)),
    ("n2c16h14w14k16r7s7p3g16-tf32-nhwc+bias+relu", dict(cb=16, th=16, wb=2, warps=4)),
    ("n1c32h20w56k32r7s7p3g32-tf32-nhwc+silu", dict(cb=16, th=16, wb=7, warps=8)),
    ("n1c8h15w17k8r3s3p1u2g8-tf32-nhwc", dict(wb=2)),
    ("n1c8h15w41k8r5s5p2u2x3g8-tf32+add0.5", dict(wb=2)),
    ("n1c6h13w21k6r3s5p2.1.0.3d2x3g6-tf32+bias", dict(cb=2, th=16, wb=2)),
    ("n1c4h33w40k4r31s31p15g4-tf32", dict(cb=4, th=16, wb=3, warps=4)),
    ("n1c8h40w26k8r19s35p9x17g8-tf32-nhwc", dict(th=32, wb=3)),
    ("n2c16h10w10k16r3s3p1g16-tf32-nhwc2nchw+add", dict(wb=2)),
    ("n2c16h10w10k16r3s3p1g16-tf32-nchw2nhwc+add", dict(wb=1)),
    ("n1c8h12w18k8r3s3p1g8-tf32-nhwc+maxpool2", dict(wb=3, combine=2)),
)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS)
def test_depthwise_layers(text: str, change: dict[str, int], device: str, runtime: object) -> None:
    plan = Plan.make(runtime, Problem.parse(text), Config.make("toeplitz", BASE | change))
    agrees(plan)
    agrees(plan, shift=2)  # and where arrays are not aligned


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize("layout", ("-nhwc", ""))
def test_sums_of_the_largest_products_are_whole(layout: str, device: str, runtime: object) -> None:
    """1,024 products of -128 by -128 are 2^24; of numbers from all of i8 none is lost on the way either."""
    problem = Problem.parse(f"n1c8h34w40k8r32s32p1g8-i8{layout}+bias")
    data = numbers(problem)
    rng = np.random.default_rng(5)
    for name in "xw":
        data[name] = rng.integers(-128, 128, data[name].shape, np.int8)
    data["w"][:2] = -128
    np.moveaxis(data["x"], -1 if layout else 1, 1)[:, :2] = -128
    plan = Plan.make(runtime, problem, Config.make("toeplitz", BASE | dict(wb=2)))
    y = computed(plan, data["x"], data["w"], bias=data["bias"])
    expected, _ = numpy_conv(problem, data["x"], data["w"], data["bias"], None)
    assert expected.max() >= 2**24 - 4
    np.testing.assert_array_equal(y, expected)
