"""Records for ever: SQLite in the user's cache, and the winners that are shipped, read below it.

The key of a winner holds all that changes the answer: schema, kernels and what launches them (sources.py),
compiler, device name, architecture and unit count, problem (with its math), determinism. Driver and clocks
are recorded only.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.device import Device, chip
from tilewright.errors import StoreError, warn_once
from tilewright.plans.why import Origin
from tilewright.problem import Problem
from tilewright.record import PASSING, Record
from tilewright.runtime.cache import folder
from tilewright.store.database import Database
from tilewright.store.exchange import (
    MAX_FILE_BYTES,
    SCHEMA,
    export_text,
    from_json,
    import_text,
    to_json,
)
from tilewright.store.shipped import all_families, shipped_rows, shipped_winners
from tilewright.store.sources import source_key

Sources = Mapping[str, str] | str | None
_Found = tuple[Record, str, str]

_TABLES = (
    """CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL, problem TEXT, device TEXT, source TEXT,
    deterministic INTEGER, family TEXT, config TEXT, outcome TEXT, cold_us REAL, high_us REAL,
    final INTEGER, origin TEXT, body TEXT, digest TEXT)""",
    "CREATE INDEX IF NOT EXISTS by_problem ON records (problem, device)",
    "CREATE TABLE IF NOT EXISTS set_aside AS SELECT * FROM records LIMIT 0",
)
_COLUMNS = (
    "time, problem, device, source, deterministic, family, config, outcome, cold_us, high_us, final, origin, "
    "body, digest"
)
_READ = "id, problem, device, source, origin, body, digest"
_NEWEST = (
    "SELECT MAX(id) FROM records WHERE problem = ? AND device = ? "
    "GROUP BY config, source, origin = 'imported'"
)
MOST_OF_KIN = 3  # hints of the records of another device: it may have hundreds, the best first
_ORIGINS = ("measured", "verified", "imported")  # best first; the last is not to be trusted yet


@dataclass(frozen=True)
class Info:
    """What a store holds. ``set_aside`` lists the corrupt databases that were moved away."""

    path: str
    nbytes: int
    records: int
    correct: int
    imported: int
    problems: int
    devices: tuple[str, ...]
    shipped: int
    set_aside: tuple[str, ...]


class Store:
    """Every outcome ever recorded; many processes may use one store at once.

    Args:
        path: the database file; None for the user's own, in $TILEWRIGHT_CACHE or the platform's
            cache folder. Its folder is made 0700.
        shipped: also read the winners that come with the package, below the user's own.
        timeout_s: how long to wait for another process.

    Raises:
        StoreError: the folder or file is a symbolic link, another user's, or writable by others.

    Example:
        >>> import tempfile; folder = tempfile.TemporaryDirectory()
        >>> Store(folder.name + "/records.sqlite").info().records
        0
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, shipped: bool = True, timeout_s: float = 30.0
    ) -> None:
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise StoreError(f"store: a {type(path).__name__} was given; must be the path of a file, or None")
        given = Path(path) if path is not None else folder() / f"records-{SCHEMA}.sqlite"
        self.path = given.absolute()  # the same file whatever folder the process goes to
        probe = f"SELECT {_COLUMNS} FROM records LIMIT 1"
        self.database = Database(self.path, SCHEMA, _TABLES, probe, timeout_s)
        self._use_shipped = shipped

    # ------------------------------------------------------------------------------- writing

    def require_writable(self) -> None:
        """Check that outcomes can be stored, before any work is done for them.

        Raises:
            StoreError: they cannot be; says why.
        """
        try:
            self.database.use(lambda db: db.execute(f"PRAGMA user_version = {SCHEMA}"), True)
        except StoreError as error:
            raise StoreError(f"nothing tuned could be remembered: {error}") from None

    def add(self, record: Record, origin: str = "measured") -> None:
        """Append one outcome. Its context may name "compiler". One that ``won``, a re-measured
        finalist, ``best`` prefers to a time taken during the search."""
        self.add_all([record], origin)

    def add_all(self, records: Iterable[Record], origin: str = "measured") -> None:
        """Append outcomes in one transaction: all or none."""
        self._insert([_row(record, origin) for record in records])

    def _insert(self, rows: list[tuple[object, ...]]) -> None:
        marks = ", ".join("?" * len(_COLUMNS.split(",")))
        self.database.use(
            lambda db: db.executemany(f"INSERT INTO records ({_COLUMNS}) VALUES ({marks})", rows), True
        )

    def clear(self, problem: Problem | str | None = None, device_key: str | None = None) -> int:
        """Forget records of a problem and a device (None: of all); return how many."""
        where, values = _where(problem, device_key)
        return self.database.use(
            lambda db: db.execute(f"DELETE FROM records WHERE {where}", values).rowcount, True
        )

    # ------------------------------------------------------------------------------- reading

    def best(
        self,
        problem: Problem | str,
        device_key: str,
        deterministic: bool = False,
        source_key: Sources = None,
    ) -> Record | None:
        """Return the winner that may run as it is: verified on this device with this very source.

        Args:
            problem: the layer.
            device_key: ``Device.key``.
            deterministic: only configs that give the same bits each time.
            source_key: ``source_keys`` by family, or one ``source_key``; None takes any source,
                which is for reports and not for running.

        Returns:
            Of the newest record of each config, correct ones: re-measured finalists first, then the
            least upper end of the time's confidence interval. None if there is none.
        """
        for record, source, origin in self._ranked(problem, device_key, deterministic):
            if origin != "imported" and _same(record, source, source_key):
                return record
        return None

    def hints(
        self,
        problem: Problem | str,
        device_key: str,
        deterministic: bool = False,
        source_key: Sources = None,
    ) -> list[Record]:
        """Return likely winners that must be checked and verified first, likeliest first.

        They are those of another kernel source or compiler, imported ones, and shipped ones; then the same of
        other devices with the same chip.
        """
        shipped = shipped_winners(str(problem), device_key) if self._use_shipped else []
        hints: list[Record] = []
        for key in (device_key, *self._kin(problem, {record.device for record in shipped}, device_key)):
            own = key == device_key
            found = [
                replace(record, context={**record.context, "origin": _origin(record, origin, device_key)})
                for record, source, origin in self._ranked(problem, key, deterministic)
                if not own or origin == "imported" or not _same(record, source, source_key)
            ]
            hints += found if own else found[:MOST_OF_KIN]
            hints += [r for r in shipped if r.device == key and r.deterministic >= deterministic]
        failed = self._failed(problem, device_key, source_key)
        first: dict[str, Record] = {}
        for record in hints:
            if record.config not in failed:
                first.setdefault(record.config, record)
        return list(first.values())

    def records(
        self,
        problem: Problem | str | None = None,
        device_key: str | None = None,
        source_key: Sources = None,
    ) -> list[Record]:
        """Return the history, oldest first, failures too; with a ``source_key`` what was tried here of it."""
        where, values = _where(problem, device_key)
        query = f"SELECT {_READ} FROM records WHERE {where} ORDER BY id"
        return [
            record for record, source, origin in self._select(query, values)
            if source_key is None or (origin != "imported" and _same(record, source, source_key))
        ]  # fmt: skip

    def info(self) -> Info:
        """Count what is there."""
        query = (
            "SELECT COUNT(*), COALESCE(SUM(outcome = 'correct'), 0), COALESCE(SUM(origin = 'imported'), 0), "
            "COUNT(DISTINCT problem) FROM records"
        )
        records, correct, imported, problems = self.database.use(lambda db: db.execute(query).fetchone())
        query = "SELECT DISTINCT device FROM records ORDER BY 1"
        devices = self.database.use(lambda db: db.execute(query).fetchall())
        return Info(
            path=str(self.path), nbytes=self.path.stat().st_size, records=records, correct=correct,
            imported=imported, problems=problems, devices=tuple(name for (name,) in devices),
            shipped=sum(map(len, shipped_rows().values())) if self._use_shipped else 0,
            set_aside=self.database.set_aside(),
        )  # fmt: skip

    # ------------------------------------------------------------------------------- sharing

    def export_json(self, problem: Problem | str | None = None, device_key: str | None = None) -> str:
        """Return the winners as JSON text: typed parameters and figures, no source, no binary."""
        where, values = _where(problem, device_key)
        query = f"SELECT DISTINCT problem, device FROM records WHERE {where} ORDER BY 2, 1"
        winners: dict[tuple[str, str, str], Record] = {}
        for name, device in self.database.use(lambda db: db.execute(query, values).fetchall()):
            for deterministic in (False, True):
                record = self.best(name, device, deterministic)
                if record:
                    winners[name, device, record.config] = record
        return export_text(winners.values())

    def import_json(self, text: str, devices: Sequence[Device] = (), source: str = "import") -> int:
        """Take in winners that someone shared; return how many were not known from an import before.

        They are verified before first use.

        Raises:
            StoreError: names the first field that is not right; nothing is imported then.
        """
        if not isinstance(text, str):
            raise StoreError(f"{source}: a {type(text).__name__} was given; must be the JSON text")
        if len(text) > MAX_FILE_BYTES:
            raise StoreError(f"{source}: {len(text)} characters; at most {MAX_FILE_BYTES} are read")
        records = import_text(text, source, all_families(), devices)
        query = "SELECT digest FROM records WHERE origin = 'imported'"
        known = {digest for (digest,) in self.database.use(lambda db: db.execute(query).fetchall())}
        rows = [row for row in (_row(record, "imported") for record in records) if row[-1] not in known]
        self._insert(rows)
        return len(rows)

    # ------------------------------------------------------------------------------- inside

    def _ranked(self, problem: Problem | str, device_key: str, deterministic: bool) -> list[_Found]:
        """Correct configs, best first, each by its newest record of each source."""
        query = (
            f"SELECT {_READ} FROM records WHERE id IN ({_NEWEST}) AND outcome = 'correct' AND "
            "high_us IS NOT NULL AND deterministic >= ? ORDER BY "
            "origin = 'imported', origin = 'verified', final DESC, high_us, id DESC"
        )
        found = self._select(query, [str(problem), device_key, int(deterministic)])
        return [item for item in found if item[0].check and item[0].check.ok and item[0].measurement]

    def _kin(self, problem: Problem | str, shipped: set[str], device_key: str) -> list[str]:
        """Name the other devices with the same chip of which the problem has records, here or shipped."""
        query = "SELECT DISTINCT device FROM records WHERE problem = ?"
        found = self.database.use(lambda db: db.execute(query, (str(problem),)).fetchall())
        others = (shipped | {key for (key,) in found}) - {device_key}
        return sorted(key for key in others if chip(key) == chip(device_key))

    def _failed(self, problem: Problem | str, device_key: str, wanted: Sources) -> set[str]:
        """Configs that this very source was tried with, and that fail whenever they are tried."""
        query = f"SELECT {_READ} FROM records WHERE id IN ({_NEWEST}) AND outcome != 'correct'"
        found = self._select(query, [str(problem), device_key])
        lasting = [item for item in found if item[0].outcome not in PASSING]
        return {record.config for record, source, _ in lasting if _same(record, source, wanted)}

    def _select(self, query: str, values: Sequence[object]) -> list[_Found]:
        """Read records, each with its source key and origin; set corrupt ones aside."""
        rows = self.database.use(lambda db: db.execute(query, values).fetchall())
        good: list[_Found] = []
        bad: list[tuple[int]] = []
        for number, *stated, body, digest in rows:
            try:
                if digest != _digest(*stated, body):
                    raise StoreError("its digest does not match")
                good.append((from_json(body), str(stated[2]), str(stated[3])))
            except StoreError as error:
                bad.append((number,))
                text = f"store {self.path}: a corrupt record is set aside ({error})"
                warn_once(text, f"record {self.path}")
        if bad:
            with suppress(StoreError):  # they stay where nothing can be written
                self.database.use(lambda db: _move(db, bad), True)
        return good


def _move(db: sqlite3.Connection, numbers: list[tuple[int]]) -> None:
    db.executemany("INSERT INTO set_aside SELECT * FROM records WHERE id = ?", numbers)
    db.executemany("DELETE FROM records WHERE id = ?", numbers)


def _origin(record: Record, origin: str, device_key: str) -> Origin:
    """Say in the words of ``Why`` where a hint for a device comes from."""
    if origin == "imported":
        return Origin.IMPORTED
    return Origin.OLDER if record.device == device_key else Origin.KIN


def _row(record: Record, origin: str) -> tuple[object, ...]:
    if origin not in _ORIGINS:
        raise StoreError(f"origin {origin!r}: must be one of {', '.join(_ORIGINS)}")
    source = source_key(record.family, record.device.partition("/")[0], record.context.get("compiler", ""))
    body = to_json(record)
    timed = record.measurement
    return (
        time.time(), record.problem, record.device, source, int(record.deterministic), record.family,
        record.config, record.outcome, timed.cold_us if timed else None,
        timed.cold_us + timed.ci95_us if timed else None, int(record.won), origin,
        body, _digest(record.problem, record.device, source, origin, body),
    )  # fmt: skip


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()


def _where(problem: Problem | str | None, device_key: str | None) -> tuple[str, list[str]]:
    tests = [("problem", problem), ("device", device_key)]
    given = [(name, str(value)) for name, value in tests if value is not None]
    return " AND ".join(f"{name} = ?" for name, _ in given) or "1", [value for _, value in given]


def _same(record: Record, source: str, wanted: Sources) -> bool:
    if wanted is None:
        return True
    return source == (wanted if isinstance(wanted, str) else wanted.get(record.family))
