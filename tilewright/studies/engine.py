"""The engine that runs any study, from its description to its results."""

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
    """Return a study by its name; ``quick``: for a quick run.

    Raises:
        StudyError: there is none; lists the known ones.
    """
    if name not in NAMES:
        raise StudyError(f"study {name!r}: must be one of {', '.join(NAMES)}")
    found: Study = importlib.import_module(f"tilewright.studies.{name.replace('-', '_')}").STUDY
    return quickly(found) if quick else found


def parts(wanted: Iterable[Part], lab: Lab, earlier: Mapping[str, PartResult]) -> Iterator[PartResult]:
    """Run parts of a study one after the other; each is yielded as it grows, and finally when it is done.

    ``earlier``: parts of a previous run, by title; complete ones are not run, the others are continued.
    """
    for part in wanted:
        before = earlier.get(part.title)
        if before and not before.left:
            continue
        theirs = commits(before.commit if before else "")
        for found in _run(part, lab, before):
            yield replace(found, date=now(), commit=theirs)


def result(wanted: Study, lab: Lab, parts: Sequence[PartResult]) -> StudyResult:
    """Assemble the results of a study so far."""
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
