"""The grouped family on a CPU, filters of one tap to few channels: long runs of pixels."""

from __future__ import annotations

import pytest
from here import agrees

from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

GROUPED = family_of("grouped")
BASE = dict(combine=0, mb=1, th=1, threads=1, tw=1, v=4)
CASES = (
    ("n1c33h50w51k2r1s1-f32+bias+relu", dict(v=8, tw=2)),  # several items; a channel is left; odd ends
    ("n2c16h13w9k3r1s1-f32+add0.5", dict()),  # all channels at once
    ("n1c5h7w6k1r1s1-f32+alpha0.5", dict(tw=3)),  # fewer
    ("n1c17h1w21k14r1s1-f32+bias", dict(v=2)),  # as many sums as 16 registers hold
    ("n3c40h11w7k6r1s1g2-f32+bias+add+silu", dict(tw=2)),
    ("n1c12h3w2k4r1s1-f32", dict(tw=2)),  # six pixels, by two vectors of four
    ("n16c70h5w5k3r1s1d2-f32", dict(v=8, tw=2)),
    ("n1c34h30w40k5r1s1-f64+bias", dict(v=4)),
    ("n2c20h9w9k7r1s1-f16+bias+relu", dict(v=8)),
    ("n1c50h8w9k2r1s1-bf16+leaky0.5", dict(v=4, tw=4)),
    ("n1c24h8w9k2r1s1-f8", dict(v=4)),
    ("n2c22h9w11k3r1s1-i8+relu", dict(v=4, tw=2)),  # words of four channels, the last of two
    ("n1c40h9w30k5r1s1g5-i8+bias+requant", dict(v=8)),
    ("n1c20h14w18k3r1s1-f32+relu+maxpool2", dict(combine=2)),
)


@pytest.mark.parametrize(("text", "change"), CASES)
def test_it_is_right(text: str, change: dict[str, int], cpu: Runtime) -> None:
    problem, config = Problem.parse(text), Config.make("grouped", BASE | change)
    assert GROUPED.refuses(problem, cpu.device) is None
    GROUPED.check(problem, cpu.device, config)
    plan = Plan.make(cpu, problem, config)
    assert plan.blueprint.source == "grouped_runs.cu"
    agrees(plan)
