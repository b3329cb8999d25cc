"""A store for who can do without it, as an untuned layer can: a locked one is not waited for for long."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TypeVar

from tilewright.errors import StoreBusy
from tilewright.store.database import Database
from tilewright.store.store import Store

T = TypeVar("T")
BRIEF_S = 2.0  # the most that is waited for another process
REST_S = 60.0  # that the file is done without then: who holds it for so long may be stuck
_gave_up_s: dict[Path, float] = {}  # when a file was last waited for in vain


def briefly(store: Store) -> Store:
    """Return the same store for who can do without it: see ``BriefDatabase``."""
    if isinstance(store.database, BriefDatabase):
        return store
    found = copy(store)
    found.database = BriefDatabase(store.database)
    return found


def gave_up(store: Store) -> bool:
    """Whether a call of a store that ``briefly`` made failed because another process holds the file."""
    return isinstance(store.database, BriefDatabase) and store.database.gave_up


class BriefDatabase(Database):
    """The file of another Database, for who can do without it: waits for ``BRIEF_S`` at most.

    After a wait in vain all that read the file in this way are refused at once, for ``REST_S``.

    Attributes:
        gave_up: whether it was waited for in vain, or refused.
    """

    def __init__(self, of: Database) -> None:
        vars(self).update(vars(of))  # whose path was checked
        self.timeout_s = min(of.timeout_s, BRIEF_S)
        self.gave_up = False

    def use(self, work: Callable[[sqlite3.Connection], T], write: bool = False) -> T:
        """Run ``work`` in one transaction, as ``Database.use`` does.

        Raises:
            StoreBusy: for longer than the timeout, or it was a short while ago.
            StoreError: disk full, read-only, or no plain file.
        """
        if time.monotonic() - _gave_up_s.get(self.path, -math.inf) < REST_S:
            self.gave_up = True
            raise StoreBusy(f"store {self.path}: was locked a short while ago; is another process stuck?")
        try:
            return super().use(work, write)
        except StoreBusy:
            self.gave_up = True
            if not write:  # what cannot be written to may be read all the same
                _gave_up_s[self.path] = time.monotonic()
            raise
