"""Tune a layer once: return its stored winner if there is one, else search and store the winner."""

from __future__ import annotations

from tilewright.checking.room import require_room
from tilewright.dispatch.choices import settled
from tilewright.plans.plan_cache import forget
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.store import Store
from tilewright.store.hints import likeness
from tilewright.tuning.events import KNOWN, Progress, TuneResult
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.tuner import tune
from tilewright.tuning.worker_pool import WorkerPool


def tune_once(
    problem: Problem,
    runtime: Runtime,
    store: Store,
    wanted: TuneOptions,
    progress: Progress | None = None,
    children: WorkerPool | None = None,
) -> TuneResult:
    """Return the result of a layer's earlier tuning, or tune it now.

    Cached plans of the layer are then dropped, and those of similar layers, which may use its winner.

    Args:
        problem, wanted, progress, children: as for ``tuner.tune``.
        runtime: of the device.
        store: of winners.

    Raises:
        RunError: no config was right; says what became of those that were tried.
        StoreError: the store cannot be used, or not be written: nothing is tuned then.
        ProblemError: there is nothing to compute, no room for the arrays, or no family takes the problem.
    """
    if not wanted.again:
        known = settled(wanted.of(problem), runtime, store, wanted.budget)
        if known is not None:
            return TuneResult(known, (), (known,), seconds=0.0, resumed=0, stopped=KNOWN)
    store.require_writable()
    require_room(problem, runtime)
    try:
        result = tune(problem, runtime, wanted, store=store, progress=progress, children=children)
    finally:
        forget(problem, likeness)
    _ = result.winner  # raises where there is none, under python -O too
    return result
