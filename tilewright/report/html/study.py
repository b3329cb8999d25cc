"""A study's results as a section: each part with its table and charts, beside the published figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.report.html.charts import curve, kernel_point, ladder, ratios, roofline
from tilewright.report.html.page import Cell, Section, device_table, heading, notes, paragraph, table
from tilewright.report.html.svg import Bar
from tilewright.report.ladder import LADDERS, Row, base, layers, rungs
from tilewright.report.study import duration, texts
from tilewright.report.study import heading as title_of
from tilewright.report.study import notes as remarks
from tilewright.studies.document import StudyResult
from tilewright.studies.study import Column, PartResult, Value, time_us


def study_section(result: StudyResult, file: str = "") -> Section:
    """Lay out one study; ``file`` tells it from others of its name."""
    blocks = [paragraph(title_of(result)), paragraph(f"Source: {result.source}.")]
    for part in result.parts:
        blocks += [heading(part.title), *_charts(part, result), _table(part), notes(remarks(part))]
    blocks.append(device_table(result.device))
    name = f"Study {result.name}" + (f" ({file})" if file else "")
    return Section(name, tuple(block for block in blocks if block))


def _table(part: PartResult) -> str:
    words = [i for i, c in enumerate(part.columns) if c.key in ("step", "strategy", "limiter", "published")]
    rows = [
        [_cell(column, row, text, part) for column, text in zip(part.columns, cells, strict=True)]
        for row, cells in zip(part.rows, texts(part, part.columns), strict=True)
    ]
    return table([column.title for column in part.columns], rows, words)


def _cell(column: Column, row: Row, text: str, part: PartResult) -> Cell:
    value = row.get(column.key)
    sort = value if isinstance(value, float) else None
    if isinstance(value, str):
        sort = time_us(value.partition(",")[0])
    first = column.key == part.columns[min(1, len(part.columns) - 1)].key
    return Cell(text, sort, about(row) if first else "")


def about(row: Row) -> str:
    """Return the tooltip of a step."""
    head = " ".join(str(row[key]) for key in ("layer", "step", "strategy") if row.get(key))
    time, floor = _number(row.get("time_us")), _number(row.get("floor_us"))
    took = f"{duration(time)}, floor {duration(floor)}" if time and floor else ""
    published = f"published: {row['published']}" if row.get("published") else ""
    rest = [str(row.get(key) or "") for key in ("what", "problem", "config", "note", "reason")]
    return "\n".join(filter(None, (head, took, published, *rest)))


def _charts(part: PartResult, result: StudyResult) -> list[str]:
    if part.chart == "curve":
        return _curves(part)
    if part.chart not in (*LADDERS, "bars", "model"):
        return []
    charts = [_ladder(part, layer) for layer in layers(part)] if part.chart in LADDERS else []
    if part.chart == "bars":
        charts.append(_bars(part))
    if part.chart in ("bars", "model"):
        charts.append(_roofline(part, result.device))
    return charts


def _ladder(part: PartResult, layer: Value) -> str:
    """Draw the speed-ups of one layer's steps; the source's, from another device, are outlines."""
    rows = rungs(part, layer)
    bars = [
        Bar(str(row["step"]), _number(row.get("speedup")), about(row),
            outline=_number(row.get("published_speedup")))
        for row in rows
    ]  # fmt: skip
    outlined = "published" if any(bar.outline for bar in bars) else ""
    return ladder(bars, f"{layer}: times as fast as {base(rows)}", outlined)


def _bars(part: PartResult) -> str:
    """Draw the speed-ups of all layers side by side."""
    first = base(part.rows)
    timed = [row for row in part.rows if row.get("speedup") and row["step"] != first]
    names = list(dict.fromkeys(str(row["step"]) for row in timed))
    groups = [
        (str(layer), {
            str(row["step"]): (float(row["speedup"] or 0), about(row))
            for row in timed if row.get("layer") == layer
        })
        for layer in layers(part)
    ]  # fmt: skip
    return ratios(groups, names, f"times as fast as {first}")


def _roofline(part: PartResult, device: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(str(row["step"]) for row in part.rows if row.get("time_us")))
    points = []
    for row in part.rows:
        time = _number(row.get("time_us"))
        if time and row.get("device") == device.get("name"):
            place = names.index(str(row["step"]))
            points.append(kernel_point(str(row["problem"]), time, place, about(row)))
    return roofline(points, names, device)


def _curves(part: PartResult) -> list[str]:
    """Draw one chart per layer: the best so far of each strategy."""
    charts = []
    for layer in layers(part):
        series: dict[str, list[tuple[float, float]]] = {}
        for row in part.rows:
            seconds, best = _number(row.get("elapsed_s")), _number(row.get("best_us"))
            if row.get("layer") == layer and seconds and best:
                series.setdefault(str(row["strategy"]), []).append((seconds, best))
        charts.append(curve(series, f"{layer}: best so far, us"))
    return charts


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None
