"""The data that candidates are checked on: exact integers, normal numbers, one NaN and one infinity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tilewright.problem import Problem

Array = Any  # numpy.ndarray of f32

_EXACT_SUM = 1 << 24  # f32 adds integers below this without rounding


@dataclass(frozen=True, eq=False)
class Inputs:
    """Host arrays of one problem: x and y's layouts are the problem's, w is kcrs, bias has K elements."""

    x: Array
    w: Array
    bias: Array


def exact_inputs(problem: Problem, seed: int) -> Inputs:
    """Small integers, chosen so that every partial sum is exact in f32, in whatever order."""
    import numpy as np

    rng = np.random.default_rng([seed, 1])
    terms = problem.cg * problem.r * problem.s
    most = max(1, min(8, math.isqrt((_EXACT_SUM - 8) // terms)))

    def integers(*shape: int) -> Array:
        return rng.integers(-most, most, shape, dtype=np.int8, endpoint=True).astype(np.float32)

    return Inputs(integers(*problem.x_shape), integers(*problem.w_shape), integers(problem.k))


def normal_inputs(problem: Problem, seed: int) -> Inputs:
    """Numbers of the standard normal distribution."""
    import numpy as np

    rng = np.random.default_rng([seed, 2])

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, dtype=np.float32)

    return Inputs(normal(*problem.x_shape), normal(*problem.w_shape), normal(problem.k))


def with_nonfinite(array: Array, seed: int) -> Array:
    """Copy an array and put one NaN and one infinity in it (a NaN alone where there is one element)."""
    import numpy as np

    rng = np.random.default_rng([seed, 3])
    flat = array.flatten()
    places = rng.choice(flat.size, min(2, flat.size), replace=False)
    flat[places] = [np.nan, np.inf][: len(places)]
    return flat.reshape(array.shape)
