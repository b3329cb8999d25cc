"""The planar family: what it compiles to, and what its layout in shared memory is for.

Its answers are in tests/device/test_planar.py.
"""

from __future__ import annotations

import random

import pytest

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.planar.tile import teams
from tilewright.kernels.source import kernel_files
from tilewright.kernels.untuned import pack
from tilewright.problem import Problem
from tilewright.search.space import Space

H100 = for_architecture("sm_90")
KIND = family_of("planar")
LAYERS = (
    "n32c512h7w7k2048r1s1-f16",
    "n8c2048h7w7k512r1s1-bf16+bias+add+silu",
    "n32c1024h14w14k256r1s1-f16+bias+relu",
    "n1c1024h17w17k512r1s1-f16+add0.5+leaky0.1",  # 32 columns alone
    "n9c1000h6w7k1000r1s1-bf16",
    "n4c704h7w7k264r1s1-f16",  # an odd number of steps
    "n16c645h4w6k333r1s1-f16+bias",
)


@pytest.mark.parametrize("text", LAYERS)
def test_compiles_with_sums_in_registers_and_products_under_way_together(text: str, own_cache: None) -> None:
    """What spills or is serialised is a CompileError. Each width of a product, with and without a cluster."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    problem, rng = Problem.parse(text), random.Random(text)
    drawn = (Space(KIND, problem, H100).sample(rng) for _ in range(60))
    chosen = {(config["bn"], config["sc"] > 1): config for config in drawn}
    assert len(chosen) >= 2
    for number, config in enumerate(chosen.values()):
        found = KIND.blueprint(problem, H100, config, aligned=number % 3 > 0)
        for program in (*found.programs, *pack(problem, H100, found).programs):
            assert 0 < compile_cuda(program, H100.arch).registers <= 255


def test_lanes_read_from_different_banks() -> None:
    """Four lanes are APART channels apart, and eight lanes read neighbouring words of each."""
    text = kernel_files()["planar_order.h"].read_text(encoding="utf-8")
    assert "HW % 2 ? 16 : HW % 4 ? 8 : HW % 8 ? 4 : HW % 16 ? 2 : 1" in text
    for pixels in range(9, 321):
        apart = 16 if pixels % 2 else 8 if pixels % 4 else 4 if pixels % 8 else 2 if pixels % 16 else 1
        words = [(t * apart * pixels // 2 + pair) % 32 for t in range(4) for pair in range(8)]
        assert len({*words}) == 32 or pixels % 32 == 0, pixels
        channels = [n % apart + t * apart + n // apart * 4 * apart for t in range(4) for n in range(16)]
        assert sorted(channels) == [*range(64)]


def test_pairs_of_pixels_make_up_whole_warpgroups() -> None:
    problem = Problem.parse("n32c512h7w7k2048r1s1-f16")  # 25 pairs of a plane, 32 of a warpgroup
    assert [teams(problem, ni) for ni in (1, 2, 5, 6)] == [1, 2, 4, 5]


def test_an_unaligned_input_is_copied_before() -> None:
    problem = Problem.parse("n2c512h7w7k2048r1s1-f16")
    config = Config.make("planar", dict(ni=1, bn=64, mb=1, stages=3, sc=1))
    aligned, other = (KIND.blueprint(problem, H100, config, aligned=which) for which in (True, False))
    assert [launch.kernel for launch in aligned.launches] == ["planar"]
    assert [launch.kernel for launch in other.launches] == ["nhwc", "planar"]
    assert (aligned.packed_bytes, aligned.pack, aligned.packer) == (
        other.packed_bytes,
        other.pack,
        other.packer,
    )
