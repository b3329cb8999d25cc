"""What kernels ask of a GPU that OpenCL does not give it: rules say so, before a wrong answer does."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from every_family import taken

from tilewright.device import Device, DeviceType, for_architecture
from tilewright.errors import CompileError, ConfigError
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.family import Config
from tilewright.kernels.tile import LAST
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.search.space import Space

H100 = for_architecture("sm_90")
# As opencl_facts.py has one.
GPU = replace(H100, backend="opencl", arch="gfx90a", max_cluster=1, tensor_macs=0)
CORE = replace(
    GPU, type=DeviceType.CPU, lanes=16, arch="znver3-v16", units=4, regs_per_thread=512, threads_per_unit=1
)
LAYERS = (
    "n1c512h7w7k512r3s3p1-f32",
    "n1c64h14w14k64r3s3p1-f32-nhwc+bias+relu",
    "n1c96h12w12k40r5s5p2-f32",
    "n1c256h9w9k64r1s1-f32+add",
    "n1c48h9w8k20r3s3p1-i8-nhwc",
    "n2c2048h1w1k1000r1s1-f32+bias",
    "n4c512h1w1k100r1s1-f16",
    "n8c3h32w32k16r3s3p1-f32",
    "n1c48h9w8k20r3s3p1-f8",
    "n1c32h14w14k32r3s3p1g32-f32",
)
# Lanes that share out C.
SPLIT = (
    "direct:bh=1.bk=32.bw=1.combine=0.cs=16.cv=1.f=1.mb=1.out=0.pad=0.sb=1.sc=1.sg=1.stages=1.sw=2.th=1.tk=1"
    ".tw=7.v=4.wfast=0.x=1"
)
LAYER = Problem.parse(LAYERS[0])


def test_what_a_device_gives() -> None:
    assert [(one.has_shuffles, one.orders_blocks) for one in (H100, GPU, CORE)] == [
        (True, True), (False, False), (False, True),
    ]  # fmt: skip


def sampled(device: Device) -> list[Config]:
    """Legal configs of every family on the layers that it takes there, and its own examples."""
    rng, found = random.Random(3), []
    for kind in (kind for kind in FAMILIES if kind.tunable):
        for problem in taken(kind, device, [*map(Problem.parse, LAYERS)]):
            space = Space(kind, problem, device)
            found += [space.sample(rng) for _ in range(40)]
    return found


def asked(configs: list[Config]) -> set[str]:
    """What OpenCL has not, of all that the configs need."""
    needs = dict(
        shuffles=lambda cf: cf.get("sw", 1) > 1, clusters=lambda cf: cf.get("sc", 1) > 1,
        last=lambda cf: cf.get("combine") == LAST, stream=lambda cf: cf.get("stream", 0) > 0,
        engine=lambda cf: cf.get("f") == 2 and cf.get("sw"),
    )  # fmt: skip
    return {name for name, one in needs.items() if any(one(config.values) for config in configs)}


def test_no_config_for_an_opencl_gpu_needs_what_it_has_not() -> None:
    assert asked(sampled(H100)) == {"shuffles", "clusters", "last", "stream", "engine"}
    configs = sampled(GPU)
    assert asked(configs) == set()
    there = {kind.name for kind in FAMILIES if kind.tunable and taken(kind, GPU)}
    assert {config.family for config in configs} == there
    tensor = "mma hopper toeplitz stem kn2row grouped_mma planar pointwise shifted"
    assert not {*tensor.split()} & there
    known = "direct winograd winograd4 winograd8 winograd_rows gemm im2col gemv grouped small narrow textbook"
    assert {*known.split()} <= there


def test_the_cores_of_a_cpu_may_leave_sums_to_the_last() -> None:
    assert asked(sampled(CORE)) == {"last"}


def changed(text: str) -> Config:
    """SPLIT, with some parameters changed."""
    change = dict(one.split("=") for one in text.split(".") if one)
    return Config.make(
        "direct", Config.parse(SPLIT).values | {name: int(value) for name, value in change.items()}
    )


@pytest.mark.parametrize(
    ("change", "rule"),
    [("", "warp_shuffles"), ("sw=1.sg=4.combine=3", "last_order")],
)
def test_the_rule_is_named(change: str, rule: str) -> None:
    direct = family_of("direct")
    direct.check(LAYER, H100, changed(change))
    with pytest.raises(ConfigError, match=rf"breaks rule '{rule}': .*OpenCL"):
        direct.check(LAYER, GPU, changed(change))


@pytest.mark.parametrize(("change", "lacks"), [("", "vec_sum_lanes"), ("sw=1.sc=2.out=1", "cluster_load")])
def test_what_is_not_there_does_not_compile(change: str, lacks: str, cpu: Runtime) -> None:
    """Sums of lanes once compiled to nothing, and those of all lanes but one were lost."""
    with pytest.raises(CompileError, match=lacks):
        cpu.compile(family_of("direct").blueprint(LAYER, GPU, changed(change)))


def test_no_block_has_more_threads_than_a_device_allows() -> None:
    """256 is what OpenCL gives on many a GPU."""
    device, rng = replace(GPU, max_threads=256), random.Random(5)
    for kind in (kind for kind in FAMILIES if kind.tunable):
        for problem in taken(kind, device, [*map(Problem.parse, LAYERS)]):
            space = Space(kind, problem, device)
            for config in (space.sample(rng) for _ in range(40)):
                launches = kind.blueprint(problem, device, config).launches
                assert max(math.prod(launch.block) for launch in launches) <= 256, config


@pytest.mark.parametrize("kind", ("gemv", "grouped", "small", "winograd_rows"))
def test_whose_parameter_is_the_threads_of_a_block_has_a_rule_of_them(kind: str) -> None:
    device, problem = replace(GPU, max_threads=128), Problem.parse(family_of(kind).examples[0])
    space, rng = Space(family_of(kind), problem, GPU), random.Random(5)
    config = next(one for one in iter(lambda: space.sample(rng), None) if one["threads"] > 128)
    with pytest.raises(ConfigError, match="rule 'block'"):
        family_of(kind).check(problem, device, config)
