"""The pointwise family: what it compiles to, and what its places in shared memory are for.

Its answers are in tests/device/test_pointwise.py, its protocol of barriers in test_pointwise_protocol.py.
"""

from __future__ import annotations

import random
from itertools import product

import pytest
from every_family import alike_compile

from tilewright.device import for_architecture
from tilewright.errors import CompileError
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.source import kernel_files
from tilewright.kernels.tensor_map import TiledMap
from tilewright.problem import Problem
from tilewright.search.space import Space

H100 = for_architecture("sm_90")
KIND = family_of("pointwise")
LAYERS = (
    "n32c128h28w28k512r1s1-f16+bias+relu",
    "n8c512h28w28k130r1s1-bf16+bias+add+silu",
    "n32c64h56w56k256r1s1-f16",
    "n4c705h8w8k264r1s1-f16+add0.5+leaky0.1",
    "n32c256h26w26k512r1s1-f16+bias",
    "n8c512h19w19k264r1s1-bf16+bias+add+relu",
    "n32c128h28w28k512r1s1-tf32",
    "n32c288h35w35k264r1s1-tf32",
    "n64c256h14w14k1024r1s1-tf32+bias",
    "n8c33h14w14k260r1s1-tf32+bias+add+silu",
)


@pytest.mark.parametrize("text", LAYERS)
def test_compiles_with_sums_in_registers_and_products_under_way_together(text: str, own_cache: None) -> None:
    """Each width of a product, by turns and together."""
    alike_compile(KIND, LAYERS, text, lambda config: (config["bn"], config["turns"], config["sets"] > 1), 6)


def test_a_macro_that_two_headers_define_is_a_compile_error(own_cache: None) -> None:
    """Which of them counts would depend on their order: a fault that a compiler only warns of."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from dataclasses import replace

    from tilewright.runtime.nvrtc import compile_cuda

    problem = Problem.parse(LAYERS[0])
    found = KIND.blueprint(problem, H100, Space(KIND, problem, H100).sample(random.Random(1)))
    with pytest.raises(CompileError, match="SPAN.*two headers disagree"):
        compile_cuda(replace(found, defines=(*found.defines, ("SPAN", 64))), H100.arch)


def _place(c: int, byte: int) -> int:
    return c * 128 + (byte ^ c % 8 * 16)


@pytest.mark.parametrize("warp", range(4))
@pytest.mark.parametrize("half", range(2))
def test_lanes_read_from_different_banks(warp: int, half: int) -> None:
    """Eight lanes have neighbouring words of a channel, or two pieces of it, and four channels at once."""
    text = kernel_files()["pointwise_tile.h"].read_text(encoding="utf-8")
    assert "(warp) * 16 + (lane) / 4 * 2 + (h)" in text
    assert "(h) * 32 + (lane) / 16 * 16 + (warp) * 4 + (lane) / 4 % 4" in text
    words = [_place(8 * half + lane % 4 * 2, (warp * 16 + lane // 4 * 2) * 2) // 4 % 32 for lane in range(32)]
    assert len({*words}) == 32  # of f16, and those of the next channels likewise
    words = [_place(4 * half + lane % 4, (lane // 16 * 16 + warp * 4 + lane // 4 % 4) * 4) // 4 % 32
             for lane in range(32)]  # fmt: skip
    assert len({*words}) == 32  # of tf32


def test_a_warpgroup_has_each_of_its_pixels_once() -> None:
    lanes = [*product(range(4), range(32), range(2))]
    assert sorted(warp * 16 + lane // 4 * 2 + h for warp, lane, h in lanes if lane % 4 == 0) == [*range(64)]
    apart = (h * 32 + lane // 16 * 16 + warp * 4 + lane // 4 % 4 for warp, lane, h in lanes if lane % 4 == 0)
    assert sorted(apart) == [*range(64)]


CONFIG = Config.make("pointwise", dict(bn=64, teams=2, turns=0, chunks=8, mb=1, sets=2, keep=0, stages=3))


@pytest.mark.parametrize(("text", "columns", "rounds"), (
    ("n2c512h14w12k2048r1s1-f16", 64, False), ("n2c512h14w14k2048r1s1-tf32", 32, True),
))  # fmt: skip
def test_a_copy_takes_128_bytes_of_a_step_s_planes(text: str, columns: int, rounds: bool) -> None:
    problem = Problem.parse(text)
    (launch,) = KIND.blueprint(problem, H100, CONFIG).launches
    found = launch.tensor_map
    assert isinstance(found, TiledMap)
    assert found.legal
    assert (found.row_bytes, found.rounds) == (128, rounds)
    assert found.dims == (problem.h * problem.w, 512, 1, 2)
    assert found.box == (columns, columns, 1, 1)


@pytest.mark.parametrize(("text", "columns", "dims", "rows"), (
    ("n2c512h14w14k2048r1s1-f16", 72, (392, 256, 1, 2), 32),
    ("n2c512h7w7k64r1s1-bf16", 72, (392, 64, 1, 2), 8),
    ("n2c512h7w7k64r1s1-tf32", 36, (196, 128, 1, 2), 8),
))  # fmt: skip
def test_a_copy_takes_144_bytes_of_a_strand_s_planes(
    text: str, columns: int, dims: tuple[int, ...], rows: int
) -> None:
    (launch,) = KIND.blueprint(Problem.parse(text), H100, CONFIG).launches
    found = launch.tensor_map
    assert isinstance(found, TiledMap)
    assert found.legal
    assert (found.row_bytes, found.swizzle, found.dims) == (144, 0, dims)
    assert found.box == (columns, rows, 1, 1)


def test_an_unaligned_input_is_copied_before() -> None:
    problem = Problem.parse("n2c512h14w12k2048r1s1-f16")
    aligned, other = (KIND.blueprint(problem, H100, CONFIG, aligned=which) for which in (True, False))
    assert [launch.kernel for launch in aligned.launches] == ["pointwise"]
    assert [launch.kernel for launch in other.launches] == ["nhwc", "pointwise"]
    assert other.launches[1].tensor_map == aligned.launches[0].tensor_map
    assert (aligned.packed_bytes, aligned.pack) == (other.packed_bytes, other.pack)
