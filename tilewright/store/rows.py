"""Records as rows of a database: how they are written, read, checked and ordered."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from tilewright.device import read_key
from tilewright.errors import StoreError, a_kind, shown, warn_once
from tilewright.problem import Problem
from tilewright.problem.shapes import as_problem
from tilewright.record import Record
from tilewright.store.database import Database
from tilewright.store.record_json import from_json, to_json
from tilewright.store.sources import Sources

SCHEMA = 1  # of these tables; what a record's body has may grow without it
TABLES = (
    """CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL, problem TEXT, device TEXT, source TEXT,
    deterministic INTEGER, family TEXT, config TEXT, outcome TEXT, cold_us REAL, high_us REAL,
    final INTEGER, origin TEXT, body TEXT, digest TEXT)""",
    "CREATE INDEX IF NOT EXISTS by_problem ON records (problem, device)",
    "CREATE TABLE IF NOT EXISTS set_aside AS SELECT * FROM records LIMIT 0",
)
COLUMNS = (
    "time, problem, device, source, deterministic, family, config, outcome, cold_us, high_us, final, origin, "
    "body, digest"
)
READ = "id, problem, device, source, origin, body, digest"
# How a record came into the store, best first: of a search here; what others found, right here; from a shared
# file, and not to be trusted yet.
MEASURED, VERIFIED, IMPORTED = ORIGINS = ("measured", "verified", "imported")


class Found(NamedTuple):
    """A stored record and its origin, one of ORIGINS."""

    record: Record
    origin: str

    @property
    def imported(self) -> bool:
        """Whether it is from a shared file, and not to be trusted yet."""
        return self.origin == IMPORTED

    def is_of(self, sources: Sources | None) -> bool:
        """Whether it was made with these kernels; always if ``sources`` is None."""
        return sources is None or sources.has(self.record)


def to_row(record: Record, origin: str) -> tuple[object, ...]:
    """Return the row of a record, in the order of COLUMNS.

    Raises:
        StoreError: ``origin`` is none of ORIGINS.
    """
    if origin not in ORIGINS:
        raise StoreError(f"origin {origin!r}: must be one of {', '.join(ORIGINS)}")
    source = "" if origin == IMPORTED else record.source
    body = to_json(record)
    timed = record.measurement
    return (
        time.time(), record.problem, record.device, source, int(record.deterministic), record.family,
        record.config, record.outcome, timed.cold_us if timed else None,
        timed.high_us if timed else None, int(record.won), origin,
        body, _digest(record.problem, record.device, source, origin, body),
    )  # fmt: skip


def where(problem: Problem | str | None, device_key: str | None) -> tuple[str, list[str]]:
    """Return a condition and its values: records of a problem and a device (None: of all).

    Raises:
        ProblemError: the problem string is malformed.
        StoreError: ``device_key`` is no key of a device.
    """
    layer = None if problem is None else str(as_problem(problem))  # records have one of its forms
    device = None if device_key is None else as_key(device_key)
    given = [(name, value) for name, value in (("problem", layer), ("device", device)) if value is not None]
    return " AND ".join(f"{name} = ?" for name, _ in given) or "1", [value for _, value in given]


def as_key(device_key: object) -> str:
    """Accept the key of a device; a Device itself, or its short name, would find nothing.

    Raises:
        StoreError: it is none.
    """
    if not isinstance(device_key, str):
        raise StoreError(f"device_key: {a_kind(device_key)} was given; must be the key of a Device, a str")
    if read_key(device_key) is None:
        must = "must be the key of a Device; Store().info().devices lists those with records"
        raise StoreError(f"device_key {shown(device_key)}: {must}")
    return device_key


def ranked(newest: Iterable[Found], deterministic: bool, sources: Sources | None = None) -> list[Found]:
    """Return the correct ones of ``Store.newest``, best first: winners of comparisons, others that were
    compared, then trials and what was verified here, whose times are rough alike. A winner of other kernels
    than ``sources`` does not displace an older one.
    """
    winners: list[Record] = []  # of comparisons, newest first
    placed: list[tuple[tuple[bool, int, float], Found]] = []
    for found in newest:
        record = found.record
        right = record.is_right and _passed(found)
        if record.measurement is None or not right or record.deterministic < deterministic:
            continue
        wins = record.won and not any(_overtakes(winner, record) for winner in winners)
        rank = 0 if wins else 1 if record.compared else 2
        place = (found.imported, rank, record.measurement.high_us)
        placed.append((place, found))
        if record.won and not found.imported and found.is_of(sources):
            winners.append(record)
    return [one for _, one in sorted(placed, key=lambda item: item[0])]


def _overtakes(winner: Record, older: Record) -> bool:
    """Whether the config of an older record could have taken part in a winner's comparison."""
    return older.family in (winner.search.raced or ()) and older.deterministic >= winner.deterministic


def _passed(found: Found) -> bool:
    """Whether the record passed its check here, or is an import, which was checked elsewhere."""
    return found.record.check.ok if found.record.check else found.imported


def select(database: Database, query: str, values: Sequence[object]) -> list[Found]:
    """Read records, each with its origin; set corrupt ones aside, and pass over those of other versions."""
    rows = database.use(lambda db: db.execute(query, values).fetchall())
    good: list[Found] = []
    bad: list[tuple[int]] = []
    for number, *stated, body, digest in rows:
        if digest != _digest(*stated, body):
            bad.append((number,))
            text = "a corrupt record is set aside (its digest does not match)"
            warn_once(f"store {database.path}: {text}", f"record {database.path}")
            continue
        try:
            good.append(Found(replace(from_json(body), source=str(stated[2])), str(stated[3])))
        except StoreError as error:  # as it was written: whoever wrote it can read it
            text = f"a record of another version of tilewright is passed over ({error})"
            warn_once(f"store {database.path}: {text}", f"version {database.path}")
    if bad:
        with suppress(StoreError):  # they stay where nothing can be written
            database.use(lambda db: _move(db, bad), True)
    return good


def _move(db: sqlite3.Connection, numbers: list[tuple[int]]) -> None:
    db.executemany("INSERT INTO set_aside SELECT * FROM records WHERE id = ?", numbers)
    db.executemany("DELETE FROM records WHERE id = ?", numbers)


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()
