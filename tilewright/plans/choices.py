"""Which configs may run a problem, best first: the stored winner, a shipped or imported one once verified,
the model's best legal configs, the reference. Each comes with why it is tried."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tilewright.device import Device
from tilewright.errors import ConfigError, ProblemError, StoreError, TilewrightError, warn_once
from tilewright.kernels import FAMILIES, pick
from tilewright.kernels.family import Config, Family
from tilewright.plans.why import UNSAID, Origin, Why
from tilewright.problem import Problem
from tilewright.record import Record
from tilewright.runtime.base import Runtime
from tilewright.store import Store
from tilewright.store.sources import source_keys

# Places in the model's order, tried in turn until one compiles. Neighbours are much alike: if the first
# few spill registers, so may the next hundred.
GUESSES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
MOST_HINTS = 2  # shipped or imported winners, verified in turn until one is right
ALL_SEEN = 1_000_000  # all that the model has seen
REFERENCE = Config.make("reference", {"v": 1})

_verifying = threading.Lock()  # one worker at a time: it measures too


def choices(
    problem: Problem, runtime: Runtime, store: Store | None, deterministic: bool, names: Sequence[str]
) -> Iterator[tuple[Config, Why]]:
    """Yield configs to try, best first, each with why."""
    if problem.n == 0:
        yield REFERENCE, UNSAID
        return
    from tilewright.search.space import usable

    families, passed = usable(pick(FAMILIES, names), problem, runtime.device)
    guess = Why(Origin.UNTUNED, verified=False)
    if store is not None and families:
        for found in _stored(problem, runtime, store, deterministic, families):
            guess = Why(Origin.MODEL, verified=False)
            yield found
    for config in ranked_for(problem, runtime.device, families, deterministic):
        yield config, guess
    reasons = "; ".join(f"{name}: {reason}" for name, reason in passed.items())
    if names and REFERENCE.family not in names:
        if not families:
            raise ProblemError(f"{problem}: {reasons}")
        return
    yield REFERENCE, Why(Origin.REFERENCE, passed=reasons)


def _stored(
    problem: Problem, runtime: Runtime, store: Store, deterministic: bool, usable: list[Family]
) -> Iterator[tuple[Config, Why]]:
    keys = source_keys((f.name for f in usable), runtime.device.backend, runtime.compiler)
    device = runtime.device.key
    try:
        best = _config(store.best(problem, device, deterministic, keys))
        if best:
            yield best, Why(Origin.STORED)
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
            yield Config.parse(hint.config), Why(Origin(hint.context["origin"]))


def _remember(store: Store, record: Record) -> None:
    try:
        store.add(record, "verified")
    except StoreError as error:
        warn_once(f"the store cannot be written: {error}", f"store {store.path}")


def foreseen(
    problem: Problem, device: Device, compiler: str, store: Store, deterministic: bool = False
) -> Iterator[tuple[Config, Why]]:
    """Yield configs for a device that need not be here, best first, each with why; none is verified.

    The store's winner, those shipped or imported, the model's choices, the reference.
    """
    from tilewright.search.space import usable

    families, _ = usable(pick(FAMILIES, ()), problem, device)
    keys = source_keys((family.name for family in families), device.backend, compiler)
    best = _config(store.best(problem, device.key, deterministic, keys))
    if best:
        yield best, Why(Origin.STORED)
    for hint in store.hints(problem, device.key, deterministic, keys):
        if _legal(hint, problem, device, families):
            yield Config.parse(hint.config), Why(Origin(hint.context["origin"]), verified=False)
    for config in ranked_for(problem, device, families, deterministic):
        yield config, Why(Origin.MODEL, verified=False)
    yield REFERENCE, Why(Origin.REFERENCE)


def _config(record: Record | None) -> Config | None:
    """Return the config of a record; none if its text, made by hand, cannot be read."""
    with suppress(ConfigError):
        return Config.parse(record.config) if record else None
    return None


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
            return worker.run(config, full=True)
        except TilewrightError as error:
            warn_once(f"tuned winners from elsewhere are not used: {error}", "verified")
            return None


def ranked_for(
    problem: Problem, device: Device, usable: list[Family], deterministic: bool = False
) -> list[Config]:
    """Return the model's choices over all families on a device, which need not be here."""
    from tilewright.search.strategies import rank

    found = []
    for family in usable:
        ranked = rank(problem, device, family, ALL_SEEN, 0)
        found += [(us, c) for c, us in ranked if family.deterministic(c) or not deterministic]
    found.sort(key=lambda item: item[0])
    return [found[place][1] for place in GUESSES if place < len(found)]


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
    if best is None or not best.won:
        return None
    return best if best.raced is None or best.raced >= _keys(problem, runtime, families).keys() else None


def _keys(problem: Problem, runtime: Runtime, families: Sequence[str]) -> dict[str, str]:
    """Return the source key of each of these families that takes the problem."""
    from tilewright.search.space import usable

    known = usable(pick(FAMILIES, families), problem, runtime.device)[0]
    return source_keys((family.name for family in known), runtime.device.backend, runtime.compiler)
