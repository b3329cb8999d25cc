"""The gemv family where rows and images do not divide: what lies over its neighbour is counted once."""

from __future__ import annotations

import pytest
from here import EMULATED_AND_GPU, agrees
from test_gpu_path import runtime

from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["runtime"]  # a fixture

BASE = dict(images=4, lanes=8, mb=1, rows=2, threads=32, unroll=1)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize("x", (0, 1))
@pytest.mark.parametrize(("combine", "sg"), ((0, 1), (1, 2), (2, 3), (3, 2)))
def test_images_and_rows_that_hang_over(device: str, combine: int, sg: int, x: int, runtime: Runtime) -> None:
    problem = Problem.parse("n5c130h1w1k9r1s1-f32")
    config = Config.make("gemv", BASE | dict(combine=combine, sg=sg, x=x))
    family_of("gemv").check(problem, runtime.device, config)
    plan = Plan.make(runtime, problem, config)
    agrees(plan)
    agrees(plan)  # arrivals are counted from 0 again
