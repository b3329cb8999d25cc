"""The shifted family: filters over nchw as it is; on a GPU, and by emulation on the CPU.

Of what a GPU does the emulation has the places in shared memory, what taps see of the image and what is
stored; barriers, copies and fragments are only there.
"""

from __future__ import annotations

import pytest
from here import EMULATED_AND_GPU, GPU
from planes import config_agrees, configs_agree, emulated_configs_agree, nan_stays
from test_gpu_path import runtime

from tilewright.device import for_architecture
from tilewright.errors import ConfigError
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.shifted.shape import Shape
from tilewright.kernels.shifted.tile import channels
from tilewright.problem import DTYPE_BYTES, Problem
from tilewright.runtime.base import Runtime

__all__ = ["runtime"]  # a fixture

KIND = family_of("shifted")
H100 = for_architecture("sm_90")
BASE = dict(
    rows=1, parts=1, ni=1, across=0, tall=1, bn=32, chunks=4, mb=1, sets=2, sc=1, xs=1, stages=2, stay=0
)  # fmt: skip
LAYERS = (
    ("n2c72h10w12k40r3s3p1-f16+bias+add0.5+relu", dict(rows=4)),  # the last tile has fewer rows
    ("n1c136h9w8k70r3s3p1-bf16", dict(rows=9, bn=64, chunks=8, xs=2, stages=3)),  # channels past the last
    ("n3c40h6w12k33r3s3p1-tf32+bias", dict(rows=6, ni=2, sets=1)),  # images of a block
    ("n5c24h4w8k32r3s3p1-f16+silu", dict(rows=4, ni=4, sets=1)),
    ("n2c64h8w16k40r3s3p1u2-f16+bias", dict(rows=3, chunks=8)),
    ("n1c64h12w14k40r3s3p1u2-bf16+add", dict(rows=6, sc=2)),  # an odd number of columns: pairs past the last
    ("n1c36h9w8k40r3s3p0u2-tf32", dict(rows=2)),
    ("n2c48h8w10k32r5s5p2-f16", dict(rows=2, sc=4)),  # shares that begin and end within a run
    ("n1c40h8w12k48r5s3p2x0d2x1-bf16+bias", dict(rows=4, bn=64)),
    ("n1c32h12w16k32r3s3p2d2-tf32+leaky0.5", dict(rows=2, xs=2, chunks=4)),
    ("n1c24h8w24k40r2s4p0.1.2.0u1x3-f16", dict(rows=3)),
    ("n2c20h4w28k36r1s7p0x3-tf32+add", dict(rows=4, sc=2)),
    ("n1c64h16w16k64r1s1u2-f16+bias", dict(rows=8, bn=64, chunks=8)),  # a stride alone
    ("n1c130h4w8k130r3s3p1-f16", dict(rows=4, bn=128, chunks=8, xs=3, sc=8)),
    ("n1c16h4w250k32r3s3p1-f16", dict(rows=1)),  # as wide as a whole row may be
    ("n2c36h1w400k40r1s3p0x1u1x2-f16+bias", dict(parts=4, xs=2)),  # 200 outputs by 56
    ("n1c40h3w130k33r3s3p1-bf16+add", dict(parts=3)),  # 130 by 48
    ("n2c20h1w300k36r1s5p0x2-tf32+bias", dict(parts=5, sc=2)),  # 300 by 64
    ("n1c40h16w16k250r3s3p1-f16+bias", dict(rows=8, bn=256)),  # registers are handed on
    ("n2c40h7w7k33r3s3p1-f16+bias", dict(rows=7, ni=2)),  # planes that begin anywhere
    ("n1c72h9w5k40r3s3p1u2-bf16+add", dict(rows=3, chunks=8, xs=2)),
    ("n3c40h14w14k33r3s3p1u2-f16", dict(rows=7, ni=2)),
    ("n1c56h1w187k33r1s5p0x2d1x2-f16+bias", dict(parts=3, sc=2)),
    ("n2c24h5w7k36r2s3p1.0.0.2d2x1-tf32+bias", dict(rows=4, ni=2)),
    ("n1c40h4w24k33r2s5p0x2u2-f16", dict(rows=2)),  # two words at once, from the first on
    ("n1c40h4w24k33r1s5p0x3u2-bf16", dict(rows=2, chunks=8)),  # from the second on
    ("n1c40h4w24k33r3s2p1x0u2d1x6-f16", dict(rows=2)),  # one of them under no tap
    ("n1c24h16w16k130r3s3p1-f16+bias", dict(rows=16, bn=128, sets=1, stages=3)),
    ("n2c20h70w8k33r3s3p1-f16+bias+relu", dict(stay=1)),  # several tiles of a block
    # A buffer for each step, columns past the last.
    ("n3c40h45w9k40r3s3p1u1x2-bf16+add", dict(stay=1, xs=2, stages=6)),
    ("n1c36h70w8k33r3s3p1-tf32+bias+add", dict(stay=1, stages=3)),
    ("n71c20h7w14k40r3s3p1u2-f16+silu", dict(rows=4, ni=1, stay=1)),
    ("n2c24h70w130k40r1s3p0x1-f16", dict(parts=3, stay=1)),
    ("n3c40h9w8k33r3s3p1-f16+bias+add", dict(rows=8, across=1)),  # runs of 64 pixels in images of 72
    ("n5c24h5w7k40r3s3p1-bf16+relu", dict(rows=5, across=1, stages=3)),  # in images of 40: three of them
    ("n3c36h9w7k33r3s3p1-tf32+bias", dict(rows=9, across=1, sc=2)),
    ("n7c20h5w3k40r3s3p1u1x2-tf32+add", dict(rows=5, ni=5, across=1, stay=1)),
    ("n2c40h12w19k70r3s3p1-f16+silu", dict(rows=9, across=1, bn=64, chunks=8)),
    ("n33c24h12w13k40r5s3p4x0u2x1d2x1-f16", dict(rows=5, across=1, stay=1, stages=3)),
    ("n4c40h12w12k64r3s3p1u2-bf16+bias", dict(rows=6, ni=1, across=1)),  # rows of 6 outputs
    ("n2c40h9w16k40r3s3p1-f16+bias+add", dict(rows=2, tall=2, stay=1, xs=2)),  # 9 outputs of pixels of two
    ("n3c24h22w12k33r3s3p1-tf32+bias+relu", dict(rows=3, tall=4, stay=1, chunks=2, stages=3)),
    ("n3c40h16w24k70r3s3p1u2-bf16+silu", dict(rows=2, tall=3, bn=64, stay=1, sets=1)),
    ("n2c12h70w8k32r5s3p2x1-f16", dict(rows=3, tall=2, stay=1, stages=1)),  # one step of a tile
    ("n9c40h9w7k32r3s3p1-f16+add", dict(rows=3, tall=3, ni=3, stay=1)),  # images of three rows of pixels
    ("n13c40h9w7k32r3s3p1-bf16+bias", dict(rows=5, tall=2, across=1, stay=1, xs=2)),
    ("n2c24h5w130k36r3s3p1-tf32+add", dict(parts=3, tall=2, stay=1, xs=2)),
    ("n2c40h5w136k33r3s3p1-f16+bias", dict(parts=3, tall=2, stay=1, xs=2)),  # a piece of each row
    ("n1c24h7w260k36r5s5p2u2x1-tf32+add", dict(parts=2, tall=2, stay=1, chunks=2, sets=1)),
    ("n1c40h6w304k40r3s3p2x1d2u1x2-bf16", dict(parts=3, sc=2)),  # rows before the image, and behind it
    ("n2c40h9w8k40r3s3p1-f16", dict(rows=3, chunks=2, sets=1, sc=2, stages=3)),
)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS)
def test_taps_of_planes_as_they_are(text: str, change: dict[str, int], device: str, runtime: Runtime) -> None:
    shift = DTYPE_BYTES[Problem.parse(text).dtype]
    config_agrees(runtime, text, Config.make("shifted", BASE | change), shift)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS[::4])
def test_a_nan_stays_with_the_outputs_that_see_it(
    text: str, change: dict[str, int], device: str, runtime: Runtime
) -> None:
    """What lies beside a row, before a plane and behind the last channel is no part of a sum."""
    nan_stays(runtime, text, Config.make("shifted", BASE | change))


@pytest.mark.parametrize("text", [text for text, _ in LAYERS[1::3]])
def test_configs_by_emulation(text: str, runtime: Runtime) -> None:
    emulated_configs_agree(runtime, KIND, text)


@pytest.mark.parametrize("device", GPU)
@pytest.mark.parametrize(
    "text",
    (
        "n9c136h20w24k200r3s3p1-f16+bias+relu",
        "n8c264h14w28k130r3s3p1u2-bf16+add",
        "n3c200h14w14k256r3s3p1-tf32+bias+add+silu",
        "n17c130h14w14k136r3s3p1u2-tf32",
        "n5c68h26w28k164r5s5p2-bf16+silu",
        "n2c40h40w120k48r7s7p3u2-f16",
        "n2c40h24w64k80r3s3p2d2-tf32+bias",
        "n2c72h12w28k72r3s4p1x2u2-f16", "n2c72h12w28k72r3s2p1x3u2d1x6-f16",
        "n8c136h17w17k200r3s3p1-f16+bias", "n17c264h7w7k130r3s3p1u2-bf16+add", "n5c40h13w9k64r5s3p2x1d2-f16",
        "n9c130h7w7k72r3s3p1-tf32", "n2c72h1w1999k200r1s3u1x2-f16+bias+relu",
    ),
)
def test_configs_on_a_gpu(text: str, device: str, runtime: Runtime) -> None:
    configs_agree(runtime, KIND, text)


@pytest.mark.parametrize("text", [text for text, _ in LAYERS])
def test_lanes_that_read_at_once_are_in_different_banks(text: str) -> None:
    """Of four lanes, two channels apart each or one of tf32, none meets another's eight pixels."""
    problem, size = Problem.parse(text), DTYPE_BYTES[Problem.parse(text).dtype]
    for rows in range(1, problem.p + 1):
        shape = Shape(problem, rows, problem.q, 1)
        found = shape.pitch
        assert found >= shape.patch * size and found % 16 == 0
        assert {t * (4 // size) * found % 128 for t in range(4)} == {0, 32, 64, 96}


def test_pairs_of_pixels_and_pieces_of_channels() -> None:
    assert Shape(Problem.parse("n1c8h8w14k8r3s3p1u2-f16"), 1, 7, 1).wide == 8  # 7 outputs of a row
    assert Shape(Problem.parse("n1c8h8w14k8r3s3p1u2-tf32"), 1, 7, 1).wide == 7
    assert channels(Problem.parse("n1c8h8w8k8r3s3p1-f16"), 4) == 32
    assert channels(Problem.parse("n1c8h8w8k8r3s3p1-tf32"), 8) == 32


@pytest.mark.parametrize(
    ("text", "rows"),
    (
        ("n1c16h4w2k9r1s1p15.0.0.0-f16", 1),  # the first tile is above the image
        ("n1c16h4w2k9r1s1p0.3.0.0-f16", 1),  # the last one below
    ),
)
def test_a_tile_of_padding_alone_is_refused(text: str, rows: int) -> None:
    """It would copy a piece of no bytes, or fewer."""
    problem = Problem.parse(text)
    with pytest.raises(ConfigError, match="rule 'padding'"):
        KIND.check(problem, H100, Config.make("shifted", BASE | dict(rows=rows)))
    KIND.check(problem, H100, Config.make("shifted", BASE | dict(rows=problem.p)))


@pytest.mark.parametrize(
    ("text", "change"),
    (
        ("n1c64h8w8k256r3s3p1-f16", dict(rows=8, bn=192, mb=2)),  # a warpgroup, two, three, four
        ("n1c64h16w16k256r3s3p1-tf32", dict(rows=8, bn=256)),
        ("n4c64h7w7k200r3s3p1-bf16", dict(rows=7, ni=3, bn=192)),
        ("n1c64h1w1000k128r1s3p0x1u1x2-f16", dict(parts=2, bn=128, sets=1)),
    ),
)
def test_a_block_has_the_registers_that_are_handed_on(
    text: str, change: dict[str, int], kept_cache: None
) -> None:
    """Who asks for more than the others have given back waits for ever."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    problem, config = Problem.parse(text), Config.make("shifted", BASE | change)
    KIND.check(problem, H100, config)
    kernel = KIND.blueprint(problem, H100, config)
    sizes, (used,) = dict(kernel.defines), compile_cuda(kernel, "sm_90").resources.values()
    assert sizes["HANDS_ON"] and used.registers == sizes["REGS_ALL"] and used.local_bytes == 0
    wanted = sizes["REGS_SUMMING"] * sizes["TEAMS"] + sizes["REGS_SENDING"]
    assert wanted <= sizes["REGS_ALL"] * (sizes["TEAMS"] + 1)
