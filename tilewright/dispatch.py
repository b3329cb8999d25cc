"""From a Problem to a Plan: the stored winner, else a shipped or imported one once it is verified,
else the model's best legal config, else the reference. The Plan's note says which."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from traceback import clear_frames
from typing import TYPE_CHECKING

from tilewright.device import Device
from tilewright.errors import (
    CompileError,
    ConfigError,
    OutOfMemory,
    ProblemError,
    RunError,
    StoreError,
    TilewrightError,
    warn_once,
)
from tilewright.execution import Plan
from tilewright.kernels import FAMILIES, pick
from tilewright.kernels.family import Config, Family
from tilewright.problem import DTYPES, Problem
from tilewright.record import Record
from tilewright.runtime.base import Runtime
from tilewright.sources import source_keys
from tilewright.store import Store

if TYPE_CHECKING:
    from tilewright.layer import LayerPlan

MOST_PLANS = 256
# Places in the model's order, tried in turn until one compiles. Neighbours are much alike: if the first
# few spill registers, so may the next hundred.
GUESSES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
MOST_HINTS = 2  # shipped or imported winners, verified in turn until one is right
ALL_SEEN = 1_000_000  # all that the model has seen
REFERENCE = Config.make("reference", {"v": 1})
OF_TENSOR_CORES = ("mma", "hopper")  # families
# Said of a config that was not checked here: a check takes seconds, since the reference is slow.
UNVERIFIED = " (not verified)"
NO_ROOM = " has no room now"  # said of a winner: it is tried again at the plan's next use

_Key = tuple[Problem, int, str, bool, tuple[str, ...]]


@dataclass(eq=False)
class Entry:
    """A plan, or the place of one; who finds none under the lock makes it. ``layer`` is made of it."""

    plan: Plan | None = None
    layer: LayerPlan | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_plans: OrderedDict[_Key, Entry] = OrderedDict()
_lock = threading.Lock()  # of the dict, never held for long
_verifying = threading.Lock()  # one worker at a time: it measures too


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
        elif store is not None and NO_ROOM in found.plan.note:
            winner = _winner(problem, runtime, store, deterministic, families)
            if winner is not None:
                found.plan, found.layer = winner, None
    return found


def forget(problem: Problem | None = None) -> None:
    """Look a problem (None: all) up again at its next use, since the store has changed."""
    with _lock:
        for key in [key for key in _plans if problem is None or key[0] == problem]:
            del _plans[key]


def stored(
    problem: Problem,
    runtime: Runtime,
    store: Store,
    deterministic: bool = False,
    families: Sequence[str] = (),
) -> Record | None:
    """Return the stored winner of these families (none: of all that race), of these very kernels."""
    return store.best(problem, runtime.device.key, deterministic, _keys(problem, runtime, families))


def settled(
    problem: Problem,
    runtime: Runtime,
    store: Store,
    deterministic: bool = False,
    families: Sequence[str] = (),
) -> Record | None:
    """Return the winner, if its tuning raced all these families to the end, with these very kernels."""
    best = stored(problem, runtime, store, deterministic, families)
    if best is None or best.context.get("stage") != "final":
        return None
    keys = _keys(problem, runtime, families)
    raced = best.context.get("raced", " ".join(keys)).split()
    return best if set(keys) <= set(raced) else None


def _keys(problem: Problem, runtime: Runtime, families: Sequence[str]) -> dict[str, str]:
    """Return the source key of each of these families that takes the problem."""
    from tilewright.tuning.space import usable

    known = usable(pick(FAMILIES, families), problem, runtime.device)[0]
    return source_keys((family.name for family in known), runtime.compiler)


def _first_that_works(
    problem: Problem, runtime: Runtime, store: Store | None, deterministic: bool, families: Sequence[str]
) -> Plan:
    last: TilewrightError | None = None
    missed = ""
    for config, note in _choices(problem, runtime, store, deterministic, families):
        try:
            told = "; ".join(filter(None, (note, missed, _instead(problem, config))))
            return Plan.make(runtime, problem, config, told)
        except (CompileError, ConfigError, RunError) as error:
            # Out of memory says how much is needed: more use to a person than what failed after it.
            last = last if isinstance(last, OutOfMemory) else error
            clear_frames(error.__traceback__)  # they hold what the failed plan allocated: room for the next
            if not missed and UNVERIFIED not in note:
                why = NO_ROOM if isinstance(error, OutOfMemory) else " cannot be used"
                missed = f"the winner {config}{why}: {error}"
    raise last or CompileError(f"{problem}: no kernel takes it on {runtime.device.name}")


def _winner(
    problem: Problem, runtime: Runtime, store: Store, deterministic: bool, families: Sequence[str]
) -> Plan | None:
    """Return the plan of the stored winner, which had no room, if it has some now."""
    with suppress(TilewrightError):
        if best := stored(problem, runtime, store, deterministic, families):
            config = Config.parse(best.config)
            return Plan.make(runtime, problem, config, _instead(problem, config))
    return None


def _instead(problem: Problem, config: Config) -> str:
    """Say what a kernel computes with, where that is another dtype or math than the problem's."""
    if problem.kind in DTYPES or config.family in (*OF_TENSOR_CORES, REFERENCE.family):
        return ""
    kind = "i8+requant" if problem.requantised else problem.kind
    return f"{config.family} computes {kind} in {problem.plain.dtype}, without tensor cores"


def _choices(
    problem: Problem, runtime: Runtime, store: Store | None, deterministic: bool, names: Sequence[str]
) -> Iterator[tuple[Config, str]]:
    """Yield configs to try, best first, each with its note."""
    if problem.n == 0:
        yield REFERENCE, ""
        return
    from tilewright.tuning.space import usable

    families, passed = usable(pick(FAMILIES, names), problem, runtime.device)
    untuned = True
    if store is not None and families:
        for found in _stored(problem, runtime, store, deterministic, families):
            untuned = False
            yield found
    guess = f"the model's choice{UNVERIFIED}"
    guess = f"untuned: {guess}; run `tilewright tune {problem}`" if untuned else guess
    for config in _ranked(problem, runtime, families, deterministic):
        yield config, guess
    why = "; ".join(f"{name}: {reason}" for name, reason in passed.items())
    if names and REFERENCE.family not in names:
        if not families:
            raise ProblemError(f"{problem}: {why}")
        return
    yield REFERENCE, f"slow: the reference kernel, since no other could be used{why and f' ({why})'}"


def _stored(
    problem: Problem, runtime: Runtime, store: Store, deterministic: bool, usable: list[Family]
) -> Iterator[tuple[Config, str]]:
    keys = source_keys((f.name for f in usable), runtime.compiler)
    device = runtime.device.key
    try:
        best = store.best(problem, device, deterministic, keys)
        if best:
            yield Config.parse(best.config), ""
        hints = store.hints(problem, device, deterministic, keys)
    except StoreError as error:
        warn_once(f"the store is not used: {error}", f"store {store.path}")
        return
    legal = [hint for hint in hints if _legal(hint, problem, runtime.device, usable)]
    for hint in legal[:MOST_HINTS]:
        with _verifying:
            record = verified(problem, runtime, Config.parse(hint.config))
        if record is None:
            return
        _remember(store, record)
        if record.outcome == "correct" and record.deterministic >= deterministic:
            yield Config.parse(hint.config), f"{hint.context.get('origin', 'shipped')}, verified here"


def _remember(store: Store, record: Record) -> None:
    try:
        store.add(record, "verified")
    except StoreError as error:
        warn_once(f"the store cannot be written: {error}", f"store {store.path}")


def foreseen(
    problem: Problem, device: Device, compiler: str, store: Store, deterministic: bool = False
) -> Iterator[tuple[Config, str]]:
    """Yield configs for a device that need not be here, best first, each with its note; none is verified.

    The store's winner, those shipped or imported, the model's choices, the reference.
    """
    from tilewright.tuning.space import usable

    families, _ = usable(pick(FAMILIES, ()), problem, device)
    keys = source_keys((family.name for family in families), compiler)
    best = store.best(problem, device.key, deterministic, keys)
    if best:
        yield Config.parse(best.config), "the stored winner"
    for hint in store.hints(problem, device.key, deterministic, keys):
        if _legal(hint, problem, device, families):
            yield Config.parse(hint.config), f"{hint.context.get('origin', 'shipped')} winner{UNVERIFIED}"
    for config in ranked_for(problem, device, families, deterministic):
        yield config, f"the model's choice{UNVERIFIED}"
    yield REFERENCE, "slow: the reference kernel, since no other could be used"


def _legal(hint: Record, problem: Problem, device: Device, usable: list[Family]) -> bool:
    """Whether a config that came from elsewhere keeps the rules on this very device."""
    try:
        config = Config.parse(hint.config)
        family = next(f for f in usable if f.name == config.family)
        family.check(problem, device, config)
    except (ConfigError, StopIteration):
        return False
    return True


def verified(problem: Problem, runtime: Runtime, config: Config) -> Record | None:
    """Compile, verify and time a config from elsewhere, in a worker process; a failure is data.

    Returns None if no worker could be started, or make the references: that says nothing of the config.
    """
    from tilewright.tuning.job import Job
    from tilewright.tuning.worker import Worker

    device = runtime.device
    with Worker(Job(str(problem), device.backend, device.index)) as worker:
        try:
            worker.prepare()
            return worker.run(config, level="full")
        except TilewrightError as error:
            warn_once(f"tuned winners from elsewhere are not used: {error}", "verified")
            return None


def _ranked(problem: Problem, runtime: Runtime, usable: list[Family], deterministic: bool) -> list[Config]:
    """Return the model's choices over all families, the fastest first."""
    return ranked_for(problem, runtime.device, usable, deterministic)


def ranked_for(
    problem: Problem, device: Device, usable: list[Family], deterministic: bool = False
) -> list[Config]:
    """Return the model's choices over all families on a device, which need not be here."""
    from tilewright.tuning.search import rank

    found = []
    for family in usable:
        ranked = rank(problem, device, family, ALL_SEEN, 0)
        found += [(us, c) for c, us in ranked if family.deterministic(c) or not deterministic]
    found.sort(key=lambda item: item[0])
    return [found[place][1] for place in GUESSES if place < len(found)]
