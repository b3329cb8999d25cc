"""Run a study: one engine for all, from data to what its document holds."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.bench.environment import commit, commits, device_of, now
from tilewright.studies.breakdown import run_breakdown
from tilewright.studies.counters import run_counters
from tilewright.studies.document import StudyResult
from tilewright.studies.lab import Lab
from tilewright.studies.memory import run_memory
from tilewright.studies.searching import run_search
from tilewright.studies.steps import run_steps
from tilewright.studies.study import (
    Breakdown,
    Counters,
    Part,
    PartResult,
    Steps,
    Study,
    StudyError,
    TuningCurves,
    quickly,
)

NAMES = ("csg", "diannao", "im2col-gemm", "lenet", "toy-cnn")


def study(name: str, quick: bool = False) -> Study:
    """Return the study of a name; ``quick``: as a quick run has it.

    Raises:
        StudyError: there is none; says which there are.
    """
    if name not in NAMES:
        raise StudyError(f"study {name!r}: must be one of {', '.join(NAMES)}")
    found: Study = importlib.import_module(f"tilewright.studies.{name.replace('-', '_')}").STUDY
    return quickly(found) if quick else found


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
    elif isinstance(part, TuningCurves):
        yield from run_search(part, lab, before)
    elif isinstance(part, Breakdown):
        yield run_breakdown(part, lab)
    elif isinstance(part, Counters):
        yield run_counters(part, lab)
    else:
        yield run_memory(part)
