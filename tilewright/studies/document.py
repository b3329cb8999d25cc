"""The results file of a study, written and read back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import StoreError
from tilewright.fields import TINY, Fields, read_document
from tilewright.studies.study import Column, PartResult, Value

FORMAT = "tilewright-study"
MOST = sys.float_info.max
_ABOVE_0 = ("time_us", "speedup", "published_speedup", "best_us")  # on logarithmic axes in charts
_NO_LESS = ("elapsed_s",)  # 0 or more, likewise; no chart shows 0
_DRAWN = {  # keys that a part's charts read from each row
    "ladder": ("step",), "sweep": ("step",), "bars": ("step", "problem"), "model": ("step", "problem"),
    "curve": ("strategy",),
}  # fmt: skip
_TEXTS = ("name", "title", "source", "published_on", "date", "commit")


@dataclass(frozen=True)
class StudyResult:
    """The results of a study, as in its document.

    Attributes:
        name: the study's.
        title: the study's, for the sizes that were run.
        source: the publication of its layers and figures.
        published_on: the device of the source's figures.
        quick: whether smaller layers were run.
        device: facts of the device and the versions of what ran there.
        date: when it was last run, to the second.
        commit: of the code that ran it last.
        parts: the results of each part.
        budget: of tuning each layer that has no fixed config: "20s"; empty: untuned; None: unknown, of an
            older file.
    """

    name: str
    title: str
    source: str
    published_on: str
    quick: bool
    device: Mapping[str, Any]
    date: str
    commit: str
    parts: tuple[PartResult, ...]
    budget: str | None = None


def document(result: StudyResult) -> dict[str, Any]:
    """Return the document of a study's results."""
    return {"format": FORMAT, "schema": 1, **asdict(result)}


def is_study(found: Any) -> bool:
    """Whether a document is that of a study."""
    return isinstance(found, dict) and found.get("format") == FORMAT


def load(path: Path) -> StudyResult:
    """Read a results file of a study.

    Raises:
        StoreError: the file cannot be read, or has no results of a study; says what is wrong.
    """
    return read_document(path, parse, "study file", "'study --json'")


def parse(found: Any) -> StudyResult:
    """Parse a document.

    Raises:
        StoreError: names what is missing or of the wrong type.
    """
    if not is_study(found):
        raise StoreError(f"not a results document of a study: 'format' must be {FORMAT!r}")
    try:
        f = Fields(found)
        texts = {name: f.string(name) for name in _TEXTS}
        parts = tuple(_part(part) for part in f.sections("parts"))
        budget = None if f.data.get("budget") is None else f.string("budget")
        return StudyResult(
            **texts, quick=f.boolean("quick"), device=f.section("device").data, parts=parts, budget=budget
        )
    except StoreError as error:
        raise StoreError(f"a damaged results document of a study: {error}") from None


def _part(f: Fields) -> PartResult:
    chart = f.string("chart")
    return PartResult(
        f.string("title"), chart, f.string("note"),
        columns=tuple(column.build(Column) for column in f.sections("columns")),
        rows=tuple(_cells(row, _DRAWN.get(chart, ())) for row in f.sections("rows")),
        left=tuple(map(str, f.elements("left"))), date=f.string("date"), commit=f.string("commit"),
    )  # fmt: skip


def _cells(f: Fields, drawn: tuple[str, ...]) -> dict[str, Value]:
    """Read a row of texts, numbers and nulls; ``drawn``: texts that must not be missing."""
    for name, value in f.data.items():
        if not isinstance(value, str | int | float | None):
            raise f.bad(name, "a text or a number")
        if isinstance(value, int | float) and not abs(value) <= MOST:
            raise f.bad(name, "a finite number")
        if name in _ABOVE_0 and value is not None:
            f.number(name, TINY)
        if name in _NO_LESS and value is not None:
            f.figure(name)
    for name in drawn:
        f.string(name)
    return f.data
