"""Tune a layer once: its stored winner where there is one, else a search whose winner is stored."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.plans.choices import settled
from tilewright.plans.kept import forget
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.runtime.capacity import require_room
from tilewright.store import Store
from tilewright.tuning.budget import Budget
from tilewright.tuning.children import Children
from tilewright.tuning.events import KNOWN, Progress, TuneResult
from tilewright.tuning.tuner import tune


def tune_once(
    problem: Problem, runtime: Runtime, store: Store, budget: Budget | None = None,
    strategy: str = "model", seed: int = 0, deterministic: bool = False, families: Sequence[str] = (),
    progress: Progress | None = None, again: bool = False, children: Children | None = None,
) -> TuneResult:  # fmt: skip
    """Return what a layer's tuning came to, or comes to now; plans of the layer are made anew then.

    Args:
        problem, budget, strategy, seed, deterministic, families, progress, children: as for ``tuner.tune``.
        runtime: of the device.
        store: of winners.
        again: search, though the store has the winner of a search of all these families.

    Raises:
        RunError: no config was right; says what became of those that were tried.
        StoreError: the store cannot be used, or not be written: nothing is tuned then.
        ProblemError: there is nothing to compute, no room for the arrays, or no family takes the problem.
    """
    if not again and (known := settled(problem, runtime, store, deterministic, families)) is not None:
        return TuneResult(known, (), (known,), seconds=0.0, resumed=0, stopped=KNOWN)
    store.require_writable()
    require_room(problem, runtime)
    try:
        result = tune(
            problem, runtime, budget, strategy, seed, store, progress, deterministic, families,
            children=children,
        )  # fmt: skip
    finally:
        forget(problem)
    assert result.winner  # raises where there is none
    return result
