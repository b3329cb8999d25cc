"""Files that are written whole, or not at all; and JSON files."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

_ASIDE = ".new-"
_ABANDONED_S = 3600.0


def atomic_write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file aside, then rename it: no one ever reads half of it, and nothing is left of a failure.

    A process that is killed outright leaves what it wrote aside; see ``left_aside``.

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
    """Return what writers that were killed left in a folder: files of over an hour ago."""
    found = []
    for path in folder.glob(f"{_ASIDE}*"):
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            if time.time() - path.lstat().st_mtime > _ABANDONED_S:
                found.append(path)
    return found


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON, or is nested too deeply.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
