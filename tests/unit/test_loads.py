"""How soon loads are under way: what a kernel compiles to, and how many threads share the work out."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from sass import instructions

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.problem import Problem

H100 = for_architecture("sm_90")
GROUPED, DIRECT = family_of("grouped"), family_of("direct")
DEPTHWISE = "n1c96h56w56k96r7s7p3g96"
TILE = dict(combine=0, mb=8, th=1, threads=32, tw=2, v=2)
LARGE_FILTER = dict(
    bh=16, bk=1, bw=8, combine=0, cs=1, cv=1, f=0, mb=2, out=0, pad=0, sb=1, sc=1, sg=1, stages=3, sw=1, th=2,
    tk=1, tw=7, v=1, wfast=0, x=1,
)  # fmt: skip


def _loads_before(lines: list[str], what: tuple[str, ...], load: str = "LDG") -> int:
    """Count the loads before the first instruction of a kind."""
    first = next(i for i, line in enumerate(lines) if any(one in line for one in what))
    return sum(load in line for line in lines[:first])


@pytest.mark.parametrize(
    ("kind", "makes"),
    [
        ("f16-nhwc", ("HADD2.F32",)),  # widened
        ("f16", ("HADD2.F32",)),
        ("i8-nhwc", ("IDP",)),  # products, of the words as they are or shifted
    ],
)
def test_a_depthwise_row_is_loaded_before_anything_is_made_of_it(
    kind: str, makes: tuple[str, ...], own_cache: None, tmp_path: Path
) -> None:
    problem = Problem.parse(f"{DEPTHWISE}-{kind}")
    config = Config.make("grouped", TILE | dict(v=2 if "nhwc" in kind else 1))
    GROUPED.check(problem, H100, config)
    lines = instructions(GROUPED.blueprint(problem, H100, config), "sm_90", tmp_path)
    row = (config["tw"] - 1) + problem.s
    assert _loads_before(lines, makes) >= row


def test_staged_numbers_are_loaded_several_at_a_time(own_cache: None, tmp_path: Path) -> None:
    problem = Problem.parse("n1c128h56w56k128r31s31p15g128-f16-nhwc")
    config = Config.make("direct", LARGE_FILTER)
    DIRECT.check(problem, H100, config)
    lines = instructions(DIRECT.blueprint(problem, H100, config), "sm_90", tmp_path)
    assert _loads_before(lines, ("STS",)) >= 8


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("n1c3h224w224k768r16s16u16-f32", 30_000),  # 147 threads without a tap each
        ("n1c64h56w56k64r3s3p1-f32", 50_000),
    ],
)
def test_columns_have_threads_enough(text: str, least: int) -> None:
    from tilewright.search.ranking import rank

    problem, im2col = Problem.parse(text), family_of("im2col")
    config, _ = rank(problem, H100, im2col, 1)[0]
    first = next(one for one in im2col.blueprint(problem, H100, config).launches if one.kernel == "im2col")
    assert prod(first.grid) * prod(first.block) >= least
