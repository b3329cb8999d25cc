"""Hints: winners that must be verified before they may run; and winners of similar layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from tilewright.device import Device, chip
from tilewright.errors import ProblemError
from tilewright.kernels import FAMILIES
from tilewright.plans.provenance import Basis
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue
from tilewright.record import PASSING, Outcome, Record
from tilewright.search.space import usable
from tilewright.store import Store
from tilewright.store.rows import Found, ranked
from tilewright.store.shipped import shipped_winners
from tilewright.store.sources import Sources

MOST_OF_KIN = 3  # hints of the records of another device: it may have hundreds, the best first
ENOUGH_TRIALS = 8  # of a search that its budget ended: so many find 97% of the best speed (docs/search.md)


@dataclass(frozen=True)
class Hint:
    """A winner, and where it comes from."""

    record: Record
    basis: Basis


def likely(
    store: Store, problem: Problem | str, device_key: str, deterministic: bool = False,
    sources: Sources | None = None,
) -> list[Hint]:  # fmt: skip
    """Return likely winners that must be verified first, likeliest first.

    First those of other kernels or another compiler, imported ones and shipped ones; then the same of other
    devices with the same chip; last configs that were tried here with other kernels but never compared, of
    which there may be hundreds. What failed here is left out.

    Args:
        store: where they are kept.
        problem, device_key, deterministic, sources: as for ``Store.best``.

    Raises:
        StoreError: the store cannot be read.
    """
    newest = store.newest(problem, device_key)
    shipped = shipped_winners(str(problem), device_key) if store.uses_shipped else []
    hints: list[Hint] = []
    for key in (device_key, *_kin(store, problem, device_key)):
        own = key == device_key
        found = [
            Hint(one.record, _basis(one, own))
            for one in ranked(newest if own else store.newest(problem, key, right=True), deterministic)
            if not own or one.imported or not one.is_of(sources)
        ]
        hints += found if own else found[:MOST_OF_KIN]
        theirs = [r for r in shipped if r.device == key and r.deterministic >= deterministic]
        hints += [Hint(record, Basis.SHIPPED) for record in theirs]
    hints.sort(key=lambda hint: hint.basis == Basis.OLDER and not hint.record.compared)
    failed = _failing(newest, sources)
    first: dict[str, Hint] = {}
    for hint in hints:
        if hint.record.config not in failed:
            first.setdefault(hint.record.config, hint)
    return list(first.values())


def alike(
    store: Store, problem: Problem, device: Device, deterministic: bool = False,
    sources: Sources | None = None,
) -> Iterator[Record]:  # fmt: skip
    """Yield winners of similar layers, likeliest first: layers that differ only in the epilogue (except its
    pool), between bf16 and f16, or between i8 with and without ``+requant``.

    They won searches of all families with more than a few trials, or came from elsewhere. They are not
    verified for this layer; those that failed here are left out.

    Args:
        store, problem, deterministic, sources: as for ``likely``.
        device: of which they are winners.

    Raises:
        StoreError: the store cannot be read.
    """
    skipped = _failing(store.newest(problem, device.key), sources)
    for other in _layers_alike(store, problem, device.chip):
        for hint in _winners(store, other, device.key, deterministic, sources):
            if hint.record.config not in skipped and _searched_well(hint, other, device, sources):
                skipped.add(hint.record.config)
                yield hint.record


def _winners(
    store: Store, problem: Problem, device_key: str, deterministic: bool, sources: Sources | None
) -> Iterator[Hint]:
    """Yield the winner of a problem, then likely ones, which are rarely needed."""
    if best := store.best(problem, device_key, deterministic, sources):
        yield Hint(best, Basis.STORED)
    yield from likely(store, problem, device_key, deterministic, sources)


def _layers_alike(store: Store, problem: Problem, its_chip: str) -> list[Problem]:
    """Return layers with records or shipped winners whose configs should suit this one, most similar first:
    they have the same sizes, layouts, pool and ``Problem.timed_as``.
    """
    names = {name for name, key in store.same_sizes(problem) if chip(key) == its_chip}
    others = [other for other in map(_problem, names - {str(problem)}) if other]
    alike = [other for other in others if likeness(other) == likeness(problem)]
    return sorted(alike, key=lambda other: (_apart(problem, other), str(other)))


def _problem(text: str) -> Problem | None:
    with suppress(ProblemError):
        return Problem.parse(text)
    return None


def likeness(problem: Problem) -> Problem:
    """A representative that all similar layers share: in the dtype they are timed as, with only the pool.

    An image of one pixel counts as nchw, whatever its layouts.
    """
    pool = Epilogue(pool=problem.epilogue.pool)
    found = replace(problem, dtype=problem.timed_as, math="strict", epilogue=pool)
    return found.with_layout("nchw") if problem.h * problem.w * problem.p * problem.q == 1 else found


def _apart(problem: Problem, other: Problem) -> tuple[bool, ...]:
    """The differences between two layers, the most important first."""
    one, two = problem.epilogue, other.epilogue
    return (
        one.add != two.add, problem.precision != other.precision, one.act != two.act, one.bias != two.bias,
        one != two,
    )  # fmt: skip


def _searched_well(hint: Hint, problem: Problem, device: Device, sources: Sources | None) -> bool:
    """Whether a winner won a search of all families of ``sources`` with enough trials; shared winners are
    assumed to have."""
    won, search = hint.record.won, hint.record.search
    if hint.basis in (Basis.SHIPPED, Basis.IMPORTED):
        return True
    if not won or (search.cut is not None and search.cut.trials < ENOUGH_TRIALS):
        return False
    if search.raced is None:
        return True
    missed = [family for family in FAMILIES if family.name not in search.raced]
    named = sources.names if sources else [family.name for family in missed if family.races]
    return not usable([family for family in missed if family.name in named], problem, device)[0]


def _kin(store: Store, problem: Problem | str, device_key: str) -> list[str]:
    """Return the keys of other devices with the same chip that have records or shipped winners of it."""
    others = {key for name, key in store.same_sizes(problem) if name == str(problem)} - {device_key}
    return sorted(key for key in others if chip(key) == chip(device_key))


def _failing(newest: Iterable[Found], sources: Sources | None) -> set[str]:
    """Return configs that failed with exactly these kernels, in a way that would repeat."""
    lasting = [one for one in newest if one.record.outcome not in (Outcome.CORRECT, *PASSING)]
    return {one.record.config for one in lasting if one.is_of(sources)}


def _basis(found: Found, own: bool) -> Basis:
    """Return the basis of a hint; ``own``: it is of this device, not of another."""
    if found.imported:
        return Basis.IMPORTED
    return Basis.OLDER if own else Basis.KIN
