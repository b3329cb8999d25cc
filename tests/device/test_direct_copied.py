"""The direct family on CPU cores: an nhwc input of few channels is copied by whole rows, with its padding."""

from __future__ import annotations

import pytest
from here import verified

from tilewright.kernels.family import Config
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

LAYERS = (
    "n2c3h9w13k12r3s3p1-{}-nhwc+bias+relu",
    "n1c3h13w17k12r3s3p1u2-{}-nhwc",
    "n2c5h9w13k12r3s3p2d2-{}-nhwc2nchw",
    "n1c16h9w13k12r3s3p0.2.3.0-{}-nhwc",
    "n2c1h9w13k12r5s5p2-{}-nhwc",
    "n1c6h9w13k12r3s3p1g2-{}-nhwc",  # two groups: pixel by pixel
    "n1c6h9w13k12r3s1p1x0u1x2-{}-nhwc",  # so are pixels that lie apart
)


@pytest.mark.parametrize("dtype", ("f32", "f64", "f16", "bf16", "f8", "i8"))
@pytest.mark.parametrize("layer", LAYERS)
def test_rows_are_copied(layer: str, dtype: str, cpu: Runtime) -> None:
    problem = Problem.parse(layer.format(dtype))
    tile = dict(v=4, tk=1, tw=3, th=1, nk=1, nh=3, nw=2, sg=1, x=1, combine=0)
    cs = -(-problem.cg // 4) if problem.is_integer else problem.cg
    verified(cpu, problem, Config.make("direct", tile | dict(cs=cs)))
