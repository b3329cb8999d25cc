"""Fewer cases that show together what many do: every two facts that meet in one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from itertools import combinations
from typing import TypeVar

from tilewright.problem import Problem

Case = TypeVar("Case", bound=Hashable)


_NUMBERS: dict[Hashable, int] = {}  # of facts: pairs of numbers are looked up sooner than pairs of tuples


def pairs(facts: Iterable[Hashable]) -> frozenset[Hashable]:
    """Every two of the facts of a case, which have the same order in each case."""
    return frozenset(combinations([_NUMBERS.setdefault(fact, len(_NUMBERS)) for fact in facts], 2))


def fewest(cases: Mapping[Case, Iterable[Hashable]]) -> list[Case]:
    """Return cases that show all pairs that these do by their facts; the first are left out first."""
    return fewest_of({case: pairs(facts) for case, facts in cases.items()})


def fewest_of(shown: Mapping[Case, frozenset[Hashable]]) -> list[Case]:
    """Return cases that show all that these do; the first are left out first."""
    left, kept = Counter(pair for some in shown.values() for pair in some), []
    for case, some in shown.items():
        if all(left[pair] > 1 for pair in some):
            left.subtract(some)
        else:
            kept.append(case)
    return kept


def facts(problem: Problem) -> list[Hashable]:
    """What a kernel may have to do for a layer, or not."""
    e = problem.epilogue
    return [
        ("numbers", problem.precision), ("x", problem.layout_in), ("y", problem.layout_out),
        ("stride", problem.stride != (1, 1)), ("dilation", problem.dilation != (1, 1)),
        ("groups", problem.groups > 1), ("taps", problem.r > 1, problem.s > 1), ("images", problem.n > 1),
        ("tails", problem.cg % 4 > 0, problem.kg % 4 > 0), ("row", problem.w % 4 > 0),
        ("bias", e.bias), ("add", e.beta != 0), ("act", e.act != ""), ("pool", e.pool and e.pool.mode),
    ]  # fmt: skip
