"""Shares that are added to zeros (tile.h): whoever comes first of a tile's blocks puts them there.

CUDA does not say in which order blocks start, and one may start when another has ended. The lines of tile.h
are compiled as C, with blocks of one thread, and run one block after the other in any order.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.kernels.source import kernel_files

TILES, SC, SG, PIXELS = 3, 2, 4, 5
BLOCKS = TILES * SC * SG
AROUND = r"""
#include <stdio.h>
#include <stdlib.h>
#define INLINE static
#define GLOBAL
#define THREADS 1
#define THREAD(d) 0
#define BARRIER()
#define BARRIER_ANY(found) (found)
#define FENCE()
#define SPLITS (SC * SG)
#define KB 1
#define HB 1
#define WB PIXELS
#define K 1
#define P 1
#define Q PIXELS
#define Y_NHWC 0
#define Z_AT(n, k, p, q) ((n) * PIXELS + (q))
typedef float y_t;
typedef struct { int n, group, k0, p0, q0, tile, sg, sc; } Place;
static unsigned counter(unsigned *p, unsigned most) {
    unsigned was = *p;
    *p = was >= most ? 0 : was + 1;
    return was;
}
#define atomic_ticket counter
#define atomic_turn counter
static unsigned load_acquire(const unsigned *p) {
    if (!*p) exit(1);  // what it waits for has not begun
    return *p;
}
LINES
int main(void) {
    unsigned arrived[2 * TILES] = {0};
    float y[TILES * PIXELS];
    for (int run = 0; run < RUNS; run++) {
        for (int i = 0; i < TILES * PIXELS; i++) y[i] = 1e9f;
        for (int turn = 0; turn < TILES * SPLITS; turn++) {
            int id;
            if (scanf("%d", &id) != 1) return 2;
            Place at = {id / SPLITS, 0, 0, 0, 0, id / SPLITS, id / SC % SG, id % SC};
            unsigned ticket = draw_ticket(arrived, at);
            zero_tile(y, arrived, at, ticket);
            zeros_awaited(arrived, at);
            for (int i = 0; i < PIXELS; i++) y[at.n * PIXELS + i] += 1;
        }
        for (int i = 0; i < TILES * PIXELS; i++) if (y[i] != SPLITS) return 3;
        for (int i = 0; i < 2 * TILES; i++) if (arrived[i]) return 4;
    }
    return 0;
}
"""


def lines() -> str:
    """The protocol, as tile.h has it for CUDA."""
    text = kernel_files()["tile.h"].read_text(encoding="utf-8")
    found = re.search(r"(?ms)^#if COMBINE == ATOMIC && defined\(__CUDACC__\)\n(.*?)^#else", text)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("zeros")
    sizes = dict(TILES=TILES, SC=SC, SG=SG, PIXELS=PIXELS, RUNS=3)
    defines = "".join(f"#define {name} {value}\n" for name, value in sizes.items())
    (folder / "zeros.c").write_text(defines + AROUND.replace("LINES", lines()))
    subprocess.run([compiler, "zeros.c", "-o", "zeros"], cwd=folder, check=True, timeout=60)
    return folder / "zeros"


def orders() -> list[list[int]]:
    """Blocks by their numbers, backwards, by their shares, and in no order."""
    forward = list(range(BLOCKS))
    mixed = [random.Random(seed).sample(forward, BLOCKS) for seed in range(20)]
    return [forward, forward[::-1], sorted(forward, key=lambda block: -block % (SC * SG)), *mixed]


def test_blocks_may_start_in_any_order(program: Path) -> None:
    for order in orders():
        asked = " ".join(map(str, order * 3))
        done = subprocess.run([program], input=asked, text=True, timeout=20)
        assert done.returncode == 0, (done.returncode, order)
