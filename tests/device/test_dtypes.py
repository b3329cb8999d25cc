"""The families of every dtype: their kernels for a CPU as users run them, and those for a GPU by PoCL.

Sums of small integers are exact in each dtype, so answers are compared bit by bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from here import agrees
from test_gpu_path import _configs
from test_gpu_path import runtime as gpu_facts

from tilewright.checking.inputs import normal_inputs
from tilewright.dtypes import numpy_dtype
from tilewright.kernels import family_of
from tilewright.kernels.family import Config, Family
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["gpu_facts"]  # a fixture

DIRECT = family_of("direct")
SHAPES = (  # {} stands for the dtype
    "n1c1h1w1k1r1s1-{}",
    "n2c7h13w11k17r3s3p1-{}",  # primes: tails in every dimension, and in the words of i8
    "n2c19h13w11k17r3s3p1-{}-nhwc+bias+add+relu",
    "n1c32h7w9k20r3s3p2-{}-nchw2nhwc+bias",
    "n1c37h5w5k41r1s1-{}-nhwc2nchw+add+relu",
    "n1c64h7w8k64r1s1-{}+bias",  # rows of aligned quads
    "n2c24h7w9k33r1s1u2-{}-nhwc+add",
    "n1c128h7w9k32r3s3p1-{}-nhwc",  # words of four channels, four at once
    "n1c64h6w7k64r3s3p1-{}+add",
    "n1c16h9w12k21r3s3p1-{}+relu+maxpool2",  # no tile of channels is whole at the end
    "n1c24h12w13k41r1s1-{}-nhwc2nchw+bias+maxpool3u2p1",
    "n2c12h15w9k18r5s3p2x1u2x1g2-{}-nhwc+bias+relu+maxpool3u2",
    "n1c6h12w10k12r3s3p2d2g2-{}",
    "n1c10h9w8k8r3s2p1.0.0.2u3-{}-nchw2nhwc",
    "n5c96h1w1k33r1s1-{}+bias",
    "n19c48h1w1k33r1s1-{}+bias+add+relu",  # images of one pixel share tiles on a CPU
    "n7c24h1w1k18r1s1g3-{}+bias",
    "n6c10h5w3k21r5s3-{}+bias",  # and so do those under a filter over all of them
)
OF_OTHER_FAMILIES = (
    ("grouped", "n2c8h9w7k8r3s3p1g8-{}+bias"),  # depthwise
    ("grouped", "n2c6h19w37k6r3s5p1.2.3.0u2x2d1x2g6-{}+bias+add+relu"),  # over columns
    ("grouped", "n1c9h7w41k12r2s3p2u1x3g3-{}+relu"),
    ("grouped", "n1c10h12w18k10r3s3p1g10-{}+bias+maxpool2"),
    ("grouped", "n1c24h11w12k24r3s3p1u2g24-{}-nhwc+relu"),
    ("grouped", "n1c24h8w9k24r3s3p2d2g12-{}-nchw2nhwc+add"),
    ("grouped", "n2c16h7w8k24r3s2p1.0.0.1g4-{}-nhwc+maxpool2"),
    ("grouped", "n1c21h7w8k12r3s3p1g3-{}-nhwc2nchw"),
    ("gemv", "n3c7h3w5k20r3s5-{}"),
    ("gemv", "n4c130h1w1k9r1s1-{}+bias"),
    ("gemv", "n1c1000h1w1k70r1s1-{}+add+relu"),
)
OVER_CHANNELS = (  # grouped on a CPU: vectors of them, tiles over rows and edges of the image
    ("n1c32h5w6k32r3s3p1g32-{}-nhwc+bias", 16, "th=2.tw=2"),
    ("n2c48h9w11k48r3s3p1g48-{}-nhwc+bias+add+relu", 16, "th=2.tw=4"),
    ("n1c16h12w17k16r3s5p2.0.1.3u2x3g16-{}-nhwc", 16, "th=1.tw=3"),
    ("n1c24h13w14k24r3s3p2d2g24-{}-nhwc+add+relu", 8, "th=3.tw=2"),
    ("n1c16h3w2k16r3s3p4g16-{}-nhwc", 16, "th=2.tw=2"),  # a tile wider than the image
    ("n1c16h10w9k16r3s3p1g16-{}-nhwc+bias+relu+maxpool2", 16, "th=2.tw=2"),
    ("n1c20h7w8k20r3s3p1g20-{}-nhwc+bias", 2, "th=2.tw=4"),
    ("n1c8h8w9k32r3s3p1g8-{}-nhwc+bias", 4, "th=2.tw=2"),  # four channels made of each
    ("n1c16h8w9k16r3s3p1g4-{}-nhwc+add", 4, "th=2.tw=2"),  # groups of four
    ("n1c9h8w9k24r3s3p1u2g3-{}-nhwc+bias", 8, "th=2.tw=2"),  # groups of three
    ("n1c8h8w20k32r3s3p1g4-{}-nchw2nhwc+bias+add", 8, "th=2.tw=2"),
    ("n1c8h8w20k32r3s3p1g2-{}-nhwc2nchw+bias", 4, "th=2.tw=2"),
)
OTHERS = ("n1c16h9w12k24r3s3p1-{}+alpha0.5+bias+add0.5+leaky0.5+avgpool2", "n1c48h9w8k20r3s3p1-{}-nhwc+silu")
FLOATS = ("f64", "f32", "f16", "bf16", "f8")  # of layers that integers do not take
CASES = [("direct", t) for t in SHAPES] + [("direct", t) for t in OTHERS] + [*OF_OTHER_FAMILIES]


def cases(device: int) -> list[tuple[str, str, str]]:
    """Each layer in every third dtype on a CPU (0), in every third for a GPU (1)."""
    return [
        (name, t, d) for i, (name, t) in enumerate(CASES) for j, d in enumerate(family_of(name).precisions)
        if (i + j) % 3 == device and (t not in OTHERS or d in FLOATS)
    ]  # fmt: skip


def _check(kind: Family, runtime: Runtime, problem: Problem) -> None:
    """Check a config, or two of a pool, also with pointers that are aligned to their elements alone."""
    for config in _configs(kind, problem, runtime)[: 2 if problem.epilogue.pool else 1]:
        plan = Plan.make(runtime, problem, config)
        agrees(plan)
        agrees(plan, shift=np.dtype(numpy_dtype(problem.dtype_out)).itemsize)


@pytest.mark.parametrize(("name", "text", "dtype"), cases(0))
def test_on_a_cpu(name: str, text: str, dtype: str, runtime: Runtime) -> None:
    _check(family_of(name), runtime, Problem.parse(text.format(dtype)))


@pytest.mark.parametrize("text", SHAPES)
def test_i8_on_a_cpu_that_multiplies_no_bytes(
    text: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not runtime.device.byte_dots:
        pytest.skip("test_on_a_cpu does the like")
    monkeypatch.setattr(runtime, "device", replace(runtime.device, byte_dots=False))
    _check(DIRECT, runtime, Problem.parse(text.format("i8")))


@pytest.mark.parametrize(("x", "w"), [(-128, -128), (-128, 127), (127, -128), (127, 127)])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_largest_bytes_are_summed_right(x: int, w: int, layout: str, runtime: Runtime) -> None:
    """Cores multiply bytes without a sign by bytes with one, and so x + 128."""
    problem = Problem.parse(f"n1c1021h4w5k24r3s3p1-i8-{layout}")
    for config in _configs(DIRECT, problem, runtime):
        plan = LayerPlan(Plan.make(runtime, problem, config))
        y = plan(np.full(problem.x_shape, x, np.int8), plan.pack(np.full(problem.w_shape, w, np.int8)))
        pixel = y[0, :, 1, 2] if layout == "nchw" else y[0, 1, 2]
        corner = y[0, :, 0, 0] if layout == "nchw" else y[0, 0, 0]
        assert (pixel == 9 * 1021 * x * w).all() and (corner == 4 * 1021 * x * w).all(), config


@pytest.mark.parametrize(("name", "text", "dtype"), cases(1))
def test_for_a_gpu(name: str, text: str, dtype: str, gpu_facts: Runtime) -> None:
    _check(family_of(name), gpu_facts, Problem.parse(text.format(dtype)))


@pytest.mark.parametrize(("text", "v", "tile", "dtype"), [
    (*case, dtype) for i, case in enumerate(OVER_CHANNELS)
    for j, dtype in enumerate(family_of("grouped").precisions) if (i + j) % 2
])  # fmt: skip
def test_vectors_over_channels_on_a_cpu(dtype: str, text: str, v: int, tile: str, runtime: Runtime) -> None:
    """Its own loads and stores of many elements are not to be relied on: ours take any kind of them."""
    problem, lanes = Problem.parse(text.format(dtype)), runtime.device.lanes // (2 if dtype == "f64" else 1)
    combine = 2 if problem.epilogue.pool else 0
    config = Config.parse(f"grouped:combine={combine}.mb=1.{tile}.threads=1.v={min(v, lanes)}")
    plan = Plan.make(runtime, problem, config)
    agrees(plan)
    agrees(plan, shift=np.dtype(numpy_dtype(problem.dtype_out)).itemsize)


@pytest.mark.parametrize("text", [
    "n1c8h9w12k24r3s3p1-f64+alpha0.3+add0.7+leaky0.1", "n1c24h9w12k24r3s3p1g24-f64+alpha-0.3+clamp-0.1:0.7",
])  # fmt: skip
def test_factors_of_f64_are_not_rounded_to_f32(text: str, runtime: Runtime, gpu_facts: Runtime) -> None:
    problem = Problem.parse(text)
    inputs = normal_inputs(problem, 5)
    want, size = numpy_conv(problem, inputs.x, inputs.w, None, inputs.z)
    for there in (runtime, gpu_facts):
        kinds = [DIRECT, family_of("grouped")] if problem.groups > 1 else [DIRECT]
        configs = [config for kind in kinds for config in _configs(kind, problem, there)]
        for config in [Config.parse("reference:v=1"), *configs]:
            plan = LayerPlan(Plan.make(there, problem, config))
            y = plan(inputs.x, plan.pack(inputs.w), None, inputs.z)
            assert (abs(y - want) <= 1e-14 * size).all(), config


@pytest.mark.parametrize(("dtype", "name"), [
    (dtype, name) for name in ("direct", "grouped") for dtype in family_of(name).precisions
])  # fmt: skip
def test_normal_numbers_and_the_verifier(name: str, dtype: str, runtime: Runtime) -> None:
    from tilewright.checking.verify import Verifier

    layer = {"direct": "n1c40h9w8k24r3s3p1", "grouped": "n1c48h9w10k48r3s3p1g48"}[name]
    problem = Problem.parse(f"{layer}-{dtype}-nhwc+bias+relu")
    verifier = Verifier(runtime, problem, 3)
    for config in _configs(family_of(name), problem, runtime):
        found = verifier.check(verifier.candidate(config), full=True)
        assert found.ok and found.exact, found.reason
