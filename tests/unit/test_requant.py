"""Requantised sums in NumPy: what requant.h does on a device, bit by bit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tilewright as tw
from tilewright.kernels.requant import numpy_requantised
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

SUMS = np.array([0, 5, -5, 7], np.int8)


@pytest.mark.parametrize(
    ("scale", "want"),
    [(0.5, (0, 2, -2, 4)), (np.nan, (-128,) * 4), (np.inf, (-128, 127, -128, 127)),
     (-np.inf, (-128, -128, 127, -128)), (3e38, (0, 127, -128, 127))],
)  # fmt: skip
def test_a_scale_that_is_not_finite_gives_what_requant_h_says(scale: float, want: tuple[int, ...]) -> None:
    problem = Problem.parse("n1c1h1w4k1r1s1-i8+requant")
    factors = np.array([scale], np.float32)
    x, w = SUMS.reshape(problem.x_shape), np.ones(problem.w_shape, np.int8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for dtype in (np.int64, np.float64):
            assert tuple(numpy_requantised(problem, x.astype(dtype), factors).flat) == want
        assert tuple(tw.conv2d(x, w, scale=factors, device="numpy").flat) == want


def test_a_kernel_clamps_it_too(cpu: Runtime) -> None:
    """As docs/numerics.md says: nobody looks at the scales before it runs."""
    x, w = SUMS.reshape(1, 1, 1, 4), np.ones((3, 1, 1, 1), np.int8)
    y = tw.conv2d(x, w, scale=np.array([np.nan, np.inf, -np.inf], np.float32), device="opencl")
    assert y.reshape(3, 4).tolist() == [[-128] * 4, [-128, 127, -128, 127], [-128, -128, 127, -128]]
