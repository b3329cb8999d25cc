"""The ladder of a study's part: the steps of a layer and their speed-ups, here and as published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.studies.study import PartResult, Value

Row = Mapping[str, Value]
LADDERS = ("ladder", "sweep")  # the kinds of chart that show a ladder


def layers(part: PartResult) -> list[Value]:
    """Return the layers of a part, in order."""
    return list(dict.fromkeys(row.get("layer") for row in part.rows))


def rungs(part: PartResult, layer: Value) -> list[Row]:
    """Return the steps of a layer that have a speed-up, here or as published."""
    rows = [row for row in part.rows if row.get("layer") == layer]
    return [row for row in rows if row.get("speedup") or row.get("published_speedup")]


def base(rows: Sequence[Row]) -> str:
    """Return the name of the step that is the baseline of speed-ups."""
    return next((str(row["step"]) for row in rows if row.get("speedup") == 1.0), "the first step")
