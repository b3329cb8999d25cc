"""The grouped_mma family: how pixels lie in shared memory, and what its kernels compile to."""

from __future__ import annotations

from pathlib import Path

import pytest
from every_family import best_compile
from sass import main_loop

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.grouped_mma.tile import bundle_of, tiling_of
from tilewright.problem import Problem

H100 = for_architecture("sm_90")
KIND = family_of("grouped_mma")
REGNET = Problem.parse("n1c224h56w56k224r3s3p1g28-f16-nhwc")
RESNEXT = Problem.parse("n1c512h14w14k512r3s3p1g32-i8-nhwc+bias+relu+requant")
WIDE = Problem.parse("n1c336h28w28k336r3s3p1g7-bf16-nhwc")


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        ("n1c64h9w9k64r3s3p1g8-f16-nhwc", (1, 1, 8)),
        ("n1c64h9w9k64r3s3p1g16-f16-nhwc", (2, 1, 8)),  # groups of 4: two fill a piece
        ("n1c64h9w9k64r3s3p1g64-f16-nhwc", (8, 1, 8)),
        ("n1c64h9w9k128r3s3p1g64-f16-nhwc", (8, 1, 16)),
        ("n1c72h9w9k72r3s3p1g3-f16-nhwc", (1, 3, 24)),
        ("n1c64h9w9k64r3s3p1g8-i8-nhwc", (2, 1, 16)),
        ("n1c64h9w9k32r3s3p1g2-i8-nhwc", (1, 2, 16)),
    ),
)
def test_bundles_fill_pieces_of_16_bytes(text: str, expected: tuple[int, int, int]) -> None:
    bundle = bundle_of(Problem.parse(text))
    assert bundle and (bundle.groups, bundle.pieces, bundle.outputs) == expected


@pytest.mark.parametrize("pieces", (1, 2, 3, 4, 6, 7, 8, 12, 14, 16))
def test_eight_neighbouring_pixels_lie_in_different_banks(pieces: int) -> None:
    """As ``placed`` of grouped_mma_stage.h has it; a pixel's pieces stay where it is."""
    config = dict(nt=1, wn=pieces, bw=1, tw=8, pt=1, th=2, wm=1, mb=4, combine=0)
    problem = Problem.parse(f"n1c{8 * pieces}h9w9k{8 * pieces}r3s3p1g{pieces}-f16-nhwc")
    swizzle = tiling_of(problem, config).swizzle

    def placed(column: int, piece: int) -> int:
        return column * pieces + (piece ^ column // (8 // swizzle) % swizzle)

    for column in range(24):
        for piece in range(pieces):
            assert len({placed(column + i, piece) % 8 for i in range(8)}) == 8
        assert {placed(column, piece) // pieces for piece in range(pieces)} == {column}
        assert len({placed(column, piece) for piece in range(pieces)}) == pieces


@pytest.mark.parametrize("arch", ("sm_80", "sm_90", "sm_120"))
@pytest.mark.parametrize("problem", (REGNET, RESNEXT, WIDE), ids=("8", "16", "48"))
def test_its_best_configs_compile_without_spills(problem: Problem, arch: str, kept_cache: None) -> None:
    best_compile(KIND, problem, arch, 3)


def test_a_row_of_the_image_is_loaded_once_for_all_of_a_strips_outputs(
    own_cache: None, tmp_path: Path
) -> None:
    config = Config.make("grouped_mma", dict(nt=1, wn=4, bw=1, tw=16, pt=4, th=8, wm=1, mb=2, combine=0))
    KIND.check(REGNET, H100, config)
    loop = main_loop(KIND.blueprint(REGNET, H100, config), "sm_90", tmp_path, "HMMA")
    count = {name: sum(name in line for line in loop) for name in ("HMMA", "LDSM")}
    assert count["HMMA"] == 4 * 3 * 2  # rows of outputs, rows of the filter, two taps and one
    assert count["LDSM"] == 6 * 2  # rows of the image, the same
    assert len(loop) < 14 * count["HMMA"]
