"""Which configs to try, and in what order: all, random, ranked by the model, local around the best.

A strategy proposes batches and is told what became of them; it never sees a device or a clock.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from tilewright.device import Device
from tilewright.errors import ConfigError
from tilewright.kernels.family import Config, Family
from tilewright.problem import Problem
from tilewright.record import Estimate, Record
from tilewright.tuning import model
from tilewright.tuning.space import Space, space

STRATEGIES = ("model", "local", "random", "all")
SAMPLES = 1500
BEAM = 24
ROUNDS = 5


class Strategy(Protocol):
    """What the tuner asks of a search."""

    def propose(self, count: int) -> list[Config]:
        """Return up to ``count`` configs not proposed before; none when the space is spent."""

    def tell(self, record: Record) -> None:
        """Learn the outcome of a proposed config."""


class Ranked:
    """Estimates of one space, found by sampling and then climbing from the best of the sample."""

    def __init__(self, family: Family, problem: Problem, device: Device, rng: random.Random) -> None:
        self._family, self._problem, self._device = family, problem, device
        self.space: Space = space(family, problem, device)
        self.seen: dict[Config, Estimate] = {}
        self._expanded: set[Config] = set()
        for _ in range(SAMPLES):
            self.add(self.space.sample(rng))
        for _ in range(ROUNDS):
            self.climb()

    def add(self, config: Config) -> None:
        """Estimate a config once."""
        if config not in self.seen:
            self.seen[config] = model.estimate(self._family, self._problem, self._device, config)

    def climb(self) -> None:
        """Estimate the neighbours of the best configs whose neighbours are not known yet."""
        for config in [c for c in self.order()[:BEAM] if c not in self._expanded]:
            self._expanded.add(config)
            for near in self.space.neighbours(config):
                self.add(near)

    def order(self) -> list[Config]:
        """Return the configs seen, best estimate first."""
        return sorted(self.seen, key=lambda c: (self.seen[c].total_us, c.items))


def rank(
    problem: Problem, device: Device, family: Family, count: int, seed: int = 0
) -> list[tuple[Config, Estimate]]:
    """Return the ``count`` configs that the model likes best, best first, without a measurement."""
    ranked = Ranked(family, problem, device, random.Random(seed))
    return [(config, ranked.seen[config]) for config in ranked.order()[:count]]


class All:
    """Every legal config, in the order of the space."""

    def __init__(self, family: Family, problem: Problem, device: Device, rng: random.Random) -> None:
        self._configs: Iterator[Config] = space(family, problem, device).every()

    def propose(self, count: int) -> list[Config]:
        """Return the next configs of the space."""
        return list(islice(self._configs, count))

    def tell(self, record: Record) -> None:
        """Learn nothing."""


class Random:
    """Legal configs drawn without regard to anything, none twice."""

    def __init__(self, family: Family, problem: Problem, device: Device, rng: random.Random) -> None:
        self._space, self._rng = space(family, problem, device), rng
        self._seen: set[Config] = set()

    def propose(self, count: int) -> list[Config]:
        """Draw configs; gives up when draws keep repeating."""
        batch: list[Config] = []
        for _ in range(count * 50):
            config = self._space.sample(self._rng)
            if config not in self._seen:
                self._seen.add(config)
                batch.append(config)
            if len(batch) == count:
                break
        return batch

    def tell(self, record: Record) -> None:
        """Learn nothing."""


class Model:
    """The model's order, corrected by what is measured.

    Each measurement says how far the model is off for one config. The next batch is ranked by the
    estimate times the mean error of the measured configs that share most of its parameters; every
    other batch it also climbs from the best measured config.
    """

    neighbours_share = 0.5

    def __init__(self, family: Family, problem: Problem, device: Device, rng: random.Random) -> None:
        self._ranked = Ranked(family, problem, device, rng)
        self._times: dict[Config, float] = {}
        self._proposed: set[Config] = set()

    def propose(self, count: int) -> list[Config]:
        """Return the most promising configs that were not proposed yet."""
        near = self._near_best(int(count * self.neighbours_share)) if self._times else []
        self._proposed.update(near)
        batch = near + self._most_promising(count - len(near))
        self._proposed.update(batch)
        return batch

    def tell(self, record: Record) -> None:
        """Remember a measured time; a config that failed counts as very slow."""
        try:
            config = Config.parse(record.config)
        except ConfigError:
            return
        self._proposed.add(config)
        if config in self._ranked.seen or record.measurement:
            self._ranked.add(config)
            self._times[config] = record.measurement.cold_us if record.measurement else float("inf")

    def _near_best(self, count: int) -> list[Config]:
        best = sorted((t, c.items, c) for c, t in self._times.items() if t < float("inf"))[:3]
        for _, _, config in best:
            for near in self._ranked.space.neighbours(config):
                self._ranked.add(near)
        pool = [n for _, _, c in best for n in self._ranked.space.neighbours(c) if n not in self._proposed]
        unique = dict.fromkeys(sorted(pool, key=lambda c: (self._corrected(c), c.items)))
        return list(unique)[:count]

    def _most_promising(self, count: int) -> list[Config]:
        fresh = [c for c in self._ranked.order()[: 40 * max(count, 8)] if c not in self._proposed]
        return sorted(fresh, key=lambda c: (self._corrected(c), c.items))[:count]

    def _corrected(self, config: Config) -> float:
        """Estimate scaled by the error seen at the most similar measured configs."""
        estimate = self._ranked.seen[config].total_us
        weights = total = 0.0
        for other, time in self._times.items():
            same = sum(a == b for a, b in zip(config.items, other.items, strict=True))
            weight = float(4 ** (same - len(config.items)))
            ratio = 4.0 if time == float("inf") else time / self._ranked.seen[other].total_us
            weights, total = weights + weight, total + weight * ratio
        prior = 4.0**-6
        return estimate * (total + prior) / (weights + prior)


class Local(Model):
    """Local search: after a first batch by the model, only neighbours of the best measured."""

    neighbours_share = 1.0


def make(strategy: str, family: Family, problem: Problem, device: Device, seed: int = 0) -> Strategy:
    """Build a strategy by name; the same seed gives the same proposals.

    Raises:
        ConfigError: if the name is not one of ``STRATEGIES``.
    """
    kinds: dict[str, type[All] | type[Random] | type[Model]] = {
        "all": All, "random": Random, "model": Model, "local": Local
    }  # fmt: skip
    if strategy not in kinds:
        raise ConfigError(f"strategy {strategy!r}: must be one of {', '.join(STRATEGIES)}")
    return kinds[strategy](family, problem, device, random.Random(seed))
