"""The options of a tuning, made once from a caller's arguments."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.tuning.budget import Budget


@dataclass(frozen=True)
class TuneOptions:
    """How to search for the winner of a layer, or of layer after layer.

    Attributes:
        budget: seconds in total, or trials; None: the default of the device.
        strategy: all, random, model or local.
        seed: of the strategy and of the inputs; what is proposed depends on measured times, too.
        deterministic: try only configs that give the same bits each time.
        families: names of those to search; none: all that race and take the problem.
        again: search even if the store has the winner of a search of all these families (``tune_once``; the
            tuner itself always searches).
    """

    budget: Budget | None = None
    strategy: str = "model"
    seed: int = 0
    deterministic: bool = False
    families: tuple[str, ...] = ()
    again: bool = False

    def of(self, problem: Problem) -> Request:
        """Return the request to dispatch for a layer."""
        return Request(problem, self.deterministic, self.families)
