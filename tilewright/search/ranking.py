"""Configs of a space in order of their expected time: which are evaluated, and the model's order of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import inf

from tilewright.device import Device
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.search.experience import Bias, Experience, shipped
from tilewright.search.space import Pins, Space

Among = Sequence[Config] | None  # the configs that a search is kept to; None: any
PEEK = 8  # random configs of a peek, which decides the order in which families are looked at
FIRST = 100  # random configs of a glance, which shows about how fast a family can be
SAMPLES = 800  # random configs of a family in all; 1,500 found no faster ones, with ROUNDS of climbing
EACH = 10  # at most so many of them for each config asked for; a FIRST of 200 and 50 of these found no faster
CLIMBS = 2  # likewise, configs whose neighbours are evaluated
BEAM = 8  # configs whose neighbours are evaluated in one round of climbing
ROUNDS = 10  # of climbing, for each family
GLANCE = 4  # rounds of climbing in a glance, and configs in each: narrow rounds climb furthest
HOPELESS = 3.0  # times as slow as another family: climbing, which gains up to 1.8 times, is not worth it
CLOSE = 1.3  # times as slow as the best family: after a glance, only closer ones are deepened


class ModelRanking:
    """Expected times of one space's configs: the model's, corrected by ``experience`` of other layers.

    Configs are evaluated in three stages, so that no time is spent on families that are far too slow:

    - ``peek``: what was fastest on other layers, and a few random configs;
    - ``glance``: more random configs, and a short climb from neighbour to neighbour of the best;
    - ``deepen``: as many more, and as long a climb, as the search needs.

    With ``among``, only the given configs are evaluated, all of them at once.
    """

    def __init__(
        self, space: Space, rng: random.Random, among: Among = None, experience: Experience | None = None
    ) -> None:
        self.space, self._among = space, among
        # The outermost choice among things that have names: a way to read the input, say.
        self._way = next((param.name for param in self.space.params if len(param.names) > 1), None)
        self.seen: dict[Config, float] = {}
        self._experience = experience
        self._expanded: set[Config] = set()
        self._rng, self._peeked, self._glanced = rng, among is not None, among is not None
        self._samples, self._climbs = (SAMPLES - FIRST, ROUNDS * BEAM) if among is None else (0, 0)  # left
        self.add(among or ())

    @cached_property
    def _bias(self) -> Bias:
        """The model's error as other layers showed it."""
        space = self.space
        known = shipped(space.device.chip) if self._experience is None else self._experience
        return known.of(space.family, space.problem, space.device)

    def peek(self) -> float:
        """Look at what was fastest on other layers and a few samples, once; return the least of the times."""
        if not self._peeked:
            self._peeked = True
            self.add(config for config in self._bias.fastest if self.space.has(config))
            self._sample(PEEK)
        return min(self.seen.values(), default=inf)

    def glance(self, known_us: float = inf) -> float:
        """Look at a few configs, once, and return the least expected time; infinity if there are none.

        Args:
            known_us: what another family promises; one that is far from it is looked at more briefly.
        """
        if not self._glanced:
            self._glanced = True
            self.peek()
            self._sample(FIRST - PEEK)
            if min(self.seen.values()) < HOPELESS * known_us:
                for _ in range(GLANCE):
                    self.climb(GLANCE)
        return min(self.seen.values(), default=inf)

    def deepen(self, count: int = SAMPLES) -> None:
        """Evaluate more configs, enough to choose ``count``; in total as many as a search needs."""
        self.glance()
        samples = min(self._samples, EACH * count)
        self._samples -= samples
        self._sample(samples)
        climbs = min(self._climbs, CLIMBS * count)
        self._climbs -= climbs
        for left in range(climbs, 0, -BEAM):
            self.climb(min(BEAM, left))

    def _sample(self, count: int) -> None:
        self.add([self.space.sample(self._rng) for _ in range(count)])

    def add(self, configs: Iterable[Config]) -> None:
        """Compute the expected times of configs that are new."""
        fresh = [config for config in dict.fromkeys(configs) if config not in self.seen]
        if not fresh:
            return
        self.seen.update(zip(fresh, self._bias.expected_us(fresh), strict=True))

    def climb(self, beam: int) -> None:
        """Add the neighbours of the best configs that were not expanded yet, and of the best of each value of
        the outermost choice: the best of one value is many steps away from the best of another.
        """
        left = [config for config in self.order() if config not in self._expanded]
        best = left[:beam]
        if self._way:
            first = {config[self._way]: config for config in reversed(left)}
            best += [config for config in first.values() if config not in best]
        self._expanded.update(best)
        self.add(near for config in best for near in self.space.neighbours(config))

    def near(self, config: Config) -> tuple[Config, ...]:
        """Return the neighbours of a config; none where the search is kept to given configs."""
        return self.space.neighbours(config) if self._among is None else ()

    def order(self) -> list[Config]:
        """Return the configs seen, those expected to be fastest first."""
        return sorted(self.seen, key=self.seen.__getitem__)


def rank_all(
    problem: Problem, device: Device, families: Iterable[Family], count: int
) -> list[tuple[Config, float]]:
    """Return configs of several families, those expected to be fastest first, with their times in us.

    It looks as long as it takes to find good ones: in less than half of the time of ``rank`` for each family,
    the first is expected to be as fast within 1%. ``count`` is how many there should be to choose from.
    """
    best_us, rankings = inf, [ModelRanking(Space(f, problem, device), random.Random(0)) for f in families]
    for ranking in sorted(rankings, key=ModelRanking.peek):
        best_us = min(best_us, ranking.glance(best_us))
    for ranking in rankings:
        if ranking.glance() < CLOSE * best_us:
            ranking.deepen(count)
    found = [item for ranking in rankings for item in ranking.seen.items()]
    return sorted(found, key=lambda item: item[1])


def rank(
    problem: Problem, device: Device, family: Family, count: int, pins: Pins | None = None
) -> list[tuple[Config, float]]:
    """Return the ``count`` configs expected to be fastest, with their times in us; measures nothing."""
    ranked = ModelRanking(Space(family, problem, device, pins), random.Random(0))
    ranked.deepen()
    return [(config, ranked.seen[config]) for config in ranked.order()[:count]]
