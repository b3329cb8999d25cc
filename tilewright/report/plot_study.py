"""A study's ladder as a plot: how many times as fast as the first step each is, here and as published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import StoreError
from tilewright.report.plot import COLOURS, INK, plain, save
from tilewright.report.study import duration
from tilewright.studies.engine import StudyResult
from tilewright.studies.study import Value


def draw_study(result: StudyResult, path: Path) -> None:
    """Write the first ladder of a study: how many times as fast as its first step each step is.

    Figures of the source, on its device, are outlines.

    Raises:
        DeviceError: matplotlib is missing.
        StoreError: the study has no ladder, or the file cannot be written.
    """
    ladder = next((part for part in result.parts if part.kind == "ladder"), None)
    if ladder is None:
        raise StoreError("plot: no part of the study is a ladder; nothing to draw")
    layer = ladder.rows[0].get("layer")
    rows = [row for row in ladder.rows if row.get("layer") == layer and row.get("speedup")]
    title = f"{result.title}\n{layer}, {result.device['name']}; outlines: published, {result.published_on}"
    save(path, (7.0, 0.4 * len(rows) + 1.4), lambda axes: _ladder(axes, rows, title))


def _ladder(axes: Any, rows: Sequence[Mapping[str, Value]], title: str) -> None:
    places = range(len(rows))
    speedups = [float(row["speedup"] or 0) for row in rows]
    axes.barh(places, speedups, 0.7, color=COLOURS[0])
    published = [float(row.get("published_speedup") or 0) for row in rows]
    axes.barh(places, published, 0.7, fill=False, edgecolor=INK)
    for place, row in zip(places, rows, strict=True):
        right = max(speedups[place], published[place])
        axes.text(right, place, f" {duration(float(row['time_us'] or 0))}", va="center", fontsize=9)
    axes.set_yticks(places, [str(row["step"]) for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"times as fast as {rows[0]['step']}")
    axes.set_title(title, fontsize=10)
    plain(axes, "x", "left")
