"""The model's choice among the configs of a family that have some parameters pinned."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.errors import ConfigError
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.search.space import Pins
from tilewright.search.strategies import rank


def ranked(family: Family, problem: Problem, device: Device, pins: Pins, count: int) -> list[Config]:
    """Return the model's best configs with some parameters pinned.

    Raises:
        ConfigError: the family refuses the layer, has no such parameter or value, or no such config is legal.
    """
    if reason := family.refuses(problem, device):
        raise ConfigError(f"{family.name}: {reason}")
    return [config for config, _ in rank(problem, device, family, count, pins=pins)]
