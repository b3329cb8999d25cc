"""The matrix products that the gemm family makes of a layer."""

from __future__ import annotations

import random

import pytest

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.config import Config
from tilewright.kernels.gemm.product import column_product, product, tiling_of
from tilewright.problem import Problem
from tilewright.search.space import Space

H100 = for_architecture("sm_90")
GEMM, IM2COL = family_of("gemm"), family_of("im2col")
TILES = "combine=0.cs=16.cv=1.fd=1.lk=4.mb=1.sb=1.sg=1.stages=2.stream=0.tk=2.tp=2.v=4.wk=4.wp=1"


@pytest.mark.parametrize(
    ("text", "taps", "channels", "steps", "flat"),
    (
        ("n32c64h56w56k128r1s1u2-f32", 1, 64, 4, False),
        ("n32c64h56w56k128r3s3p1u2-f32", 9, 64, 36, False),
        ("n2c72h9w9k256r3s2p1g2-f32-nhwc", 6, 36, 18, False),
        ("n1c64h9w9k128r1s1p1-f32", 1, 64, 4, False),
        ("n32c3h224w224k128r7s7p3u2-f32", 1, 147, 10, True),
        ("n1c15h30w30k128r12s12-f32", 144, 15, 144, False),  # more than the table has room for
        ("n2c30h9w9k256r3s3p1g2-f32-nhwc", 1, 135, 9, True),
    ),
)
def test_a_product_for_each_tap(text: str, taps: int, channels: int, steps: int, flat: bool) -> None:
    """Or, of few channels, one of all taps; each in steps of 16."""
    problem = Problem.parse(text)
    config = Config.parse(f"gemm:{TILES}")
    GEMM.check(problem, H100, config)
    found = product(problem)
    assert (found.taps, found.c, found.flat) == (taps, channels, flat)
    assert found.length == problem.cg * problem.r * problem.s
    assert tiling_of(found, config.values).steps == steps
    (main,) = GEMM.blueprint(problem, H100, config).launches
    assert main.args[0] == "x"


def test_the_columns_of_a_layer_are_one_product() -> None:
    problem = Problem.parse("n32c64h56w56k128r3s3p1u2-f32")
    config = Config.parse(f"im2col:{TILES}")
    assert tiling_of(column_product(problem), config.values).steps == 36
    assert [one.args[0] for one in IM2COL.blueprint(problem, H100, config).launches] == ["x", "columns"]


@pytest.mark.parametrize("text", ("n4c3h40w40k64r16s16u4-f32", "n4c9h40w40k64r3s3p1-f32-nhwc"))
def test_the_table_of_few_channels_lies_behind_what_is_staged(text: str) -> None:
    problem, rng = Problem.parse(text), random.Random(0)
    space = Space(GEMM, problem, H100)
    for config in (space.sample(rng) for _ in range(40)):
        for aligned in (True, False):
            blueprint = GEMM.blueprint(problem, H100, config, aligned)
            defines = dict(blueprint.defines)
            staged = config["stages"] * (config["cs"] * _channels(config) + defines["X_FLOATS"])
            entries = -(-defines["C"] // config["cs"]) * config["cs"]
            assert defines["TABLE_AT"] >= staged, config
            assert 4 * (defines["TABLE_AT"] + 2 * entries) <= defines["SHARED_BYTES"], config


def _channels(config: Config) -> int:
    """Output channels of a block."""
    return 4 * config["tk"] * config["lk"] * config["wk"]


@pytest.mark.parametrize("layout", ("nchw", "nhwc"))
def test_the_model_counts_all_images(layout: str) -> None:
    problem = Problem.parse(f"n32c64h56w56k64r1s1-f32-{layout}")
    work = GEMM.work(problem, H100, Config.parse(f"gemm:{TILES}"))
    assert work.dram_bytes == problem.x_bytes + problem.w_bytes + problem.y_bytes


@pytest.mark.parametrize(("layout", "read"), (("nchw", 2), ("nhwc", 4)))
def test_the_model_counts_no_rows_that_a_stride_leaves_out(layout: str, read: int) -> None:
    """In nhwc no pixels between them, either."""
    problem = Problem.parse(f"n8c64h56w56k64r1s1u2-f32-{layout}")
    work = GEMM.work(problem, H100, Config.parse(f"gemm:{TILES}"))
    assert work.dram_bytes == problem.x_bytes / read + problem.w_bytes + problem.y_bytes
