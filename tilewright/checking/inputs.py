"""The data that candidates are checked on: exact integers, normal numbers, one NaN and one infinity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tilewright.dtypes import numpy_dtype
from tilewright.problem import Problem

Array = Any  # numpy.ndarray of the problem's dtypes

_MOST = 8  # of the integers: with sums this small a missing term shows, in bf16 too
# Up to where integers are added without rounding. Tensor cores keep some 14 bits of a sum of f8, but of
# 128 products at most.
_EXACT_SUMS = {"f64": 1 << 53} | dict.fromkeys(("i8", "q8"), (1 << 31) - 1)
_EXACT_SUMS |= dict.fromkeys(("f32", "f16", "bf16", "f8"), 1 << 24)


@dataclass(frozen=True, eq=False)
class Inputs:
    """Host arrays of one problem: x and w (kcrs) in its dtype, bias (K elements) and z in that of the sums.

    x and z have the problem's layouts. z is None where the problem adds none, scale (K f32) where nothing is
    requantised.
    """

    x: Array
    w: Array
    bias: Array
    z: Array | None = None
    scale: Array | None = None

    def given(self, problem: Problem) -> dict[str, Array]:
        """Return those that the problem has, by name."""
        return {name: getattr(self, name) for name in problem.operands if name != "y"}


def exact_inputs(problem: Problem, seed: int) -> Inputs:
    """Small integers, chosen so that every partial sum is exact in the accumulator, in any order.

    If there are none such (see ``stays_exact``), the smallest. Fast algorithms add sums of them; with random
    signs these stay far below the accumulator's limit, too.
    """
    import numpy as np

    rng = np.random.default_rng([seed, 1])
    most = max(1, _largest(problem))
    halving = _of_scales(seed).integers(-3, 1, problem.k)  # halves are rounded to even numbers
    scale = np.exp2(halving).astype(np.float32)

    def integers(dtype: str, *shape: int) -> Array:
        return rng.integers(-most, most, shape, dtype=np.int8, endpoint=True).astype(numpy_dtype(dtype))

    return _inputs(problem, integers, scale)


def sums_exact(problem: Problem) -> bool:
    """Whether every partial sum of ``exact_inputs`` is exact."""
    return _largest(problem) > 0


def stays_exact(problem: Problem) -> bool:
    """Whether the epilogue rounds nothing, either: then answers are compared bit by bit."""
    return problem.epilogue.exact and sums_exact(problem)


def _largest(problem: Problem) -> int:
    """Return the largest integer for the inputs; 0 if none keeps all sums exact.

    In units of the smallest factor, a sum with all that is added to it must be an integer that
    the accumulator can represent; so must the sum of a window of them, for its mean.
    """
    e, terms = problem.epilogue, problem.terms
    factors = [abs(e.alpha)] + [abs(e.beta)] * e.add + [1.0] * e.bias
    window = e.pool.size**2 if e.pool and e.pool.mode == "avg" else 1
    room = _EXACT_SUMS[problem.dtype]
    for most in range(_MOST, 0, -1):
        total = abs(e.alpha) * terms * most**2 + (abs(e.beta) + e.bias) * most
        if total / min(factors) * window <= room:  # no less than the sum alone
            return most
    return 0


def normal_inputs(problem: Problem, seed: int) -> Inputs:
    """Numbers of the standard normal distribution, rounded to the dtype; for i8 uniform over the whole range.

    i8 numbers are smaller if sums of so many terms would overflow an i32.
    """
    import numpy as np

    rng = np.random.default_rng([seed, 2])
    terms = problem.terms
    most = next(m for m in (127, 63, 31, 15, 7, 3, 1) if terms * m**2 < 1 << 30 or m == 1)
    least = -128 if most == 127 else -most

    def normal(dtype: str, *shape: int) -> Array:
        if dtype in ("i8", "i32"):
            return rng.integers(least, most, shape, dtype=np.int8, endpoint=True).astype(numpy_dtype(dtype))
        wide = np.float64 if dtype == "f64" else np.float32
        return rng.standard_normal(shape, dtype=wide).astype(numpy_dtype(dtype), copy=False)

    width = math.sqrt(terms) * most * (most + 1) / 3 / 64  # most sums are within 64, a few beyond 127
    scale = _of_scales(seed).uniform(0.5, 2.0, problem.k) / max(1.0, width)
    return _inputs(problem, normal, scale.astype(np.float32))


def _of_scales(seed: int) -> Any:
    import numpy as np

    return np.random.default_rng([seed, 4])


def _inputs(problem: Problem, make: Any, scale: Array) -> Inputs:
    """Make arrays of numbers for a problem, always in the same order."""
    dtype, added = problem.stored, problem.dtype_added
    x, w = make(dtype, *problem.x_shape), make(dtype, *problem.w_shape)
    bias = make(added, problem.k)
    z = make(added, *problem.z_shape) if problem.epilogue.add else None
    return Inputs(x, w, bias, z, scale if problem.requantised else None)


def with_nonfinite(array: Array, seed: int, corners: bool = False) -> Array:
    """Copy an array and put one NaN and one infinity in it (a NaN alone where there is one element).

    ``corners``: in the first and the last tap of a filter (kcrs), which meet the most padding, anywhere else.
    """
    import numpy as np

    rng = np.random.default_rng([seed, 3])
    flat = array.flatten()
    if corners:
        filters, taps = math.prod(array.shape[:2]), math.prod(array.shape[2:])
        first, last = rng.choice(filters, 2, replace=filters == 1)
        places = np.unique([first * taps, last * taps + taps - 1])
    else:
        places = rng.choice(flat.size, min(2, flat.size), replace=False)
    flat[places] = [np.nan, np.inf][: len(places)]
    return flat.reshape(array.shape)
