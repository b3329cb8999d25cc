"""How a pool is computed, fused or by a second kernel, and the cost of the other way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

from tilewright.device import Device
from tilewright.errors import ConfigError
from tilewright.kernels import FAMILIES, family_of, pick
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.record import Estimate, Record
from tilewright.search.experience import shipped
from tilewright.search.model import estimate
from tilewright.search.ranking import GLANCE, HOPELESS, ModelRanking
from tilewright.search.space import Space, usable

SAMPLES = 32  # configs of each family that are looked at beside those that were fast on other layers
WAYS = ("fused: pooled where the sums are made", "two_pass: a second kernel pools what the first one stored")


def apart(problem: Problem, device: Device, config: Config) -> bool:
    """Whether a legal config leaves the pool to a second kernel, which at most adds partial sums besides."""
    last = family_of(config.family).blueprint(problem, device, config).launches[-1]
    return last.kernel in ("sum_shares", "pool")


def measured_otherwise(
    problem: Problem, device: Device, here: bool, ranked: Sequence[Record]
) -> Record | None:
    """Return the first record whose config pools in the other way than ``here``: ``apart`` or not."""
    for record in ranked:
        with suppress(ConfigError):  # a record of older kernels may be illegal now
            other = Config.parse(record.config)
            family_of(other.family).check(problem, device, other)
            if apart(problem, device, other) != here:
                return record
    return None


def predicted_otherwise(
    problem: Problem, device: Device, config: Config, here: bool
) -> tuple[Config, Estimate] | None:
    """Return the config expected to be fastest of those that pool in the other way, and its estimate.

    Each family is climbed, with ``combine`` pinned, from the fastest configs of other layers and a few more.
    """
    rankings: list[ModelRanking] = []
    for family in usable(pick(FAMILIES, ()), problem, device)[0]:
        for combine, starts in _starts(problem, device, family, config).items():
            if apart(problem, device, starts[0]) != here:  # ``combine`` decides it, within a family
                pins = {} if combine is None else {"combine": combine}
                space = Space(family, problem, device, pins)
                rankings.append(ModelRanking(space, random.Random(0), starts))
    if not rankings:
        return None
    known_us = min(ranking.glance() for ranking in rankings)
    for ranking in rankings:
        before_us = HOPELESS * known_us
        while ranking.glance() < before_us:
            before_us = ranking.glance()
            ranking.climb(GLANCE)
    best = min(rankings, key=ModelRanking.glance).order()[0]
    return best, estimate(family_of(best.family), problem, device, best)


def _starts(
    problem: Problem, device: Device, family: Family, config: Config
) -> dict[int | None, list[Config]]:
    """Return legal configs of a family by their ``combine``, None where it has no such parameter."""
    space, rng = Space(family, problem, device), random.Random(0)
    fast = config, *shipped(device.chip).of(family, problem, device).fastest
    some = [*filter(space.has, fast), *(space.sample(rng) for _ in range(SAMPLES))]
    ways = next((param.values for param in space.params if param.name == "combine"), ())
    turned = [Config.make(family.name, {**one.values, "combine": way}) for one in some for way in ways]
    found: dict[int | None, list[Config]] = {}
    for one in turned or some:
        if space.has(one):
            found.setdefault(one.values.get("combine"), []).append(one)
    return found
