"""The nouns of a study: its layers, its steps, what its source published; and what comes of running it.

A study is data: a module of this package with one ``STUDY``. ``engine`` runs it and makes a document of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.problem import Problem

if TYPE_CHECKING:
    from tilewright.search.space import Pins

Value = float | str | None

FULL_SIZE = "at full size"  # how a quick run marks the source's figures
_TIME = re.compile(r"([0-9.]+(?:e[0-9]+)?) ?(ns|us|ms|s|min)")
_TO_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "min": 6e7}


class StudyError(TilewrightError):
    """There is no such study or part, or a file is of another."""


@dataclass(frozen=True)
class StudyLayer:
    """One layer; ``quick`` is a smaller one like it: a layer without one is left out of a quick run."""

    name: str
    problem: str
    quick: str = ""

    def at(self, quick: bool, dtype: str = "") -> Problem:
        """Return the problem at its full or its quick size, with another dtype where one is given."""
        text = self.quick if quick else self.problem
        problem = Problem.parse(text)
        return problem.with_dtype(dtype) if dtype else problem


@dataclass(frozen=True)
class Step:
    """One way to compute a layer, and what the source published of it.

    Attributes:
        name: the source's name of it.
        what: what runs here, where the name does not say so.
        config: a config's text or name; else the best of ``family`` with the values of ``pin``.
        family: the family to choose from; "all" is every one that races.
        pin: parameters and the values they may take; ``cpu_pin`` in its place on a CPU.
        peer: a peer's name; ``best`` is the fastest, ``cudnn-gemm`` cuDNN's fastest GEMM.
        dtype: replaces the layers' dtype.
        on: a device of its own, such as "cpu"; empty: the study's.
        published: by layer ("" for all layers, "sum" for their sum) the source's figures, as it
            prints them: a time, and anything else beside.
    """

    name: str
    what: str = ""
    config: str = ""
    family: str = ""
    pin: Pins = field(default_factory=dict)
    cpu_pin: Pins | None = None
    peer: str = ""
    dtype: str = ""
    on: str = ""
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def figures(self, layer: str) -> tuple[str, ...]:
        """What the source published of this step on a layer."""
        return self.published.get(layer) or self.published.get("", ())


@dataclass(frozen=True)
class Steps:
    """Times of steps on layers, measured side by side; drawn as a ladder, a sweep or a comparison.

    ``baseline`` names the step that speed-ups are over (empty: the first). ``total`` adds the sum of the
    layers' times. ``model`` adds what the model says of each config. ``quick_title`` and ``quick_note`` are
    those of a quick run, where the others tell of sizes.
    """

    title: str
    layers: tuple[StudyLayer, ...]
    steps: tuple[Step, ...]
    chart: str = "ladder"
    note: str = ""
    baseline: str = ""
    total: bool = False
    model: bool = False
    quick_title: str = ""
    quick_note: str = ""


@dataclass(frozen=True)
class Breakdown:
    """Time by activity of each step: allocation, copies, packing, launch, kernel, copies back.

    ``table`` names a file of ``data/published``: activities by the steps' names. Without one, each step is
    a row, and its published figures are of the whole run.
    """

    title: str
    layers: tuple[StudyLayer, ...]
    steps: tuple[Step, ...]
    table: str = ""
    note: str = ""


@dataclass(frozen=True)
class Counters:
    """A profiler's figures of each step of one layer, beside the source's table of them."""

    title: str
    layers: tuple[StudyLayer, ...]
    steps: tuple[Step, ...]
    table: str
    note: str = ""


@dataclass(frozen=True)
class Im2colMemory:
    """Bytes of im2col's columns against those of the input, over suites of layers."""

    title: str
    suites: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class TuningCurves:
    """How good a search is for its time: the best so far of each strategy.

    ``published`` are remarks of the source on its own search, by strategy.
    """

    title: str
    layers: tuple[StudyLayer, ...]
    strategies: tuple[str, ...] = ("all", "random", "model", "local")
    family: str = "direct"
    seconds: float = 6.0
    quick_trials: int = 2
    note: str = ""
    published: Mapping[str, str] = field(default_factory=dict)


def present(layers: tuple[StudyLayer, ...], quick: bool) -> tuple[StudyLayer, ...]:
    """Return the layers that a run has."""
    return tuple(layer for layer in layers if layer.quick or not quick)


Part = Steps | Breakdown | Counters | Im2colMemory | TuningCurves


@dataclass(frozen=True)
class Study:
    """The experiments of one source.

    Attributes:
        source: the document.
        device: the device of its figures.
        rounds: cold runs of each figure here, whose median counts; the source of ``csg`` took 24.
        quick_title: of a quick run, where the title tells of sizes.
    """

    name: str
    title: str
    source: str
    device: str
    parts: tuple[Part, ...]
    rounds: int = 24
    quick_title: str = ""


def quickly(study: Study) -> Study:
    """Return a study as a quick run has it: it tells of its own sizes, and marks figures of the source's."""
    parts = tuple(_quick_part(part) for part in study.parts)
    return replace(study, title=study.quick_title or study.title, parts=parts)


def _quick_part(part: Part) -> Part:
    if isinstance(part, Im2colMemory | TuningCurves):
        return part
    steps = tuple(replace(step, published=_marked(step.published)) for step in part.steps)
    if isinstance(part, Steps):
        title, note = part.quick_title or part.title, part.quick_note or part.note
        return replace(part, title=title, note=note, steps=steps)
    return replace(part, steps=steps)


def _marked(published: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Mark figures as of other sizes: read as text, no speed-up is computed of them."""
    return {layer: (f"{FULL_SIZE}: {first}", *more) for layer, (first, *more) in published.items()}


@dataclass(frozen=True)
class Column:
    """One column of a result: its key in the rows, its title, its unit (us, bytes, x, %, or empty)."""

    key: str
    title: str
    unit: str = ""


@dataclass(frozen=True)
class PartResult:
    """What came of one part, or has come so far: rows of values by column.

    Attributes:
        chart: how it is drawn.
        left: the layers that are not measured yet; empty once the part is done.
        date: when it was measured, its last layer.
        commit: of the code that measured it; several, with commas, if its layers are of several runs.
    """

    title: str
    chart: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Value], ...]
    left: tuple[str, ...] = ()
    date: str = ""
    commit: str = ""


def to_do(
    layers: tuple[StudyLayer, ...], quick: bool, before: PartResult | None
) -> Iterator[tuple[StudyLayer, tuple[str, ...]]]:
    """Yield each layer of a run that is not in ``before``, and what is left behind it."""
    todo = [layer for layer in present(layers, quick) if before is None or layer.name in before.left]
    for done, layer in enumerate(todo, 1):
        yield layer, tuple(other.name for other in todo[done:])


def time_us(text: str) -> float | None:
    """Read a time as a source prints it, e.g. ``128.10ms``; None if it is no time."""
    found = _TIME.fullmatch(text.strip())
    return float(found[1]) * _TO_US[found[2]] if found else None


def published_us(figures: tuple[str, ...]) -> float | None:
    """Return the first time among published figures, in us."""
    return next((us for text in figures if (us := time_us(text)) is not None), None)
