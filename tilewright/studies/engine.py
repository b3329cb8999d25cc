"""Run a study: one engine for all, from data to a document; and read a document back."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tilewright.bench.environment import commit, commits, device_of, now
from tilewright.errors import StoreError
from tilewright.files import read_json
from tilewright.store.fields import Fields
from tilewright.studies.breakdown import run_breakdown
from tilewright.studies.counters import run_counters
from tilewright.studies.lab import Lab
from tilewright.studies.memory import run_memory
from tilewright.studies.searching import run_search
from tilewright.studies.steps import run_steps
from tilewright.studies.study import (
    Breakdown,
    Column,
    Counters,
    Part,
    PartResult,
    Search,
    Steps,
    Study,
    StudyError,
    Value,
)

FORMAT = "tilewright-study"
_TEXTS = ("name", "title", "source", "published_on", "date", "commit")
MOST = sys.float_info.max
NAMES = ("csg", "diannao", "im2col-gemm", "lenet", "toy-cnn")


@dataclass(frozen=True)
class StudyResult:
    """What came of a study, as its document has it; ``date`` and ``commit`` are of its last run."""

    name: str
    title: str
    source: str
    published_on: str
    quick: bool
    device: Mapping[str, Any]
    date: str
    commit: str
    parts: tuple[PartResult, ...]


def study(name: str) -> Study:
    """Return the study of a name.

    Raises:
        StudyError: there is none; says which there are.
    """
    if name not in NAMES:
        raise StudyError(f"study {name!r}: must be one of {', '.join(NAMES)}")
    found: Study = importlib.import_module(f"tilewright.studies.{name.replace('-', '_')}").STUDY
    return found


def parts(wanted: Iterable[Part], lab: Lab, earlier: Mapping[str, PartResult]) -> Iterator[PartResult]:
    """Run parts of a study one after the other; each is handed on as it grows, last when it is done.

    ``earlier``, by title, are of another run: those that are done are not run, the others are gone on with.
    """
    for part in wanted:
        before = earlier.get(part.title)
        if before and not before.left:
            continue
        theirs = commits(before.commit if before else "")
        for found in _run(part, lab, before):
            yield replace(found, date=now(), commit=theirs)


def result(wanted: Study, lab: Lab, parts: Sequence[PartResult]) -> StudyResult:
    """Put together what there is of a study."""
    return StudyResult(
        name=wanted.name, title=wanted.title, source=wanted.source, published_on=wanted.device,
        quick=lab.quick, device=device_of(lab.runtime), date=now(), commit=commit(), parts=tuple(parts),
    )  # fmt: skip


def _run(part: Part, lab: Lab, before: PartResult | None = None) -> Iterator[PartResult]:
    if isinstance(part, Steps):
        yield from run_steps(part, lab, before)
    elif isinstance(part, Search):
        yield from run_search(part, lab, before)
    elif isinstance(part, Breakdown):
        yield run_breakdown(part, lab)
    elif isinstance(part, Counters):
        yield run_counters(part, lab)
    else:
        yield run_memory(part)


def document(result: StudyResult) -> dict[str, Any]:
    """Return the results file of a study."""
    return {"format": FORMAT, "schema": 1, **asdict(result)}


def is_study(found: Any) -> bool:
    """Whether a document is one of a study."""
    return isinstance(found, dict) and found.get("format") == FORMAT


def load(path: Path) -> StudyResult:
    """Read a results file of a study.

    Raises:
        StudyError: the file cannot be read, or is no result of a study; names what is wrong.
    """
    try:
        return parse(read_json(path))
    except OSError as error:
        raise StudyError(f"study file {path}: {error.strerror or error}") from None
    except ValueError:
        raise StudyError(f"study file {path}: not JSON; want one written by 'study --json'") from None
    except StudyError as error:
        raise StudyError(f"study file {path}: {error}") from None


def parse(found: Any) -> StudyResult:
    """Turn a document into values. The parts of an older one are whole, of its own date and commit.

    Raises:
        StudyError: names what is missing or of the wrong type.
    """
    if not is_study(found):
        raise StudyError(f"not a results document of a study: 'format' must be {FORMAT!r}")
    try:
        f = Fields(found)
        texts = {name: f.string(name) for name in _TEXTS}
        parts = tuple(_part(part, texts["date"], texts["commit"]) for part in f.sections("parts"))
        return StudyResult(**texts, quick=f.boolean("quick"), device=f.section("device").data, parts=parts)
    except StoreError as error:
        raise StudyError(f"a damaged results document of a study: {error}") from None


def _part(f: Fields, date: str, commit: str) -> PartResult:
    return PartResult(
        f.string("title"), f.string("kind"), f.string("note"),
        columns=tuple(column.build(Column) for column in f.sections("columns")),
        rows=tuple(map(_cells, f.sections("rows"))),
        left=tuple(map(str, f.elements("left") if "left" in f.data else ())),
        date=f.string("date", date), commit=f.string("commit", commit),
    )  # fmt: skip


def _cells(f: Fields) -> dict[str, Value]:
    """Read a row: texts, numbers and what is not there."""
    for name, value in f.data.items():
        if not isinstance(value, str | int | float | None):
            raise f.bad(name, "a text or a number")
        if isinstance(value, int | float) and not abs(value) <= MOST:
            raise f.bad(name, "a finite number")
    return f.data
