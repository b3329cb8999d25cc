"""A source's published tables, as files of tab-separated values in ``data/published``.

The first line names the steps; each other line a row and the source's figure of every step, as printed;
empty where the document is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.studies.study import time_us

FOLDER = Path(__file__).parents[1] / "data" / "published"


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
