"""The direct family on CPU cores with 16 registers: tiles whose filter has none, rows of 4 to 7."""

from __future__ import annotations

import pytest
from here import verified

from tilewright.kernels.family import Config
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

BASE = dict(v=8, tk=2, tw=6, th=1, nk=1, nh=1, nw=1, sg=1, x=1, cs=0, combine=0)
TILES = (
    ("n1c20h9w14k24r3s3p1-f32", dict(tw=4, nk=2)),
    ("n1c20h9w15k24r3s3p1u2-f32+bias", dict(tw=5, nh=4)),
    ("n1c20h9w12k40r3s3p1-f32+relu", dict(tw=6, nk=2, nw=2, nh=2)),
    ("n2c32h14w14k24r3s3p1u2-f32", dict(tw=7, nh=7, nk=2)),  # one of two filter vectors is read again
    ("n1c32h14w14k24r3s3p1u2-f32", dict(tw=7, nh=7, nk=2, sg=2, combine=3)),
    ("n1c9h8w10k72r1s7p0x3-f32", dict(tk=4, tw=3)),
    ("n1c9h12w9k24r7s1p3x0-f32-nhwc", dict(tw=7, tk=1)),
    ("n1c24h13w14k24r1s1-f32", dict(x=0, nk=2, nw=4)),
    ("n1c24h13w15k24r1s1u2-f32+bias", dict(x=0, tw=7, nh=4)),
    ("n1c24h13w15k24r1s1g3-f32", dict(tk=1, tw=5, x=0)),
    ("n1c12h13w15k24r2s2u2-f32+bias", dict(x=0, tk=3, tw=4, nh=4, nw=2)),  # blocks past two edges
    ("n2c8h11w17k24r3s3u2d2-f32", dict(x=0, nh=3, tw=4)),
    ("n1c16h9w14k24r3s3p1u2-f16", dict(tw=7)),
    ("n1c16h9w14k24r3s3p1-i8", dict(tk=1, tw=5)),
    ("n1c3h9w90k8r1s1u1x20-f32", dict(tk=1, tw=5)),  # columns further apart than a line is long
)


@pytest.mark.parametrize(("text", "change"), TILES)
def test_tiles_for_few_registers_are_right(text: str, change: dict[str, int], cpu: Runtime) -> None:
    problem = Problem.parse(text)
    words = problem.cg if problem.dtype != "i8" else -(-problem.cg // 4)
    config = Config.make("direct", BASE | dict(cs=words) | change)
    if cpu.device.lanes < 8:
        pytest.skip("vectors of 4")
    plan = verified(cpu, problem, config)
    few = cpu.device.lanes == 8 and problem.dtype != "i8"
    assert dict(plan.blueprint.defines)["AHEAD"] == few
