"""Results of a benchmark as a table: ours, the floor, the peers, and notes on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from tilewright.bench.rows import BenchRow, OurFigure, PeerFigure, Timed
from tilewright.errors import count, shortened
from tilewright.report.results import Results
from tilewright.report.table import (
    BEATS_NOTE,
    NOISY_MARK,
    NONE,
    Table,
    beats_floor,
    bytes_text,
    floor_text,
    noisy_notes,
    ratio_text,
    time_text,
    width_text,
)

_LONGEST_REASON = 160  # characters in a note; the results file has the whole text
Cell = Callable[[BenchRow], str]


def results_table(results: Results, families: bool = False) -> Table:
    """Lay out one benchmark: our kernel and its time, the floor, each peer that ran, and the ratio.

    ``families`` adds a column for each of our families: its best time.
    """
    results = results.told_apart()
    peers = [name for name in results.peer_names if any(name in ran_peers(row) for row in results.rows)]
    columns = {title: cell for name in peers for title, cell in _peer_columns(name, results)}
    if any(row.ours.call_us for row in results.rows):
        columns = {"our call": _call_time} | columns
    if families:
        columns = {f"our {name}": _family_cell(name) for name in results.family_names} | columns
    ours, last = ("family", "ours", "±", "floor", "of floor"), ("ratio", "error/bound", "workspace")
    return Table(
        title=_title(results),
        head=("layer", *ours, *columns, *last),
        body=tuple(_cells(row, columns) for row in results.rows),
        notes=(
            *_notes(results, BenchRow.figures),
            *(_stored(results) if families else ()),
            *_conversions(results),
            *_absences(results),
        ),
    )


def short_table(results: Results, picked: bool = False) -> Table:
    """Lay out one benchmark with only the fastest peer of each layer.

    ``picked``: its rows were chosen by their times, so that their mean is meaningless and left out.
    """
    results = results.told_apart()
    calls = ("our call",) if any(row.ours.call_us for row in results.rows) else ()
    ours = ("family", "ours", "floor", "of floor", *calls)
    head = ("layer", *ours, "fastest peer", "its time", "ratio", "error/bound")
    body = tuple(_short_cells(row, bool(calls)) for row in results.rows)
    return Table(_title(results), head, body, tuple(_notes(results, BenchRow.compared, picked)))


def _short_cells(row: BenchRow, calls: bool) -> tuple[str, ...]:
    name, family, ours, _, floor, share, *rest = _cells(row, {})
    peer = row.best_peer
    call = (_call_time(row),) if calls else ()
    theirs = _peer_time(row.peers[peer]) if peer else NONE
    return (name, family, ours, floor, share, *call, peer or NONE, theirs, rest[0], rest[1])


def ran_peers(row: BenchRow) -> list[str]:
    """Return the names of the peers that have a time on this layer."""
    return [name for name, figure in row.peers.items() if figure.cold_us]


def _peer_columns(name: str, results: Results) -> Iterator[tuple[str, Cell]]:
    """Yield a peer's time; and, if its layouts are not the problem's, what converting would add."""
    yield name, lambda row: _peer_time(row.peers.get(name, PeerFigure()))
    if any(row.peers.get(name, PeerFigure()).convert_us for row in results.rows):
        yield f"{name} converts", lambda row: time_text(row.peers.get(name, PeerFigure()).convert_us or None)


def _peer_time(figure: PeerFigure) -> str:
    """Return a peer's time, marked if it is noisy."""
    return time_text(figure.cold_us) + NOISY_MARK * figure.noisy


def _call_time(row: BenchRow) -> str:
    """Return the time of our call, marked if it is noisy."""
    return time_text(row.ours.call_us) + NOISY_MARK * row.ours.call_noisy


def _family_cell(name: str) -> Cell:
    """Return a cell with the best time of a family of ours; empty if it has none."""

    def cell(row: BenchRow) -> str:
        time = row.ours.families.get(name)
        return time_text(time) if isinstance(time, float) else NONE

    return cell


def _cells(row: BenchRow, columns: Mapping[str, Cell]) -> tuple[str, ...]:
    ours = row.ours.cold_us
    error = NONE if row.ours.worst is None else f"{row.ours.worst:.2g}"
    theirs = [cell(row) for cell in columns.values()]
    mark = ("" if row.ours.deterministic else "†") + NOISY_MARK * row.ours.noisy
    share = floor_text(row.floor_share)
    width = width_text(ours, row.ours.ci95_us)
    times = (time_text(ours) + mark, width, time_text(row.floor_us), share)
    ratio = ratio_text(row.ratio) + NOISY_MARK * (row.ratio is not None and row.noisy)
    rest = (ratio, error, bytes_text(row.ours.workspace_bytes) if ours else NONE)
    return (row.name, row.ours.family or NONE, *times, *theirs, *rest)


def _title(results: Results) -> str:
    commits = re.findall(r"\b([0-9a-f]{7,10})[0-9a-f]{,30}(-dirty)?\b", results.commit)
    parts = [str(results.device.get("name", "unknown device")), results.date[:10], *map("".join, commits)]
    return ", ".join(part for part in parts if part) + "; times in us, cold caches"


def _notes(
    results: Results, shown: Callable[[BenchRow], Sequence[Timed]], picked: bool = False
) -> list[str]:
    """Yield what marks mean, and other remarks; ``shown`` returns the times of a row."""
    notes = []
    if results.geomean is not None:
        ratios = [row.ratio for row in results.rows]
        there = [ratio for ratio in ratios if ratio is not None]
        mean = f": geometric mean {results.geomean:.2f} over {count(len(there), 'layer')}"
        notes.append("ratio is fastest peer / ours" + ("" if picked else f"{mean}, lowest {min(there):.2f}"))
    if any(row.ours.call_us for row in results.rows):
        notes.append("ours: kernels alone; ratios: whole calls (our call), as a CPU's peers are timed")
    if not all(row.ours.deterministic for row in results.rows):
        notes.append("† not deterministic: sums of floats in no fixed order")
    figures = [figure for row in results.rows for figure in shown(row)]
    noisy = [(figure.noisy, figure.stolen) for figure in figures]
    notes += noisy_notes(noisy + [(row.ours.call_noisy, row.ours.stolen) for row in results.rows])
    if any(beats_floor(row.floor_share) for row in results.rows):
        notes.append(BEATS_NOTE)
    remarks = dict.fromkeys(row.ours.note for row in results.rows if row.ours.note and row.ours.cold_us)
    for remark in remarks:
        layers = ", ".join(row.name for row in results.rows if row.ours.note == remark)
        notes.append(f"{layers}: {_short(remark)}")
    return notes


def _stored(results: Results) -> Iterator[str]:
    """Explain the columns of families, whose times are from the store, not from this measurement."""
    if any(isinstance(time, float) for row in results.rows for time in row.ours.families.values()):
        yield (
            "columns of families: the best times in the store, most of them roughly timed in searches of "
            "any day; ours is timed now"
        )


def _conversions(results: Results) -> Iterator[str]:
    """Explain the columns of conversions, which are in no ratio."""
    if any(peer.convert_us for row in results.rows for peer in row.peers.values()):
        yield "converts: what it would cost a peer to convert x and y between layouts; in no ratio"


def _absences(results: Results) -> Iterator[str]:
    """Yield which peers have no time on which layers, and why."""
    absent: dict[tuple[str, str], list[str]] = {}
    for row in results.rows:
        figures: dict[str, OurFigure | PeerFigure] = {"tilewright": row.ours, **row.peers}
        for name, figure in figures.items():
            if figure.cold_us is None:
                absent.setdefault((name, figure.reason), []).append(row.name)
    for (name, why), layers in absent.items():
        which = "any layer" if len(layers) == len(results.rows) else ", ".join(layers)
        reason = _short(why.removeprefix(f"{name}: ")) or "no reason recorded"
        yield f"{name} has no time for {which}: {reason}"


def _short(why: str) -> str:
    return shortened(why, _LONGEST_REASON, "…")
