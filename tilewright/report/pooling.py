"""How a pool is computed, fused or by a second kernel, and the cost of the other way."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tilewright.device import Device
from tilewright.errors import ConfigError
from tilewright.kernels import FAMILIES, family_of, pick
from tilewright.kernels.config import Config
from tilewright.kernels.tile import NONE, TWO_PASS
from tilewright.problem import Problem
from tilewright.record import Estimate, Record
from tilewright.search.model import estimate
from tilewright.search.ranking import rank
from tilewright.search.space import usable

LOOKED_AT = 2000  # most configs that are examined, in the model's order
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
    """Return the model's best config that pools in the other way than ``here``, and its estimate.

    It is among the config itself with the other way to combine sums, and the first of each family.
    """
    turned = NONE if config.values.get("combine") == TWO_PASS else TWO_PASS
    found: list[Config] = []
    with suppress(ConfigError):
        other = Config.make(config.family, {**config.values, "combine": turned})
        family_of(other.family).check(problem, device, other)
        found += [other] if apart(problem, device, other) != here else []
    for family in usable(pick(FAMILIES, ()), problem, device)[0]:
        ranked = (one for one, _ in rank(problem, device, family, LOOKED_AT))
        found += [one for one in ranked if apart(problem, device, one) != here][:1]
    estimates = [(one, estimate(family_of(one.family), problem, device, one)) for one in found]
    return min(estimates, key=lambda item: item[1].total_us, default=None)
