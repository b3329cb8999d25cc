"""Tune a layer once: its stored winner where there is one, else a search whose winner is stored."""

from __future__ import annotations

from tilewright.checking.room import require_room
from tilewright.dispatch.choices import settled
from tilewright.plans.plan_cache import forget
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.store import Store
from tilewright.tuning.events import KNOWN, Progress, TuneResult
from tilewright.tuning.hints import likeness
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
    """Return what a layer's tuning came to, or comes to now; plans of it are made anew then, and of
    layers alike, which may run its winner.

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
