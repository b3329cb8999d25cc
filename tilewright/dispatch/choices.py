"""Which configs may run a problem, best first: the stored winner, one from elsewhere (``why.FROM_ELSEWHERE``)
once verified, the model's best legal configs, the reference. Each comes with why it is tried."""

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
from tilewright.search.space import usable
from tilewright.store import Store
from tilewright.store.sources import source_keys

# Places in the model's order, tried in turn until one compiles. Neighbours are much alike: if the first
# few spill registers, so may the next hundred.
GUESSES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
MOST_HINTS = 2  # winners from elsewhere, verified in turn until one is right
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
    problem: Problem, runtime: Runtime, store: Store, deterministic: bool, families: list[Family]
) -> Iterator[tuple[Config, Why]]:
    """Yield the store's winner, and hints that were right when verified here and now."""
    tried, where = 0, (runtime.device, runtime.compiler)
    try:
        for config, origin in _known(problem, *where, store, deterministic, families):
            if origin is Origin.STORED:
                yield config, Why(origin)
                continue
            if (tried := tried + 1) > MOST_HINTS:
                return
            with _verifying:
                record = verified(problem, runtime, config)
            if record is None:
                return
            _remember(store, record)
            if record.outcome == "correct" and record.deterministic >= deterministic:
                yield config, Why(origin)
    except StoreError as error:
        warn_once(f"the store is not used: {error}", f"store {store.path}")


def _known(
    problem: Problem, device: Device, compiler: str, store: Store, deterministic: bool, families: list[Family]
) -> Iterator[tuple[Config, Origin]]:
    """Yield the store's winner, then legal hints, likeliest first; the store is asked as they are needed.

    Raises:
        StoreError: the store cannot be used.
    """
    keys = source_keys((family.name for family in families), device.backend, compiler)
    if (best := store.best(problem, device.key, deterministic, keys)) and (config := _config(best)):
        yield config, Origin.STORED
    for hint in store.hints(problem, device.key, deterministic, keys):
        if config := _legal(hint, problem, device, families):
            yield config, Origin(hint.context["origin"])


def _remember(store: Store, record: Record) -> None:
    try:
        store.add(record, "verified")
    except StoreError as error:
        warn_once(f"the store cannot be written: {error}", f"store {store.path}")


def foreseen(
    problem: Problem, device: Device, compiler: str, store: Store, deterministic: bool = False,
    names: Sequence[str] = (),
) -> Iterator[tuple[Config, Why]]:
    """Yield configs for a device that need not be here, best first, each with why; none is verified.

    The store's winner, those from elsewhere, the model's choices; of all families, and then the reference, or
    of those that are named.

    Raises:
        ProblemError: none of the named families takes the problem; says why.
    """
    families, passed = usable(pick(FAMILIES, names), problem, device)
    if names and not families:
        raise ProblemError(f"{problem}: {'; '.join(f'{name}: {reason}' for name, reason in passed.items())}")
    for config, origin in _known(problem, device, compiler, store, deterministic, families):
        yield config, Why(origin, verified=origin is Origin.STORED)
    for config in ranked_for(problem, device, families, deterministic):
        yield config, Why(Origin.MODEL, verified=False)
    if not names:
        yield REFERENCE, Why(Origin.REFERENCE)


def _config(record: Record) -> Config | None:
    """Return the config of a record; none if its text, made by hand, cannot be read."""
    with suppress(ConfigError):
        return Config.parse(record.config)
    return None


def _legal(hint: Record, problem: Problem, device: Device, families: list[Family]) -> Config | None:
    """Return a config that came from elsewhere if it keeps the rules on this very device."""
    with suppress(ConfigError, StopIteration):
        config = Config.parse(hint.config)
        next(f for f in families if f.name == config.family).check(problem, device, config)
        return config
    return None


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
    """Return the winner, if a tuning raced all these families to the end, with these very kernels.

    A later search of some of them may have found a faster one, or the same again.
    """
    best = stored(problem, runtime, store, deterministic, families)
    if best is None or not best.won:
        return None
    wanted = _keys(problem, runtime, families)
    won = [r for r in store.records(problem, runtime.device.key, wanted) if r.won]
    may_answer = [r for r in won if r.deterministic >= deterministic]
    return best if any(r.raced is None or r.raced >= wanted.keys() for r in may_answer) else None


def _keys(problem: Problem, runtime: Runtime, families: Sequence[str]) -> dict[str, str]:
    """Return the source key of each of these families that takes the problem."""
    known = usable(pick(FAMILIES, families), problem, runtime.device)[0]
    return source_keys((family.name for family in known), runtime.device.backend, runtime.compiler)
