"""Hints: winners that must be checked and verified before they may run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.device import chip
from tilewright.plans.provenance import Origin
from tilewright.problem import Problem
from tilewright.record import PASSING, Record
from tilewright.store.database import Database
from tilewright.store.rows import NEWEST, READ, Sources, ranked, same, select

MOST_OF_KIN = 3  # hints of the records of another device: it may have hundreds, the best first


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
    failed = _failed(database, problem, device_key, wanted)
    first: dict[str, Record] = {}
    for record in hints:
        if record.config not in failed:
            first.setdefault(record.config, record)
    return list(first.values())


def _kin(database: Database, problem: Problem | str, shipped: set[str], device_key: str) -> list[str]:
    """Name the other devices with the same chip of which the problem has records, here or shipped."""
    query = "SELECT DISTINCT device FROM records WHERE problem = ?"
    found = database.use(lambda db: db.execute(query, (str(problem),)).fetchall())
    others = (shipped | {key for (key,) in found}) - {device_key}
    return sorted(key for key in others if chip(key) == chip(device_key))


def _failed(database: Database, problem: Problem | str, device_key: str, wanted: Sources) -> set[str]:
    """Configs that this very source was tried with, and that fail whenever they are tried."""
    query = f"SELECT {READ} FROM records WHERE id IN ({NEWEST}) AND outcome != 'correct'"
    found = select(database, query, [str(problem), device_key])
    lasting = [item for item in found if item[0].outcome not in PASSING]
    return {record.config for record, source, _ in lasting if same(record, source, wanted)}


def _origin(record: Record, origin: str, device_key: str) -> Origin:
    """Say in the words of ``Provenance`` where a hint for a device comes from."""
    if origin == "imported":
        return Origin.IMPORTED
    return Origin.OLDER if record.device == device_key else Origin.KIN
