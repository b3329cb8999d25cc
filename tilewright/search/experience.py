"""What trials of other layers, on devices with the same chip, say of the model's error on this one.

The error, log(time / estimate), is modelled as a Gaussian process: similar configs of similar layers have
similar errors, and so have kernels whose estimates are made up alike, of whatever layer. Only its mean is
used here; measurements of the layer itself correct it further (see ``correction.py``).

The trials come with the package, ``data/experience/*.jsonl.gz``, some of each family and layer. On a chip
without any the model stands alone. Each estimate is for the device that the trial ran on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from math import exp
from pathlib import Path

import numpy as np

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.errors import StoreError, warn_once
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.problem.epilogue import NOTHING
from tilewright.record import Estimate, Record
from tilewright.search import model, trials_file
from tilewright.search.correction import on_one_core
from tilewright.search.places import Floats, coordinates, distances, features, makeup

# Source: the search replayed on benchmarks/h100/trials.jsonl.gz, each layer without its own trials.
COMMON = 0.15  # standard deviation of the error that all configs of a layer share
OWN = 0.2  # standard deviation of what differs among them
MAKEUP = 0.25  # standard deviation of what kernels share whose estimates are made up alike
LAYER = 0.05  # standard deviation of what a layer shares with no other
NOISE = 0.1  # standard deviation of what no neighbour tells
LENGTH_SCALE = 8.0  # of the kernel over parameters, in octaves, summed
LAYER_LENGTH_SCALE = 12.0  # of the kernel over the sizes of layers, likewise
MAKEUP_LENGTH_SCALE = 2.0  # of the kernel over what estimates are made up of, in shares of the time, summed
NEAREST = 16  # layers that are looked at
KEPT = 30  # trials of a family and layer that ship
FASTEST = 2  # of them, with which a search of another layer begins
MADE = 32  # biases that are remembered, 0.2 MB each: all of a layer that is looked at again
_reading = threading.Lock()


@dataclass(frozen=True)
class Lesson:
    """Trials of one family on one layer and device; configs as text, since few lessons are asked for."""

    device: Device
    problem: Problem
    family: str
    times_us: tuple[tuple[str, float], ...]


class Experience:
    """Trials of many layers on devices with one chip."""

    def __init__(self, lessons: Iterable[Lesson] = ()) -> None:
        self.lessons = tuple(lessons)
        self._made: OrderedDict[tuple[str, Problem, str], Bias] = OrderedDict()
        self._lock = threading.Lock()  # of what was made, never held for long

    def besides(self, problem: Problem, families: Iterable[Family]) -> Experience:
        """Return what was learnt of some families, without what was learnt of a layer itself: in any layout,
        with any epilogue, in whatever is timed as its precision (bf16 for f16) or computed in the same way.
        Another batch is another layer.
        """
        known = {family.name: family for family in families}
        own = {name: _layer(family.computed(problem)) for name, family in known.items()}
        theirs = [e for e in self.lessons if e.family in known]
        return Experience(e for e in theirs if _layer(known[e.family].computed(e.problem)) != own[e.family])

    def of(self, family: Family, problem: Problem, device: Device) -> Bias:
        """Return what is known of a family's error on a layer, in any precision that it computes alike."""
        problem = family.computed(problem)
        asked = (family.name, problem, device.key)
        with self._lock:
            found = self._made.get(asked)
        found = found or Bias(family, problem, device, self._near(family, problem))
        with self._lock:
            self._made[asked] = found
            self._made.move_to_end(asked)
            while len(self._made) > MADE:
                self._made.popitem(last=False)
        return found

    def _near(self, family: Family, problem: Problem) -> list[Lesson]:
        """Return the lessons of the nearest layers, whatever device they are of."""
        here = features(problem)
        own = (e for e in self.lessons if e.family == family.name)
        lessons = [e for e in own if family.computed(e.problem).timed_as == problem.timed_as]
        layers = {str(e.problem): float(np.abs(features(e.problem) - here).sum()) for e in lessons}
        nearest = sorted(layers, key=lambda name: (layers[name], name))[:NEAREST]
        return [e for e in lessons if str(e.problem) in nearest]


class Bias:
    """The model's expected error on the configs of one family and layer.

    Attributes:
        fastest: the fastest configs of the nearest layers, which a space may or may not have.
        learnt: how many trials it rests on.
    """

    def __init__(self, family: Family, problem: Problem, device: Device, lessons: Sequence[Lesson]) -> None:
        self._family, self._problem, self._device = family, problem, device
        self._params = family.params(problem, device)
        # Trials from before the family got or lost a parameter say nothing that can be placed or estimated.
        names = {param.name for param in self._params}
        known = ((e, Config.parse(text), us) for e in lessons for text, us in e.times_us)
        taught = [(e, c, us) for e, c, us in known if c.values.keys() == names]
        first = (Config.parse(text) for e in lessons for text, _ in e.times_us[:FASTEST])
        self.fastest = tuple(dict.fromkeys(first))
        self.learnt = len(taught)
        if not taught:
            return
        layers = np.array([features(e.problem) for e, _, _ in taught])
        estimates = [model.estimate(family, e.problem, e.device, c) for e, c, _ in taught]
        errors = np.log([us / one.total_us for one, (_, _, us) in zip(estimates, taught, strict=True)])
        self._taught = coordinates(self._params, [c for _, c, _ in taught]), makeup(estimates)
        alike = np.exp(-distances(layers, layers) / LAYER_LENGTH_SCALE)
        among = _covariance(self._taught, self._taught, alike)
        among += LAYER**2 * (alike == 1.0) + NOISE**2 * np.eye(len(taught))
        self._near = np.exp(-distances(features(problem)[None], layers) / LAYER_LENGTH_SCALE)
        with on_one_core():
            self._weights = np.linalg.solve(among, errors)

    def expected_us(self, configs: Sequence[Config]) -> list[float]:
        """Return the expected time of each config: the model's, corrected by what is known of its error."""
        estimates = [model.estimate(self._family, self._problem, self._device, c) for c in configs]
        errors = self._errors(configs, estimates)
        return [one.total_us * exp(error) for one, error in zip(estimates, errors, strict=True)]

    def _errors(self, configs: Sequence[Config], estimates: Sequence[Estimate]) -> Floats:
        """Return the expected log(time / estimate) of each config; 0 where nothing is known."""
        if not self.learnt or not configs:
            return np.zeros(len(configs))
        asked = coordinates(self._params, configs), makeup(estimates)
        covariance = _covariance(asked, self._taught, self._near)
        with on_one_core():
            expected: Floats = covariance @ self._weights
        return expected


def _covariance(a: tuple[Floats, Floats], b: tuple[Floats, Floats], alike: Floats) -> Floats:
    """Return the covariance of errors at places: parameters, and makeups."""
    own = OWN**2 * np.exp(-distances(a[0], b[0]) / LENGTH_SCALE)
    covariance: Floats = (COMMON**2 + own) * alike
    return covariance + MAKEUP**2 * np.exp(-distances(a[1], b[1]) / MAKEUP_LENGTH_SCALE)


def learn(device: Device, records: Iterable[Record], kept: int = KEPT) -> list[Lesson]:
    """Make lessons of a device's right outcomes: of each family and layer the fastest, and some others."""
    times: trials_file.Times = {}
    for record in records:
        if record.is_right:
            layer = Problem.parse(record.problem), record.family
            times.setdefault(layer, {})[record.config] = record.cold_us
    return _lessons(device, times, kept)


def _lessons(device: Device, times: trials_file.Times, kept: int) -> list[Lesson]:
    lessons = []
    for problem, family in sorted(times, key=lambda layer: (str(layer[0]), layer[1])):
        order = sorted(times[problem, family].items(), key=lambda item: (item[1], item[0]))
        rest = order[kept // 2 :]
        some = order[: kept // 2] + rest[:: max(1, ceil_div(len(rest), max(1, kept - kept // 2)))]
        lessons.append(Lesson(device, problem, family, tuple(some)))
    return lessons


def shipped(chip: str) -> Experience:
    """Return what comes with the package for a chip; nothing where there is none, or it cannot be read."""
    with _reading:  # by whoever comes first; others wait for it
        return _shipped(chip)


def read_shipped(backend: str | None) -> None:
    """Read what comes with the package for a backend's chips now, before the device is known."""
    for chip in {device.chip for _, device in _files() if device.backend == backend}:
        shipped(chip)


@lru_cache(maxsize=8)
def _shipped(chip: str) -> Experience:
    lessons: list[Lesson] = []
    for path, device in _files():
        if device.chip == chip:
            with _skipping():
                lessons += _lessons(*trials_file.read_times(path), KEPT)
    return Experience(lessons)


def _files() -> list[tuple[Path, Device]]:
    """Return the files that come with the package, and which device each is of."""
    folder, found = Path(str(resources.files("tilewright"))) / "data" / "experience", []
    for path in sorted(folder.glob("*.gz")):
        with _skipping():
            found.append((path, trials_file.device_of(path)))
    return found


@contextmanager
def _skipping() -> Iterator[None]:
    """Do without a file that cannot be read, with a warning."""
    try:
        yield
    except StoreError as error:
        warn_once(f"shipped trials are skipped: {error}", "experience")


def _layer(problem: Problem) -> Problem:
    """Return what all forms of a layer that have nearly the same fastest configs have in common."""
    plain = replace(problem, dtype=problem.timed_as, math="strict", epilogue=NOTHING)
    return plain.with_layout("nchw")
