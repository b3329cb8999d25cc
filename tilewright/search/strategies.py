"""Which configs to try, and in what order: all, random, ranked by the model, local around the best.

A strategy proposes batches and is told what became of them; it never sees a device or a clock.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from math import exp, inf

from tilewright.device import Device
from tilewright.errors import ConfigError
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.record import Record
from tilewright.search import model
from tilewright.search.correction import Correction
from tilewright.search.experience import Bias, Experience, shipped
from tilewright.search.proposals import Strategy
from tilewright.search.space import Pins, Space

Among = Sequence[Config] | None
STRATEGIES = ("model", "local", "random", "all")
FIRST = 200  # configs that show what a family may reach
SAMPLES = 800  # of a family that is worth trying; with these rounds 1,500 show no faster ones
EACH = 50  # of them that are looked at for each config that is asked for
CLIMBS = 2  # of the best of them whose neighbours are looked at, likewise
BEAM = 8  # configs whose neighbours are looked at together
ROUNDS = 10
GLANCE = 4  # rounds, of so many configs, of the first look: few steps at a time go furthest
POOL = 60  # configs of the model's order that are looked at for each one to choose
FAILED = 2.0  # a config that failed counts as this many times slower than estimated


class ModelRanking:
    """Expected times of one space's configs, found by sampling and climbing from the best of the sample:
    a few when it is asked what the family promises, the others when it is asked for configs.

    The model estimates; ``experience``, what other layers showed of its errors, corrects.
    """

    def __init__(
        self, space: Space, rng: random.Random, among: Among = None, experience: Experience | None = None
    ) -> None:
        self.space, self._among = space, among
        # The outermost choice among things that have names, such as the ways to read the input.
        self._kind = next((param.name for param in self.space.params if len(param.names) > 1), None)
        self.seen: dict[Config, float] = {}
        self._experience = experience
        self._expanded: set[Config] = set()
        self._rng, self._glanced = rng, among is not None
        self._samples, self._climbs = (SAMPLES - FIRST, ROUNDS * BEAM) if among is None else (0, 0)  # left
        self.add(among or ())

    @cached_property
    def _bias(self) -> Bias:
        """What other layers showed."""
        space = self.space
        known = shipped(space.device.chip) if self._experience is None else self._experience
        return known.of(space.family, space.problem, space.device)

    def glance(self) -> None:
        """Look at a few configs, once."""
        if not self._glanced:
            self._glanced = True
            self.add([self.space.sample(self._rng) for _ in range(FIRST)])
            for _ in range(GLANCE):
                self.climb(GLANCE)

    def deepen(self, count: int = SAMPLES) -> None:
        """Look at more configs, as many as it takes to choose ``count``; in all as many as a search needs."""
        self.glance()
        samples = min(self._samples, EACH * count)
        self._samples -= samples
        self.add([self.space.sample(self._rng) for _ in range(samples)])
        climbs = min(self._climbs, CLIMBS * count)
        self._climbs -= climbs
        for left in range(climbs, 0, -BEAM):
            self.climb(min(BEAM, left))

    def add(self, configs: Iterable[Config]) -> None:
        """Work out the expected times of configs, of each once."""
        fresh = [config for config in dict.fromkeys(configs) if config not in self.seen]
        if not fresh:
            return
        space = self.space
        for config, error in zip(fresh, self._bias.errors(fresh), strict=True):
            estimate = model.estimate(space.family, space.problem, space.device, config)
            self.seen[config] = estimate.total_us * exp(error)

    def climb(self, beam: int) -> None:
        """Add the neighbours of the best configs among those whose neighbours are not known yet, and of the
        best of each kind: what is best of one is many steps from what is best of another.
        """
        left = [config for config in self.order() if config not in self._expanded]
        best = left[:beam]
        if self._kind:
            first = {config[self._kind]: config for config in reversed(left)}
            best += [config for config in first.values() if config not in best]
        self._expanded.update(best)
        self.add(near for config in best for near in self.space.neighbours(config))

    def near(self, config: Config) -> tuple[Config, ...]:
        """Return the neighbours of a config; none where the search is kept to given configs."""
        return self.space.neighbours(config) if self._among is None else ()

    def order(self) -> list[Config]:
        """Return the configs seen, those expected to be fastest first."""
        return sorted(self.seen, key=self.seen.__getitem__)


def rank(
    problem: Problem, device: Device, family: Family, count: int, seed: int = 0, pins: Pins | None = None
) -> list[tuple[Config, float]]:
    """Return the ``count`` configs expected to be fastest, with their times in us; measures nothing."""
    ranked = ModelRanking(Space(family, problem, device, pins), random.Random(seed))
    ranked.deepen()
    return [(config, ranked.seen[config]) for config in ranked.order()[:count]]


class Uninformed:
    """A strategy that neither expects nor learns anything."""

    def promise_us(self) -> float:
        """Expect nothing."""
        return inf

    def foretaste(self, count: int) -> list[Config]:
        """Return nothing: no config is better than another."""
        return []

    def gain(self) -> float:
        """Expect anything."""
        return inf

    def tell(self, record: Record) -> None:
        """Learn nothing."""


class Exhaustive(Uninformed):
    """Every legal config, in the order of the space."""

    def __init__(self, space: Space, rng: random.Random, among: Among = None) -> None:
        self._configs: Iterator[Config] = space.every() if among is None else iter(among)

    def propose(self, count: int) -> list[Config]:
        """Return the next configs of the space."""
        return list(islice(self._configs, count))


class RandomSampling(Uninformed):
    """Legal configs drawn without regard to anything, none twice."""

    def __init__(self, space: Space, rng: random.Random, among: Among = None) -> None:
        self._space, self._rng = space, rng
        self._given = None if among is None else rng.sample(among, len(among))
        self._seen: set[Config] = set()

    def propose(self, count: int) -> list[Config]:
        """Draw configs; gives up when draws keep repeating."""
        batch: list[Config] = []
        if self._given is not None:
            batch, self._given = self._given[:count], self._given[count:]
            return batch
        for _ in range(count * 50):
            config = self._space.sample(self._rng)
            if config not in self._seen:
                self._seen.add(config)
                batch.append(config)
            if len(batch) == count:
                break
        return batch


class ModelGuided:
    """The model's order, corrected by what is measured; half of each batch climbs from the best."""

    climbing = 0.5
    starts = 4

    def __init__(
        self, space: Space, rng: random.Random, among: Among = None, experience: Experience | None = None
    ) -> None:
        self._ranked = ModelRanking(space, rng, among, experience)
        self._correction = Correction(space.params)
        self._times: dict[Config, float] = {}
        self._failed: dict[Config, None] = {}  # in their order: where two are as good, the first is taken
        self._proposed: set[Config] = set()
        self._waiting: dict[Config, None] = {}
        self._owed = 0.0  # steps from the best that batches before this one were too small for
        self._best_us = inf  # of any family
        self._gain = inf

    def promise_us(self) -> float:
        """Return the least time that the model expects."""
        self._ranked.glance()
        return min(self._ranked.seen.values(), default=inf)

    def foretaste(self, count: int) -> list[Config]:
        """Return the most promising configs of those that were looked at for the promise."""
        self._ranked.glance()
        return self._choose(self._ranked.order()[: POOL * max(count, 8)], count)

    def propose(self, count: int) -> list[Config]:
        """Return the most promising configs that were not proposed yet."""
        self._gain = 0.0
        self._ranked.deepen(count)
        near = self._choose(self._near_best(), self._steps(count)) if self._times else []
        fresh = (config for config in self._ranked.order() if config not in self._proposed)
        return near + self._choose(list(islice(fresh, POOL * max(count, 8))), count - len(near))

    def _steps(self, count: int) -> int:
        """Return how many of a batch are steps from the best; what is left of one counts in the next."""
        self._owed += count * self.climbing
        steps = int(self._owed)
        self._owed -= steps
        return steps

    def gain(self) -> float:
        """Return what the best of the configs proposed last is expected to gain on the best time."""
        return self._gain

    def tell(self, record: Record) -> None:
        """Remember a measured time, or a failure."""
        if record.measurement:
            self._best_us = min(self._best_us, record.measurement.cold_us)
        try:
            config = Config.parse(record.config)
        except ConfigError:
            return
        if config.family != self._ranked.space.family.name:
            return
        self._proposed.add(config)
        self._waiting.pop(config, None)
        self._ranked.add([config])
        if record.measurement:
            self._times[config] = record.measurement.cold_us
        else:
            self._failed[config] = None

    def _near_best(self) -> list[Config]:
        """Return the neighbours of the fastest configs."""
        starts = sorted(self._times, key=self._times.__getitem__)[: self.starts]
        pool = [near for start in starts for near in self._ranked.near(start)]
        self._ranked.add(pool)
        return pool

    def _choose(self, pool: list[Config], count: int) -> list[Config]:
        """Choose among the configs of a pool that were not proposed yet."""
        fresh = [c for c in dict.fromkeys(pool) if c not in self._proposed]
        expected = self._ranked.seen
        measured = {c: FAILED * expected[c] for c in self._failed} | self._times
        chosen = self._correction.choose(
            fresh, expected.__getitem__, measured, list(self._waiting), self._best_us, count
        )
        self._gain = max(self._gain, self._correction.gain)
        self._proposed.update(chosen)
        self._waiting.update(dict.fromkeys(chosen))
        return chosen


class LocalSearch(ModelGuided):
    """Local search: after a first batch by the model, only neighbours of the best measured."""

    climbing = 1.0


def make(
    strategy: str, family: Family, problem: Problem, device: Device, seed: int = 0, among: Among = None,
    experience: Experience | None = None,
) -> Strategy:  # fmt: skip
    """Build a strategy by name; the same seed gives the same proposals.

    ``among`` keeps it to the given configs: those that were recorded, when a search is replayed.
    ``experience`` is what it knows of other layers; None: what comes with the package.

    Raises:
        ConfigError: if the name is not one of ``STRATEGIES``.
    """
    guided: dict[str, type[ModelGuided]] = {"model": ModelGuided, "local": LocalSearch}
    uninformed: dict[str, type[Exhaustive | RandomSampling]] = {"all": Exhaustive, "random": RandomSampling}
    space, rng = Space(family, problem, device), random.Random(seed)
    if strategy in guided:
        return guided[strategy](space, rng, among, experience)
    if strategy in uninformed:
        return uninformed[strategy](space, rng, among)
    raise ConfigError(f"strategy {strategy!r}: must be one of {', '.join(STRATEGIES)}")
