"""What is asked of dispatch, put together once where it was asked; kept plans are found by it."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.problem import Problem


@dataclass(frozen=True)
class Request:
    """A layer, and which kernels may run it.

    Attributes:
        problem: the layer.
        deterministic: only configs that give the same bits each time.
        families: names of those to choose from; none: all that race, and at last the reference.
    """

    problem: Problem
    deterministic: bool = False
    families: tuple[str, ...] = ()
