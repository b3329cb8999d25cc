"""Files that are written atomically; lock files; and JSON files."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ASIDE = ".new-"
_ABANDONED_S = 3600.0
MAX_JSON_BYTES = 64 << 20  # no file of ours comes near; /dev/zero, or a disk image, would fill the memory


def atomic_write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a temporary file, then rename it: nobody reads half of it, and a failure leaves nothing.

    A process that is killed leaves its temporary file; see ``left_aside``.

    Raises:
        OSError: it cannot be written.
    """
    aside = path.with_name(f"{_ASIDE}{secrets.token_hex(8)}")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def left_aside(folder: Path) -> list[Path]:
    """Return the temporary files of killed writers in a folder: those over an hour old."""
    found = []
    for path in folder.glob(f"{_ASIDE}*"):
        with contextlib.suppress(FileNotFoundError):  # another process removed it first
            if time.time() - path.lstat().st_mtime > _ABANDONED_S:
                found.append(path)
    return found


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock file, which is removed at the end; other processes wait, or are refused (on POSIX).

    A file that a killed process left is not locked.

    Raises:
        BlockingIOError: another process holds it, and we do not ``wait``.
        OSError: it cannot be made.
    """
    handle = _lock(path, wait)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(handle)


def _lock(path: Path, wait: bool) -> int:
    """Make and lock a file; retry if its last holder removed it meanwhile."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if os.name != "posix":
            return handle
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.stat()):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON, is nested too deeply, or is longer than MAX_JSON_BYTES.
    """
    with path.open("rb") as file:
        data = file.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise ValueError("too long")
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
