"""What families count on CPU cores: counts of a core, not of a GPU, so that the model chooses well there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from test_direct_cpu import AVX2, CORES

from tilewright.device import Device, for_architecture
from tilewright.floor import floor_us, least_flops
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.family import Config, Family
from tilewright.kernels.grouped import columns as grouped_columns
from tilewright.kernels.tile import ATOMIC, LAST, TWO_PASS
from tilewright.kernels.work import CpuWork, GpuWork
from tilewright.problem import Problem
from tilewright.record import Estimate
from tilewright.search import model, model_cpu, ranking
from tilewright.search.space import space

H100 = for_architecture("sm_90")
# Constants and counts whose results are found by hand; at 1 GHz 1,000 cycles are 1 us.
ROUND = model_cpu.CoreCoefficients(
    issue=4.0, loads=2.0, turn_instructions=5.0, latency=3.0, l1_bytes=1000.0, l2_bytes=10000.0, usable=0.5,
    l1_rate=40.0, l2_rate=20.0, l3_rate=10.0, place_rate=5.0, exposed=0.25, copy_cycles=0.5, store_cycles=2.0,
    move_rate=4.0, tail=0.25, block_cycles=450.0, next_launch_us=30.0, overlap=0.25, atomic_cycles=8.0,
    two_pass_cycles=4.0, last_cycles=2.0,
)  # fmt: skip
TWO_CORES = replace(
    CORES, units=2, clock_ghz=1.0, rates=replace(CORES.rates, f32_tflops=0.064, read_gbs=10.0, empty_us=7.0)
)
COUNTS = CpuWork(
    blocks=5, dram_bytes=4e4, useful=0.75, register_intensity=3.0, block_intensity=5.0, partial_bytes=8e3,
    vectors=12, width=16, multiply_adds=1600.0, filter_loads=200.0, input_loads=800.0, turns=100,
    copying=100.0, storing=100.0, filter_bytes=50e3, filter_once_bytes=1e4, filter_tile_bytes=400.0,
    input_bytes=2e4, input_tile_bytes=400,
)  # fmt: skip
LAYERS = (
    "n1c4096h1w1k1000r1s1-f32", "n8c4096h1w1k1024r1s1-f32", "n1c32h56w56k32r3s3p1g32-f32",
    "n1c32h56w56k32r3s3p1u2g32-f32-nhwc", "n1c128h28w28k128r3s3p1g32-f32-nhwc", "n1c64h16w16k64r3s3p1-f32",
    "n1c64h14w14k64r1s1-f32-nhwc", "n2c4h20w20k16r5s5-f32+relu+maxpool2",
)  # fmt: skip
KINDS = ("f32", "f64", "f16", "bf16", "i8", "f8", "q8")


def _sampled(problem: Problem, device: Device) -> Iterator[tuple[Family, Config]]:
    """Draw configs of every family that takes the problem."""
    for kind in FAMILIES:
        if kind.tunable and kind.refuses(problem, device) is None:
            drawn, rng = space(kind, problem, device), random.Random(1)
            yield from ((kind, drawn.sample(rng)) for _ in range(10))


@pytest.mark.parametrize("text", LAYERS)
@pytest.mark.parametrize("dtype", KINDS)
def test_each_device_gets_counts_of_its_own(text: str, dtype: str) -> None:
    problem = Problem.parse(text).with_dtype(dtype)
    for device in (CORES, AVX2, H100):
        for kind, config in _sampled(problem, device):
            work = kind.work(problem, device, config)
            assert isinstance(work, GpuWork if device is H100 else CpuWork), kind.name
            assert model.estimate(kind, problem, device, config).total_us > 0
            if isinstance(work, CpuWork):
                assert 1 <= work.width <= device.lanes, config


@pytest.mark.parametrize("text", LAYERS)
@pytest.mark.parametrize("device", (CORES, AVX2), ids=("avx512", "avx2"))
def test_the_multiply_adds_counted_are_those_of_the_layer(text: str, device: Device) -> None:
    problem = Problem.parse(text)
    for kind, config in _sampled(problem, device):
        work = kind.work(problem, device, config)
        assert isinstance(work, CpuWork)
        done = work.blocks * work.multiply_adds * work.width * work.useful
        if kind.multiplies(problem) == 1.0:
            # Products with padding may be left out: as many as in a mean tile, also where others hang over.
            assert 0.9 * least_flops(problem) / 2 <= done <= 1.01 * problem.flops / 2, config
            if not any(problem.pad):
                assert done == pytest.approx(problem.flops / 2, rel=0.01), config


@pytest.mark.parametrize(
    ("text", "config", "us"),
    [  # as measured on one core of a Zen 4
        ("n1c16h28w28k32r3s3p1-f32", "textbook:bh=4.bk=2.bw=32.pool=0.step=2", 2733.0),
        ("n1c16h28w28k32r3s3p1-f32", "textbook:bh=32.bk=1.bw=32.pool=0.step=0", 4571.0),
        ("n1c8h20w20k16r5s5-f32", "textbook:bh=2.bk=4.bw=32.pool=0.step=1", 2054.0),
    ],
)  # fmt: skip
def test_steps_of_the_textbook_take_about_as_long_as_measured(text: str, config: str, us: float) -> None:
    core = replace(CORES, units=1, clock_ghz=2.6, rates=replace(CORES.rates, f32_tflops=0.083))
    found = model.estimate(family_of("textbook"), Problem.parse(text), core, Config.parse(config)).total_us
    assert us / 3 < found < us * 3


@pytest.mark.parametrize(
    ("v", "th", "tw", "us"),
    [  # as measured on two cores of a Zen 4
        (8, 1, 1, 27413.0), (16, 1, 1, 19250.0), (8, 2, 2, 8213.0), (8, 4, 1, 7349.0), (16, 2, 2, 5609.0),
        (8, 2, 7, 4589.0),
    ],
)  # fmt: skip
def test_sums_of_a_large_filter_wait_for_one_another(v: int, th: int, tw: int, us: float) -> None:
    problem = Problem.parse("n1c128h56w56k128r31s31p15g128-f32")
    cores = replace(CORES, units=2, clock_ghz=2.6, rates=replace(CORES.rates, f32_tflops=0.236))
    config = Config.make("grouped", dict(v=v, th=th, tw=tw, threads=1, mb=1, combine=0))
    found = model.estimate(family_of("grouped"), problem, cores, config)
    assert found.total_us == pytest.approx(us, rel=0.25)


def test_sums_of_a_small_filter_overlap_with_the_next_tiles() -> None:
    problem = Problem.parse("n1c32h112w112k32r3s3p1g32-f32")
    config = Config.make("grouped", dict(v=16, th=1, tw=1, threads=1, mb=1, combine=0))
    facts = model.estimate(family_of("grouped"), problem, CORES, config).facts
    assert facts["latency_us"] < facts["issue_slots_us"]


def _by_hand(monkeypatch: pytest.MonkeyPatch, **changes: float) -> Estimate:
    monkeypatch.setattr(model_cpu, "CORE", ROUND)
    return model_cpu.cpu_estimate(TWO_CORES, replace(COUNTS, **changes))


def test_the_terms_of_a_kernel_are_those_of_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core has 3 blocks, and a quarter late; a block takes 2,500 cycles for caches, 1,600 to multiply."""
    found = _by_hand(monkeypatch)
    rounds, block, computed_us = 3.25, 2500 + 400 + 450, 3.25 * 3.6
    assert found.terms_us == pytest.approx({
        "launch_us": 7.0, "main_loop_us": rounds * block / 1e3, "copying_us": rounds * 0.05,
        "stores_us": rounds * 0.2, "memory_not_hidden_us": 0.75 * 4.0, "combine_us": 0.0,
        "other_launches_us": 0.0,
    })  # fmt: skip
    assert found.total_us == pytest.approx(7.0 + computed_us + 3.0)
    assert found.facts == pytest.approx({
        "multiply_add_us": rounds * 1.6, "load_ports_us": rounds * 0.5, "issue_slots_us": rounds * 0.775,
        "latency_us": rounds * 0.3, "caches_us": rounds * 2.5, "dram_us": 4.0, "blocks": 5,
        "waves": 2.5, "tail": 0.3, "input_tile_bytes": 400, "vector_registers": 12, "useful_outputs": 0.75,
        "register_intensity_flops_per_element": 3.0, "block_intensity_flops_per_element": 5.0,
    })  # fmt: skip
    late = _by_hand(monkeypatch, dram_bytes=2e5).terms_us["memory_not_hidden_us"]
    assert late == pytest.approx(20.0 - computed_us + 0.75 * computed_us)


@pytest.mark.parametrize(
    ("changes", "cycles"),
    [
        (dict(multiply_adds=2600.0), 2600 + 625), (dict(filter_loads=5200.0), 3000 + 625),
        (dict(turns=2000), 6000 + 625), (dict(chain=1000.0), 3000 + 625),
        (dict(filter_tile_bytes=500.0), 3500 + 400), (dict(filter_tile_bytes=4999.0), 3500 + 400),
        (dict(filter_tile_bytes=5000.0), 5500 + 400), (dict(filter_once_bytes=6e4), 6500 + 400),
        (dict(input_tile_bytes=499), 2500 + 400), (dict(input_tile_bytes=500), 3000 + 400),
        (dict(place_bytes=5000.0, place_turns=3), 3500 + 400),
        (dict(place_bytes=5005.0, place_turns=3), 2500 + 3003 + 400),
    ],
)  # fmt: skip
def test_a_block_takes_what_is_longest_and_a_share_of_the_rest(
    changes: dict[str, float], cycles: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _by_hand(monkeypatch, **changes).terms_us["main_loop_us"]
    assert found == pytest.approx(3.25 * (cycles + 450) / 1e3)


@pytest.mark.parametrize(("combine", "us"), [(ATOMIC, 8.0 + 30.0), (TWO_PASS, 4.0 + 30.0), (LAST, 2.0)])
def test_shares_are_combined_in_the_time_of_their_sums_and_launches(
    combine: int, us: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _by_hand(monkeypatch, combine=combine).terms_us["combine_us"] == pytest.approx(us)


def test_sums_are_added_at_the_clock_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_cpu, "CORE", ROUND)
    found = model_cpu.cpu_estimate(replace(TWO_CORES, clock_ghz=2.0), replace(COUNTS, combine=ATOMIC))
    assert found.terms_us["combine_us"] == pytest.approx(4.0 + 30.0)


def test_cores_with_8_lanes_have_constants_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here those that the others have above, for a device of the same clock and peak."""
    monkeypatch.setattr(model_cpu, "AVX2_CORE", ROUND)
    found = model_cpu.cpu_estimate(replace(TWO_CORES, lanes=8), COUNTS)
    assert found.total_us != pytest.approx(model_cpu.cpu_estimate(TWO_CORES, COUNTS).total_us)
    assert found == _by_hand(monkeypatch)


def test_other_launches_take_their_own_time_and_that_of_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _by_hand(monkeypatch, more_launches=2, more_bytes=8e3).terms_us["other_launches_us"]
    assert found == pytest.approx(2 * 30.0 + 1.0)


def test_a_peak_beyond_two_vectors_a_cycle_tells_a_higher_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times as many flops: at one vector a cycle more, then at a clock half as high again."""
    monkeypatch.setattr(model_cpu, "CORE", ROUND)
    fast = replace(TWO_CORES, rates=replace(TWO_CORES.rates, f32_tflops=0.192))
    found = model_cpu.cpu_estimate(fast, COUNTS).facts
    assert found["multiply_add_us"] == pytest.approx(3.25 * 1.6 / 3)
    assert found["latency_us"] == pytest.approx(3.25 * 0.3 / 1.5)


def _choice(text: str, device: Device) -> str:
    """The family of the model's choice."""
    problem = Problem.parse(text)
    usable = [k for k in FAMILIES if k.tunable and k.races and k.refuses(problem, device) is None]
    return min(usable, key=lambda kind: ranking.rank(problem, device, kind, 1)[0][1]).name


@pytest.mark.parametrize(
    ("text", "best"),
    [  # as measured on 4 cores with AVX-512
        ("n8c4096h1w1k1024r1s1-f32", "direct"), ("n64c4096h1w1k1024r1s1-f32", "direct"),
        ("n16c512h1w1k1000r1s1-f32", "direct"), ("n8c4096h1w1k1024r1s1-f16", "direct"),
        ("n8c4096h1w1k1024r1s1-i8", "direct"), ("n1c144h56w56k144r3s3p1u2g144-f32", "grouped"),
        ("n1c384h14w14k384r3s3p1g384-f32", "grouped"), ("n1c32h112w112k32r3s3p1g32-f32-nhwc", "grouped"),
        ("n1c576h14w14k576r3s3p1u2g576-f32-nhwc", "grouped"), ("n1c256h28w28k256r3s3p1g32-f32", "grouped"),
        ("n1c32h112w112k32r3s3p1g32-f32", "grouped"), ("n1c512h28w28k512r3s3p1u2g32-f32", "direct"),
        ("n4c3h128w128k64r7s7p3u2-f32+bias+relu", "direct"),
    ],
)  # fmt: skip
def test_the_first_choice_is_the_family_made_for_the_layer(text: str, best: str) -> None:
    assert _choice(text, CORES) == best


@pytest.mark.parametrize("text", ["n1c6h300w300k12r3s3p1-f32-nhwc", "n1c64h64w64k10r1s1-f32-nhwc"])
def test_vectors_of_direct_are_wide_though_the_last_is_not_whole(text: str) -> None:
    (config, _), *_ = ranking.rank(Problem.parse(text), CORES, family_of("direct"), 1)
    assert config["v"] == CORES.lanes


def test_a_classifier_of_one_image_takes_as_long_as_its_filter_comes() -> None:
    problem = Problem.parse("n1c4096h1w1k1024r1s1-f32")
    (_, expected_us), *_ = ranking.rank(problem, CORES, family_of("gemv"), 1)
    assert floor_us(problem, CORES) < expected_us < 1.3 * floor_us(problem, CORES)


@pytest.mark.parametrize(
    ("text", "v"),
    [
        ("n1c192h28w28k192r3s3p1g192-f32-nhwc", 16), ("n1c192h28w28k192r3s3p1g192-f64-nhwc", 8),
        ("n1c32h112w112k32r3s3p1g32-f32", 16), ("n1c96h112w112k96r3s3p1u2g96-i8", 16),
        ("n1c32h112w112k32r3s3p1g32-f64", 8), ("n1c960h7w7k960r3s3p1g960-f32", 8),  # of rows of 7
        ("n1c16h128w128k3r9s9p4-f32", 16),  # each multiply-add reads a tap
    ],
)  # fmt: skip
def test_vectors_of_grouped_are_best_as_wide_as_the_cores(text: str, v: int) -> None:
    (config, _), *_ = ranking.rank(Problem.parse(text), CORES, family_of("grouped"), 1)
    assert config["v"] == v


@pytest.mark.parametrize("text", [
    "n1c32h112w112k32r3s3p1g32-f32", "n2c12h15w9k18r5s3p2x1u2x1g2-f64", "n1c4h1w90000k4r1s9p0x4g4-f32",
    "n1c64h9w300k64r3s3p1d1x40g2-f16",
])  # fmt: skip
def test_the_input_that_an_item_of_columns_copies_has_room_and_its_tiles_fit(text: str) -> None:
    problem, kind = Problem.parse(text), family_of("grouped")
    wide = [config for config in space(kind, problem, CORES).every() if config["v"] > 1]
    assert wide
    for config in wide:
        cf = config.values
        rows, columns = grouped_columns.item_sides(problem, CORES, cf)
        assert cf["th"] <= rows <= problem.p
        assert columns % cf["v"] == 0
        copied = grouped_columns.copied_bytes(problem, cf["v"], rows, columns)
        tile = grouped_columns.copied_bytes(problem, cf["v"], cf["th"], cf["tw"] * cf["v"])
        near = grouped_columns.NEAR_BYTES
        if problem.r * problem.s == 1:
            near = grouped_columns.NEAR_BYTES_OF_ONE_TAP
        assert copied <= max(near, tile) <= grouped_columns.MOST_BYTES, config


def test_input_without_room_leaves_single_columns() -> None:
    problem = Problem.parse("n1c64h400w400k2r101s101g2-f64")
    assert {config["v"] for config in space(family_of("grouped"), problem, CORES).every()} == {1}
