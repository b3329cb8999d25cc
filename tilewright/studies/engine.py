"""The engine that finds any study, and runs each kind of part."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from tilewright.studies.breakdown import run_breakdown
from tilewright.studies.counters import run_counters
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


def run_part(part: Part, lab: Lab, before: PartResult | None = None) -> Iterator[PartResult]:
    """Run a part of a study, continuing ``before``; yield it as it grows, and finally when it is done."""
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
