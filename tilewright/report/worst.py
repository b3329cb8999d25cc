"""The rows of several benchmarks with most left to gain."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.bench.rows import BenchRow
from tilewright.errors import StoreError, count
from tilewright.report.gather import Gathered
from tilewright.report.results import Results
from tilewright.report.results_table import short_table
from tilewright.report.table import Table, time_text

Key = Callable[[BenchRow], float | None]


@dataclass(frozen=True)
class Worst:
    """Rows of several files, the worst first.

    Attributes:
        by: the order, a key of ``ORDERS``.
        rows: the name of the file, and the row; only rows with a time of ours.
        among: how many rows were compared.
        left_out: which rows could not be compared, as text.
    """

    by: str
    rows: tuple[tuple[str, BenchRow], ...]
    among: int
    left_out: tuple[str, ...]


def above_floor_us(row: BenchRow) -> float:
    """Return our time minus the floor, in us; negative where fewer multiplications beat the floor."""
    return (row.ours.cold_us or 0.0) - row.floor_us


ORDERS: dict[str, tuple[str, Key]] = {  # description, and the sort key, ascending
    "floor": ("lowest share of the floor", lambda row: row.floor_share),
    "ratio": ("lowest ratio", lambda row: row.ratio),
    "time": ("most time above the floor", lambda row: -above_floor_us(row)),
}


def worst_of(found: Sequence[Gathered], most: int, by: str) -> Worst:
    """Return the worst rows of benchmarks, at most ``most``; studies have none.

    Raises:
        StoreError: there are only studies.
    """
    benches = [(one.name, one.results) for one in found if isinstance(one.results, Results)]
    if not benches:
        only = f"{', '.join(one.name for one in found)}: results of studies"
        raise StoreError(f"--worst: {only}; want those of benchmarks, written by 'bench --json'")
    rows = [(name, row) for name, results in benches for row in results.rows]
    timed = [(name, row) for name, row in rows if row.ours.cold_us]
    key = ORDERS[by][1]
    ranked = [(value, name, row) for name, row in timed if (value := key(row)) is not None]
    ranked.sort(key=lambda one: one[0])
    lacks = {
        "without a time of ours": len(rows) - len(timed),
        "without a peer's time": len(timed) - len(ranked),
    }
    left_out = [f"{count(number, 'row')} {why}" for why, number in lacks.items() if number]
    studies = len(found) - len(benches)
    return Worst(
        by=by,
        rows=tuple((name, row) for _, name, row in ranked[:most]),
        among=len(ranked),
        left_out=(*left_out, *([f"{count(studies, 'file')} of studies"] if studies else ())),
    )


def table(worst: Worst) -> Table:
    """Lay out the rows as a short table, the file first and the problem last."""
    rows = [replace(row, name=f"{file} {row.name}") for file, row in worst.rows]
    short = short_table(Results(device={}, date="", commit="", rows=tuple(rows)), picked=True)
    cells = ((time_text(max(above_floor_us(row), 0.0)), row.problem) for row in rows)
    which = f"{len(rows):,} of {count(worst.among, 'row')}, {ORDERS[worst.by][0]} first"
    return Table(
        title=f"{which}; times in us, cold caches",
        head=(*short.head[:-1], "above floor", "problem"),
        body=tuple((*line[:-1], *more) for line, more in zip(short.body, cells, strict=True)),
        notes=(*short.notes, *(f"left out: {what}" for what in worst.left_out)),
    )


def document(worst: Worst) -> dict[str, Any]:
    """Return the rows for JSON."""
    return {
        "by": worst.by,
        "among": worst.among,
        "left_out": list(worst.left_out),
        "rows": [_values(file, row) for file, row in worst.rows],
    }


def as_csv(worst: Worst) -> str:
    """Return the rows as CSV, one line each; unknown values are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_values(file, row) for file, row in worst.rows)
    return out.getvalue()


_COLUMNS = (
    "file", "layer", "problem", "family", "config", "ours_us", "call_us", "floor_us", "floor_share",
    "above_floor_us", "peer", "peer_us", "ratio",
)  # fmt: skip


def _values(file: str, row: BenchRow) -> dict[str, Any]:
    """Return the values of one row; times are rounded to a nanosecond."""
    peer = row.best_peer
    ours = row.ours
    times = (ours.cold_us, ours.call_us, row.floor_us)
    compared = (peer, row.peers[peer].cold_us if peer else None, row.ratio)
    values = (
        file, row.name, row.problem, ours.family, ours.config, *times, row.floor_share,
        above_floor_us(row), *compared,
    )  # fmt: skip
    rounded = (round(value, 4) if isinstance(value, float) else value for value in values)
    return dict(zip(_COLUMNS, rounded, strict=True))
