"""The a-priori bound, term by term: one that is several times too wide lets wrong sums pass everywhere."""

from __future__ import annotations

from math import inf, nan, sqrt

import numpy as np
import pytest

from tilewright.kernels.error_bound import ErrorBound, error_bound
from tilewright.problem import Problem

F64, F32 = 2.0**-53, 2.0**-24
LAYER = "n1c50h8w8k9r1s1-{}"


@pytest.mark.parametrize(
    ("kind", "u", "more", "unit"),
    [
        ("f64", F64, 0.0, F64),
        ("f32", F32, 0.0, F32),
        ("tf32", F32, 2 * 2.0**-11 + 2.0**-22, F32),
        ("accurate", F32, 2.0**-21, F32),
        ("f16", F32, 0.0, 2.0**-11),
        ("bf16", F32, 0.0, 2.0**-8),
        ("f8", F32, 8 * 2.0**-13, 2.0**-11),
    ],
)
def test_it_grows_with_the_root_of_the_chain(kind: str, u: float, more: float, unit: float) -> None:
    for chain in (1, 100):
        found = error_bound(Problem.parse(LAYER.format(kind)), chain)
        assert found.slope == pytest.approx(4 * sqrt(chain) * u + 4 * sqrt(50) * F64 + more, rel=1e-12)
        assert found.unit == unit


@pytest.mark.parametrize(
    ("words", "steps"),
    [("+bias", 1), ("+add0.5", 2), ("+alpha2+bias+add", 4), ("+avgpool3", 9), ("+maxpool3", 0)],
)
def test_steps_of_the_epilogue_lengthen_the_chain(words: str, steps: int) -> None:
    found = error_bound(Problem.parse(LAYER.format("f32") + words), 7)
    assert found.slope == pytest.approx(4 * sqrt(7 + steps) * F32 + 4 * sqrt(50 + steps) * F64)


def test_a_slope_stretches_it() -> None:
    flat, steep = (error_bound(Problem.parse(LAYER.format("f32") + f"+leaky{low}"), 7) for low in (-0.5, -3))
    assert steep.slope == pytest.approx(3 * flat.slope)


def test_integers_are_right_or_wrong() -> None:
    for kind in ("i8", "q8"):
        assert error_bound(Problem.parse(LAYER.format(kind)), 1000) == ErrorBound(0.0, 0.0, 0.25, inf)


def test_an_infinity_is_right_where_rounding_gives_one_of_its_sign() -> None:
    y = np.array([inf, -inf, -inf, inf, nan, 65504.0, 3.0, 3.25])
    ref = np.array([65519.5, 65519.5, -65519.5, 60000.0, 65519.5, 65504.5, 2.0, 2.0])
    found = ErrorBound(0.5, 0.0, 0.5, 65520.0).allows(y, ref, np.ones(8))
    assert found.tolist() == [True, False, True, False, False, True, True, False]
