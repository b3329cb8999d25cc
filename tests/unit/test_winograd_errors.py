"""Errors of minimal filtering along rows beside their bound, by NumPy in f32, where products are fewest."""

from __future__ import annotations

from functools import reduce
from itertools import chain
from math import ceil
from typing import Any

import numpy as np
import pytest

from tilewright.kernels.error_bound import error_bound
from tilewright.kernels.winograd.rows import FEWEST_PRODUCTS, FEWEST_ROWS, GROWTH, SIDES, TAPS
from tilewright.problem import Problem

PAIRS = {6: (0.75, 1.5), 8: (0.5, 1.0, 2.0), 10: (0.375, 0.75, 1.25, 2.25)}  # as in points.h
CASES = [(points, taps) for points in PAIRS for taps in TAPS if points + 1 - taps in SIDES]
OUTPUTS = 5_000


def transforms(points: int, taps: int) -> tuple[Any, Any, Any]:
    """Matrices of the input [points, points], the filter [points, taps] and the outputs [outputs, points]."""
    at = [0.0, *chain.from_iterable((one, -one) for one in PAIRS[points])]
    without = [[other for other in at if other != one] for one in at]
    factors = [reduce(lambda made, zero: np.convolve(made, (-zero, 1.0)), zeros, np.ones(1))
               for zeros in (*without, at)]  # fmt: skip
    inputs = np.array([np.pad(one, (0, points - len(one))) for one in factors])
    filters = np.array([[one**j / np.prod(one - np.array(zeros)) for j in range(taps)]
                        for one, zeros in zip(at, without, strict=True)] + [[0.0] * (taps - 1) + [1.0]])
    last = points - taps
    outputs = np.array([[one**j for one in at] + [float(j == last)] for j in range(last + 1)])
    return inputs, filters, outputs


def summed(terms: Any) -> Any:
    """Sum the last axis in f32, one after the other: products are rounded with their sum, as by an FMA."""
    total = np.zeros(terms.shape[:-1], np.float32)
    for j in range(terms.shape[-1]):
        total = (total + terms[..., j]).astype(np.float32)
    return total


def worst(points: int, taps: int, rows: int, seen: int, left: bool) -> float:
    """The largest error over its bound, of outputs that see the last columns (``left``) or the first."""
    rng = np.random.default_rng(points * 100 + taps)
    x = rng.standard_normal((OUTPUTS, rows, points), np.float32).astype(np.float64)
    w = rng.standard_normal((OUTPUTS, rows, taps), np.float32).astype(np.float64)
    inputs, filters, outputs = transforms(points, taps)
    at = 0 if left else points - taps
    x[..., slice(0, taps - seen) if left else slice(at + seen, None)] = 0.0
    from_x = summed(x[..., None, :] * inputs)
    from_w = (w @ filters.T).astype(np.float32)
    sums = summed(np.moveaxis(from_x.astype(np.float64) * from_w, 1, -1))
    y = summed(sums.astype(np.float64) * outputs[at])
    products = x[..., at : at + taps] * w
    ref, size = products.sum((1, 2)), abs(products).sum((1, 2))
    problem = Problem.parse(f"n1c{rows}h1w32k1r1s{taps}-f32")
    bound = error_bound(problem, rows * taps + GROWTH[points]).of(ref, size)
    return float((abs(y - ref) / bound).max())


@pytest.mark.parametrize(("points", "taps"), CASES)
def test_the_bound_covers_sums_of_enough_products(points: int, taps: int) -> None:
    whole, cut = FEWEST_PRODUCTS[points]
    rows = max(FEWEST_ROWS, ceil(whole / taps))
    assert worst(points, taps, rows, taps, True) < 1
    for seen in range(2, taps):
        assert max(worst(points, taps, ceil(cut / seen), seen, left) for left in (True, False)) < 1


@pytest.mark.parametrize("points", (8, 10))
def test_more_points_need_more_products(points: int) -> None:
    """As many as are enough for 6 points are not: the table is no larger than it must be."""
    few, _ = FEWEST_PRODUCTS[6]
    taps = next(taps for one, taps in CASES if one == points)
    assert max(worst(points, taps, few // 2, 2, left) for left in (True, False)) > 1
