"""Parsing the results document of a benchmark (``benchmarks/<device>/<suite>-<dtype>.json``).

It reads what ``BenchRow.to_json`` wrote; unknown keys are skipped, and keys that an older version did not
write get their defaults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilewright.arithmetic import geometric_mean
from tilewright.bench.rows import BenchRow, OurFigure, PeerFigure
from tilewright.errors import ProblemError, StoreError, shortened
from tilewright.fields import Fields, read_document
from tilewright.problem import Problem

_NO_OPTION = {"cold", "warm", "inputs", "limits"}  # of a protocol: only another version has others
_ERRORS = ("max_error", "error_bound", "worst")  # of any size, since answers may be large, or wrong


@dataclass(frozen=True)
class Results:
    """One benchmark.

    Attributes:
        device: facts of the device and the versions of what ran there.
        date: time of the measurement, to the second.
        commit: of the code that measured it; several, separated by commas, if its rows are of several runs.
        rows: its layers, in order.
        protocol: how all of them were measured.
    """

    device: Mapping[str, Any]
    date: str
    commit: str
    rows: tuple[BenchRow, ...]
    protocol: Mapping[str, Any] = field(default_factory=dict)

    @property
    def peer_names(self) -> list[str]:
        """Return all peers of all rows, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row.peers))

    @property
    def family_names(self) -> list[str]:
        """Return all our families that take a layer, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row.ours.families))

    def told_apart(self) -> Results:
        """Return it with names by which its rows are told apart."""
        names = told_apart([(row.name, row.problem) for row in self.rows])
        named = (replace(row, name=name) for row, name in zip(self.rows, names, strict=True))
        return replace(self, rows=tuple(named))

    @property
    def geomean(self) -> float | None:
        """Return the geometric mean over layers of fastest peer / ours; None if no layer has both."""
        return mean_of_those([row.ratio for row in self.rows])


def told_apart(layers: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name for each layer, given by its name and problem.

    Names that several share get the dtype and layout, as in ``R3 q8 nhwc``; or else the problem, as the
    layers of two networks' files may need.
    """
    times = Counter(name for name, _ in layers)
    names = [_with_kind(*layer) if times[layer[0]] > 1 else layer[0] for layer in layers]
    shared = Counter(names)
    return [
        f"{name} {problem}" if shared[short] > 1 else short
        for (name, problem), short in zip(layers, names, strict=True)
    ]


def _with_kind(name: str, problem: str) -> str:
    layer = Problem.parse(problem)
    layouts = dict.fromkeys((layer.layout_in, layer.layout_out))
    return f"{name} {layer.precision} {'2'.join(layouts)}"


def mean_of_those(values: list[float | None]) -> float | None:
    """Return the geometric mean of the values that are not None."""
    there = [value for value in values if value]
    return geometric_mean(there) if there else None


def load(path: Path) -> Results:
    """Read a results file.

    Raises:
        StoreError: the file is missing, not JSON, or not a results document (names the bad key).
    """
    return read_document(path, parse, "results file", "'bench --json'")


def earlier_results(file: Path | None, device: str, protocol: Mapping[str, Any]) -> Results:
    """Read the results that an earlier run left in a file; no rows if there is none. ``device`` is its key.

    Raises:
        StoreError: as ``load``, or it is of another device, or was measured by another protocol.
    """
    if file is None or not file.exists():
        return Results(device={}, date="", commit="", rows=())
    found = load(file)
    if (there := found.device.get("key", "an unknown device")) != device:
        raise StoreError(
            f"--resume: {file} was measured on {there}, this is {device}; name another file after --json"
        )
    if other := [name for name, now in protocol.items() if found.protocol.get(name, now) != now]:
        pairs = [(name, *_unlike(found.protocol[name], protocol[name])) for name in other]
        was, now = (", ".join(_told(pair[0], pair[which]) for pair in pairs) for which in (1, 2))
        same = "" if _NO_OPTION & set(other) else "give the same options, or "
        fix = f"{same}name another file after --json"
        raise StoreError(f"--resume: {file} was measured with {was}, this is with {now}; {fix}")
    return found


def _unlike(was: object, now: object) -> tuple[object, object]:
    """Return what differs between two values of a protocol: of sections only these entries, as text."""
    if not (isinstance(was, dict) and isinstance(now, dict)):
        return was, now
    names = [name for name in {**now, **was} if was.get(name) != now.get(name)]
    old, new = (", ".join(f"{name} {way.get(name, 'not set')}" for name in names) for way in (was, now))
    return old, new


def _told(name: str, value: object) -> str:
    """Say how a protocol has something: budget 20s, no budget, peers onednn and cudnn, tuned: no."""
    if isinstance(value, bool):
        return f"{name}: {'yes' if value else 'no'}"
    text = " and ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if not text:
        return f"{'all' if name == 'families' else 'no'} {name}"
    return f"{name} {shortened(text)}"


def parse(document: Any) -> Results:
    """Parse a results document.

    Raises:
        StoreError: names the key that is missing or has the wrong type.
    """
    if isinstance(document, dict) and "parts" in document:
        raise StoreError("results of a study; want those of a benchmark, written by 'bench --json'")
    of_tune = isinstance(document, dict) and isinstance(document.get("device"), str)
    if not isinstance(document, dict) or "rows" not in document or of_tune:
        raise StoreError("no document of results; want one written by 'bench --json' or 'study --json'")
    f = Fields(document)
    return Results(
        device=checked(f.section("device").data),
        date=f.string("date", ""),
        commit=f.string("commit", ""),
        rows=tuple(map(_row, f.sections("rows"))),
        protocol=f.section("protocol").data if "protocol" in document else {},
    )


def checked(device: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a document's facts of the device, after checking rates and peaks: charts divide by them.

    Raises:
        StoreError: one of these is not a number above 0.
    """
    f = Fields(device, "device")
    for name in ("rates", "peak_tflops"):
        if device.get(name) is not None:
            figures = f.section(name)
            for key in figures.data:
                if key != "source" and not figures.figure(key):
                    raise figures.bad(key, "above 0")
    return device


def _row(f: Fields) -> BenchRow:
    problem, peers = f.string("problem"), f.section("peers")
    try:
        Problem.parse(problem)
    except ProblemError as error:
        raise StoreError(f"{f.path}.problem: {error}") from None
    return BenchRow(
        name=f.string("name"),
        problem=problem,
        floor_us=f.figure("floor_us"),
        ours=f.section("ours").build(OurFigure, _ERRORS),
        peers={name: peers.section(name).build(PeerFigure, _ERRORS) for name in peers.data},
    )
