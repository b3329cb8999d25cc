"""What tf32, accurate, f8 and requantised i8 promise, on kernels for tensor cores that PoCL runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_gpu_path import _configs
from test_gpu_path import runtime as gpu_facts

import tilewright as tw
from tilewright.checking.verify import Verifier
from tilewright.dtypes import numpy_dtype
from tilewright.errors import ArrayError
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime

__all__ = ["gpu_facts"]  # a fixture

LAYER = Problem.parse("n1c64h7w6k24r3s3p1-f32-nhwc")
CONFIG = Config.make("mma", dict(
    x=0, l1=0, mt=1, nt=1, wm=2, wn=2, sb=1, mb=1, fd=1, chunks=8, stages=2, sc=1, sg=1, combine=0,
))  # fmt: skip
HOPPER = Config.make("hopper", dict(
    x=0, wm=1, wn=1, bn=16, mb=1, chunks=4, pieces=0, tall=0, batch=1, stages=2, xs=2, cm=1, sc=1, sg=1,
    combine=0,
))  # fmt: skip
HALVES = Config.make("hopper", HOPPER.values | dict(x=3, pieces=1))  # f32 in two of f16
each = pytest.mark.parametrize("config", [CONFIG, HOPPER, HALVES], ids=["mma", "hopper", "halves"])
KINDS = ("tf32", "accurate", "f8", "q8")


@pytest.fixture
def host() -> Runtime:
    """The CPU, by OpenCL or NumPy."""
    return open_runtime("cpu")


def _numbers(problem: Problem, seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(problem.x_shape, np.float32), rng.standard_normal(problem.w_shape, np.float32)


def _run(runtime: Runtime, problem: Problem, x: Any, w: Any, config: Config = CONFIG) -> Any:
    plan = LayerPlan(Plan.make(runtime, problem, config))
    return plan(x.astype(numpy_dtype(problem.stored)), plan.pack(w.astype(numpy_dtype(problem.stored))))


def _error(y: Any, x: Any, w: Any) -> float:
    """The largest error, as a share of the size of its output."""
    ref, size = numpy_conv(LAYER, x, w)
    return float((abs(y.astype(np.float64) - ref) / size).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["n1c40h7w8k24r3s3p1-{}-nhwc+bias+relu", "n2c30h6w7k20r3s3p1-{}"])
def test_the_verifier_takes_them(kind: str, text: str, gpu_facts: Runtime) -> None:
    problem = Problem.parse(text.format("f32")).with_dtype(kind)
    verifier, config = Verifier(gpu_facts, problem, 3), _configs(family_of("mma"), problem, gpu_facts)[0]
    found = verifier.check(verifier.candidate(config), full=True)
    assert found.ok and found.exact, (config, found.reason)
    assert found.worst < 0.7 and (found.worst > 0 or kind == "q8")


@pytest.mark.parametrize("kind", KINDS)
def test_every_device_has_a_kernel_and_says_which(kind: str, host: Runtime) -> None:
    problem = LAYER.with_dtype(kind)
    plan = tw.plan(problem, device="cpu")
    if host.device.backend == "opencl":
        assert plan.config.family == "direct"
        said = f"direct computes {kind} in f32, without tensor cores"
        assert (said in plan.note) == (kind != "q8")


@each
@pytest.mark.parametrize(
    ("first", "second"), [(1, 1), (2.0**-120, 1), (2.0**-60, 2.0**-50), (2.0**120, 2.0**-125)]
)
def test_accurate_is_as_good_as_strict_at_any_size(
    first: float, second: float, config: Config, gpu_facts: Runtime
) -> None:
    x, w = _numbers(LAYER)
    x, w = x * np.float32(first), w * np.float32(second)
    x[abs(x) < 2.0**-125] = 0  # but for denormal numbers
    w[abs(w) < 2.0**-125] = 0
    y = _run(gpu_facts, LAYER.with_dtype("accurate"), x, w, config)
    assert _error(y, x, w) < 3e-7
    strict = _run(gpu_facts, LAYER, x, w, _configs(family_of("direct"), LAYER, gpu_facts)[0])
    assert _error(y, x, w) < 2 * _error(strict, x, w) + 5e-8


@each
def test_accurate_takes_a_wide_range_at_once(config: Config, gpu_facts: Runtime) -> None:
    """Some channels are 2^40 times smaller than others, and some filters see these alone."""
    x, w = _numbers(LAYER)
    x[..., ::2] *= np.float32(2.0**-40)
    w[:12, 1::2] = 0
    assert _error(_run(gpu_facts, LAYER.with_dtype("accurate"), x, w, config), x, w) < 3e-7


@each
def test_accurate_keeps_what_is_not_finite(config: Config, gpu_facts: Runtime) -> None:
    x, w = _numbers(LAYER)
    x[0, 3, 3, 5], x[0, 0, 0, 2] = np.inf, np.nan
    x[0, 6, 5, 1] = 3.4e38  # near the largest
    w[:, 1] *= np.float32(0.01)
    w[3, 7, 1, 1], w[9, 11, 0, 2], w[10, 12, 1, 0] = -np.inf, np.inf, np.nan
    y, (ref, _) = _run(gpu_facts, LAYER.with_dtype("accurate"), x, w, config), numpy_conv(LAYER, x, w)
    assert np.array_equal(np.isnan(y), np.isnan(ref)) and np.array_equal(np.isinf(y), np.isinf(ref))
    assert np.array_equal(np.sign(y[np.isinf(y)]), np.sign(ref[np.isinf(ref)]))
    assert np.allclose(y[np.isfinite(ref)], ref[np.isfinite(ref)], rtol=1e-5, atol=1e-5)


def test_halves_keep_what_is_not_far_below_the_largest(gpu_facts: Runtime) -> None:
    """Down to 2^-28 of it all; beyond, see test_fallback.py. In w it is the output channel's."""
    problem, (x, w) = LAYER.with_dtype("accurate"), _numbers(LAYER)
    x[..., ::2] *= np.float32(2.0**-20)
    w[:12, 1::2] = 0  # sees the small channels alone
    w *= np.exp2(np.linspace(-90, 90, 24)).astype(np.float32)[:, None, None, None]
    assert _error(_run(gpu_facts, problem, x, w, HALVES), x, w) < 3e-7


def test_halves_keep_what_is_not_finite(gpu_facts: Runtime) -> None:
    """It does not count as the largest: the others are as accurate as without."""
    x, w = _numbers(LAYER)
    x, w = x * np.float32(1e-6), w * np.float32(1e4)
    x[0, 3, 3, 5], x[0, 0, 0, 2], x[0, 6, 0, 1] = np.inf, np.nan, -np.inf
    w[3, 7, 1, 1], w[9, 11, 0, 2], w[10, 12, 1, 0] = -np.inf, np.inf, np.nan
    y, (ref, size) = _run(gpu_facts, LAYER.with_dtype("accurate"), x, w, HALVES), numpy_conv(LAYER, x, w)
    assert np.array_equal(np.isnan(y), np.isnan(ref)) and np.array_equal(np.isinf(y), np.isinf(ref))
    assert np.array_equal(np.sign(y[np.isinf(y)]), np.sign(ref[np.isinf(ref)]))
    finite = np.isfinite(ref)
    assert (abs(y - ref)[finite] <= 3e-7 * size[finite]).all()


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0), (1e-42, 1e3), (2e-45, 3e38), (3e38, 1e-38)])
def test_halves_of_zeros_denormals_and_the_largest_numbers(
    first: float, second: float, gpu_facts: Runtime
) -> None:
    ones = [np.sign(v).astype(np.float32) for v in _numbers(LAYER)]
    x, w = ones[0] * np.float32(first), ones[1] * np.float32(second)
    y = _run(gpu_facts, LAYER.with_dtype("accurate"), x, w, HALVES)
    ref, size = numpy_conv(LAYER, x, w)
    assert (abs(y - ref) <= 1e-6 * size).all()


def test_tf32_rounds_its_factors_and_nothing_else(gpu_facts: Runtime) -> None:
    x, w = _numbers(LAYER)

    def rounded(v: Any) -> Any:
        return ((v.view(np.uint32) + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)

    y = _run(gpu_facts, LAYER.with_dtype("tf32"), x, w)
    assert 1e-5 < _error(y, x, w) < 2.0**-10
    assert _error(y, rounded(x), rounded(w)) < 1e-6
    assert np.array_equal(y, _run(gpu_facts, LAYER.with_dtype("tf32"), rounded(x), rounded(w)))


def test_f8_in_both_ways_is_the_same_but_for_the_order(gpu_facts: Runtime) -> None:
    x, w = _numbers(LAYER)
    problem = LAYER.with_dtype("f8")
    native = _run(gpu_facts, problem, x, w)
    wide = _run(gpu_facts, problem, x, w, Config.make("mma", CONFIG.values | dict(x=3)))
    assert native.dtype == np.float16
    assert np.allclose(native.astype(np.float32), wide.astype(np.float32), rtol=2e-3, atol=1e-3)


def test_every_e4m3_becomes_its_f16(host: Runtime) -> None:
    x = np.arange(256, dtype=np.uint8).view(numpy_dtype("f8")).reshape(1, 1, 16, 16)
    w = np.ones((1, 1, 1, 1), numpy_dtype("f8"))
    y = tw.conv2d(x, w)
    assert y.dtype == np.float16
    assert np.array_equal(y, x.astype(np.float16), equal_nan=True)


def test_requantised_halves_go_to_the_even_number(host: Runtime) -> None:
    x = np.arange(-100, 100, dtype=np.int8).reshape(1, 1, 10, 20)
    w = np.array([1, 1, 3], np.int8).reshape(3, 1, 1, 1)
    scale = np.array([0.5, 0.25, 1.0], np.float32)
    y = tw.conv2d(x, w, scale=scale)
    want = np.clip(np.rint(np.float32(x) * (scale * [1, 1, 3]).astype("f").reshape(3, 1, 1)), -128, 127)
    assert y.dtype == np.int8 and y.min() == -128 and y.max() == 127
    assert np.array_equal(y, want.astype(np.int8))


def test_scale_is_wanted_where_it_belongs(host: Runtime) -> None:
    x, w = np.ones((1, 4, 5, 5), np.int8), np.ones((8, 4, 3, 3), np.int8)
    plan = tw.plan("n1c4h5w5k8r3s3-i8+requant", device="cpu")
    packed = plan.pack(w)
    assert plan(x, packed, scale=np.full(8, 0.5, np.float32)).dtype == np.int8
    with pytest.raises(ArrayError, match="scale: is missing"):
        plan(x, packed)
    with pytest.raises(ArrayError, match="scale: dtype float64 was given; must be float32"):
        plan(x, packed, scale=np.ones(8))
    with pytest.raises(ArrayError, match=r"scale: shape \(3,\) was given; must be \(8,\)"):
        plan(x, packed, scale=np.ones(3, np.float32))
    with pytest.raises(ArrayError, match="scale: is for int8 layers only, but x is float32"):
        tw.conv2d(x.astype("f"), w.astype("f"), scale=np.ones(8, np.float32))


@pytest.mark.parametrize("math", ["tf32", "accurate"])
def test_math_is_asked_for_by_name(math: str, host: Runtime) -> None:
    x, w = _numbers(LAYER)
    y = tw.conv2d(x, w, padding=1, layout="nhwc", math=math)
    assert _error(y, x, w) < 1e-6
    with pytest.raises(tw.ProblemError, match="math='fast': must be one of strict, tf32, accurate"):
        tw.conv2d(x, w, padding=1, layout="nhwc", math="fast")
    with pytest.raises(tw.ProblemError, match=f"math='{math}' needs dtype f32, got f16"):
        tw.conv2d(x.astype(np.float16), w.astype(np.float16), layout="nhwc", math=math)
