"""From a Problem to a Plan: the first of ``choices`` that compiles and finds room, kept for its next use.
The Plan says why it is that one. Plans that were not used for the longest time are let go: where there are
too many, where their workspaces are too large together, and where another has no room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from traceback import clear_frames
from typing import TYPE_CHECKING

from tilewright.errors import CompileError, ConfigError, OutOfMemory, RunError, TilewrightError
from tilewright.kernels import family
from tilewright.kernels.family import Config
from tilewright.plans.choices import choices, stored
from tilewright.plans.execution import Plan
from tilewright.plans.why import Missed, Origin, Why
from tilewright.problem import DTYPES, Problem
from tilewright.runtime.base import Runtime
from tilewright.store import Store

if TYPE_CHECKING:
    from tilewright.plans.layer import LayerPlan

MOST_PLANS = 256
OF_MEMORY = 8  # all workspaces together are 1/8 of the device's memory at most, or one plan has more alone

_Key = tuple[Problem, int, str, bool, tuple[str, ...]]


@dataclass(eq=False)
class Entry:
    """A plan, or the place of one; who finds none under the lock makes it. ``layer`` is made of it."""

    plan: Plan | None = None
    layer: LayerPlan | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_plans: OrderedDict[_Key, Entry] = OrderedDict()
_lock = threading.Lock()  # of the dict, never held for long


def dispatch(
    problem: Problem,
    runtime: Runtime,
    store: Store | None = None,
    deterministic: bool = False,
    families: Sequence[str] = (),
) -> Plan:
    """Return the plan to run a problem with; the same one each time within a process.

    The first use takes seconds: other threads wait for it only if they want the same plan.

    Args:
        problem: the layer.
        runtime: where to run it.
        store: where winners are kept; None: only the model is asked.
        deterministic: only configs that give the same bits each time.
        families: names of those to choose from, and then never the reference; none: all.

    Raises:
        ConfigError: there is no family of a name.
        ProblemError: none of the named families takes the problem; says why.
        OutOfMemory: even the reference has no room; says how much was needed.
        CompileError: nothing compiles, the reference included.
    """
    found = entry(problem, runtime, store, deterministic, families).plan
    assert found is not None
    return found


def entry(
    problem: Problem, runtime: Runtime, store: Store | None, deterministic: bool, families: Sequence[str] = ()
) -> Entry:
    """Find the plan as ``dispatch`` does; return it with the layer, so that both are let go together."""
    key = (problem, id(runtime), str(store.path) if store else "", deterministic, tuple(families))
    with _lock:
        found = _plans.get(key)
        if found is None:
            found = _plans[key] = Entry()
            while len(_plans) > MOST_PLANS:
                _plans.popitem(last=False)
        _plans.move_to_end(key)
    with found.lock:
        if found.plan is None:
            found.plan = _first_that_works(problem, runtime, store, deterministic, families)
            _let_go_oldest(runtime, found)
        elif store is not None and (missed := found.plan.why.missed) and missed.no_room:
            winner = _winner(problem, runtime, store, deterministic, families)
            if winner is not None:
                found.plan, found.layer = winner, None
    return found


def forget(problem: Problem | None = None) -> None:
    """Look a problem (None: all) up again at its next use, since the store has changed."""
    with _lock:
        for key in [key for key in _plans if problem is None or key[0] == problem]:
            del _plans[key]


def make_room(runtime: Runtime, keep: Plan | None = None) -> bool:
    """Let go of the plans on a device that have a workspace, but for one; return whether there were any."""
    with _lock:
        theirs = {
            key: one for key, one in _plans.items()
            if _bytes_on(runtime, key, one) and one.plan is not keep
        }  # fmt: skip
        for key in theirs:
            del _plans[key]
    return bool(theirs)


def _let_go_oldest(runtime: Runtime, newest: Entry) -> None:
    """Let go of the plans on a device that were not used for the longest time, until the others are small."""
    let_go = []  # once nobody waits for the lock: to free memory takes a while
    with _lock:
        sizes = {key: _bytes_on(runtime, key, one) for key, one in _plans.items()}
        over = sum(sizes.values())
        if over:
            over -= runtime.memory_bytes() // OF_MEMORY
        for key, nbytes in sizes.items():
            if over > 0 and nbytes and _plans[key] is not newest:
                let_go.append(_plans.pop(key))
                over -= nbytes


def _bytes_on(runtime: Runtime, key: _Key, found: Entry) -> int:
    """Bytes of workspace that a plan has on a device; 0 if it is on another, or not made yet."""
    return found.plan.workspace_bytes if found.plan is not None and key[1] == id(runtime) else 0


def _made(runtime: Runtime, problem: Problem, config: Config, why: Why) -> Plan:
    """Make a plan; where it has no room, once more in place of the others."""
    try:
        return Plan.make(runtime, problem, config, why)
    except OutOfMemory as error:
        if not make_room(runtime):
            raise
        clear_frames(error.__traceback__)  # they hold what it did get
    return Plan.make(runtime, problem, config, why)


def _first_that_works(
    problem: Problem, runtime: Runtime, store: Store | None, deterministic: bool, families: Sequence[str]
) -> Plan:
    last: TilewrightError | None = None
    missed: Missed | None = None
    for config, why in choices(problem, runtime, store, deterministic, families):
        try:
            why = replace(why, missed=missed, remark=_instead(problem, config))
            return _made(runtime, problem, config, why)
        except (CompileError, ConfigError, RunError) as error:
            # Out of memory says how much is needed: more use to a person than what failed after it.
            last = last if isinstance(last, OutOfMemory) else error
            clear_frames(error.__traceback__)  # they hold what the failed plan allocated: room for the next
            if missed is None and why.verified:
                missed = Missed(config, isinstance(error, OutOfMemory), str(error))
    raise last or CompileError(f"{problem}: no kernel takes it on {runtime.device.name}")


def _winner(
    problem: Problem, runtime: Runtime, store: Store, deterministic: bool, families: Sequence[str]
) -> Plan | None:
    """Return the plan of the stored winner, which had no room, if it has some now."""
    with suppress(TilewrightError):
        if best := stored(problem, runtime, store, deterministic, families):
            config = Config.parse(best.config)
            return Plan.make(runtime, problem, config, Why(Origin.STORED, remark=_instead(problem, config)))
    return None


def _instead(problem: Problem, config: Config) -> str:
    """Say what a kernel computes with, where that is another dtype or math than the problem's."""
    if problem.kind in DTYPES or not family(config.family).widens:
        return ""
    kind = "i8+requant" if problem.requantised else problem.kind
    return f"{config.family} computes {kind} in {problem.plain.dtype}, without tensor cores"
