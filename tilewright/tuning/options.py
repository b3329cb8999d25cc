"""What a caller asks of tuning, put together once where it was asked."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.tuning.budget import Budget


@dataclass(frozen=True)
class TuneOptions:
    """How to search for the winner of a layer, or of layer after layer.

    Attributes:
        budget: seconds in all, or trials; None: what suits the device.
        strategy: all, random, model or local.
        seed: of the strategy and of the inputs; the same seed proposes the same configs.
        deterministic: try only configs that give the same bits each time.
        families: names of those to search; none: all that race and take the problem.
        again: search, though the store has the winner of a search of all these families. The tuner itself
            does not ask: it always searches.
    """

    budget: Budget | None = None
    strategy: str = "model"
    seed: int = 0
    deterministic: bool = False
    families: tuple[str, ...] = ()
    again: bool = False

    def of(self, problem: Problem) -> Request:
        """Return what is asked of dispatch for one of the layers."""
        return Request(problem, self.deterministic, self.families)
