"""Finds a study and runs it: the wanted parts, their results so far, and those of an earlier run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.bench.environment import commit, commits, device_of, now
from tilewright.errors import count
from tilewright.floor import peak_tflops
from tilewright.problem import Problem
from tilewright.studies.breakdown import run_breakdown
from tilewright.studies.counters import run_counters
from tilewright.studies.document import StudyResult, load
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
    present,
    quickly,
)

NAMES = ("csg", "diannao", "im2col-gemm", "lenet", "toy-cnn")


@dataclass
class StudyRun:
    """The wanted parts of a study, and the results so far.

    Attributes:
        wanted: the parts to run, by number.
        before: the results of an earlier run.
        latest: the results so far of each part, by title.
    """

    study: Study
    wanted: Mapping[int, Part]
    before: StudyResult | None = None
    latest: dict[str, PartResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with the results of an earlier run."""
        self.latest |= {part.title: part for part in (self.before.parts if self.before else ())}

    def run(self, lab: Lab) -> Iterator[PartResult]:
        """Run the rest of the wanted parts; each is stored, and yielded, as it grows."""
        for part in self.wanted.values():
            before = self.latest.get(part.title)
            if before and not before.left:
                continue
            theirs = commits(before.commit if before else "")
            for found in run_part(part, lab, before):
                self.latest[part.title] = replace(found, date=now(), commit=theirs)
                yield self.latest[part.title]

    @property
    def done(self) -> list[PartResult]:
        """Return the wanted parts that are complete: before ``run``, those of the earlier run."""
        found = [self.latest.get(part.title) for part in self.wanted.values()]
        return [part for part in found if part and not part.left]

    def number(self, part: PartResult) -> int:
        """Return the number of a wanted part."""
        return next(number for number, one in self.wanted.items() if one.title == part.title)

    @property
    def parts(self) -> tuple[PartResult, ...]:
        """Return the results so far, in the study's order; parts that it no longer has come last."""
        titles = [part.title for part in self.study.parts]
        strangers = [title for title in self.latest if title not in titles]
        return tuple(self.latest[title] for title in titles + strangers if title in self.latest)

    def result(self, lab: Lab) -> StudyResult:
        """Assemble the results so far; the earlier run's result, unchanged, if nothing is new."""
        if self.before and self.before.parts == self.parts:
            return self.before
        study = self.study
        return StudyResult(
            name=study.name, title=study.title, source=study.source, published_on=study.device,
            quick=lab.quick, device={**device_of(lab.runtime), "peak_tflops": self._peaks(lab)}, date=now(),
            commit=commit(), parts=self.parts, budget=self.before.budget if self.before else lab.budget,
        )  # fmt: skip

    def _peaks(self, lab: Lab) -> dict[str, float]:
        """Return the device's peak in each precision that was timed."""
        timed = [row for part in self.parts for row in part.rows if row.get("time_us") and row.get("problem")]
        precisions = {Problem.parse(str(row["problem"])).precision for row in timed}
        return {name: peak_tflops(lab.runtime.device, name) for name in sorted(precisions)}

    def left(self) -> str:
        """Say how much is done; empty if everything is."""
        done = len(self.done)
        if done == len(self.wanted):
            return ""
        found = {number: self.latest.get(part.title) for number, part in self.wanted.items()}
        grown = [f"{_layers(part)} of part {number}" for number, part in found.items() if part and part.left]
        return ", and ".join([f"{done} of {count(len(self.wanted), 'part')} done", *grown])


def _layers(part: PartResult) -> str:
    """Say how many layers of a part are done."""
    done = len({row.get("layer") for row in part.rows})
    return f"{done} of {count(done + len(part.left), 'layer')}"


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


def chosen(study: Study, numbers: Sequence[int] | None) -> dict[int, Part]:
    """Return the parts with these numbers, from 1, in the study's order; all if ``numbers`` is empty or None.

    Raises:
        StudyError: there is no such part; lists the parts.
    """
    parts = dict(enumerate(study.parts, 1))
    for number in numbers or ():
        if number not in parts:
            known = "; ".join(f"{known}. {part.title}" for known, part in parts.items())
            raise StudyError(f"--part {number}: the parts of {study.name} are {known}")
    return {number: part for number, part in parts.items() if not numbers or number in numbers}


def earlier_result(file: Path, study: Study, lab: Lab) -> StudyResult | None:
    """Read the results that an earlier run left in a file; None if there is no file.

    Raises:
        StudyError: they are of another study, another device, other sizes, another budget, or other layers.
    """
    if not file.exists():
        return None
    found = load(file)
    if differs := _differs(found, study, lab):
        raise StudyError(f"--resume: {file} {differs}, or name another file after --json")
    return found


def _differs(found: StudyResult, study: Study, lab: Lab) -> str:
    """Say why a result cannot be continued, and what to do; empty if it can be."""
    if found.name != study.name:
        return f"is of the study {found.name}, not of {study.name}; run that one"
    key = lab.runtime.device.key
    if (there := found.device.get("key", "an unknown device")) != key:
        return f"was measured on {there}, this is {key}; choose that one by --device"
    if found.quick != lab.quick:
        return "was measured " + ("with --quick; give it" if found.quick else "without --quick; leave it out")
    if found.budget not in (None, lab.budget):
        return "was measured " + (
            f"with --budget {found.budget}; give it" if found.budget else "without --budget; leave it out"
        )
    known = {part.title: part for part in study.parts}
    for part in found.parts:
        layers = present(getattr(known.get(part.title), "layers", ()), lab.quick)
        if part.title in known and (odd := set(part.left) - {layer.name for layer in layers}):
            return f"lacks {', '.join(sorted(odd))}, no layer of {part.title!r} now; leave --resume out"
    return ""
