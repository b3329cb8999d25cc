"""A source's published tables, read from tab-separated values in ``data/published``, and put beside ours.

The first line names the steps; each other line a row and the source's figure of every step, as printed;
empty where the document is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.studies.study import FULL_SIZE, Breakdown, Column, Counters, PartResult, Value, time_us

FOLDER = Path(__file__).parents[1] / "data" / "published"
LEFT_OUT = "left out of a quick run"


@dataclass(frozen=True)
class PublishedTable:
    """A published table.

    Attributes:
        corner: the title of its first column.
        times: whether all its figures are times.
        steps: the titles of its other columns.
        rows: by row and step, the figure as the source prints it.
    """

    corner: str
    times: bool
    steps: tuple[str, ...]
    rows: Mapping[str, Mapping[str, str]]

    def published(self, row: str, step: str) -> Mapping[str, tuple[str, ...]]:
        """Return one figure in the form of ``Step.published``, for all layers."""
        return {"": (self.rows[row][step],)}


def table(name: str) -> PublishedTable:
    """Read a published table."""
    lines = (FOLDER / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    cells = [line.split("\t") for line in lines if line and not line.startswith("#")]
    (corner, *steps), body = cells[0], cells[1:]
    rows = {row[0]: dict(zip(steps, row[1:], strict=True)) for row in body}
    times = all(time_us(text) is not None for row in body for text in row[1:] if text)
    return PublishedTable(corner, times, tuple(steps), rows)


def beside(
    part: Breakdown | Counters, found: Mapping[tuple[str, str], Mapping[str, Any] | str],
    names: Mapping[str, str], quick: bool,
) -> PartResult:  # fmt: skip
    """Put a published table, one column per step, beside our figures of the same rows.

    Rows that only we have are at the end; steps that could not run are noted, by reason.
    """
    theirs = table(part.table)
    by_step = {step: values for (_, step), values in found.items()}
    notes = [part.note] if found else [f"{LEFT_OUT}: these are the source's figures alone"]
    for why in dict.fromkeys(values for values in by_step.values() if isinstance(values, str)):
        notes.append(f"no figures for {'; '.join(step for step in by_step if by_step[step] == why)}: {why}")
    labels = list(theirs.rows)
    ours = dict.fromkeys(key for values in by_step.values() if not isinstance(values, str) for key in values)
    labels += [key for key in ours if key not in names.values()]
    rows = []
    for label in labels:
        row: dict[str, Value] = {"activity": label}
        for step in part.steps:
            values = by_step.get(step.name, "")
            if not isinstance(values, str):
                row[step.name] = values.get(names.get(label, label))
            row[f"{step.name}|published"] = theirs.rows.get(label, {}).get(step.name)
        rows.append(row)
    columns, published = [Column("activity", theirs.corner)], "published" + f" {FULL_SIZE}" * quick
    for step in part.steps:
        columns.append(Column(step.name, step.name, "us" if theirs.times else ""))
        # Named by its step: on a narrow terminal it may stand without its neighbour.
        columns.append(Column(f"{step.name}|published", f"{step.name}: {published}"))
    note = "\n".join(filter(None, notes))
    return PartResult(part.title, "beside", note, tuple(columns), tuple(rows))
