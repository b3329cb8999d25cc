"""Sums of planes that begin anywhere move to the left, column by column (hopper_lead.h)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.kernels.source import kernel_files

# A lane sends what it has before any shuffle: it runs twice, to say what, and to take what others sent.
HOST = """
#include <stdio.h>
#include <vector>
#define INLINE static inline
#define UNROLL
#define LEADS 8
#define WG_N %(columns)d
#define WG_WORDS (WG_N / 2)
typedef float acc_t;
static std::vector<float> sent[32];
static int lane_now, number, takes;
static float __shfl_sync(unsigned, float v, int from) {
    if (!takes) return sent[lane_now].push_back(v), v;
    return sent[from][number++];
}
static float chosen(int first, float v, float w) { return first ? v : w; }
%(kernel)s
int main() {
    float sums[32][WG_WORDS];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < WG_WORDS; i++)  // row * 1000 + column, by wgmma.h
            sums[lane][i] = (lane / 4 + i / 2 %% 2 * 8) * 1000 + i / 4 * 8 + lane %% 4 * 2 + i %% 2;
    for (takes = 0; takes < 2; takes++)
        for (lane_now = 0; lane_now < 32; lane_now++) {
            float mine[WG_WORDS];
            for (int i = 0; i < WG_WORDS; i++) mine[i] = sums[lane_now][i];
            number = 0, move_sums(mine, %(by)d, lane_now);
            if (takes) for (int i = 0; i < WG_WORDS; i++) printf("%%g ", mine[i]);
        }
}
"""


@pytest.mark.parametrize("columns", [16, 56])
@pytest.mark.parametrize("by", [1, 2, 4])
def test_sums_move_to_the_left(columns: int, by: int, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    text = kernel_files()["hopper_lead.h"].read_text()
    kernel = re.search(r"^INLINE void move_sums\(.*?^}$", text, re.M | re.S)
    assert kernel
    source, program = tmp_path / "moves.cpp", tmp_path / "moves"
    source.write_text(HOST % dict(columns=columns, by=by, kernel=kernel[0]))
    subprocess.run([compiler, "-std=c++17", "-o", program, source], check=True)
    found = iter(subprocess.run([program], capture_output=True, text=True, check=True).stdout.split())
    compared = 0
    for lane in range(32):
        for i in range(columns // 2):
            row, column = lane // 4 + i // 2 % 2 * 8, i // 4 * 8 + lane % 4 * 2 + i % 2
            value = int(next(found))
            if column + by < columns:  # into the last ones come any
                assert value == row * 1000 + column + by
                compared += 1
    assert compared == 16 * (columns - by)
