"""What answers are checked with: inputs, the bound, and what compares them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from every_activation import WORDS, activated
from verify_samples import PROBLEM

from tilewright.checking.compare import compare, differences
from tilewright.checking.inputs import exact_inputs, normal_inputs, stays_exact, with_nonfinite
from tilewright.checking.launcher import Launcher
from tilewright.dtypes import numpy_dtype
from tilewright.kernels.error_bound import ErrorBound, error_bound
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.untuned.reference import numpy_conv, numpy_pool
from tilewright.problem import DTYPES, Problem
from tilewright.runtime.base import Runtime

EXACT = {  # and the unit that all sums are whole multiples of, the mean of a window among them
    "n1c3h5w6k4r3s3p1-f32": 1, "n1c40000h2w2k2r1s1-f32": 1, "n1c2000000h1w1k1r1s1-f32": 1,
    "n1c3h9w9k4r3s3-f32+alpha0.125+bias+add-4+clamp-9:70+avgpool4": 2**-7,
    "n1c9h4w4k4r3s3-f16+bias+add": 1, "n1c9h4w4k4r3s3-bf16+relu+maxpool2": 1,
    "n1c9h4w4k4r3s3-f64+alpha0.0001220703125+add+avgpool2": 2**-15,
    "n1c99h4w4k4r3s3-i8+bias+add+relu": 1,
}  # fmt: skip


@pytest.mark.parametrize("text", EXACT)
def test_exact_inputs_are_exact(text: str) -> None:
    problem, unit = Problem.parse(text), EXACT[text]
    assert stays_exact(problem)
    data = exact_inputs(problem, 0)
    assert (data.z is None) == (not problem.epilogue.add)
    for array in (data.x, data.w, data.bias) + ((data.z,) if problem.epilogue.add else ()):
        wide = array.astype(np.float64)
        assert np.array_equal(wide, np.round(wide)) and np.any(wide)
    y, size = numpy_conv(problem, data.x, data.w, data.bias, data.z)
    bits = {"f64": 53, "i8": 31}.get(problem.dtype, 24)
    assert size.max() / unit <= 2**bits
    assert np.array_equal(y / unit, np.round(y / unit))


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("n1c131072h2w2k1r1s1-f32", 8), ("n1c131072h2w2k1r1s1-f32+avgpool2", 5),
        ("n1c131072h2w2k1r1s1-f32+maxpool2", 8), ("n1c262144h1w1k1r1s1-f32", 8),
        ("n1c262144h1w1k1r1s1-f32+add", 7), ("n1c262144h1w1k1r1s1-f32+bias", 7),
        ("n1c400000h1w1k1r1s1-f32", 6), ("n1c131072h2w2k1r1s1-f32+alpha-1+avgpool2", 5),
        ("n1c131072h2w2k1r1s1-f32+add-4+avgpool2", 5), ("n1c100000h1w1k1r1s1-f32+alpha4+bias", 6),
        ("n1c100000h1w1k1r1s1-f32+alpha4+add", 6), ("n1c12h1w1k1r1s1-f32+add9.5367431640625e-07", 1),
    ],
)  # fmt: skip
def test_integers_are_as_large_as_all_sums_stay_exact(text: str, most: int) -> None:
    """Sums of ``most`` squared, and all that is added, times a window of four, are at most 2^24."""
    problem = Problem.parse(text)
    assert abs(exact_inputs(problem, 0).x).max() == most and stays_exact(problem)


@pytest.mark.parametrize("text", [
    "n1c3h5w6k4r3s3-f32+silu", "n1c3h5w6k4r3s3-f32+add0.3", "n1c3h5w6k4r3s3-f32+avgpool3",
    "n1c3h5w6k4r3s3-f32+alpha1e-9+add", "n1c3h5w6k4r3s3-f32+alpha9.5367431640625e-07+add16+avgpool2",
    "n1c16000000h2w2k1r2s2-f32",
])  # fmt: skip
def test_what_cannot_stay_exact_is_known(text: str) -> None:
    problem = Problem.parse(text)
    assert not stays_exact(problem)
    if problem.x_elements < 1e6:
        assert abs(exact_inputs(problem, 0).x).max() >= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_have_the_dtypes_of_the_problem(dtype: str) -> None:
    problem = Problem.parse(f"n1c3h5w6k4r3s3p1-{dtype}+add")
    for data in (normal_inputs(problem, 1), exact_inputs(problem, 1)):
        assert data.x.dtype == data.w.dtype == numpy_dtype(dtype)
        assert data.z is not None and data.bias.dtype == data.z.dtype == numpy_dtype(problem.dtype_out)
        assert (data.x.shape, data.z.shape) == (problem.x_shape, problem.z_shape)
    x = normal_inputs(problem, 1).x
    assert np.unique(x).size > 40
    assert np.array_equal(x, x.astype(np.float32)) == (dtype != "f64"), "f64 has factors of 53 bits"


@pytest.mark.parametrize(("channels", "most"), [(66_000, 127), (67_000, 63), (400_000, 31)])
def test_i8_numbers_are_as_large_as_their_sums_fit_an_i32(channels: int, most: int) -> None:
    data = normal_inputs(Problem.parse(f"n1c{channels}h1w1k1r1s1-i8"), 1)
    assert data.x.min() == data.w.min() == (-128 if most == 127 else -most), "-128 has no opposite"
    assert data.x.max() == data.w.max() == most


@pytest.mark.parametrize("channels", [1, 16, 512, 67_000])
def test_sums_fill_an_i8_and_a_few_are_beyond_it(channels: int) -> None:
    """Of answers that are nearly all 0, or nearly all as large as can be, many wrong ones look right."""
    problem = Problem.parse(f"n1c{channels}h1w2k64r1s1-q8")
    data = normal_inputs(problem, 1)
    sums, _ = numpy_conv(problem, data.x, data.w, data.bias, data.z)
    y = abs(numpy_requantised(problem, sums, data.scale).astype(np.int64))
    assert 35 < np.median(y) < 75 and 0 < (y >= 127).mean() < 0.25


def rounded_chain(values: Any, dtype: Any) -> Any:
    """Sum one after the other, rounding each time."""
    total = np.zeros(values.shape[:-1], dtype)
    for i in range(values.shape[-1]):
        total = (total + values[..., i].astype(dtype)).astype(dtype)
    return total


@pytest.mark.parametrize("words", [
    "", "+bias+add-3", "+alpha0.3+bias+leaky-2", *WORDS, "+add+silu+avgpool3u1", "+clamp-1:1+maxpool3u2p1",
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_the_bound_holds_for_a_naive_sum(dtype: str, words: str) -> None:
    problem = Problem.parse(f"n1c50h8w8k9r1s1-{dtype}{words}")
    data, e = normal_inputs(problem, 2), problem.epilogue
    acc = np.float64 if dtype == "f64" else np.float32
    x, w, bias = (a.astype(acc) for a in (data.x, data.w, data.bias))
    v = rounded_chain(np.einsum("nchw,kcrs->nkhwc", x, w), acc) * acc(e.alpha)
    v = v + acc(e.beta) * data.z.astype(acc) if data.z is not None else v
    v = v + bias.reshape(-1, 1, 1) if e.bias else v
    v = activated(e, v)
    assert v.dtype == acc
    ref, size = numpy_conv(problem, data.x, data.w, data.bias, data.z)
    y = numpy_pool(problem, v, v)[0].astype(numpy_dtype(dtype))
    limits = error_bound(problem, 50)
    assert limits.allows(y, ref, size).all()
    assert not limits.allows(y + 4 * limits.of(ref, size) + 1e-3, ref, size).any()


def test_inputs_hang_on_the_seed() -> None:
    a, b, c = (normal_inputs(PROBLEM, seed) for seed in (1, 1, 2))
    assert np.array_equal(a.x, b.x) and not np.array_equal(a.x, c.x)
    assert a.x.dtype == np.float32 and a.x.shape == PROBLEM.x_shape


@pytest.mark.parametrize("size", [1, 2, 100])
def test_with_nonfinite(size: int) -> None:
    array = np.zeros((size, 1), np.float32)
    changed = with_nonfinite(array, 0)
    assert np.isnan(changed).sum() == 1
    assert np.isinf(changed).sum() == min(size - 1, 1)
    assert np.isfinite(array).all() and math.prod(changed.shape) == size


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("kind", "unlike"), [("f32", 5), ("f16", 5), ("f64", 5), ("f32-tf32", 1), ("f32-accurate", 1)]
)
def test_what_is_not_finite_is_compared_by_its_kind_in_strict(kind: str, unlike: int, cpu: Runtime) -> None:
    """By the kernel itself; three answers are right, and one is a number, which is wrong in any math."""
    problem = Problem.parse(f"n1c1h1w9k1r1s1-{kind}")
    y = np.array([INF, -INF, NAN, -INF, INF, NAN, INF, 1.0, 0.0], numpy_dtype(problem.dtype_out))
    ref = np.array([INF, -INF, NAN, INF, -INF, INF, NAN, 1.0, INF])
    launcher = Launcher(cpu)
    given = launcher.put(y), launcher.put(ref), launcher.put(np.ones(9))
    figures = compare(launcher, problem, *given, error_bound(problem, 1))
    assert (figures.missed, figures.nan, figures.inf, figures.unequal) == (unlike, 0, 0, 0)


def test_the_kernel_counts_what_is_wrong_and_how(cpu: Runtime) -> None:
    """Bounds are 0.75 here. From 65520 on an f16 is infinite, which is right there if the sign is."""
    problem, limits = Problem.parse("n1c1h1w8k1r1s1-f16"), ErrorBound(0.5, 0.0, 0.25, 65520.0)
    y = np.array([2.0, 2.75, 3.0, 1.0, INF, -INF, INF, NAN], np.float16)
    ref = np.array([2.0, 2.0, 2.0, 2.0, 65519.5, 65519.5, 60000.0, 1.0])
    launcher = Launcher(cpu)
    given = launcher.put(y), launcher.put(ref), launcher.put(np.ones(8))
    found = compare(launcher, problem, *given, limits)
    assert (found.over, found.unequal, found.nan, found.inf, found.missed) == (2, 7, 1, 2, 0)
    assert (found.worst, found.bound, found.max_error) == (1 / 0.75, 0.75, 1.0)


def test_an_error_of_any_size_is_a_finite_multiple_of_its_bound(cpu: Runtime) -> None:
    """Records are JSON, which has no infinity."""
    problem, launcher = Problem.parse("n1c1h1w1k1r1s1-f64"), Launcher(cpu)
    one, zero = launcher.put(np.ones(1)), launcher.put(np.zeros(1))
    found = compare(launcher, problem, one, zero, zero, error_bound(problem, 1))
    assert found.over == 1 and 1e100 < found.worst < math.inf


def test_few_threads_look_at_all_elements(cpu: Runtime) -> None:
    problem, launcher = Problem.parse("n1c1h1w10007k1r1s1-f32"), Launcher(cpu)
    zeros, ones, ref = (launcher.put(np.full(10007, n, t)) for n, t in ((0, "f4"), (1, "f4"), (0, "f8")))
    assert compare(launcher, problem, ones, ref, ref, error_bound(problem, 1)).over == 10007
    assert differences(launcher, problem, zeros, ones) == 10007
