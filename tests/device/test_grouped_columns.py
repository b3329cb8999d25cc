"""The grouped family on a CPU, lanes over columns: few output channels, and large filters row after row."""

from __future__ import annotations

import random

import pytest
from here import agrees, verified

import tilewright as tw
from tilewright.errors import ConfigError
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.grouped.columns import item_sides
from tilewright.kernels.grouped.tile import rolled
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.search.space import space

GROUPED = family_of("grouped")
BASE = dict(combine=0, mb=1, th=1, threads=1, tw=1, v=4)
FEW = (
    "n1c70h13w19k3r3s3p1-f32+bias+relu",
    "n2c33h9w20k1r5s5p2-f32+add0.5",
    "n1c64h16w33k2r1s1-f16+bias",
    "n1c21h12w17k4r3s3p1u2-i8+relu",
    "n1c20h14w18k3r3s3p1-f32+maxpool2",
    "n1c12h9w11k4r3s3p2d2-bf16+leaky0.5",
    "n1c10h9w21k3r3s3-f64",
)
LARGE = (
    ("n1c2h40w40k2r31s31p15g2-f32+bias", dict(th=4)),
    ("n1c2h39w37k4r31s31p15g2-f32", dict(th=3, tw=2)),  # two outputs a group
    ("n2c3h36w40k3r35s35p17g3-f16", dict(th=1, tw=2)),
    ("n1c2h50w42k2r25s41p12x20u2g2-f32+add", dict(th=1, tw=2)),
    ("n1c2h70w34k2r31s31p30x15d2x1g2-f32", dict(th=1, tw=2)),
    ("n1c4h40w40k2r25s25p12g2-i8+relu", dict(th=2)),
    ("n1c20h40w40k1r25s25p12-f32", dict(th=3)),  # one group, many channels
)


@pytest.mark.parametrize("text", FEW)
def test_few_output_channels(text: str, cpu: Runtime) -> None:
    problem = Problem.parse(text)
    assert problem.groups == 1 and GROUPED.refuses(problem, cpu.device) is None
    rng, of = random.Random(text), space(GROUPED, problem, cpu.device)
    found = {config for config in (of.sample(rng) for _ in range(40)) if config["v"] > 1}
    assert len(found) >= 3
    for config in sorted(found, key=str)[:3]:
        agrees(Plan.make(cpu, problem, config))


@pytest.mark.parametrize(
    ("text", "change", "together"),
    (
        ("n1c16h12w20k24r1s1-f32+bias", dict(tw=4), 4),
        ("n1c3h17w33k10r3s3p1u2-f32+relu", dict(th=2), 8),  # two left for the last, which takes eight again
        ("n1c8h9w17k14r3s3p1-f32+add", dict(th=2, tw=2), 4),
        ("n1c8h9w17k14r3s3p1g2-f32+add", dict(th=2, tw=2), 1),
        ("n2c5h9w14k7r3s3p1-i8+relu", dict(th=3), 4),
        ("n1c12h11w13k9r5s5p2-f16+maxpool2", dict(th=4, combine=2), 4),
        ("n1c9h12w11k5r1s1u2-f64+bias", dict(th=2, v=2), 4),
    ),
)
def test_several_output_channels_at_once(
    text: str, change: dict[str, int], together: int, cpu: Runtime
) -> None:
    problem, config = Problem.parse(text), Config.make("grouped", BASE | change)
    GROUPED.check(problem, cpu.device, config)
    plan = Plan.make(cpu, problem, config)
    defines = dict(plan.blueprint.defines)
    assert defines["TK"] == together
    assert defines["TAPS_STAY"] == (together == 1 or problem.r * problem.s == 1)
    agrees(plan)


@pytest.mark.parametrize(
    ("text", "change"),
    (
        ("n2c33h40w50k22r1s1-f32+bias", dict(tw=2)),
        ("n1c64h9w70k12r1s1u2-f32", dict(v=8)),
        ("n3c40h11w37k24r1s1p1x2g2-f16+relu", dict(th=2)),
        ("n1c64h60w200k22r1s1-i8", dict(tw=4)),
    ),
)
def test_filters_of_one_tap_ask_for_lines_early(text: str, change: dict[str, int], cpu: Runtime) -> None:
    """Several items, the last of them smaller, and none after it."""
    problem, config = Problem.parse(text), Config.make("grouped", BASE | change)
    GROUPED.check(problem, cpu.device, config)
    rows, columns = item_sides(problem, cpu.device, config.values)
    assert problem.n * problem.groups * -(-problem.p // rows) * -(-problem.q // columns) > 2
    agrees(Plan.make(cpu, problem, config))


@pytest.mark.parametrize(("text", "change"), LARGE)
def test_large_filters(text: str, change: dict[str, int], cpu: Runtime) -> None:
    problem, config = Problem.parse(text), Config.make("grouped", BASE | change)
    GROUPED.check(problem, cpu.device, config)
    assert rolled(problem, cpu.device, config["v"], config["th"], config["tw"])
    agrees(Plan.make(cpu, problem, config))


@pytest.mark.parametrize(
    ("text", "change", "loop"),
    (
        ("n2c3h7w7k3r13s13p6g3-f32+bias", dict(th=7), 0),
        ("n1c2h9w11k4r7s7p3g2-f32+relu", dict(th=4, tw=2), 0),  # two outputs a group
        ("n1c6h5w13k6r5s5p4u2g3-f32", dict(th=3, tw=2), 0),  # the first output is of padding alone
        ("n1c3h9w12k6r5s5p4d2-f16+bias", dict(th=2), 0),  # several outputs of one group at once
        ("n1c4h7w9k4r9s9p4g4-i8+relu", dict(th=7), 0),
        ("n1c2h8w9k2r7s5p3x2g2-f64", dict(th=4, tw=2), 0),
        ("n1c2h12w40k2r31s31p15g2-f32", dict(th=4), 1),
        ("n1c2h5w44k2r31s41p15x20g2-f32+bias", dict(th=1), 1),
        ("n1c2h20w34k2r31s41p30x20d2x1g2-f32", dict(v=8), 1),
    ),
)
def test_lines_outside_the_image_are_skipped(
    text: str, change: dict[str, int], loop: int, cpu: Runtime
) -> None:
    problem, config = Problem.parse(text), Config.make("grouped", BASE | change)
    GROUPED.check(problem, cpu.device, config)
    defines = dict(verified(cpu, problem, config).blueprint.defines)
    assert (defines["SKIP_LINES"], defines["ROLLED"]) == (1, loop)


@pytest.mark.parametrize("text", ("n1c2h56w56k2r3s3p1g2-f32", "n1c2h20w20k2r7s7g2-f32"))
def test_few_lines_outside_the_image_are_zeros(text: str, cpu: Runtime) -> None:
    problem, config = Problem.parse(text), Config.make("grouped", BASE)
    assert dict(verified(cpu, problem, config).blueprint.defines)["SKIP_LINES"] == 0


@pytest.mark.parametrize(
    ("text", "change"),
    (
        ("n1c8h40w40k8r31s31p15g8-f32-nhwc+bias", dict(tw=3)),
        ("n2c8h12w11k8r5s5p2u2g8-f32-nhwc+relu", dict(tw=2)),
        ("n1c16h9w13k16r3s3p2d2g16-f16-nhwc", dict(tw=7)),
        ("n1c8h11w12k8r7s3p3x1g8-i8-nhwc+add", dict(tw=4)),
        ("n1c16h9w13k32r3s3p1g4-f32-nhwc+maxpool2", dict(tw=2, combine=2)),
    ),
)
def test_a_loop_over_rows_in_nhwc(text: str, change: dict[str, int], cpu: Runtime) -> None:
    problem, config = Problem.parse(text), Config.make("grouped", BASE | change)
    GROUPED.check(problem, cpu.device, config)
    plan = Plan.make(cpu, problem, config)
    assert dict(plan.blueprint.defines)["ROLLED"] == 1
    agrees(plan)


@pytest.mark.parametrize(
    "text",
    (
        "n1c3h1w1k4r1s2p0x131072u1x131072d1x131072-f32",  # the taps fall on the only pixel
        "n1c8h3w9k8r1s3p0x131071d1x131072-f64",
        "n1c16h1w9k16r1s3p0x131072d1x131072g16-f32-nhwc",
        "n1c16h1w3000k16r1s3p0x600d1x600g16-f32-nhwc",
    ),
)
def test_a_row_with_too_many_inputs_is_refused(text: str, cpu: Runtime) -> None:
    """Those between the taps are held, too: they overflowed the stack, or took a minute to compile."""
    problem = Problem.parse(text)
    with pytest.raises(ConfigError, match="rule 'row'"):
        GROUPED.check(problem, cpu.device, Config.make("grouped", BASE | dict(v=1)))
    agrees(Plan.make(cpu, problem, tw.plan(problem, "cpu").config))


def test_a_row_of_a_far_dilation(cpu: Runtime) -> None:
    problem = Problem.parse("n1c8h1w1100k8r1s3p0x512d1x512g8-f32-nhwc")
    config = Config.make("grouped", BASE | dict(tw=16))
    GROUPED.check(problem, cpu.device, config)
    agrees(Plan.make(cpu, problem, config))


def test_what_cannot_be_rolled_is_refused(cpu: Runtime) -> None:
    """Outputs or taps that skip lines have no lines under all of them one after the other."""
    for text in ("n1c2h50w42k2r25s41p12x20u2g2-f32", "n1c2h70w34k2r31s31p30x15d2x1g2-f32"):
        with pytest.raises(ConfigError, match="rule 'body'"):
            GROUPED.check(Problem.parse(text), cpu.device, Config.make("grouped", BASE | dict(th=2)))
