"""The winners that come with the package, ``data/tuned/*.json``: hints, verified before first use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from typing import Any

from tilewright.device import chip
from tilewright.errors import StoreError, warn_once
from tilewright.kernels import FAMILIES
from tilewright.record import Record
from tilewright.store.exchange import read_row, rows_of


def shipped_winners(problem: str, device_key: str) -> list[Record]:
    """Return the shipped winners of a problem and a device's chip; bad ones are skipped.

    The device's own come first, then those of others with its chip; of each the fastest first.
    """
    found: list[Record] = []
    for path, row in shipped_rows().get((problem, chip(device_key)), ()):
        try:
            record = read_row(row, path, FAMILIES)
        except StoreError as error:
            warn_once(f"a shipped winner is skipped: {error}", "shipped")
            continue
        if record.measurement:
            found.append(record)
    return sorted(found, key=lambda record: (record.device != device_key, record.cold_us))


@lru_cache(maxsize=1)
def shipped_rows() -> dict[tuple[str, str], list[tuple[str, dict[str, Any]]]]:
    """Index the shipped rows, not yet checked, by (problem, chip); each with its path."""
    found: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}
    for name, text in _files():
        try:
            rows = rows_of(text, name)
        except StoreError as error:
            warn_once(f"shipped winners are skipped: {error}")
            continue
        for i, row in enumerate(rows):
            if isinstance(row, dict):
                key = (str(row.get("problem")), chip(str(row.get("device"))))
                found.setdefault(key, []).append((f"{name}: records[{i}]", row))
    return found


def _files() -> Iterator[tuple[str, str]]:
    folder = resources.files("tilewright") / "data" / "tuned"
    if folder.is_dir():
        for item in sorted(folder.iterdir(), key=lambda item: item.name):
            if item.name.endswith(".json"):
                yield item.name, item.read_text("utf-8")
