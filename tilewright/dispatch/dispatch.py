"""From a Problem to a Plan: the first of ``choices`` that compiles and finds room, kept for its next use
(``plans/plan_cache.py``). The Plan says why it is that one."""

from __future__ import annotations

from dataclasses import replace
from traceback import clear_frames

from tilewright.dispatch.choices import choices, stored
from tilewright.errors import CompileError, ConfigError, OutOfMemory, RunError, TilewrightError, shortened
from tilewright.kernels import family_of
from tilewright.kernels.config import Config
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.plans.plan_cache import CacheEntry, entry_of, evict_oldest, with_room
from tilewright.plans.provenance import FROM_ELSEWHERE, Basis, Provenance, Replaced
from tilewright.plans.request import Request
from tilewright.problem import DTYPES, Problem
from tilewright.runtime.base import Runtime
from tilewright.runtime.ending import Inside
from tilewright.search.guesses import Guess, guesses
from tilewright.store import Store
from tilewright.store.brief import briefly, gave_up


def layer_plan(
    request: Request, runtime: Runtime, store: Store | None = None, rank: Guess = guesses
) -> LayerPlan:
    """Return the plan to run a layer with; the same one each time within a process, until it is tuned.

    The first use takes seconds: other threads wait for it only if they want the same plan.

    Args:
        request: the layer, and which kernels may run it.
        runtime: where to run it.
        store: where winners are kept; None: only the model is asked.
        rank: computes the model's choices.

    Raises:
        ConfigError: there is no family of a name.
        ProblemError: none of the named families takes the problem; says why.
        OutOfMemory: even the reference has no room; says how much was needed.
        CompileError: nothing compiles, the reference included.
    """
    found = entry_of((request, id(runtime), store.key if store else None))
    with Inside(), found.lock:
        if found.layer is None:
            found.saw(store and store.state)
            brief = briefly(store) if store else None
            plan = _first_that_works(request, runtime, brief, rank)
            if brief and gave_up(brief):
                found.saw(None)  # it may have the winner, though it does not change
            return _kept(found, plan, runtime)
        if found.provisional and store is not None and found.may_change():
            _take_winner(found, found.layer.plan, request, runtime, store)
            found.tried()
        return found.layer


def _kept(found: CacheEntry, plan: Plan, runtime: Runtime) -> LayerPlan:
    layer = LayerPlan(plan)
    found.fill(layer)
    evict_oldest(runtime, plan)
    found.tried()
    return layer


def _first_that_works(request: Request, runtime: Runtime, store: Store | None, rank: Guess) -> Plan:
    problem = request.problem
    last: TilewrightError | None = None
    replaced: Replaced | None = None
    for config, why in choices(request, runtime, store, rank):
        try:
            why = replace(why, replaced=replaced, remark=_instead(problem, config))
            if why.basis is Basis.REFERENCE and last is not None:  # more use than why others do not apply
                why = replace(why, passed=f"the last that was tried: {shortened(str(last), 300)}")
            return with_room(runtime, None, Plan.make, runtime, problem, config, why)
        except (CompileError, ConfigError, RunError) as error:
            # Out of memory says how much is needed: more use to a person than what failed after it.
            last = last if isinstance(last, OutOfMemory) else error
            clear_frames(error.__traceback__)  # they hold what the failed plan allocated: room for the next
            if replaced is None and why.verified:
                replaced = Replaced(config, isinstance(error, OutOfMemory), str(error))
    raise last or CompileError(f"{problem}: no kernel takes it on {runtime.device.name}")


def _take_winner(found: CacheEntry, guess: Plan, request: Request, runtime: Runtime, store: Store) -> None:
    """Replace a guess, or a winner from elsewhere, by the stored winner's plan, if there is one now, or room
    for it.

    If that fails, because the store is busy or memory is full, it is tried again later.
    """
    if not found.saw(store.state) and not guess.why.had_no_room:
        return
    try:
        if best := stored(request, runtime, briefly(store)):
            problem, config = request.problem, Config.parse(best.config)
            if guess.why.basis in FROM_ELSEWHERE and config == guess.config:
                return
            why = Provenance(Basis.STORED, remark=_instead(problem, config))
            _kept(found, Plan.make(runtime, problem, config, why), runtime)
    except TilewrightError:
        found.saw(None)


def _instead(problem: Problem, config: Config) -> str:
    """Say how a kernel computes, if that is with another dtype or math than the problem's; else empty."""
    if problem.precision in (*DTYPES, "q8") or not family_of(config.family).widens:
        return ""
    return f"{config.family} computes {problem.precision} in f32, without tensor cores"
