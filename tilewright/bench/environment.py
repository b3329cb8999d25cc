"""The origin of results: device, software versions, time and commit."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilewright.runtime.base import Runtime


def device_of(runtime: Runtime) -> dict[str, Any]:
    """Return the facts of a device, its key, and the versions of its software."""
    return {**runtime.device.facts, "key": runtime.device.key, **runtime.versions()}


def now() -> str:
    """Return the time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def commits(before: str) -> str:
    """Return the commits of results, separated by commas: those of earlier runs, and this one."""
    return ", ".join(filter(None, dict.fromkeys([*before.split(", "), commit()])))


@lru_cache(maxsize=1)
def commit() -> str:
    """Return the commit of the running checkout, marked if it is modified; empty if there is none.

    A copy that is installed inside another checkout has none.
    """
    root = Path(__file__).resolve().parents[2]
    try:
        if Path(_git(root, "rev-parse", "--show-toplevel")).resolve() != root:
            return ""
        return _git(root, "describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *command: str) -> str:
    how: dict[str, Any] = dict(capture_output=True, timeout=10, check=True)
    said: bytes = subprocess.run(["git", "-C", str(folder), *command], **how).stdout
    return said.decode("utf-8", "replace").strip()
