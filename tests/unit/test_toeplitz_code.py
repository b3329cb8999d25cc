"""The toeplitz family: what its kernels compile to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from every_family import best_compile
from sass import main_loop

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.toeplitz.tile import slope, steps, tiling_of, window
from tilewright.problem import Problem

H100 = for_architecture("sm_90")
KIND = family_of("toeplitz")
CONVNEXT = Problem.parse("n16c96h56w56k96r7s7p3g96-f16-nhwc")
LARGE = Problem.parse("n1c128h56w56k128r31s31p15g128-bf16")
OF_BYTES = Problem.parse("n16c128h56w56k128r31s31p15g128-q8-nhwc")
OF_TF32 = Problem.parse("n16c128h56w56k128r13s13p6g128-tf32-nhwc")


@pytest.mark.parametrize(
    ("text", "columns", "products"),
    (
        ("n1c8h56w56k8r7s7p3g8-f16", 14, 1),
        ("n1c8h56w56k8r9s9p4g8-f16", 16, 1),
        ("n1c8h56w56k8r11s11p5g8-f16", 18, 2),
        ("n1c8h56w56k8r5s5p2u2g8-f16", 19, 2),  # stride 2: the eighth output begins 14 columns on
        ("n1c8h56w56k8r3s3p4d4g8-f16", 16, 1),
        ("n1c8h56w56k8r31s31p15g8-f16", 38, 3),
        ("n1c8h56w56k8r7s7p3g8-tf32", 14, 2),
        ("n1c8h56w56k8r31s31p15g8-tf32", 38, 5),
    ),
)
def test_windows(text: str, columns: int, products: int) -> None:
    problem = Problem.parse(text)
    assert (window(problem), steps(problem)) == (columns, products)


def test_a_packed_filter_of_2_gb_is_counted_in_64_bits() -> None:
    """A channel's rows have zeros about their taps: the filter is packed to 100 times its size and more."""
    config = Config.make("toeplitz", dict(cb=8, th=16, wb=1, warps=2, mb=1, combine=0))
    for rows, bits64 in ((2, 0), (11, 1)):
        layer = f"n1c1048576h1w9k1048576r{rows}s1p{rows // 2}x0u1x13g1048576-tf32"
        problem = Problem.parse(layer)
        assert KIND.refuses(problem, H100) is None
        KIND.check(problem, H100, config)
        blueprint = KIND.blueprint(problem, H100, config)
        assert (blueprint.packed_bytes >= 1 << 31, dict(blueprint.defines)["OFFSET64"]) == (bits64, bits64)


def test_a_load_is_worth_as_many_products_in_tf32() -> None:
    """Its fragments have half as many inputs, and their products half as many multiply-adds."""
    config = Config.make("toeplitz", dict(cb=8, th=16, wb=7, warps=4, mb=2, combine=0))
    for kind in ("f16", "tf32"):
        problem = Problem.parse(f"n16c96h56w56k96r7s7p3g96-{kind}-nhwc")
        flops = 2 * 16 * 8 * 16 * 7  # of a row of the filter: seven windows of 16 inputs, in 16 rows
        assert KIND.work(problem, H100, config).register_intensity == flops / (16 * 8 * 8)


def test_the_matrix_of_a_row_gives_its_outputs() -> None:
    """T[i][j] is number ``slope + i - j * stride`` of a packed row, and a window times T is its sums."""
    problem = Problem.parse("n1c1h1w40k1r1s5p0x2u1x2d1x3-f16")
    taps, dilation, stride = np.array([2.0, -1.0, 3.0, 5.0, -4.0]), 3, 2
    row = np.zeros(2 * slope(problem) + 16 * steps(problem))
    row[slope(problem) : slope(problem) + 5 * dilation : dilation] = taps
    i, j = np.meshgrid(np.arange(16 * steps(problem)), np.arange(8), indexing="ij")
    x = np.arange(16 * steps(problem), dtype=float) ** 2
    direct = [sum(taps[s] * x[q * stride + s * dilation] for s in range(5)) for q in range(8)]
    assert np.array_equal(x @ row[slope(problem) + i - j * stride], direct)


@pytest.mark.parametrize("arch", ("sm_80", "sm_90", "sm_120"))
@pytest.mark.parametrize("problem", (CONVNEXT, LARGE, OF_BYTES, OF_TF32),
                         ids=("7x7", "31x31", "31x31 of bytes", "13x13 of tf32"))
def test_its_best_configs_compile_without_spills(problem: Problem, arch: str, kept_cache: None) -> None:
    best_compile(KIND, problem, arch, 3)


def test_neighbouring_windows_share_fragments_without_many_moves(own_cache: None, tmp_path: Path) -> None:
    config = Config.make("toeplitz", dict(cb=16, th=16, wb=7, warps=8, mb=2, combine=0))
    KIND.check(CONVNEXT, H100, config)
    loop = main_loop(KIND.blueprint(CONVNEXT, H100, config), "sm_90", tmp_path, "HMMA")
    count = {name: sum(name in line for line in loop) for name in ("HMMA", "LDSM", "MOV")}
    rows = CONVNEXT.r
    assert count["HMMA"] == rows * config["wb"]
    assert count["LDSM"] == rows * tiling_of(CONVNEXT, config.values).fragments
    assert count["MOV"] <= 2.5 * count["HMMA"]  # of a window between two fragments half is moved
