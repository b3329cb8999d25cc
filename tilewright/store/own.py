"""The user's own store, opened once for each cache folder."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache

from tilewright.errors import StoreBusy, StoreError
from tilewright.runtime import cache
from tilewright.store.store import Store


def default_store() -> Store | None:
    """Return the user's own store.

    Where it cannot be read, with a warning, one of this process alone; None where there is no room for that.
    """
    try:
        return _store(os.environ.get("TILEWRIGHT_CACHE"))
    except StoreError as error:
        cache.forgets(error)
        return None


@lru_cache(maxsize=8)
def _store(folder: str | None) -> Store:
    try:
        found = Store()
        with suppress(StoreBusy):  # another process has it, for a while
            found.database.use(lambda db: None)
        return found
    except StoreError as error:
        cache.forgets(error)
        return Store(cache.scratch() / "records.sqlite")
