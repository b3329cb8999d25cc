"""A study's ladder as a plot: each step's speed-up over the first, here and as published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import OutputError
from tilewright.report.ladder import LADDERS, Row, base, layers, rungs
from tilewright.report.plot import COLOURS, INK, bare_axes, save
from tilewright.report.study import duration, origin
from tilewright.report.table import NONE
from tilewright.studies.document import StudyResult


def draw_study(result: StudyResult, path: Path) -> None:
    """Write the first ladder of a study: each step's speed-up over the first step.

    The first layer with published figures is drawn; these, from the source's device, are outlines.

    Raises:
        OutputError: matplotlib is missing, no part of the study has a ladder, or the file cannot be written.
    """
    ladders = [rungs(part, layer) for part in result.parts if part.chart in LADDERS for layer in layers(part)]
    ladders = sorted(filter(None, ladders), key=lambda rows: not _published(rows))
    if not ladders:
        raise OutputError("plot: no part of the study has a ladder; nothing to draw")
    rows = ladders[0]
    outlines = f"; outlines: published, {result.published_on}" if _published(rows) else ""
    title = f"{result.title}\n{rows[0]['layer']}, {origin(result)}{outlines}"
    save(path, (7.0, 0.4 * len(rows) + 1.4), lambda axes: _ladder(axes, rows, title))


def _published(rows: Sequence[Row]) -> bool:
    return any(row.get("published_speedup") for row in rows)


def _ladder(axes: Any, rows: Sequence[Row], title: str) -> None:
    places = range(len(rows))
    here, published = ([float(row.get(key) or 0) for row in rows] for key in ("speedup", "published_speedup"))
    axes.barh(places, here, 0.7, color=COLOURS[0])
    for place, row in zip(places, rows, strict=True):
        if published[place]:
            axes.barh(place, published[place], 0.7, fill=False, edgecolor=INK)
        time = row.get("time_us")
        text = duration(float(time)) if time else NONE
        axes.text(max(here[place], published[place]), place, f" {text}", va="center", fontsize=9)
    axes.set_yticks(places, [str(row["step"]) for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"times as fast as {base(rows)}")
    axes.set_title(title, fontsize=10)
    bare_axes(axes, "x", "left")
