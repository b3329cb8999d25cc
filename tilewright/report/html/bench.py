"""A benchmark's results as a section: table, roofline, ratios, error over bound, device."""

from __future__ import annotations

from tilewright.bench.rows import BenchRow
from tilewright.report.html.charts import kernel_point, ladder, ratios, roofline
from tilewright.report.html.page import (
    Cell,
    Section,
    device_table,
    heading,
    notes,
    paragraph,
    protocol_table,
    table,
)
from tilewright.report.html.svg import Bar
from tilewright.report.results import Results
from tilewright.report.results_table import ran_peers, results_table
from tilewright.report.table import BEATS_MARK, NOISY_MARK, Table, ratio_text, time_text


def bench_section(name: str, results: Results) -> Section:
    """Lay out one benchmark."""
    results = results.told_apart()
    laid = results_table(results, families=True)
    peers = [peer for peer in results.peer_names if any(peer in ran_peers(row) for row in results.rows)]
    errors = [Bar(row.name, row.ours.worst or None, about(row)) for row in results.rows]
    blocks = [
        paragraph(laid.title),
        _table(laid, results),
        notes(laid.notes),
        heading("Roofline"),
        _roofline(results),
        heading("Each peer's time over ours"),
        ratios([(row.name, _ratios(row, peers)) for row in results.rows], peers, "peer time / ours"),
        heading("Largest error over its bound"),
        ladder(errors, "error / bound; 1 is the bound", limit=1.0),
        protocol_table(results.protocol),
        device_table(results.device),
    ]
    return Section(name, tuple(block for block in blocks if block))


def about(row: BenchRow) -> str:
    """Return the tooltip of a layer."""
    ours = row.ours
    took = f"{time_text(ours.cold_us)} us, floor {time_text(row.floor_us)} us"
    time = took if ours.cold_us else ours.reason
    return "\n".join(filter(None, (row.name, row.problem, ours.config, time, ours.note)))


def _table(laid: Table, results: Results) -> str:
    rows = []
    for row, cells in zip(results.rows, laid.body, strict=True):
        first = Cell(cells[0], tip=about(row))
        rows.append([first, *(Cell(text, _number(text)) for text in cells[1:])])
    return table(laid.head, rows, (1,))


def _roofline(results: Results) -> str:
    points = []
    for row in results.rows:
        if best := row.best_peer:
            peer_us = row.peers[best].cold_us or 0.0
            said = f"{row.name}: {best}, {time_text(peer_us)} us"
            points.append(kernel_point(row.problem, peer_us, 1, said, hollow=True))
        if row.ours.cold_us:
            points.append(kernel_point(row.problem, row.ours.cold_us, 0, about(row)))
    return roofline(points, ("tilewright", "fastest peer"), results.device)


def _ratios(row: BenchRow, peers: list[str]) -> dict[str, tuple[float, str]]:
    found = {}
    for peer in peers:
        value = row.over_ours(peer)
        if value:
            figure = row.peers[peer]
            said = f"{row.name}: {peer} takes {time_text(figure.cold_us)} us, {ratio_text(value)} times ours"
            found[peer] = (value, f"{said}\n{figure.detail}\n{row.problem}\n{row.ours.config}")
    return found


def _number(text: str) -> float | None:
    """Parse a cell's text into a number to sort by."""
    factors = {"%": 0.01, "k": 1024.0, "M": 1024.0**2, "G": 1024.0**3}
    bare = text.rstrip("†" + NOISY_MARK + BEATS_MARK)
    factor = factors.get(bare[-1:], 1.0)
    try:
        return float(bare.rstrip("%kMG").replace(",", "")) * factor
    except ValueError:
        return None
