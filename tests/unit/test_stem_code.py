"""The stem family: how runs lie in memory, and what its kernels compile to."""

from __future__ import annotations

from pathlib import Path

import pytest
from every_family import best_compile
from sass import instructions, main_loop

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.stem import work
from tilewright.kernels.stem.tile import crowd, runs_of, tiling_of
from tilewright.problem import Problem
from tilewright.search.model import H100 as MODEL

H100 = for_architecture("sm_90")
KIND = family_of("stem")
R1 = Problem.parse("n1c3h224w224k64r7s7p3u2-f16-nhwc")
Y0 = Problem.parse("n1c3h544w544k32r3s3p1-f16-nhwc")
BASE = dict(combine=0, f=0, kt=4, mb=4, pt=1, th=6, tw=32, wm=1, wn=1)


@pytest.mark.parametrize(
    ("text", "copy", "lead", "shift", "unaligned", "quarters"),
    (
        # 21 numbers from number -9 on: 18 bytes before the row, 14 in a piece of 16, in the middle of a word
        ("n1c3h224w224k64r7s7p3u2-f16-nhwc", 16, 14, 1, False, 3),
        ("n1c3h224w224k64r7s7p3u2-i8-nhwc", 16, 7, 0, True, 2),  # runs begin every 6 bytes
        ("n1c3h544w544k32r3s3p1-f16-nhwc", 16, 10, 0, True, 2),
        ("n1c3h544w544k32r3s3p1-tf32-nhwc", 16, 4, 0, False, 3),  # a number is a word
        ("n1c3h227w227k96r11s11u4-f16-nhwc", 2, 0, 0, False, 5),  # rows of 1362 bytes: number by number
        ("n1c3h224w224k64r7s7p3u2-f16", 16, 10, 1, False, 1),  # 7 numbers of a plane
    ),
)
def test_runs(text: str, copy: int, lead: int, shift: int, unaligned: bool, quarters: int) -> None:
    it = runs_of(Problem.parse(text))
    assert (it.copy, it.lead, it.shift, it.unaligned, it.quarters) == (copy, lead, shift, unaligned, quarters)


@pytest.mark.parametrize(
    ("text", "fan", "steps"),
    (
        ("n1c3h224w224k64r7s7p3u2-f16", (1, 1, 4), 11),  # a row of 7 numbers is four words
        ("n1c96h56w56k192r2s2u2-f16", (2, 2, 1), 24),  # a word of a row: 192 words, none of them empty
        ("n1c32h320w320k64r3s3p1u2-f16", (2, 1, 2), 24),
        ("n1c16h64w64k32r3s3p1-i8", (4, 1, 1), 6),
        ("n1c3h224w224k96r4s4u4-f16-nhwc", (1, 2, 2), 3),  # six words of a row
        ("n1c3h224w224k64r5s1p2x0-f16", (1, 1, 4), 8),  # neither rows nor planes to share out
    ),
)
def test_lanes_share_out_words_of_a_row_of_rows_or_of_planes(
    text: str, fan: tuple[int, int, int], steps: int
) -> None:
    problem = Problem.parse(text)
    assert runs_of(problem).fan == fan and runs_of(problem).steps(problem) == steps


@pytest.mark.parametrize(
    ("text", "gap", "words"),
    (
        ("n1c3h544w544k32r3s3p1-f16-nhwc", 0, 1),
        ("n1c8h64w64k32r3s3p1-f16-nhwc", 0, 1),  # eight pixels of 16 bytes: every bank once
        ("n1c32h64w64k32r3s3p1-f16-nhwc", 16, 1),  # of 64 bytes: four words of each bank, were they not apart
        ("n1c64h64w64k32r3s3p1-f16-nhwc", 16, 1),
        ("n1c32h64w64k32r3s3p1u2-f16-nhwc", 16, 2),
    ),
)
def test_lanes_read_from_different_banks(text: str, gap: int, words: int) -> None:
    it = runs_of(Problem.parse(text))
    assert it.gap == gap and crowd(it.step, 0, 0, it.fan) == words


def test_rows_lie_in_different_banks_where_lanes_share_them_out() -> None:
    config = BASE | dict(th=1, tw=28, f=1)
    assert tiling_of(Problem.parse("n1c96h56w56k192r2s2u2-f16"), config).image.crowd == 1


def test_counts_are_in_the_coefficients_of_the_model() -> None:
    assert MODEL.l2_bytes_per_cycle * MODEL.fetch_cycles == pytest.approx(work.FETCH_BYTES)


def test_outputs_that_no_cache_holds_go_to_memory_in_full() -> None:
    config, shares = Config.make("stem", BASE), []
    for n in (1, 32):
        problem = Problem.parse(f"n{n}c3h544w544k32r3s3p1-f16-nhwc")
        counts = KIND.work(problem, H100, config)
        shares.append(counts.dram_bytes / (problem.x_bytes + problem.y_bytes))
    assert shares[0] < 0.4 and shares[1] > 0.9


def test_narrow_tiles_are_copied_in_smaller_pieces() -> None:
    problem = Problem.parse("n1c1h64w64k32r3s3p1-i8")
    assert [runs_of(problem, BASE | dict(tw=tw)).copy for tw in (64, 32, 16, 8)] == [16, 16, 16, 8]


def test_arrays_that_are_not_aligned_are_packed_alike() -> None:
    config = Config.make("stem", BASE | dict(th=4, tw=16))
    KIND.check(R1, H100, config)
    aligned, other = (KIND.blueprint(R1, H100, config, aligned=flag) for flag in (True, False))
    assert aligned.pack == other.pack and aligned.packed_bytes == other.packed_bytes


def test_places_in_a_large_packed_filter_are_counted_in_64_bits() -> None:
    config = Config.make("stem", BASE | dict(f=1, kt=3, mb=2, th=1, tw=1, wn=2))
    for k, wide in ((64, 0), (8388608, 1)):
        problem = Problem.parse(f"n1c640h1w1k{k}r1s1-f16-nhwc")
        KIND.check(problem, H100, config)
        assert dict(KIND.blueprint(problem, H100, config).defines)["OFFSET64"] == wide


@pytest.mark.parametrize(("kind", "arch", "layer"), [
    (kind, arch, ("n1c3h224w224k64r7s7p3u2", "n1c3h128w128k32r3s3p1")[(row + column) % 2])
    for row, kind in enumerate(("f16", "bf16", "tf32", "i8", "i8+requant"))
    for column, arch in enumerate(("sm_80", "sm_90", "sm_120"))
])  # fmt: skip
def test_its_best_configs_compile_without_spills(kind: str, arch: str, layer: str, kept_cache: None) -> None:
    dtype, _, more = kind.partition("+")
    best_compile(KIND, Problem.parse(f"{layer}-{dtype}-nhwc" + f"+{more}" * bool(more)), arch, 2)


def test_the_loop_over_pixels_is_short(own_cache: None, tmp_path: Path) -> None:
    """Sixteen pixels of Y0: twelve products; a register is two loads and a shift; a store for each run."""
    config = Config.make("stem", BASE)
    KIND.check(Y0, H100, config)
    loop = main_loop(KIND.blueprint(Y0, H100, config), "sm_90", tmp_path, "HMMA")
    count = {name: sum(name in line for line in loop) for name in ("HMMA", "LDS", "SHF.R.W", "STG")}
    assert count == {"HMMA": 12, "LDS": 24, "SHF.R.W": 12, "STG": 2}
    assert len(loop) < 130


def test_pools_in_registers(own_cache: None, tmp_path: Path) -> None:
    """Windows of Y0: every second pixel begins at a word, one load; no sums meet in shared memory."""
    problem = Problem.parse(f"{Y0}+bias+relu+maxpool2")
    config = Config.make("stem", BASE | dict(pt=2))
    KIND.check(problem, H100, config)
    loop = main_loop(KIND.blueprint(problem, H100, config), "sm_90", tmp_path, "HMMA")
    count = {name: sum(name in line for line in loop) for name in ("HMMA", "LDS", "STS", "STG", "FMNMX")}
    assert count == {"HMMA": 24, "LDS": 36, "STS": 0, "STG": 1, "FMNMX": 64}


def test_matrices_of_pixels_are_one_load(own_cache: None, tmp_path: Path) -> None:
    problem = Problem.parse("n1c32h64w64k32r3s3p1-f16-nhwc")
    config = Config.make("stem", BASE | dict(kt=2, f=1))
    KIND.check(problem, H100, config)
    loop = main_loop(KIND.blueprint(problem, H100, config), "sm_90", tmp_path, "HMMA")
    count = {name: sum(name in line for line in loop) for name in ("HMMA", "LDSM", "LDS.")}
    assert count == {"HMMA": 36, "LDSM": 18, "LDS.": 18}


@pytest.mark.parametrize("epilogue", ("+silu", "+bias+relu+maxpool2"))
def test_no_epilogue_divides(epilogue: str, own_cache: None, tmp_path: Path) -> None:
    """A division of f32 is some 20 instructions and a call; -1 / 0 is one, too."""
    problem, config = Problem.parse(f"{Y0}{epilogue}"), Config.make("stem", BASE)
    KIND.check(problem, H100, config)
    lines = instructions(KIND.blueprint(problem, H100, config), "sm_90", tmp_path)
    assert sum("FCHK" in line or "CALL" in line for line in lines) == 0
    assert sum("MUFU.EX2" in line for line in lines) == (16 if "silu" in epilogue else 0)


def test_requantised_sums_are_rounded_and_packed_by_conversions(own_cache: None, tmp_path: Path) -> None:
    problem, config = Problem.parse("n1c3h544w544k32r3s3p1-i8-nhwc+requant"), Config.make("stem", BASE)
    KIND.check(problem, H100, config)
    loop = main_loop(KIND.blueprint(problem, H100, config), "sm_90", tmp_path, "IMMA")
    assert sum("F2IP" in line for line in loop) == 8  # two outputs each
    assert not any("F2I." in line or "LDG" in line for line in loop)


@pytest.mark.parametrize(
    ("text", "change", "run", "vector"),
    (
        ("n1c3h32w32k32r3s3p1-f16", dict(pt=4, tw=8), 8, 1),
        ("n1c1h28w28k32r3s3-f16", dict(pt=4, tw=26), 2, 1),  # rows of 13 pairs
        ("n1c1h28w28k32r3s3-f16", dict(pt=4, tw=16), 2, 1),
        ("n1c3h227w227k96r11s11u4-f16", dict(pt=4, tw=8), 2, 0),  # of 55 pixels
        ("n1c1h28w28k32r3s3-f16+maxpool2", dict(pt=4, th=4, tw=26), 1, 1),  # 13 windows, which a thread has
        ("n1c3h32w32k36r3s3p1-f16-nhwc", dict(kt=4), 4, 1),
        ("n1c3h32w32k33r3s3p1-f16-nhwc", dict(kt=4), 2, 0),
    ),
)
def test_lines_of_no_whole_runs_are_stored_by_shorter_ones(
    text: str, change: dict[str, int], run: int, vector: int
) -> None:
    problem, config = Problem.parse(text), Config.make("stem", BASE | dict(tw=16) | change)
    defines = dict(KIND.blueprint(problem, H100, config).defines)
    assert (defines["RUN_OUT"], defines["Y_VECTOR"]) == (run, vector)


def test_the_model_counts_the_sectors_of_shorter_runs() -> None:
    config = Config.make("stem", BASE | dict(kt=2, pt=4, th=8, tw=16))
    pairs, eights = (Problem.parse(f"n1c3h{w}w{w}k32r3s3-f16") for w in (28, 34))  # 26 columns, 32
    sectors = [KIND.work(problem, H100, config).store_sectors for problem in (pairs, eights)]
    # 64 bytes of a channel, of 4 times 4 lanes with a word and of 4 with 16 bytes. Rows of 52 bytes begin at
    # any word of a sector, and one in eight of such pieces has no part of a sector at its ends.
    whole, cut = 2 * work.STORED, work.STORED + 2 * work.PART
    assert sectors[0] / sectors[1] == pytest.approx((whole + 7 * cut) / 8 / whole)


@pytest.mark.parametrize(
    ("text", "change", "turned"),
    (
        ("n1c3h380w380k48r3s3p1u2-f16", dict(pt=8, tw=64, th=5, kt=3), 8),  # rows of 380 bytes
        ("n1c3h380w380k48r3s3p1u2-f16", dict(pt=6, tw=64, th=5, kt=3), 2),
        ("n1c3h380w380k48r3s3p1u2-f16-nhwc", dict(pt=4), 1),
        ("n1c3h384w384k48r3s3p1u2-f16", dict(pt=4, kt=3), 1),  # whole sectors
        ("n1c3h300w300k40r3s3p1-tf32", dict(pt=4, kt=3), 2),  # runs of four
        ("n1c3h299w299k32r3s3u2-f16", dict(pt=4, kt=2), 4),  # numbers of odd rows
        ("n1c3h299w299k32r3s3u2-i8+requant", dict(pt=4, kt=2), 1),  # of one byte
        ("n1c3h300w300k40r3s3p1-f16+maxpool2", dict(pt=4, kt=3), 1),
    ),
)
def test_lanes_exchange_runs_where_rows_begin_within_sectors(
    text: str, change: dict[str, int], turned: int
) -> None:
    problem, config = Problem.parse(text), Config.make("stem", BASE | change)
    assert dict(KIND.blueprint(problem, H100, config).defines)["TURNED"] == turned
    unaligned = dict(KIND.blueprint(problem, H100, config, aligned=False).defines)
    assert unaligned["TURNED"] == (turned if unaligned["RUN_OUT"] == 2 else 1)
