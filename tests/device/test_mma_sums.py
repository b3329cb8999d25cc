"""mma in f64, read and summed in each way, and by planes of many images in other dtypes, against NumPy."""

from __future__ import annotations

import pytest
from here import EMULATED_AND_GPU, agrees
from test_gpu_path import _configs, runtime

from tilewright.device.architectures import mma_f64
from tilewright.kernels import family_of
from tilewright.kernels.config import Config
from tilewright.kernels.tile import LAST, NONE
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["runtime"]  # a fixture

MMA = family_of("mma")
LAYERS = (
    "n1c48h9w8k40r3s3p1-f64-nhwc+bias",
    "n2c17h7w7k36r1s1-f64+relu",  # planes that begin at odd numbers
    "n2c34h6w6k50r1s1-f64+add",
    "n1c13h9w10k33r3s3p1u2-f64+add+maxpool2",  # copied: nchw, and half a chunk of zeros
    "n1c32h6w6k48r3s3g2p1-f64-nhwc2nchw+silu",
    "n1c7h5w6k18r3s1p1x0d2x1-f64-nchw2nhwc+alpha0.3+bias",
    "n1c3h4w8k20r4s4u4-f64-nhwc+leaky0.1",  # columns as channels
    "n3c70h1w1k40r1s1-f64+bias",
)
BASE = dict(x=0, l1=0, mt=2, nt=2, wm=1, wn=2, sb=1, mb=2, fd=1, chunks=8, stages=3, sc=1, sg=1, combine=0)
MANY = (
    "n5c40h6w5k36r1s1-f64+bias", "n7c80h2w4k33r1s1-tf32+add", "n3c160h4w6k48r1s1g2-f16+bias+relu",
    "n3c320h4w12k40r1s1-i8+requant",
)  # fmt: skip
CHOSEN = (
    ("n1c96h9w8k72r1s1-f64-nhwc+bias", dict(sb=2)),  # in shared memory
    ("n1c96h9w8k72r1s1-f64-nhwc+bias", dict(sc=2)),  # across a cluster
    ("n1c96h9w8k72r1s1-f64+bias", dict(x=4, sg=3, combine=3, fd=2)),  # the last block
    ("n1c96h9w7k72r1s1-f64+bias", dict(x=4, chunks=16, sb=2, sg=2, combine=2)),
    ("n1c96h9w8k72r3s3p1-f64-nhwc2nchw", dict(l1=1, sb=2, sg=5, combine=3)),
)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize("text", LAYERS)
def test_sums_of_f64_are_right(text: str, device: str, runtime: Runtime) -> None:
    problem = Problem.parse(text)
    if MMA.refuses(problem, runtime.device):
        assert runtime.device.is_cuda and not mma_f64(runtime.device.capability)
        return
    for shift, config in enumerate(_configs(MMA, problem, runtime)):
        agrees(Plan.make(runtime, problem, config), shift=8 * shift)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize("text", MANY)
def test_tiles_are_of_many_images(text: str, device: str, runtime: Runtime) -> None:
    """Where planes are whole pieces of 16 bytes; 16 channels of a step, tiles of 32 and 64 pixels."""
    problem = Problem.parse(text)
    for nt, sg, combine in ((1, 1, NONE), (2, 2, LAST)):
        config = Config.make("mma", BASE | dict(x=4, nt=nt, sg=sg, combine=combine, mt=1, wm=2))
        if MMA.refuses(problem, runtime.device):
            assert runtime.device.is_cuda and not mma_f64(runtime.device.capability)
            return
        MMA.check(problem, runtime.device, config)
        agrees(Plan.make(runtime, problem, config), normal=nt == 2)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), CHOSEN)
def test_shares_of_f64_meet(text: str, change: dict[str, int], device: str, runtime: Runtime) -> None:
    problem, config = Problem.parse(text), Config.make("mma", BASE | change)
    if MMA.refuses(problem, runtime.device) or config["sc"] > runtime.device.max_cluster:
        assert not runtime.device.is_cuda or not mma_f64(runtime.device.capability)
        return
    MMA.check(problem, runtime.device, config)
    agrees(Plan.make(runtime, problem, config), normal=True)
