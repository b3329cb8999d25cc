"""The user's own store, opened once for each cache folder."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import lru_cache

from tilewright.errors import StoreBusy, StoreError
from tilewright.runtime import cache_folder
from tilewright.store.brief import briefly
from tilewright.store.store import Store

RETRY_S = 60.0  # until a store that could not be read is looked at again: somebody may have mended it
_failed_s: dict[str | None, float] = {}  # when that of a folder could not be


def default_store() -> Store | None:
    """Return the user's own store.

    If it cannot be read, a warning is issued and for a minute a temporary store of this process is used; None
    if that cannot be created either.
    """
    folder = os.environ.get("TILEWRIGHT_CACHE")
    try:
        if (failed_s := _failed_s.get(folder)) is None or time.monotonic() - failed_s >= RETRY_S:
            found = _opened(folder)
            _failed_s.pop(folder, None)
            return found
    except StoreError as error:
        cache_folder.forgets(error)
        _failed_s[folder] = time.monotonic()
    try:
        return _instead()
    except StoreError as error:
        cache_folder.forgets(error)
        return None


@lru_cache(maxsize=8)
def _opened(folder: str | None) -> Store:
    found = Store()
    with suppress(StoreBusy):  # another process has it, for a while
        briefly(found).database.use(lambda db: None)
    return found


@lru_cache(maxsize=1)
def _instead() -> Store:
    return Store(cache_folder.scratch() / "records.sqlite")
