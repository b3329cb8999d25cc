"""The winograd4 family on CPU cores: its space and its place beside direct in the model, with no device."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from test_direct_cpu import AVX2, CORES

from tilewright.device import Device, for_architecture
from tilewright.kernels import family_of
from tilewright.problem import Problem
from tilewright.search import model, ranking
from tilewright.search.space import space

FAMILY, DIRECT, H100 = family_of("winograd4"), family_of("direct"), for_architecture("sm_90")


def _best_us(name: str, problem: Problem) -> float:
    kind, rng = family_of(name), random.Random(0)
    configs = [space(kind, problem, CORES).sample(rng) for _ in range(300)]
    return min(model.estimate(kind, problem, CORES, config).total_us for config in configs)


@pytest.mark.parametrize("device", (CORES, AVX2), ids=("avx512", "avx2"))
@pytest.mark.parametrize("text", ("n1c256h34w34k512r3s3p1-f32", "n2c19h13w11k37r3s3p1-f32-nhwc+bias+relu"))
def test_sampled_configs_are_legal_and_bind_what_they_have(text: str, device: Device) -> None:
    problem, rng = Problem.parse(text), random.Random(1)
    for _ in range(20):
        config = space(FAMILY, problem, device).sample(rng)
        FAMILY.check(problem, device, config)
        print_ = FAMILY.blueprint(problem, device, config)
        bound = {arg for launch in print_.launches for arg in launch.args}
        assert bound <= {"x", "w", "bias", "z", "y"} | {buffer.name for buffer in print_.workspace}
        assert dict(print_.defines)["VECTOR"] == device.lanes
        products = DIRECT.chain(FAMILY.inner(problem, device), device, config)
        assert FAMILY.chain(problem, device, config) == products + FAMILY.growth
        assert FAMILY.chain(problem, device, config) > problem.c // config["sg"]


def test_what_passes_between_the_launches_fits_the_last_cache() -> None:
    problem = Problem.parse("n1c32h272w272k64r3s3p1-f32")
    print_ = FAMILY.blueprint(problem, CORES, space(FAMILY, problem, CORES).sample(random.Random(0)))
    held = {buffer.name: buffer.nbytes for buffer in print_.workspace}
    assert held["tiles"] + held["products"] <= CORES.l2_bytes // 2
    slabs = sum(launch.kernel == "transform_input" for launch in print_.launches)
    assert slabs * held["tiles"] >= 4 * 36 * 32 * 68 * 68


def test_what_passes_between_the_launches_is_no_more_than_a_gpu_should_give() -> None:
    for text in ("n1c256h228w228k256r5s5-f32+relu+maxpool2", "n64c64h136w136k128r3s3p1-f32-nhwc"):
        problem = Problem.parse(text)
        print_ = FAMILY.blueprint(problem, H100, space(FAMILY, problem, H100).sample(random.Random(0)))
        held = {buffer.name: buffer.nbytes for buffer in print_.workspace}
        assert 500 << 20 < held["tiles"] + held["products"] <= 1 << 30


def test_the_model_ranks_it_as_measured() -> None:
    many, few = Problem.parse("n1c256h34w34k512r3s3p1-f32"), Problem.parse("n1c512h7w7k512r3s3p1-f32")
    assert _best_us("winograd4", many) < 0.6 * _best_us("direct", many)
    assert _best_us("winograd4", few) > _best_us("direct", few)  # 36/9 of the filter's bytes, for 4 tiles


@pytest.mark.parametrize(
    ("text", "best"),
    [  # as measured on two cores of a Zen 4
        ("n4c32h64w64k32r3s3p1-f32-nhwc", "direct"), ("n1c64h40w40k64r3s3p4d4-f32", "direct"),
        ("n1c256h32w32k256r3s3p6d6-f32", "winograd4"), ("n1c64h56w56k64r3s3p1-f32", "winograd4"),
        ("n8c256h14w14k256r3s3p1-f32", "winograd4"), ("n1c256h34w34k512r3s3p1-f32", "winograd4"),
    ],
)  # fmt: skip
def test_few_channels_pay_for_the_transforms(text: str, best: str) -> None:
    rates = replace(CORES.rates, f32_tflops=0.236, read_gbs=58.0)
    problem, cores = Problem.parse(text), replace(CORES, units=2, clock_ghz=2.6, rates=rates)
    us = {kind.name: ranking.rank(problem, cores, kind, 1)[0][1] for kind in (FAMILY, DIRECT)}
    assert min(us, key=lambda name: us[name]) == best


@pytest.mark.parametrize(
    ("name", "taps", "sides"),
    [("winograd", 3, 4), ("winograd4", 5, 4), ("winograd8", 7, 4), ("winograd_rows", 5, 2)],
)
def test_outputs_that_see_padding_alone_are_left_to_others(name: str, taps: int, sides: int) -> None:
    """Their bound is that of a sum of zeros. Along rows alone, rows of padding give zeros."""
    channels = 4 if name == "winograd_rows" else 32
    for side in range(4):
        pad = [1 if sides == 2 else taps - 1] * 2 + [taps - 1] * 2
        text = f"n1c{channels}h20w20k32r{taps}s{taps}p{{}}.{{}}.{{}}.{{}}-f32"
        assert family_of(name).refuses(Problem.parse(text.format(*pad)), H100) is None
        pad[side] = taps
        reason = family_of(name).refuses(Problem.parse(text.format(*pad)), H100)
        assert ("padding alone" in (reason or "")) == (sides == 4 or side > 1)


@pytest.mark.parametrize(
    ("name", "layer", "least", "fewest"),
    [
        ("winograd", "c1h28w28k32r3s3p1", 4, 16),
        ("winograd", "c2h28w28k32r3s3p1", 8, 16),
        ("winograd", "c4h28w28k32r3s3p1", 16, 16),
        ("winograd", "c3h28w28k32r3s3p2", 3, 16),
        ("winograd", "c2h1w28k32r3s3p1", 4, 16),  # one row of the filter lies on the image
        ("winograd", "c1h1w28k32r3s3p1", 2, 16),
        ("winograd_rows", "c1h28w28k32r5s5p2", 9, 12),
        ("winograd_rows", "c1h28w28k32r7s7p3", 16, 60),  # 8 points at least
        ("winograd_rows", "c8h28w28k32r5s5p4", 8, 12),
        ("winograd_rows", "c8h28w28k32r3s3p3x1", 16, 12),  # rows of padding alone are exact, the next see one
        ("winograd_rows", "c4h28w28k32r3s3p3x1", 8, 12),
        ("winograd4", "c16h28w28k32r5s5p4", 16, 1),
    ],
)
def test_outputs_of_few_products_are_left_to_others(name: str, layer: str, least: int, fewest: int) -> None:
    """Their bound is small by chance, the errors of their neighbours are not."""
    few = least < fewest
    reason = family_of(name).refuses(Problem.parse(f"n1{layer}-f32"), H100)
    assert (f"sum {least} products, not {fewest}," in (reason or "")) == few == (reason is not None)


@pytest.mark.parametrize(
    ("layer", "points"),
    [
        ("c8h28w28k32r3s3p1", {6}),  # corners sum 32 products
        ("c8h28w28k32r3s3", {6, 8}),
        ("c3h28w28k32r2s3", {6}),
        ("c1h28w28k6r5s5", {6, 8}),
        ("c3h32w20k96r2s4p0x2", {6}),
        ("c4h28w28k32r7s7p3", {8}),
        ("c4h28w28k32r7s7", {8, 10}),
        ("c8h28w28k32r7s7p3", {8, 10}),
    ],
)
def test_more_points_need_more_products(layer: str, points: set[int]) -> None:
    """Their transforms have larger errors, of which the bound of a short sum is no measure."""
    problem = Problem.parse(f"n1{layer}-f32")
    (param,) = (one for one in family_of("winograd_rows").params(problem, H100) if one.name == "points")
    assert set(param.values) == points


@pytest.mark.parametrize(("name", "taps"), [("winograd4", 3), ("winograd8", 5)])
def test_outputs_that_see_little_of_the_filter_are_left_to_others(name: str, taps: int) -> None:
    """Tiles of 4x4 outputs give them errors beyond their bound, unless channels are many."""
    most, half = taps - 1, taps // 2
    left = {f"p{most}": True, f"p{most}x0": True, f"p{half}.0.0.{most}": True, f"p{half}": False, "p0": False}
    for pads, few in left.items():
        for channels in (32, 256):
            problem = Problem.parse(f"n1c{channels}h20w20k32r{taps}s{taps}{pads}-f32")
            reason = family_of(name).refuses(problem, H100)
            assert ("less than half" in (reason or "")) == (few and channels == 32) == (reason is not None)
    smaller = Problem.parse("n1c32h20w20k32r5s5p4-f32")  # tiles of 2x2 outputs
    assert family_of("winograd4").refuses(smaller, H100) is None


def test_dilated_filters_have_tiles_whose_outputs_lie_apart() -> None:
    dilated = Problem.parse("n1c512h28w28k512r3s3p2d2-f32")
    for device in (CORES, H100):
        assert FAMILY.refuses(dilated, device) is None
        assert FAMILY.inner(dilated, device).w == (2 * 4) ** 2  # two by two of 14x14
        pooled = Problem.parse(f"{dilated}+maxpool2")
        assert "no window of a pool" in (FAMILY.refuses(pooled, device) or "")
    assert _best_us("winograd4", dilated) < 0.7 * _best_us("direct", dilated)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("n1c32h20w20k32r3s3p6d3-f32", False),
        ("n1c32h20w20k32r3s3p7d3-f32", True),
        ("n1c32h9w20k32r3s3p9d9-f32", False),
        ("n1c32h8w20k32r3s3p9d9-f32", True),  # taps before and behind the image, none in it
    ],
)
def test_dilated_taps_may_all_lie_in_padding(text: str, bare: bool) -> None:
    assert ("padding alone" in (FAMILY.refuses(Problem.parse(text), CORES) or "")) == bare
