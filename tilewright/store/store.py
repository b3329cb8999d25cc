"""The interface of the store: outcomes are added, winners looked up, winners shared."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real

from tilewright.device import Device
from tilewright.errors import StoreError, a_kind, shown
from tilewright.kernels import FAMILIES
from tilewright.problem import Problem
from tilewright.problem.shapes import as_problem
from tilewright.record import Record
from tilewright.runtime.cache_folder import folder
from tilewright.store.database import Database, named_file
from tilewright.store.exchange import MAX_FILE_BYTES, export_text, import_text
from tilewright.store.rows import (
    COLUMNS,
    IMPORTED,
    MEASURED,
    READ,
    SCHEMA,
    TABLES,
    Found,
    as_key,
    ranked,
    select,
    to_row,
    where,
)
from tilewright.store.shipped import shipped_rows
from tilewright.store.sources import Sources

_MOST_TIMEOUT_S = 1e6  # SQLite counts milliseconds in 32 bits


@dataclass(frozen=True)
class Info:
    """What a store holds.

    Attributes:
        path: of its database.
        nbytes: size of that file.
        records: how many there are, failures too.
        correct: those with right answers.
        imported: those that came from shared files.
        problems: how many problems they are for.
        devices: the keys of the devices that they are for, sorted.
        shipped: winners that come with the package; 0 if they are not used.
        set_aside: corrupt databases that were moved away.
    """

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
        path: the database file, where ``~`` is the home folder; None for the user's own, in
            $TILEWRIGHT_CACHE or the platform's cache folder. Its folder is created with mode 0700 if it does
            not exist.
        shipped: also read the winners that come with the package, after the user's own.
        timeout_s: how long to wait for another process.

    Attributes:
        path: of the database file.
        key: equal for stores that give the same answers: the file, and whether shipped winners count.

    Raises:
        StoreError: the folder or file is a symbolic link, another user's, or writable by others; it can be no
            path, or ``timeout_s`` no time to wait; or, at its first use, a file that is not a store.

    Example:
        >>> import tempfile; folder = tempfile.TemporaryDirectory()
        >>> Store(folder.name + "/records.sqlite").info().records
        0
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, shipped: bool = True, timeout_s: float = 30.0
    ) -> None:
        number = isinstance(timeout_s, Real) and not isinstance(timeout_s, bool)
        if not number or not 0 <= timeout_s <= _MOST_TIMEOUT_S:
            must = f"must be a number of seconds from 0 to {_MOST_TIMEOUT_S:g}"
            raise StoreError(f"store: timeout_s={shown(timeout_s)}: {must}")
        given = folder() / f"records-{SCHEMA}.sqlite" if path is None else named_file(path)
        try:
            self.path = given.absolute()  # the same file whatever folder the process goes to
        except OSError as error:
            raise StoreError(f"store {given}: the current folder is gone ({error.strerror})") from None
        probe = f"SELECT id, {COLUMNS} FROM records LIMIT 1"
        self.database = Database(self.path, SCHEMA, TABLES, probe, float(timeout_s), own=path is None)
        self.uses_shipped = shipped
        self.key = str(self.path), shipped

    def __repr__(self) -> str:
        return f"<store {self.path}>"

    @property
    def state(self) -> tuple[int, ...]:
        """A value that changes when the file is written to; reading it costs one ``stat``."""
        try:
            info = self.path.stat()
        except OSError:
            return ()
        return info.st_ino, info.st_size, info.st_mtime_ns

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

    def add(self, record: Record, origin: str = MEASURED) -> None:
        """Append one outcome. ``best`` prefers one that ``won``, a re-measured finalist, to a trial.

        Args:
            record: the outcome.
            origin: "measured" by a search; "verified": found elsewhere and verified here; or "imported".

        Raises:
            StoreError: it cannot be written, or there is no such origin.
        """
        self.add_all([record], origin)

    def add_all(self, records: Iterable[Record], origin: str = MEASURED) -> None:
        """Append outcomes in one transaction: all or none.

        Raises:
            StoreError: as for ``add``.
        """
        records = list(records)
        if strange := [record for record in records if not isinstance(record, Record)]:
            raise StoreError(f"store {self.path}: {a_kind(strange[0])} was given; must be a Record")
        self._insert([to_row(record, origin) for record in records])

    def _insert(self, rows: list[tuple[object, ...]]) -> None:
        marks = ", ".join("?" * len(COLUMNS.split(",")))
        self.database.use(
            lambda db: db.executemany(f"INSERT INTO records ({COLUMNS}) VALUES ({marks})", rows), True
        )

    def clear(self, problem: Problem | str | None = None, device_key: str | None = None) -> int:
        """Delete records of a problem and a device (None: of all); return how many.

        Those that were set aside as corrupt go, too, and do not count.

        Raises:
            ProblemError: the problem string is malformed.
            StoreError: the store cannot be written, or ``device_key`` is no key.
        """
        condition, values = where(problem, device_key)

        def delete(db: sqlite3.Connection) -> int:
            db.execute(f"DELETE FROM set_aside WHERE {condition}", values)
            return db.execute(f"DELETE FROM records WHERE {condition}", values).rowcount

        return self.database.use(delete, True)

    # ------------------------------------------------------------------------------- reading

    def best(
        self,
        problem: Problem | str,
        device_key: str,
        deterministic: bool = False,
        sources: Sources | None = None,
    ) -> Record | None:
        """Return the winner that may run without another check: verified on this device with these kernels.

        Args:
            problem: the layer: a Problem, a problem string, or the name of a shipped layer.
            device_key: ``Device.key``.
            deterministic: only configs that give the same bits each time.
            sources: the current kernels; None accepts any, which is for reports and not for running.

        Returns:
            The best of the newest records of all configs, if correct: winners of comparisons first, then
            others that were compared, then trials and what was found elsewhere and verified here, each by
            the upper end of the time's confidence interval. A winner loses its rank once another wins a later
            comparison that its family took part in: times of different hours are less comparable. None if
            there is none.

        Raises:
            ProblemError: the problem string is malformed.
            StoreError: the store cannot be read, or ``device_key`` is no key.
        """
        return self._best(str(as_problem(problem)), as_key(device_key), deterministic, sources)

    def _best(
        self, name: str, device_key: str, deterministic: bool, sources: Sources | None = None
    ) -> Record | None:
        for found in ranked(self.newest(name, device_key, right=True), deterministic, sources):
            if not found.imported and found.is_of(sources):
                return found.record
        return None

    def newest(self, problem: Problem | str, device_key: str, right: bool = False) -> list[Found]:
        """Return the newest record of each config and source, newest first.

        Args:
            problem: the layer, or its name in the records.
            device_key: ``Device.key``.
            right: leave out those that failed.

        Raises:
            StoreError: the store cannot be read.
        """
        latest = (
            "SELECT MAX(id) FROM records WHERE problem = ? AND device = ? "
            "GROUP BY config, source, origin = 'imported'"
        )
        rightly = "AND outcome = 'correct' AND high_us IS NOT NULL" if right else ""
        query = f"SELECT {READ} FROM records WHERE id IN ({latest}) {rightly} ORDER BY id DESC"
        return select(self.database, query, [str(problem), device_key])

    def same_sizes(self, problem: Problem | str) -> set[tuple[str, str]]:
        """Return (layer, device key) for all layers of these sizes with records or shipped winners.

        Raises:
            StoreError: the store cannot be read.
        """
        sizes = str(problem).partition("-")[0] + "-"
        query = (
            "SELECT DISTINCT problem, device FROM records WHERE problem >= ? AND problem < ? "
            "AND typeof(device) = 'text'"
        )
        ends = sizes, sizes[:-1] + "."  # the character behind "-"
        found: set[tuple[str, str]] = set(self.database.use(lambda db: db.execute(query, ends).fetchall()))
        for (name, _), rows in shipped_rows().items() if self.uses_shipped else ():
            found |= {(name, str(row.get("device"))) for _, row in rows if name.startswith(sizes)}
        return found

    def records(
        self, problem: Problem | str | None = None, device_key: str | None = None, measured: bool = False
    ) -> list[Record]:
        """Return the history, oldest first, failures too; ``Sources.has`` tells which are of current kernels.

        With ``measured`` it lacks what was imported: figures of another machine, or of another day.

        Raises:
            ProblemError: the problem string is malformed.
            StoreError: the store cannot be read, or ``device_key`` is no key.
        """
        condition, values = where(problem, device_key)
        condition += f" AND origin != '{IMPORTED}'" * measured
        query = f"SELECT {READ} FROM records WHERE {condition} ORDER BY id"
        return [found.record for found in select(self.database, query, values)]

    def info(self) -> Info:
        """Count what the store holds.

        Raises:
            StoreError: the store cannot be read.
        """
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
            shipped=sum(map(len, shipped_rows().values())) if self.uses_shipped else 0,
            set_aside=self.database.set_aside(),
        )  # fmt: skip

    # ------------------------------------------------------------------------------- sharing

    def export_json(self, problem: Problem | str | None = None, *, devices: Sequence[Device] = ()) -> str:
        """Return the winners as JSON text: typed parameters and figures, no source, no binary.

        A winner that an import would refuse is left out, with a warning; one there that knows the facts of
        more devices than ``devices`` and datasheets may refuse more.

        Raises:
            ProblemError: the problem string is malformed.
            StoreError: the store cannot be read.
        """
        condition, values = where(problem, None)
        query = f"SELECT DISTINCT problem, device FROM records WHERE {condition} ORDER BY 2, 1"
        winners: dict[tuple[str, str, str], Record] = {}
        for name, device in self.database.use(lambda db: db.execute(query, values).fetchall()):
            for deterministic in (False, True):
                record = self._best(name, device, deterministic)
                if record:
                    winners[name, device, record.config] = record
        return export_text(winners.values(), FAMILIES, devices)

    def import_json(self, text: str, devices: Sequence[Device] = (), source: str = "import") -> int:
        """Import winners that someone shared; return how many were new.

        They are verified before their first use.

        Raises:
            StoreError: names the first field that is not right, or the store cannot be written; nothing is
                imported then.
        """
        if not isinstance(text, str):
            raise StoreError(f"{source}: {a_kind(text)} was given; must be the JSON text")
        if len(text) > MAX_FILE_BYTES:
            raise StoreError(f"{source}: {len(text)} characters; at most {MAX_FILE_BYTES} are read")
        records = import_text(text, source, FAMILIES, devices)
        query = "SELECT digest FROM records WHERE origin = 'imported'"
        known = {digest for (digest,) in self.database.use(lambda db: db.execute(query).fetchall())}
        rows = [row for row in (to_row(record, IMPORTED) for record in records) if row[-1] not in known]
        self._insert(rows)
        return len(rows)
