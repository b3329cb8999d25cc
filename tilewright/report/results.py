"""The results document of a benchmark (``benchmarks/<device>/<suite>-<dtype>.json``) as values.

What ``BenchRow.to_json`` wrote is read back; keys that are not known are skipped, and keys that an
older version did not write have their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from tilewright.arithmetic import geometric_mean
from tilewright.bench.rows import BenchRow, OurFigure, PeerFigure
from tilewright.errors import ProblemError, StoreError, shown
from tilewright.files import read_json
from tilewright.problem import Problem
from tilewright.store.fields import HUGE

F = TypeVar("F", OurFigure, PeerFigure)
_KINDS = {"str": str, "bool": bool, "int": int, "Mapping[str, float | str]": dict}


@dataclass(frozen=True)
class Results:
    """One benchmark: where, when, with what, its rows, and how they were measured."""

    device: Mapping[str, Any]
    date: str
    commit: str
    rows: tuple[BenchRow, ...]
    protocol: Mapping[str, Any] = field(default_factory=dict)

    @property
    def peer_names(self) -> list[str]:
        """Every peer of any row, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row.peers))

    @property
    def family_names(self) -> list[str]:
        """Every family of ours that takes a layer, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row.ours.families))

    @property
    def geomean(self) -> float | None:
        """Geometric mean over layers of (fastest peer / ours); None if no layer has both."""
        return mean_of_those([row.ratio for row in self.rows])


def mean_of_those(values: list[float | None]) -> float | None:
    """Geometric mean of what is there."""
    there = [value for value in values if value]
    return geometric_mean(there) if there else None


def load(path: Path) -> Results:
    """Read a results file.

    Raises:
        StoreError: the file is missing, no JSON, or no results document (the bad key is named).
    """
    try:
        document = read_json(path)
    except OSError as error:
        raise StoreError(f"results file {path}: {error.strerror or error}") from None
    except ValueError:
        raise StoreError(f"results file {path}: not JSON; want one written by 'bench --json'") from None
    try:
        return parse(document)
    except StoreError as error:
        raise StoreError(f"results file {path}: {error}") from None


def earlier_results(file: Path | None, device: str, protocol: Mapping[str, Any]) -> Results:
    """Read what an earlier run on a device, by its key, left in a file; no rows if there is none.

    Raises:
        StoreError: as ``load``, or it is of another device, or was measured in another way.
    """
    if file is None or not file.exists():
        return Results(device={}, date="", commit="", rows=())
    found = load(file)
    if (there := found.device.get("key", "an unknown device")) != device:
        raise StoreError(
            f"--resume: {file} was measured on {there}, this is {device}; name another file after --json"
        )
    if other := [name for name, now in protocol.items() if found.protocol.get(name, now) != now]:
        ways = found.protocol, protocol
        was, now = (", ".join(f"{name} {shown(way.get(name))}" for name in other) for way in ways)
        fix = "give the same options, or name another file after --json"
        raise StoreError(f"--resume: {file} was measured with {was}, this is with {now}; {fix}")
    return found


def parse(document: Any) -> Results:
    """Turn a results document into values.

    Raises:
        StoreError: names the key that is missing or has the wrong type.
    """
    if isinstance(document, dict) and "parts" in document:
        raise StoreError("results of a study; want those of a benchmark, written by 'bench --json'")
    of_tune = isinstance(document, dict) and isinstance(document.get("device"), str)
    if not isinstance(document, dict) or "rows" not in document or of_tune:
        raise StoreError("no document of results; want one written by 'bench --json' or 'study --json'")
    rows = _need(document, "rows", list, "the document")
    return Results(
        device=checked(_need(document, "device", dict, "the document")),
        date=str(document.get("date", "")),
        commit=str(document.get("commit", "")),
        rows=tuple(_row(row, f"rows[{index}]") for index, row in enumerate(rows)),
        protocol=_need(document, "protocol", dict, "the document") if "protocol" in document else {},
    )


def checked(device: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a document says of its device, of which charts divide by the rates and peaks.

    Raises:
        StoreError: one of these is no number above 0.
    """
    for name in ("rates", "peak_tflops"):
        figures = {} if device.get(name) is None else _need(device, name, dict, "device")
        for key, value in figures.items():
            if key != "source" and not _number(value, where := f"device.{name}.{key}"):
                raise StoreError(f"{where} must be above 0")
    return device


def _row(row: Any, where: str) -> BenchRow:
    peers, problem = _need(row, "peers", dict, where), _need(row, "problem", str, where)
    try:
        Problem.parse(problem)
    except ProblemError as error:
        raise StoreError(f"{where}.problem: {error}") from None
    return BenchRow(
        name=_need(row, "name", str, where),
        problem=problem,
        floor_us=_number(_need(row, "floor_us", (int, float), where), f"{where}.floor_us"),
        ours=_figure(OurFigure, _need(row, "ours", dict, where), f"{where}.ours"),
        peers={name: _figure(PeerFigure, peer, f"{where}.peers.{name}") for name, peer in peers.items()},
    )


def _figure(kind: type[F], entry: Any, where: str) -> F:
    """Build a figure from the keys that are there, each checked against the field's type."""
    if not isinstance(entry, dict):
        raise StoreError(f"{where} must be an object")
    known = {f.name: str(f.type) for f in fields(kind) if entry.get(f.name) is not None}
    return kind(**{name: _value(entry[name], want, f"{where}.{name}") for name, want in known.items()})


def _value(value: Any, want: str, where: str) -> Any:
    if want in _KINDS and type(value) is not _KINDS[want]:
        raise StoreError(f"{where} must be of type {want}, not {shown(value)}")
    if want in ("str", "bool"):
        return value
    if want.startswith("Mapping"):
        return {key: v if type(v) is str else _number(v, f"{where}.{key}") for key, v in value.items()}
    number = _number(value, where)
    return value if want == "int" else number


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= HUGE:
        raise StoreError(f"{where} must be a number of 0 or more, not {shown(value)}")
    return float(value)


def _need(entry: Any, key: str, kind: Any, where: str) -> Any:
    if not isinstance(entry, dict):
        raise StoreError(f"{where} must be an object")
    if not isinstance(entry.get(key), kind):
        what = "is missing" if key not in entry else "has the wrong type"
        raise StoreError(f"{where}: key {key!r} {what}")
    return entry[key]
