"""The direct family on CPU cores: a residual is added to vectors of pixels in nchw, of channels in nhwc."""

from __future__ import annotations

import pytest
from here import fitting, verified

from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

BASE = dict(v=4, tk=2, tw=5, th=2, nk=2, nh=2, nw=2, sg=1, x=1, cs=0, combine=0)  # a vector of pixels and one
ADDED = (
    ("n2c6h9w13k12r3s3p1-f32+alpha0.5+bias+add2+silu", dict()),
    ("n2c6h9w13k12r3s3p1-f32+add+leaky0.1", dict(v=8, tw=7, tk=1, th=1)),
    ("n1c6h9w13k12r3s3p1-f32+bias+add", dict(v=8, tw=13, tk=1, th=1, nw=1)),  # a vector and five
    ("n1c6h5w13k24r3s3p1g2-f64+add-1", dict()),
    ("n1c8h5w13k12r3s3p1-f16+bias+add+silu", dict()),
    ("n1c8h5w13k12r3s3p1-bf16+add+clamp-1:2", dict()),
    ("n1c8h5w13k12r3s3p1-f8+bias+add", dict()),
    ("n1c8h5w13k12r3s3p1-i8+bias+add+relu", dict()),
    ("n1c8h5w13k12r3s3p1-i8+bias+add+requant", dict()),
    ("n1c8h5w13k12r3s3p1-f32-nhwc2nchw+bias+add", dict()),
    ("n1c8h5w13k12r3s3p1-f32-nchw2nhwc+bias+add", dict()),
    ("n1c32h5w13k12r3s3p1-f32+bias+add+relu", dict(sg=2, combine=3)),  # shares
    ("n1c6h8w12k12r3s3p1-f32+bias+add+relu+maxpool2", dict(tw=4, tk=1)),
)


def _check(text: str, change: dict[str, int], cpu: Runtime) -> None:
    problem = Problem.parse(text)
    words = -(-problem.cg // 4) if problem.is_integer else problem.cg
    values = fitting(problem, cpu.device, BASE | dict(cs=words) | change)
    verified(cpu, problem, Config.make("direct", values))


@pytest.mark.parametrize(("text", "change"), ADDED)
def test_a_residual_is_added(text: str, change: dict[str, int], cpu: Runtime) -> None:
    _check(text, change, cpu)


def test_a_residual_is_added_to_the_widest_vectors(cpu: Runtime) -> None:
    text = "n1c6h9w20k32r3s3p1-f32+bias+add+silu"
    params = family_of("direct").params(Problem.parse(text), cpu.device)
    (v,) = (param.values[-1] for param in params if param.name == "v")
    _check(text, dict(v=v, tk=1, th=1, tw=v + 1, nk=1), cpu)
