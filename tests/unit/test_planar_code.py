"""The planar family: what it compiles to, and what its layout in shared memory is for.

Its answers are in tests/device/test_planar.py, its protocol of barriers runs in test_planar_protocol.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest
from every_family import alike_compile

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.planar.tile import teams
from tilewright.kernels.source import kernel_files
from tilewright.problem import Problem

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
    "n32c512h7w7k2048r1s1-tf32",
    "n8c1024h14w14k260r1s1-tf32+bias+add+silu",
)


@pytest.mark.parametrize("text", LAYERS)
def test_compiles_with_sums_in_registers_and_products_under_way_together(text: str, own_cache: None) -> None:
    """Each width of a product, with and without a cluster."""
    alike_compile(KIND, LAYERS, text, lambda config: (config["bn"], config["sender"], config["sc"] > 1), 2)


def test_lanes_read_from_different_banks() -> None:
    """Four lanes are APART channels apart, and eight lanes read neighbouring words of each."""
    text = kernel_files()["planar_order.h"].read_text(encoding="utf-8")
    by_rest = ((2, 16), (4, 8), (8, 4), (16, 2))
    chosen = "".join(f"PLANE_HALVES % {rest} ? {apart} : " for rest, apart in by_rest)
    assert f"({chosen}1)" in text
    for pixels, of_step in product(range(9, 321), (64, 32)):
        halves = pixels * 64 // of_step
        apart = 16 if halves % 2 else 8 if halves % 4 else 4 if halves % 8 else 2 if halves % 16 else 1
        words = [(t * apart * halves // 2 + pair) % 32 for t in range(4) for pair in range(8)]
        assert len({*words}) == 32 or halves % 32 == 0, pixels
        numbers = range(of_step // 4)
        channels = [n % apart + t * apart + n // apart * 4 * apart for t in range(4) for n in numbers]
        assert sorted(channels) == [*range(of_step)]


HOST = """
#include <cstdio>
#include <cstdint>
#include <cstring>
#define INLINE static
#define UNROLL
#define HW {pixels}
#define C {channels}
#define PAIRED 1
#define PLANE_BYTES (HW * 2)
typedef unsigned short in_t;
{order}
static unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned word = 0;
    for (int i = 0; i < 4; i++) word |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return word;
}}
{functions}
alignas(16) static unsigned char planes[64 * HW * 2 + 16];
int main() {{
    memset(planes, 0xff, sizeof planes);  // what is past the last channel
    for (int i = 0; i < C * HW; i++) planes[2 * i] = i & 0xff, planes[2 * i + 1] = i >> 8;
    for (int t = 0; t < 4; t++)
        for (int pixel = 0; pixel < HW; pixel += 2) {{
            unsigned a[16];
            const unsigned char *from = planes + pixel * 2 + t * (APART * HW * 2);
            read_planes(a, from, from, C - t * APART);
            for (int i = 0; i < 32; i++) {{  // rows of two pixels, of each 16 channels: four products' words
                const int row = i / 2 % 2, place = i / 8 * 16 + i / 4 % 2 * 8 + t * 2 + i % 2;
                const unsigned c = CHANNEL_AT(place), number = a[i / 2] >> i % 2 * 16 & 0xffff;
                if (pixel + row < HW && number != (c < C ? c * HW + pixel + row : 0)) return 1;
            }}
        }}
}}
"""


@pytest.mark.parametrize("pixels", (9, 49, 14, 42, 20, 196, 24, 40, 16, 48))
@pytest.mark.parametrize("missing", (0, 8, 24))
def test_words_of_a_fragment_have_the_numbers_that_wgmma_takes(
    pixels: int, missing: int, tmp_path: Path
) -> None:
    """Word 4 s + 2 h + r of lane t: row r of its two, places 16 s + 8 h + 2 t and the next of the filter."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    files = kernel_files()
    text = files["planar_wgmma.h"].read_text(encoding="utf-8")
    functions = re.findall(r"^INLINE \w+ (?:word_of|read_planes)\(.*?^}", text, re.DOTALL | re.MULTILINE)
    assert len(functions) == 2
    source = HOST.format(
        pixels=pixels, channels=64 - missing - (missing > 8 and pixels % 8 == 0),
        order=files["planar_order.h"].read_text(encoding="utf-8"), functions="\n".join(functions),
    )  # fmt: skip
    (tmp_path / "host.cpp").write_text(source)
    subprocess.run([compiler, "-w", tmp_path / "host.cpp", "-o", tmp_path / "host"], check=True)
    assert subprocess.run([tmp_path / "host"], check=False).returncode == 0


def test_pairs_of_pixels_make_up_whole_warpgroups() -> None:
    problem = Problem.parse("n32c512h7w7k2048r1s1-f16")  # 25 pairs of a plane, 32 of a warpgroup
    assert [teams(problem, ni) for ni in (1, 2, 5, 6)] == [1, 2, 4, 5]


def test_an_unaligned_input_is_copied_before() -> None:
    problem = Problem.parse("n2c512h7w7k2048r1s1-f16")
    config = Config.make("planar", dict(ni=1, bn=64, mb=1, stages=3, sender=1, sets=2, sc=1, turns=1))
    aligned, other = (KIND.blueprint(problem, H100, config, aligned=which) for which in (True, False))
    assert [launch.kernel for launch in aligned.launches] == ["planar"]
    assert [launch.kernel for launch in other.launches] == ["nhwc", "planar"]
    assert (aligned.packed_bytes, aligned.pack) == (other.packed_bytes, other.pack)
