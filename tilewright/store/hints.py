"""Hints: winners that must be checked and verified before they may run; and winners of layers alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from tilewright.device import Device, chip
from tilewright.errors import ProblemError
from tilewright.plans.provenance import Origin
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue
from tilewright.record import PASSING, Record
from tilewright.search.space import usable
from tilewright.store.database import Database
from tilewright.store.rows import NEWEST, READ, Sources, ranked, same, select
from tilewright.store.shipped import all_families

MOST_OF_KIN = 3  # hints of the records of another device: it may have hundreds, the best first
ENOUGH_TRIALS = 8  # of a search that its budget ended: so many find 96% of the best speed (docs/search.md)


def likely(
    database: Database,
    shipped: Sequence[Record],
    problem: Problem | str,
    device_key: str,
    deterministic: bool,
    wanted: Sources,
) -> list[Record]:
    """Return what may win, likeliest first: see ``Store.hints``, whose ``source_key`` is ``wanted``."""
    hints: list[Record] = []
    for key in (device_key, *_kin(database, problem, {record.device for record in shipped}, device_key)):
        own = key == device_key
        found = [
            replace(record, context={**record.context, "origin": _origin(record, origin, device_key)})
            for record, source, origin in ranked(database, problem, key, deterministic)
            if not own or origin == "imported" or not same(record, source, wanted)
        ]
        hints += found if own else found[:MOST_OF_KIN]
        hints += [r for r in shipped if r.device == key and r.deterministic >= deterministic]
    failed = failing(database, problem, device_key, wanted)
    first: dict[str, Record] = {}
    for record in hints:
        if record.config not in failed:
            first.setdefault(record.config, record)
    return list(first.values())


def layers_alike(
    database: Database, shipped: Iterable[tuple[str, str]], problem: Problem, device_key: str
) -> list[Problem]:
    """Return layers that have records here or shipped winners, and that the same configs should suit: all but
    the epilogue is the same, and so are the pool and ``Problem.timed_as``. The most alike come first.
    """
    sizes = str(problem).partition("-")[0] + "-"
    query = "SELECT DISTINCT problem, device FROM records WHERE problem >= ? AND problem < ?"
    ends = sizes, sizes[:-1] + "."  # the character behind "-"
    found = database.use(lambda db: db.execute(query, ends).fetchall())
    names = {name for name, key in found if chip(key) == chip(device_key)}
    names |= {name for name, key in shipped if key == chip(device_key) and name.startswith(sizes)}
    others = [other for other in map(_problem, names - {str(problem)}) if other]
    alike = [other for other in others if bare(other) == bare(problem)]
    return sorted(alike, key=lambda other: (_apart(problem, other), str(other)))


def _problem(text: str) -> Problem | None:
    with suppress(ProblemError):
        return Problem.parse(text)
    return None


def bare(problem: Problem) -> Problem:
    """The layer as what it is timed as: its kind, no epilogue but its pool, images of one pixel in nchw."""
    bare = Epilogue(pool=problem.epilogue.pool)
    found = replace(problem, dtype=problem.timed_as, math="strict", epilogue=bare)
    return found.with_layout("nchw") if problem.h * problem.w * problem.p * problem.q == 1 else found


def _apart(problem: Problem, other: Problem) -> tuple[bool, ...]:
    """In what two layers differ, what matters most first."""
    one, two = problem.epilogue, other.epilogue
    return (
        one.add != two.add, problem.kind != other.kind, one.act != two.act, one.bias != two.bias, one != two
    )  # fmt: skip


def searched_well(record: Record, problem: Problem, device: Device, wanted: Sources) -> bool:
    """Whether a record of a problem won a search of all families that are wanted, and of enough trials;
    whoever shares one is believed."""
    if record.context.get("origin") in (Origin.SHIPPED, Origin.IMPORTED):
        return True
    if not record.won or (record.cut is not None and record.cut[1] < ENOUGH_TRIALS):
        return False
    if record.raced is None:
        return True
    missed = [family for family in all_families() if family.name not in record.raced]
    named = wanted if isinstance(wanted, Mapping) else [family.name for family in missed if family.races]
    return not usable([family for family in missed if family.name in named], problem, device)[0]


def _kin(database: Database, problem: Problem | str, shipped: set[str], device_key: str) -> list[str]:
    """Name the other devices with the same chip of which the problem has records, here or shipped."""
    query = "SELECT DISTINCT device FROM records WHERE problem = ?"
    found = database.use(lambda db: db.execute(query, (str(problem),)).fetchall())
    others = (shipped | {key for (key,) in found}) - {device_key}
    return sorted(key for key in others if chip(key) == chip(device_key))


def failing(database: Database, problem: Problem | str, device_key: str, wanted: Sources) -> set[str]:
    """Return configs that this very source was tried with, and that fail whenever they are tried."""
    query = f"SELECT {READ} FROM records WHERE id IN ({NEWEST}) AND outcome != 'correct'"
    found = select(database, query, [str(problem), device_key])
    lasting = [item for item in found if item[0].outcome not in PASSING]
    return {record.config for record, source, _ in lasting if same(record, source, wanted)}


def _origin(record: Record, origin: str, device_key: str) -> Origin:
    """Say in the words of ``Provenance`` where a hint for a device comes from."""
    if origin == "imported":
        return Origin.IMPORTED
    return Origin.OLDER if record.device == device_key else Origin.KIN
