"""Which configs to try, and in what order: all, random, ranked by the model, local around the best.

A strategy proposes batches and is told what became of them; it never sees a device or a clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from math import inf

from tilewright.device import Device
from tilewright.errors import ConfigError
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.record import Record
from tilewright.search.correction import choose
from tilewright.search.experience import Experience
from tilewright.search.proposals import Strategy
from tilewright.search.ranking import Among, ModelRanking
from tilewright.search.space import Space

POOL = 60  # configs of the model's order that are looked at for each one to choose
FAILED = 2.0  # a config that failed counts as this many times slower than estimated


class Exhaustive(Strategy):
    """Every legal config, in the order of the space."""

    def __init__(
        self, space: Space, rng: random.Random, among: Among = None, experience: Experience | None = None
    ) -> None:
        self._configs: Iterator[Config] = space.every() if among is None else iter(among)

    def propose(self, count: int) -> list[Config]:
        """Return the next configs of the space."""
        return list(islice(self._configs, count))


class RandomSampling(Strategy):
    """Legal configs drawn at random, none twice."""

    def __init__(
        self, space: Space, rng: random.Random, among: Among = None, experience: Experience | None = None
    ) -> None:
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


class ModelGuided(Strategy):
    """The model's order, corrected by what is measured; half of each batch climbs from the best."""

    climbing = 0.5  # share of a batch that are steps from the best
    starts = 4  # of the best, whose neighbours these steps are

    def __init__(
        self, space: Space, rng: random.Random, among: Among = None, experience: Experience | None = None
    ) -> None:
        self._ranked = ModelRanking(space, rng, among, experience)
        self._times: dict[Config, float] = {}
        self._failed: dict[Config, None] = {}  # in their order: where two are as good, the first is taken
        self._proposed: set[Config] = set()
        self._waiting: dict[Config, None] = {}
        self._owed = 0.0  # steps from the best that batches before this one were too small for
        self._best_us = inf  # of any family
        self._gain = inf

    def peek_us(self) -> float:
        """Return the least time that the model expects of a few configs."""
        return self._ranked.peek()

    def promise_us(self, known_us: float = inf) -> float:
        """Return the least time that the model expects."""
        return self._ranked.glance(known_us)

    def preview(self, count: int) -> list[Config]:
        """Return the most promising of the configs that were evaluated for the promise."""
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
        """Return how many of a batch are steps from the best; fractions carry over to the next batch."""
        self._owed += count * self.climbing
        steps = int(self._owed)
        self._owed -= steps
        return steps

    def gain(self) -> float:
        """Return what the best of the configs proposed last is expected to gain on the best time."""
        return self._gain

    def tell(self, record: Record) -> None:
        """Remember a measured time, or a failure: a finalist that proved wrong in full has a time, too."""
        self._best_us = min(self._best_us, record.cold_us)
        try:
            config = Config.parse(record.config)
        except ConfigError:
            return
        if config.family != self._ranked.space.family.name:
            return
        self._proposed.add(config)
        self._waiting.pop(config, None)
        self._ranked.add([config])
        if record.is_right:
            self._times[config] = record.cold_us
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
        params, waiting = self._ranked.space.params, list(self._waiting)
        chosen, gain = choose(params, fresh, expected.__getitem__, measured, waiting, self._best_us, count)
        self._gain = max(self._gain, gain)
        self._proposed.update(chosen)
        self._waiting.update(dict.fromkeys(chosen))
        return chosen


class LocalSearch(ModelGuided):
    """Local search: after a first batch by the model, only neighbours of the best measured."""

    climbing = 1.0


STRATEGIES: dict[str, Callable[[Space, random.Random, Among, Experience | None], Strategy]] = {
    "model": ModelGuided, "local": LocalSearch, "random": RandomSampling, "all": Exhaustive,
}  # fmt: skip


def make(
    strategy: str, family: Family, problem: Problem, device: Device, seed: int = 0, among: Among = None,
    experience: Experience | None = None,
) -> Strategy:  # fmt: skip
    """Build a strategy by name; the same seed gives the same proposals, as long as it is told the same times.

    ``among`` keeps it to the given configs: those that were recorded, when a search is replayed.
    ``experience`` is what it knows of other layers; None: what comes with the package.

    Raises:
        ConfigError: if the name is not one of ``STRATEGIES``.
    """
    if strategy not in STRATEGIES:
        raise ConfigError(f"strategy {strategy!r}: must be one of {', '.join(STRATEGIES)}")
    return STRATEGIES[strategy](Space(family, problem, device), random.Random(seed), among, experience)
