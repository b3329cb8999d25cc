"""Sums of each column of a filter slide to their outputs, from team to team, too (hopper_slide.h)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.device import for_architecture
from tilewright.kernels.config import Config
from tilewright.kernels.hopper.spec import Hopper
from tilewright.kernels.source import kernel_files
from tilewright.problem import Problem

HOPPER = Hopper()

# A lane sends what it has before any shuffle, and edges are written before any is read. So all lanes run
# three times: to write edges, to say what they send, and to take what others sent.
HOST = """
#include <stdio.h>
#include <vector>
#define INLINE static inline
#define UNROLL
#define TEAMS_SYNC()
#define WM %(wm)d
#define WN %(wn)d
#define WG_N %(columns)d
#define WR %(row)d
#define WG_WORDS (WG_N / 2)
#define SUM_WORDS (3 * WG_WORDS)
#define SUMS_OF(s) (((s) + 2) %% 3 * WG_WORDS)
#define EDGES_FROM 16
#define TEAMS 1
#define REGS_SENDING 0
#define REGS_SUMMING 0
#define REGS_ALL 0
struct Block { const int *w_moved; };
struct int2 { int x, y; };
static int2 __ldg(const int2 *at) { return *at; }
static float __int_as_float(int bits) { return bits; }
typedef float acc_t;
typedef int shared_t;
static float edges[EDGES_FROM + WM * WN * 512];
static void write1(shared_t shared, int at, float v) { edges[shared + at] = v; }
static float read1(shared_t shared, int at) { return edges[shared + at]; }
static std::vector<float> sent[WM * WN * 4][32];
static int warp_now, lane_now, number, pass;
static float __shfl_sync(unsigned, float v, int from) {
    if (pass < 2) return sent[warp_now][lane_now].push_back(v), v;
    return sent[warp_now][from][number++];
}
%(kernel)s
// What column s of the filter has for a row of channels and a place of the raster.
static float sum_of(int s, int channel, int place) { return 1 + s + 3 * channel + 1000 * place; }
int main() {
    for (pass = 0; pass < 3; pass++)
        for (int thread = 0; thread < WM * WN * 128; thread++) {
            const int team = thread / 128, lane = thread %% 32;
            float sums[SUM_WORDS];
            int channel[WG_WORDS], place[WG_WORDS];
            for (int i = 0; i < WG_WORDS; i++) {  // by wgmma.h
                channel[i] = team %% WM * 64 + thread %% 128 / 32 * 16 + lane / 4 + i / 2 %% 2 * 8;
                place[i] = team / WM * WG_N + i / 4 * 8 + lane %% 4 * 2 + i %% 2;
                for (int s = 0; s < 3; s++) sums[SUMS_OF(s) + i] = sum_of(s, channel[i], place[i]);
            }
            warp_now = thread / 32, lane_now = lane, number = 0;
            if (pass < 2) sent[warp_now][lane].clear();
            slide_sums(sums, {{100, 200}, {300, 400}}, 0, team, thread %% 128);
            for (int i = 0; i < WG_WORDS && pass == 2; i++) {
                const int q = place[i] %% WR, k = channel[i];
                float wanted = sum_of(1, k, place[i]);
                const int h = k / 8 %% 2;  // which of a lane's channels
                wanted += q ? sum_of(0, k, place[i] - 1) : h ? 200 : 100;
                wanted += q < WR - 1 ? sum_of(2, k, place[i] + 1) : h ? 400 : 300;
                if (sums[i] != wanted)
                    return printf("%%d %%d: %%g, not %%g", k, place[i], sums[i], wanted), 1;
            }
        }
    puts("done");
}
"""


@pytest.mark.parametrize(("wm", "wn", "bn"), [(1, 2, 16), (2, 1, 128), (1, 3, 48), (2, 2, 32)])
def test_a_block_has_the_registers_that_are_handed_on(wm: int, wn: int, bn: int, kept_cache: None) -> None:
    """Who asks for more than the others have given back waits for ever."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    problem, device = Problem.parse("n2c64h16w16k128r3s3p1-f16+bias+relu"), for_architecture("sm_90")
    config = Config.make("hopper", dict(
        x=7, wm=wm, wn=wn, bn=bn, mb=1, chunks=4, pieces=1, tall=0, batch=3, stages=2, xs=2, cm=1, sc=1, sg=1,
        combine=0,
    ))  # fmt: skip
    kernel = HOPPER.blueprint(problem, device, config)
    HOPPER.check(problem, device, config)
    defines, (used,) = dict(kernel.defines), compile_cuda(kernel, "sm_90").resources.values()
    assert used.registers == defines["REGS_ALL"] and used.local_bytes == 0
    wanted = defines["REGS_SUMMING"] * wm * wn + defines["REGS_SENDING"]
    assert wanted <= defines["REGS_ALL"] * (wm * wn + 1)


@pytest.mark.parametrize(("row", "columns", "wm", "wn"), [
    (16, 16, 1, 2), (16, 64, 1, 2), (32, 96, 2, 1), (64, 64, 1, 3),
    (32, 16, 1, 2), (64, 32, 2, 2), (48, 16, 1, 3), (32, 16, 1, 4),  # a row in several teams
])  # fmt: skip
def test_sums_slide_to_their_outputs(row: int, columns: int, wm: int, wn: int, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    kernel = kernel_files()["hopper_slide.h"].read_text()
    source, program = tmp_path / "slide.cpp", tmp_path / "slide"
    source.write_text(HOST % dict(row=row, columns=columns, wm=wm, wn=wn, kernel=kernel))
    subprocess.run([compiler, "-std=c++17", "-o", program, source], check=True)
    assert subprocess.run([program], capture_output=True, text=True).stdout.strip() == "done"
