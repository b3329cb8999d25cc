"""A request to dispatch, made once from a caller's arguments; part of the key of cached plans."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.hashed import hashed_once
from tilewright.problem import Problem


@hashed_once
@dataclass(frozen=True)
class Request:
    """A layer, and which kernels may run it.

    Attributes:
        problem: the layer.
        deterministic: only configs that give the same bits each time.
        families: names of those to choose from; empty: all that race, and as a last resort the reference.
    """

    problem: Problem
    deterministic: bool = False
    families: tuple[str, ...] = ()
