"""What is asked of a config of the families that read planes: planar, pointwise and shifted."""

from __future__ import annotations

from random import Random

import pytest
from here import agrees, clustered, verified

from tilewright.device import Device
from tilewright.kernels import family_of
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.search.space import Space, sample


def _taken(family: Family, text: str, device: Device) -> Problem:
    """The layer; the test is skipped where the family does not take it."""
    problem = Problem.parse(text)
    if reason := family.refuses(problem, device):
        pytest.skip(reason)
    return problem


def config_agrees(runtime: Runtime, text: str, config: Config, shift: int = 2) -> None:
    """A config is right on aligned arrays, and on those that lie ``shift`` bytes off."""
    problem = _taken(family_of(config.family), text, clustered(runtime).device)
    plan = Plan.make(runtime, problem, config)
    agrees(plan)
    agrees(plan, shift=shift)


def nan_stays(runtime: Runtime, text: str, config: Config) -> None:
    """A config is right in full: a NaN stays with the outputs that see it, whatever shared memory had."""
    verified(runtime, _taken(family_of(config.family), text, clustered(runtime).device), config)


def emulated_configs_agree(runtime: Runtime, family: Family, text: str) -> None:
    """Some random configs are right by emulation."""
    problem = Problem.parse(text)
    space = Space(family, problem, clustered(runtime).device)
    for config in {space.sample(Random(seed)) for seed in range(3)}:
        agrees(Plan.make(runtime, problem, config))


def configs_agree(runtime: Runtime, family: Family, text: str) -> None:
    """A dozen random configs are right on a GPU, also with what a run leaves in shared memory."""
    problem = _taken(family, text, runtime.device)
    for seed in range(12):
        plan = Plan.make(runtime, problem, sample(family, problem, runtime.device, Random(seed)))
        agrees(plan, seed=seed)
        agrees(plan, seed=seed)
