"""Tune a layer once: return its stored winner if there is one, else search and store the winner."""

from __future__ import annotations

from tilewright.checking.room import require_room
from tilewright.dispatch.choices import sources_for
from tilewright.hints import likeness
from tilewright.plans.plan_cache import forget
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.record import Record
from tilewright.runtime.base import Runtime
from tilewright.store import Store
from tilewright.tuning.budget import Budget
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

    Cached plans of the layer are then evicted, and those of similar layers, which may use its winner.

    Args:
        problem, wanted, progress, children: as for ``tuner.tune``.
        runtime: of the device.
        store: of winners.

    Raises:
        RunError: no config was right; says what became of those that were tried.
        StoreError: the store cannot be used, or not be written: nothing is tuned then.
        ProblemError: there is nothing to compute, no room for the arrays, or no family takes the problem.
    """
    if (found := known(problem, runtime, store, wanted)) is not None:
        return TuneResult(found, (), (found,), seconds=0.0, resumed=0, stopped=KNOWN)
    store.require_writable()
    require_room(problem, runtime)
    try:
        result = tune(problem, runtime, wanted, store=store, progress=progress, children=children)
    finally:
        forget(problem, likeness)
    _ = result.winner  # raises where there is none, under python -O too
    return result


def known(problem: Problem, runtime: Runtime, store: Store, wanted: TuneOptions) -> Record | None:
    """Return the stored winner, unless a larger budget is wanted, or a search in any case."""
    return None if wanted.again else settled(wanted.of(problem), runtime, store, wanted.budget)


def settled(
    request: Request, runtime: Runtime, store: Store, budget: Budget | None = None
) -> Record | None:
    """Return the winner, if a completed tuning searched all that may win, with exactly these kernels.

    A search that its budget ended counts unless a larger ``budget`` is asked for; for None any counts. The
    winner may be from a later search of some of the families.
    """
    sources, device_key = sources_for(request, runtime), runtime.device.key
    best = store.best(request.problem, device_key, request.deterministic, sources)
    if best is None or not best.compared:
        return None
    won = [r for r in store.records(request.problem, device_key) if r.won and sources.has(r)]
    may_answer = [r.search for r in won if r.deterministic >= request.deterministic]
    enough = [search for search in may_answer if budget is None or budget.within(search.cut)]
    return best if any(search.finished(sources.names) for search in enough) else None
