"""The grouped family on a CPU in nhwc: lanes over channels of copied pixels."""

from __future__ import annotations

from math import gcd

import pytest
from here import agrees, verified

import tilewright as tw
from tilewright.device import Device
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.grouped.channels import item_sides, takes
from tilewright.kernels.word import word_registers
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

GROUPED = family_of("grouped")
BASE = dict(combine=0, mb=1, th=1, threads=1, tw=4)
LAYERS = (
    ("n1c32h9w13k32r5s5p2g32-f32-nhwc+bias+relu", {}),
    ("n2c24h12w11k24r5s5p2u2g24-f32-nhwc+add0.5", dict(tw=3)),  # a tile that ends with the row
    ("n1c48h14w15k48r5s5p4d2g48-f32-nhwc", dict(th=2, tw=7)),  # rows of a tile share no line
    ("n1c16h15w13k16r7s7p3g16-f64-nhwc+bias", dict(th=2)),
    ("n1c32h11w9k32r5s3p2x1u1x2g32-f16-nhwc+silu", dict(th=3)),
    ("n1c32h10w12k32r4s4p1.2.2.1d1x2g32-bf16-nhwc+add", dict(th=2, tw=8)),
    ("n1c32h12w17k32r5s5p2g32-i8-nhwc+relu", dict(tw=7)),
    ("n1c32h12w17k32r5s5p2g32-q8-nhwc+bias+relu", dict(th=4, tw=2)),
    ("n1c32h12w17k32r5s5p2g32-f8-nhwc+bias", dict(th=2)),
    ("n1c32h12w14k32r5s5p2g32-f32-nhwc+maxpool2", dict(combine=2)),
    ("n1c192h9w8k192r3s3p1g192-f32-nhwc+bias", dict(th=2, tw=8)),  # few taps
    ("n1c8h40w40k8r31s31p15g8-f32-nhwc+bias", dict(tw=3)),
    ("n3c8h7w7k8r13s13p6g8-f32-nhwc", dict(tw=7)),  # more padding than image
    ("n1c8h3w3k8r5s5p6d3g8-f32-nhwc", dict(tw=3)),  # most lines are of padding
    ("n1c8h12w3000k8r1s13p0x6g8-f32-nhwc", dict(tw=4)),  # rows in parts
    ("n1c128h1w1100k128r1s3p0x256d1x256g128-f32-nhwc", dict(tw=8)),
)
# Lanes of a group share their input, lanes of several groups have each their own.
GROUPS = (
    ("n1c32h9w13k32r3s3p1g8-f32-nhwc+bias+relu", dict(v=4)),
    ("n1c32h9w13k32r3s3p1g8-f32-nhwc+bias+relu", dict(v=8)),
    ("n2c64h11w10k64r3s3p1u2g8-f32-nhwc+add0.5", dict(v=8)),
    ("n2c64h11w10k64r3s3p1u2g32-f32-nhwc+add0.5", dict(v=8, tw=3)),
    ("n1c32h10w9k32r5s3p4x1d2x1g4-f16-nhwc+silu", dict(v=8, tw=7)),
    ("n1c32h10w9k32r5s3p4x1d2x1g16-bf16-nhwc+bias", dict(v=8, tw=7)),
    ("n1c32h10w9k32r3s3p1g16-f64-nhwc", dict(v=4)),
    ("n1c32h10w9k32r3s3p1g8-f64-nhwc+bias", dict(v=2, th=2)),
    ("n1c64h8w9k64r3s3p1g4-f8-nhwc", dict(v=8, th=3)),
    ("n1c24h8w9k72r3s3p1g3-f32-nhwc+relu", dict(v=8, th=2)),  # 8 channels in, 24 out
    ("n1c18h8w9k24r3s2p1x0g6-f32-nhwc", dict(v=4)),  # 3 in, 4 out: copied number by number
    ("n1c32h12w14k32r3s3p1g8-f32-nhwc+maxpool2", dict(v=8, combine=2)),
    ("n3c32h1w1k32r1s1g4-f32-nhwc+bias", dict(v=8, tw=1)),
)


def _config(problem: Problem, change: dict[str, int], device: Device) -> Config:
    """With vectors as wide as the CPU's, if the channels allow it."""
    lanes = gcd(problem.k, device.lanes // word_registers(problem))
    return Config.make("grouped", BASE | dict(v=lanes) | change)


def _plan(text: str, change: dict[str, int], cpu: Runtime) -> Plan:
    problem = Problem.parse(text)
    config = _config(problem, change, cpu.device)
    GROUPED.check(problem, cpu.device, config)
    plan = Plan.make(cpu, problem, config)
    assert plan.blueprint.source == "grouped_channels.cu"
    return plan


@pytest.mark.parametrize(("text", "change"), LAYERS + GROUPS)
def test_layers(text: str, change: dict[str, int], cpu: Runtime) -> None:
    agrees(_plan(text, change, cpu))


@pytest.mark.parametrize(("columns", "stays"), ((2, 1), (16, 0)))
def test_inputs_in_registers_or_read_for_each_tap(columns: int, stays: int, cpu: Runtime) -> None:
    plan = _plan("n1c32h18w19k32r5s5p2g32-f32-nhwc+bias", dict(tw=columns), cpu)
    assert dict(plan.blueprint.defines)["ROW_STAYS"] == stays
    agrees(plan)


def test_nan_and_infinity_meet_padding(cpu: Runtime) -> None:
    """A tap that is not finite makes NaN of padding, and what is beyond an image is not read."""
    problem = Problem.parse("n1c16h9w9k16r5s5p2g16-f32-nhwc")
    verified(cpu, problem, _config(problem, {}, cpu.device))


def test_lanes_of_several_groups(cpu: Runtime) -> None:
    """As many as a CPU has."""
    for group in (2, 4, 8):
        plan = _plan(f"n1c64h9w13k64r3s3p1g{64 // group}-f32-nhwc+bias", dict(v=cpu.device.lanes), cpu)
        assert dict(plan.blueprint.defines)["ACROSS"] == (group < cpu.device.lanes)
        agrees(plan)


def test_vectors_are_parts_of_groups_or_whole_ones(cpu: Runtime) -> None:
    layers = ("c48h9w9k48r3s3p1g8", "c48h9w9k48r3s3p1g4", "c32h9w9k64r3s3p1g32", "c40h9w9k40r3s3p1g20")
    for text, wide in zip(layers, ((1, 2), (1, 2, 4), (1, 2), (1, 2, 4, 8)), strict=True):
        (vectors, *_) = GROUPED.params(Problem.parse(f"n1{text}-f32-nhwc"), cpu.device)
        assert tuple(v for v in vectors.values if v <= 8) == wide


def test_rows_are_shared_out(cpu: Runtime) -> None:
    """Items of part of an image, the last of them smaller, and none after it."""
    problem = Problem.parse("n2c16h61w30k16r5s5p2g16-f32-nhwc+relu")
    config = _config(problem, dict(th=2), cpu.device)
    rows, columns = item_sides(problem, cpu.device, config.values)
    assert rows < problem.p and problem.p % rows and columns == problem.q
    agrees(_plan(str(problem), dict(th=2), cpu))


def test_a_far_dilation_is_left_to_the_kernel_that_copies_nothing(cpu: Runtime) -> None:
    problem = Problem.parse("n1c256h40w40k256r3s3p36d36g256-f32-nhwc")
    assert not takes(problem, cpu.device, cpu.device.lanes, 1, 4)
    agrees(Plan.make(cpu, problem, tw.plan(problem, "cpu").config))


def test_tall_tiles_of_few_taps_read_in_place(cpu: Runtime) -> None:
    problem = Problem.parse("n1c32h13w14k32r3s3p1g32-f32-nhwc+bias")
    for th, wide in ((4, 2), (2, 4)):
        plan = Plan.make(cpu, problem, _config(problem, dict(th=th, tw=wide), cpu.device))
        assert plan.blueprint.source == ("grouped.cu" if th > wide else "grouped_channels.cu")
        agrees(plan)
