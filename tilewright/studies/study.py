"""The types of a study: its layers, its steps, the published figures, and the results of a run.

A study is data: a module of this package with one ``STUDY``. ``study_run`` runs it.
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

FULL_SIZE = "at full size"  # appended to the source's figures in a quick run
_TIME = re.compile(r"([0-9.]+(?:e[0-9]+)?) ?(ns|us|ms|s|min)")
_TO_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "min": 6e7}


class StudyError(TilewrightError):
    """A study or part that does not exist, or a file of another study."""


@dataclass(frozen=True)
class StudyLayer:
    """One layer; ``quick`` is a similar, smaller one: without it, a quick run leaves the layer out."""

    name: str
    problem: str
    quick: str = ""

    def at(self, quick: bool, dtype: str = "") -> Problem:
        """Return the problem at its full or its quick size, with another dtype if one is given."""
        text = self.quick if quick else self.problem
        problem = Problem.parse(text)
        return problem.with_dtype(dtype) if dtype else problem


@dataclass(frozen=True)
class Step:
    """One way to compute a layer, and its published figures.

    Attributes:
        name: the source's name for it.
        what: what runs here, if the name does not say so.
        config: a config's text or name; without it, the best of ``family`` with the values of ``pin``.
        family: the family to choose from; "all" means all that compete.
        pin: parameters and the values they may take; on a CPU, ``cpu_pin`` replaces it.
        peer: a peer's name; ``best`` is the fastest, ``cudnn-gemm`` cuDNN's fastest GEMM.
        dtype: replaces the layers' dtype.
        on: the step's own device, such as "cpu"; empty: the study's.
        published: by layer ("" for all layers, "sum" for their sum), the source's figures as printed: a
            time, and any others.
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

    def published_cells(self, layer: str) -> dict[str, Value]:
        """Return the source's figures of this step on a layer, for a row: the first time, and all of them."""
        figures = self.published.get(layer) or self.published.get("", ())
        return {"published_us": published_us(figures), "published": ", ".join(figures)}


@dataclass(frozen=True)
class Steps:
    """Times of steps on layers, measured interleaved; drawn as a ladder, a sweep or a comparison.

    ``baseline`` names the step that is the baseline of speed-ups (empty: the first). ``total`` adds the sum
    of the layers' times. ``model`` adds the model's prediction for each config. ``quick_title`` and
    ``quick_note`` replace title and note in a quick run, if those mention sizes.
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

    ``table`` names a file of ``data/published``, of activities by step. Without one, each step is a row, and
    its published figures are of the whole run.
    """

    title: str
    layers: tuple[StudyLayer, ...]
    steps: tuple[Step, ...]
    table: str = ""
    note: str = ""


@dataclass(frozen=True)
class Counters:
    """A profiler's figures of each step of one layer, beside the source's table."""

    title: str
    layers: tuple[StudyLayer, ...]
    steps: tuple[Step, ...]
    table: str
    note: str = ""


@dataclass(frozen=True)
class Im2colMemory:
    """Bytes of im2col's columns relative to the input, over suites of layers."""

    title: str
    suites: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class TuningCurves:
    """How fast a search finds good configs: the best so far of each strategy.

    ``published``: the source's remarks on its own search, by strategy.
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
    """Return the layers of a full or quick run."""
    return tuple(layer for layer in layers if layer.quick or not quick)


Part = Steps | Breakdown | Counters | Im2colMemory | TuningCurves


@dataclass(frozen=True)
class Study:
    """The experiments of one source.

    Attributes:
        source: the publication.
        device: the device of its figures.
        quick_title: the title of a quick run, if ``title`` mentions sizes.
    """

    name: str
    title: str
    source: str
    device: str
    parts: tuple[Part, ...]
    quick_title: str = ""


def quickly(study: Study) -> Study:
    """Return a study for a quick run: with the titles for its sizes, and the source's figures marked."""
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
    """Mark figures as those of other sizes: they become text, so that no speed-up is computed from them."""
    return {layer: (f"{FULL_SIZE}: {first}", *more) for layer, (first, *more) in published.items()}


@dataclass(frozen=True)
class Column:
    """One column of a result: its key in the rows, its title, its unit (us, bytes, x, %, or empty)."""

    key: str
    title: str
    unit: str = ""


@dataclass(frozen=True)
class PartResult:
    """The results of one part, maybe incomplete: rows of values by column.

    Attributes:
        chart: how it is drawn.
        left: the layers that are not measured yet; empty once the part is done.
        date: when its last layer was measured.
        commit: of the code that measured it; several, separated by commas, if its layers are of several runs.
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
    """Yield each layer of a run that is not in ``before``, and the layers left after it."""
    todo = [layer for layer in present(layers, quick) if before is None or layer.name in before.left]
    for done, layer in enumerate(todo, 1):
        yield layer, tuple(other.name for other in todo[done:])


def time_us(text: str) -> float | None:
    """Parse a time as a source prints it, e.g. ``128.10ms``, into us; None if it is not a time."""
    found = _TIME.fullmatch(text.strip())
    return float(found[1]) * _TO_US[found[2]] if found else None


def published_us(figures: tuple[str, ...]) -> float | None:
    """Return the first time among published figures, in us."""
    return next((us for text in figures if (us := time_us(text)) is not None), None)
