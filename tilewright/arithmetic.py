"""Integers, of Python or NumPy; rounding up; means and norms."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence


def as_integer(value: object) -> int | None:
    """Return an integer of Python or NumPy as an int; None for anything else, also for True and False."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def with_ints(value: object) -> object:
    """Convert NumPy integers, alone or in a tuple, to ints; return anything else unchanged."""
    if isinstance(value, tuple):
        return tuple(map(with_ints, value))
    number = as_integer(value)
    return value if number is None else number


def ceil_div(a: int, b: int) -> int:
    """Smallest integer not below a / b."""
    return -(-a // b)


def round_up(a: int, step: int) -> int:
    """Smallest multiple of ``step`` not below a."""
    return ceil_div(a, step) * step


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of some values; 0 if one is 0."""
    if min(values) <= 0.0:
        return 0.0
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def norm(values: Sequence[float], order: float) -> float:
    """Return the p-norm of some values for p = ``order``: the largest for infinity, otherwise a little more.

    Of times: how long work that overlaps takes, if each part delays the others.
    """
    most = max(values)
    if order == math.inf or most == 0.0:
        return most
    return float(most * sum([(one / most) ** order for one in values]) ** (1.0 / order))


def offset64(*counts: int) -> int:
    """Return the define OFFSET64: whether any of the counts, in elements or bytes, needs 64-bit offsets."""
    return int(max(counts) >= 1 << 31)
