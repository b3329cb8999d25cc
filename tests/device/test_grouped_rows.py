"""How the grouped family reads rows on a GPU: four columns at a time, and row after row of a large filter."""

from __future__ import annotations

from math import gcd

import pytest
from here import EMULATED_AND_GPU, agrees
from test_gpu_path import runtime

from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.grouped.tile import reads_quads, rolled, stores_quads
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["runtime"]  # a fixture

BASE = dict(combine=0, mb=1, th=1, threads=32, tw=4, v=1)
QUADS = (
    ("n2c3h5w12k3r3s3p1g3-f32+bias+relu", {}),
    ("n1c4h6w16k4r5s5p2g4-f32+add0.5", dict(th=2)),
    ("n1c3h4w8k3r1s7p0x3g3-f32-nchw2nhwc", dict(tw=8)),
    ("n1c2h5w12k4r3s5p1x0g2-f32", dict(v=2)),  # two output channels of a group; no padding beside
    ("n2c4h9w20k4r3s3p1u2g4-f32+bias", dict(tw=2)),  # stride 2: two outputs are four columns apart
    ("n1c8h6w12k8r3s3p1.1.2.0g4-f32", dict(th=3)),  # pads of 2 and 0, two channels a group
    ("n1c3h7w12k3r3s3p1d2g3-f32+maxpool2", dict(combine=2)),
    ("n1c3h7w24k3r3s9p1x4g3-f16+bias+silu", dict(tw=8)),
    ("n1c4h5w12k4r3s3p1g4-bf16+add", dict(th=2)),
)
LARGE = (
    ("n1c2h36w40k2r31s31p15g2-f32+bias", dict(tw=8)),
    ("n1c2h34w33k4r31s31p15g2-f32-nhwc", dict(tw=3)),
    ("n1c4h36w36k4r35s35p17g4-f16-nhwc", dict(tw=2, v=2)),
    ("n1c3h33w35k3r31s31p15g3-f16", dict(tw=7)),
    ("n1c4h36w36k4r35s35p17g4-i8-nhwc+relu", dict(tw=2, v=2)),
    ("n1c4h50w42k4r25s41p12x20u2g2-f32+add", dict(tw=4)),  # two channels a group, an even number of rows left
    ("n1c2h64w40k2r32s31p15.16.15.15g2-f32+maxpool2", dict(tw=8, combine=2)),
)


def _plan(text: str, change: dict[str, int], runtime: Runtime) -> Plan:
    problem, config = Problem.parse(text), Config.make("grouped", BASE | change)
    family_of("grouped").check(problem, runtime.device, config)
    return Plan.make(runtime, problem, config)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), QUADS)
def test_four_columns_at_a_time(text: str, change: dict[str, int], device: str, runtime: Runtime) -> None:
    plan = _plan(text, change, runtime)
    assert reads_quads(plan.problem, plan.config.values)
    defines = dict(plan.blueprint.defines)
    assert defines["X_QUADS"] == 1
    assert defines["Y_QUADS"] == stores_quads(plan.problem, plan.config.values)
    agrees(plan)
    agrees(plan, shift=4)  # and one by one, where arrays are not aligned


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LARGE)
def test_a_loop_over_the_rows_of_a_large_filter(
    text: str, change: dict[str, int], device: str, runtime: Runtime
) -> None:
    plan = _plan(text, change, runtime)
    cf = plan.config
    assert rolled(plan.problem, runtime.device, cf["v"], cf["th"], cf["tw"])
    agrees(plan)
    agrees(plan, shift=4)


def test_who_stores_four_columns() -> None:
    """Some of the cases above do, some do not."""
    does = [stores_quads(Problem.parse(text), BASE | change) for text, change in QUADS]
    assert 0 < sum(does) < len(does)
    assert gcd(*(Problem.parse(text).q for (text, _), yes in zip(QUADS, does, strict=True) if yes)) % 4 == 0
