"""A SQLite file that many processes share: rollback journal, busy timeout, a corrupt file set aside."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from tilewright.errors import StoreBusy, StoreError, a_kind, shown, warn_once
from tilewright.files import locked
from tilewright.runtime.cache_folder import secure_folder

T = TypeVar("T")
_OWN_FOLDER = "set TILEWRIGHT_CACHE to a folder of your own"
_PARTS = "-journal", "-wal", "-shm", ""  # of a store: SQLite reads each that is there
_MAGIC = b"SQLite format 3\0"  # what each of its files begins with
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
_FAILURES = (sqlite3.Error, UnicodeDecodeError)  # the latter: a damaged name, in SQLite's own words


class Database:
    """One SQLite file with a fixed schema. A connection lives for one call only, so a Database may be
    shared by threads and survives a fork.

    Args:
        path: the file; its folder is made 0700 if need be.
        version: kept in the file (``user_version``). A file with another one is set aside if its name is our
            own, and refused if a user gave it.
        tables: SQL statements that make the tables and indexes.
        probe: a SELECT that fails if the tables are not those.
        timeout_s: how long to wait for another process.
        own: whether the file name is our own, not one that a user gave: then any content may be set aside.
    """

    def __init__(
        self, path: Path, version: int, tables: tuple[str, ...], probe: str, timeout_s: float, own: bool
    ) -> None:
        self.path, self.version, self.tables, self.probe = path, version, tables, probe
        self.timeout_s, self.own = timeout_s, own
        self._secure_folder()
        regular_file(path, own)

    def use(self, work: Callable[[sqlite3.Connection], T], write: bool = False) -> T:
        """Run ``work`` in one transaction; set a corrupt database aside and try once more.

        Raises:
            StoreBusy: for longer than the timeout.
            StoreError: disk full, read-only, or no plain file.
        """
        for last in (False, True):
            try:
                with closing(self._connect()) as db:
                    db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                    result = work(db)
                    db.execute("COMMIT")
                    return result
            except _FAILURES as error:
                if _is_corrupt(error):
                    self._refuse_foreign()
                if last or not _is_corrupt(error):
                    failure = StoreBusy if _code(error) in _BUSY else StoreError
                    raise failure(f"store {self.path}: {error}; {self._advice(_code(error))}") from error
                try:
                    self._set_aside(error)
                except OSError as why:
                    said = f"store {self.path}: is corrupt ({error}) and cannot be set aside ({why.strerror})"
                    raise StoreError(said) from None
        raise AssertionError("not reached")

    def _advice(self, code: int = sqlite3.SQLITE_CANTOPEN) -> str:
        """Say what to do about a code of SQLite's."""
        if code in _UNWRITABLE:
            return _OWN_FOLDER if self.own else "give Store another path"
        if code == sqlite3.SQLITE_FULL:
            return "make room"
        return "is another process stuck?" if code in _BUSY else "is the disk full or failing?"

    def set_aside(self) -> tuple[str, ...]:
        """Name the corrupt files that were moved away."""
        return tuple(sorted(p.name for p in self.path.parent.glob(self.path.name + ".corrupt-*")))

    def _connect(self) -> sqlite3.Connection:
        for tail in _PARTS:
            regular_file(self._part(tail), self.own)
        if not self.path.exists():
            self._secure_folder()  # which somebody may have removed
            self._touch()
        db = sqlite3.connect(self.path, timeout=self.timeout_s, isolation_level=None)
        db.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            if db.execute("PRAGMA user_version").fetchone()[0] != self.version:
                self._create(db)
        except BaseException:
            db.close()
            raise
        return db

    def _secure_folder(self) -> None:
        if self.own:
            secure_folder(self.path.parent)
        else:
            about = "store in folder", "name a file in a folder of your own"
            secure_folder(self.path.parent, *about, given=True)

    def _touch(self) -> None:
        try:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            os.close(os.open(self.path, flags, 0o600))
        except OSError as error:
            why = error.strerror or error
            raise StoreError(f"store {self.path}: cannot be made ({why}); {self._advice()}") from None

    def _create(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, self.version):
            raise sqlite3.DatabaseError(f"its schema is {found}, not {self.version}")
        if found == 0 and db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            raise sqlite3.DatabaseError("it has tables, but no schema")
        for statement in self.tables:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {self.version}")
        db.execute("COMMIT")

    def _set_aside(self, reason: Exception) -> None:
        """Move a corrupt file and its journal away, unless another process just did."""
        mark = f".corrupt-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        with locked(self._part(".lock")):
            if self._is_sound():
                return
            for tail in _PARTS:
                if self._part(tail).exists():
                    self._part(tail).replace(self._part(mark + tail))
        warn_once(
            f"store {self.path}: was corrupt ({reason}); it is set aside as *{mark} and a new one begun",
            f"corrupt {self.path}",
        )

    def _refuse_foreign(self) -> None:
        """Refuse a file that is not a store, or one of another version, and leave it as it is.

        Raises:
            StoreError: it is no SQLite file, or has tables and none with the name of one of ours; or it is
                sound and has another version.
        """
        if self.own:
            return
        ours = set(re.findall(r"TABLE IF NOT EXISTS (\w+)", "\n".join(self.tables)))
        if _is_foreign(self.path, ours):
            raise StoreError(
                f"store {self.path}: is no store of tilewright's, so it is left as it is; name another file "
                "(winners that 'cache export' wrote are read by 'cache import')"
            )
        if (found := _sound_version(self.path)) not in (0, self.version, None):
            raise StoreError(
                f"store {self.path}: is of another version of tilewright (its schema is {found}, here "
                f"{self.version}), so it is left as it is; name another file"
            )

    def _is_sound(self) -> bool:
        try:
            with closing(self._connect()) as db:
                db.execute(self.probe).fetchall()
                return bool(db.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",))
        except _FAILURES as error:
            return not _is_corrupt(error)

    def _part(self, tail: str) -> Path:
        return self.path.with_name(self.path.name + tail)


def named_file(path: object) -> Path:
    """Return the file of a store that a user named.

    Raises:
        StoreError: it can be none.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise StoreError(f"store: {a_kind(path)} was given; must be the path of a file, or None")
    text = os.fspath(path)
    if not isinstance(text, str):
        raise StoreError(f"store: the path is {a_kind(text)}; must be a str")
    if ":memory:" in text or text.startswith("file:"):
        must = "must be a plain file, e.g. in a temporary folder: no URI, and never in memory alone"
        raise StoreError(f"store {text}: {must}")
    try:
        if b"\0" in os.fsencode(text):
            raise StoreError(f"store {shown(text)}: no path has a null character")
        return Path(text).expanduser()
    except UnicodeError:
        raise StoreError(f"store {shown(text)}: has characters that no path here has") from None
    except RuntimeError:
        raise StoreError(f"store {text}: there is no such home folder; name the file in full") from None


def regular_file(path: Path, own: bool) -> None:
    """Refuse a path that exists and is not a plain file of this user; ``own``: we chose its name.

    Raises:
        StoreError: it is a symbolic link, a folder or a device, or another user's.
    """
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"store {path}: cannot be used ({error.strerror or error})") from None
    fix = f"remove it, or {_OWN_FOLDER}" if own else "name another"
    if not stat.S_ISREG(facts.st_mode):
        raise StoreError(f"store {path}: is a symbolic link or no plain file; {fix}")
    if hasattr(os, "getuid") and facts.st_uid != os.getuid():
        raise StoreError(f"store {path}: belongs to user {facts.st_uid}, not to you; {fix}")


def _is_foreign(path: Path, ours: set[str]) -> bool:
    """Whether a file is no SQLite database, or a valid one without any of our tables."""
    with suppress(OSError), path.open("rb") as file:
        head = file.read(len(_MAGIC))
        if head != _MAGIC:
            return bool(head)
    with suppress(*_FAILURES), closing(sqlite3.connect(path)) as db:
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return bool(names) and not names & ours
    return False


def _sound_version(path: Path) -> int | None:
    """Return the version in a database that is not damaged; None if it is."""
    with suppress(*_FAILURES), closing(sqlite3.connect(path)) as db:
        if db.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",):
            return int(db.execute("PRAGMA user_version").fetchone()[0])
    return None


def _is_corrupt(error: Exception) -> bool:
    """Tell a damaged or foreign database (CORRUPT, NOTADB, wrong tables) from a busy or full one."""
    return _code(error) in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: Exception) -> int:
    """Return SQLite's primary code; an error without one is of a damaged file."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
