"""The hopper family's kernel: on a GPU, and by emulation: the same index arithmetic on the CPU, step by step.

Places in shared memory, descriptors, the raster of pixels, the tile of sums and what is stored are those of
the device; barriers and the order of the roles are not (tests/unit/test_hopper.py).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_gpu_path import _agrees, runtime

from tilewright.errors import ConfigError, DeviceError
from tilewright.execution import Plan
from tilewright.kernels import family
from tilewright.kernels.family import Config
from tilewright.problem import Problem
from tilewright.runtime import Runtime, open_runtime

__all__ = ["runtime"]  # a fixture

BASE = dict(x=0, wm=1, wn=1, bn=16, mb=1, chunks=2, pieces=0, stages=2, xs=2, cm=1, sc=1, sg=1, combine=0)
NONE, TWO_PASS, LAST = 0, 2, 3
CASES = (
    ("n1c16h3w5k8r1s1-f16-nhwc", dict(xs=1)),
    ("n1c64h5w5k70r1s1-f16-nhwc", dict(xs=1, chunks=8, pieces=1)),
    ("n1c128h7w7k70r3s3p1-f16-nhwc+bias+relu", dict(bn=56, chunks=8, wm=2, stages=6)),
    ("n1c64h7w7k24r3s3p1-bf16-nhwc", dict(xs=1, bn=24, chunks=8, pieces=1)),
    ("n2c40h9w7k70r3s3p1u2-f16-nhwc+bias+relu", dict(wm=2, chunks=4)),
    ("n2c32h9w7k70r3s2p1.0.0.1d2g2-bf16-nhwc+add", dict(xs=1, wn=2, sg=2, combine=LAST)),
    ("n2c64h9w7k70r3s3p1-i8-nhwc+maxpool2", dict(wn=2, xs=1, sg=2, combine=TWO_PASS)),
    ("n2c20h9w7k70r3s3p1-i8", dict(x=1, xs=1)),
    ("n2c20h9w7k70r1s1-f16-nchw2nhwc", dict(x=1)),
    ("n3c24h6w5k9r3s3p4-f16-nhwc2nchw+add", dict(bn=40, sg=3, combine=LAST)),
    ("n2c128h8w9k20r5s1p2x0u2x3-f16-nhwc2nchw", dict(bn=32, chunks=8, pieces=1)),
    ("n2c64h9w7k70r3s3p1-f16-nhwc+bias+relu+maxpool2", dict(bn=24)),
    ("n2c64h9w7k72r3s3p1-f16-nhwc2nchw+add+maxpool3u2", dict(bn=24, wn=2)),
    ("n1c16h20w22k9r5s5-f16-nhwc+relu+avgpool2", dict(xs=1, bn=96)),
    ("n2c3h19w17k32r3s3p1-i8+bias+relu", dict(x=2, xs=1, bn=64)),
    ("n1c3h19w17k70r7s7p3u2-bf16-nhwc2nchw", dict(x=2, xs=1, wn=2, chunks=20)),
    ("n1c5h19w17k40r3s3p1d2-f16+maxpool2", dict(x=2, xs=1, bn=64, chunks=6)),
    ("n1c128h7w7k70r3s3p1-f16-nhwc+bias", dict(xs=1, bn=24, chunks=8, sc=4)),
    ("n1c128h7w7k70r3s3p1-f16-nhwc2nchw", dict(xs=1, bn=24, chunks=8, pieces=1, sc=4, cm=2)),
    ("n2c64h9w7k170r3s3p1-i8-nhwc+maxpool2", dict(xs=1, bn=24, sc=2, cm=4, sg=2, combine=TWO_PASS)),
    ("n2c64h9w7k40r3s3p1-f16-nhwc", dict(xs=1, sc=4, cm=2, sg=2, combine=LAST)),
    ("n4c96h1w1k33r1s1-bf16+bias", dict(bn=8, chunks=16, xs=1)),
)


@pytest.mark.parametrize(("text", "change"), CASES)
@pytest.mark.parametrize("shift", [0, 4])
def test_by_emulation(text: str, change: dict[str, int], shift: int, runtime: Runtime) -> None:
    problem = Problem.parse(text)
    runtime.device = replace(runtime.device, max_cluster=8)
    config = Config.make("hopper", BASE | change)
    assert family("hopper").refuses(problem, runtime.device) is None
    _agrees(Plan.make(runtime, problem, config), shift)


@pytest.mark.parametrize(("text", "change"), CASES)
@pytest.mark.parametrize("stages", [2, 3])
def test_on_a_gpu(text: str, change: dict[str, int], stages: int) -> None:
    try:
        gpu = open_runtime("cuda")
    except DeviceError as error:
        pytest.skip(str(error))
    problem, config = Problem.parse(text), Config.make("hopper", BASE | dict(stages=stages) | change)
    if reason := family("hopper").refuses(problem, gpu.device):
        pytest.skip(reason)
    try:
        plan = Plan.make(gpu, problem, config)
    except ConfigError:
        pytest.skip("the sum has fewer steps")
    _agrees(plan)
    _agrees(plan, shift=4)
