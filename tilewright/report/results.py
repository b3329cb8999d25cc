"""The results document of a benchmark (``benchmarks/<device>/<suite>-<dtype>.json``) as values.

Readers take any document that has the keys they need, so that old results stay readable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import StoreError


@dataclass(frozen=True)
class Figure:
    """What was learnt of one contestant on one layer.

    Attributes:
        cold_us: median time with flushed caches, in us; None if it could not run.
        warm_us: time of one run in a long row, in us; None if not taken.
        ci95_us: half width of the 95% interval of the cold median, in us.
        detail: what ran (engine, layout, config), or why nothing did.
    """

    cold_us: float | None
    warm_us: float | None = None
    ci95_us: float | None = None
    detail: str = ""


@dataclass(frozen=True)
class Row:
    """One layer: our figure, the peers', the device's floor.

    Attributes:
        error_over_bound: largest error over its a-priori bound; None if not checked.
    """

    name: str
    problem: str
    floor_us: float
    ours: Figure
    peers: Mapping[str, Figure]
    error_over_bound: float | None = None
    deterministic: bool = True

    @property
    def best_peer(self) -> str | None:
        """Name of the fastest peer that ran."""
        ran = {name: figure.cold_us for name, figure in self.peers.items() if figure.cold_us}
        return min(ran, key=lambda name: ran[name]) if ran else None

    def ratio(self, peer: str | None) -> float | None:
        """How many times longer the peer takes than we do; None where one of the two has no time."""
        theirs = self.peers[peer].cold_us if peer in self.peers and peer is not None else None
        return theirs / self.ours.cold_us if theirs and self.ours.cold_us else None


@dataclass(frozen=True)
class Results:
    """One benchmark: where, when, with what, and its rows."""

    device: Mapping[str, Any]
    date: str
    commit: str
    protocol: Mapping[str, Any]
    rows: tuple[Row, ...]

    @property
    def peer_names(self) -> list[str]:
        """Every peer of any row, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row.peers))

    @property
    def geomean(self) -> float | None:
        """Geometric mean over layers of (fastest peer / ours); None if no layer has both."""
        return geometric_mean([row.ratio(row.best_peer) for row in self.rows])


def geometric_mean(values: list[float | None]) -> float | None:
    """Geometric mean of what is there."""
    there = [value for value in values if value]
    return math.exp(math.fsum(map(math.log, there)) / len(there)) if there else None


def load(path: Path) -> Results:
    """Read a results file.

    Raises:
        StoreError: the file is missing, no JSON, or no results document (the bad key is named).
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"results file {path}: {error.strerror or error}") from None
    except ValueError:
        raise StoreError(f"results file {path}: not JSON; want one written by 'bench --json'") from None
    try:
        return parse(document)
    except StoreError as error:
        raise StoreError(f"results file {path}: {error}") from None


def parse(document: Any) -> Results:
    """Turn a results document into values.

    Raises:
        StoreError: names the key that is missing or has the wrong type.
    """
    rows = _need(document, "rows", list, "the document")
    return Results(
        device=_need(document, "device", dict, "the document"),
        date=str(document.get("date", "")),
        commit=str(document.get("commit", "")),
        protocol=document.get("protocol", {}),
        rows=tuple(_row(row, f"rows[{index}]") for index, row in enumerate(rows)),
    )


def _row(row: Any, where: str) -> Row:
    ours = _need(row, "ours", dict, where)
    peers = _need(row, "peers", dict, where)
    return Row(
        name=_need(row, "name", str, where),
        problem=_need(row, "problem", str, where),
        floor_us=_need(row, "floor_us", (int, float), where),
        ours=_figure(ours, f"{where}.ours"),
        peers={name: _figure(peer, f"{where}.peers.{name}") for name, peer in peers.items()},
        error_over_bound=_error_over_bound(ours, f"{where}.ours"),
        deterministic=bool(ours.get("deterministic", True)),
    )


def _figure(entry: Any, where: str) -> Figure:
    if not isinstance(entry, dict):
        raise StoreError(f"{where} must be an object")
    detail = entry.get("detail") or entry.get("reason") or entry.get("config") or ""
    times = {key: _time(entry, key, where) for key in ("cold_us", "warm_us", "ci95_us")}
    return Figure(**times, detail=str(detail))


def _time(entry: Mapping[str, Any], key: str, where: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise StoreError(f"{where}.{key} must be a time in us, not {value!r}")
    return float(value)


def _error_over_bound(ours: Mapping[str, Any], where: str) -> float | None:
    worst = _time(ours, "worst", where)
    if worst is not None:
        return worst
    error, bound = _time(ours, "max_error", where), _time(ours, "error_bound", where)
    return error / bound if error is not None and bound else None


def _need(entry: Any, key: str, kind: Any, where: str) -> Any:
    if not isinstance(entry, dict):
        raise StoreError(f"{where} must be an object")
    if not isinstance(entry.get(key), kind):
        what = "is missing" if key not in entry else "has the wrong type"
        raise StoreError(f"{where}: key {key!r} {what}")
    return entry[key]
