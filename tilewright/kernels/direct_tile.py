"""Sizes of the direct family's GPU kernel: tiles, staging, registers, shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.kernels.tile import NONE, View, ceil_div, tiles_along
from tilewright.kernels.word import as_words, word_bytes, word_registers, words
from tilewright.problem import Problem

MOST_COPIES = 16  # addresses of staging copies that a thread keeps in registers


@dataclass(frozen=True)
class Geometry:
    """Sizes that follow from a problem and a config; the kernel's defines of the same names."""

    view: View
    kb: int
    hb: int
    wb: int
    team: int
    threads: int
    k_tiles: int
    p_tiles: int
    q_tiles: int
    steps: int
    xh: int
    xw: int
    f_floats: int
    row: int
    rows: int

    @property
    def tiles(self) -> int:
        """Output tiles of one image and one group."""
        return self.k_tiles * self.p_tiles * self.q_tiles


def row_of(pr: Problem, tw: int) -> int:
    """Inputs of one row under ``tw`` neighbouring outputs."""
    return (tw - 1) * pr.stride[1] + (pr.s - 1) * pr.dilation[1] + 1


def geometry(pr: Problem, cf: dict[str, int]) -> Geometry:
    """Work out the tile sizes of a config."""
    view = View.of(pr)
    kb, hb, wb = cf["v"] * cf["tk"] * cf["bk"], cf["th"] * cf["bh"], cf["tw"] * cf["bw"]
    team, combine = cf["bk"] * cf["bh"] * cf["bw"], cf.get("combine", NONE)
    rows, columns = view.outputs(pr)
    return Geometry(
        view=view, kb=kb, hb=hb, wb=wb, team=team, threads=team * cf["sw"] * cf["sb"],
        k_tiles=ceil_div(pr.kg, kb), p_tiles=tiles_along(pr, combine, view.p, rows, hb),
        q_tiles=tiles_along(pr, combine, view.q, columns, wb),
        steps=ceil_div(words(pr), cf["cs"] * cf["sc"] * cf["sg"]),
        xh=(hb - 1) * pr.stride[0] + (pr.r - 1) * pr.dilation[0] + 1,
        xw=(wb - 1) * pr.stride[1] + (pr.s - 1) * pr.dilation[1] + 1,
        f_floats=cf["cs"] * pr.r * pr.s * kb if cf["f"] else 0,
        row=row_of(pr, cf["tw"]),
        rows=(cf["th"] - 1) * pr.stride[0] + (pr.r - 1) * pr.dilation[0] + 1,
    )  # fmt: skip


@dataclass(frozen=True)
class Staging:
    """How a block stages its input tile (see stage.h): strides and extent in words, copies of a thread."""

    strides: tuple[int, int, int]
    xw: int
    size: int
    vector: bool
    copies: int
    items: int


def staging(pr: Problem, cf: dict[str, int], geo: Geometry, aligned: bool = True) -> Staging:
    """Lay out the staged input tile."""
    if not cf["x"]:
        return Staging((0, 0, 0), geo.xw, 0, False, 0, 0)
    xw = geo.xw if cf["cv"] == 4 else ceil_div(geo.xw, 4) * 4
    pixels, small = geo.xh * xw, pr.c * geo.view.h * geo.view.w < 1 << 31
    if cf["cv"] == 4:
        items = pixels * cf["cs"] // 4
        copies = ceil_div(items, geo.threads)
        return Staging((1, xw * (cf["cs"] + 4), cf["cs"] + 4), xw, pixels * (cf["cs"] + 4), True,
                       copies if small else 0, items)  # fmt: skip
    plain = pr.r * pr.s == 1 and geo.view.h == 1 and pr.stride == (1, 1) and not any(pr.pad)
    nchw = pr.layout_in == "nchw"
    quads = geo.view.w % 4 == 0 and geo.wb % 4 == 0 and pr.dtype != "i8"
    vector = plain and nchw and quads and aligned and small
    items = pixels * cf["cs"] // (4 if vector else 1)
    copies = ceil_div(items, geo.threads)
    if nchw and small and (vector or copies <= MOST_COPIES):
        size = copies * geo.threads * (4 if vector else 1)
        return Staging((pixels, xw, 1), xw, ceil_div(size, 4) * 4, vector, copies, items)
    plane = pixels if nchw else pixels + (4 - pixels) % 32  # 8 channels x 4 pixels meet 32 banks
    return Staging((plane, xw, 1), xw, ceil_div(cf["cs"] * plane + 4, 4) * 4, False, 0, items)


def registers(pr: Problem, cf: dict[str, int]) -> int:
    """Estimate of the registers a thread needs: accumulators, input rows, taps, addresses.

    Input that is no words yet passes through some more: 8 to widen what is staged, 28 to gather bytes
    (the least that left no first choice spilt on sm_80 and sm_90).
    """
    tile, row = cf["v"] * cf["tk"] * cf["th"] * cf["tw"], row_of(pr, cf["tw"])
    held = tile + cf["th"] * ceil_div(row, 4) * 4 * cf.get("cv", 1) + cf["v"] * min(2, cf["tk"])
    made = 0 if as_words(pr) else 28 if pr.dtype == "i8" and not cf.get("x", 1) else 8
    return held * word_registers(pr) + made + 36


def shared_bytes(pr: Problem, cf: dict[str, int], geo: Geometry) -> int:
    """Shared memory of a block: the staged tiles, reused by the output tile."""
    staged = (staging(pr, cf, geo).size + geo.f_floats) * cf["stages"]
    slow, fast = (geo.hb * geo.wb, geo.kb) if pr.layout_out == "nhwc" else (geo.kb, geo.hb * geo.wb)
    out = slow * (fast + cf["pad"]) * cf["sb"] if out_shared(cf) else 0
    return word_bytes(pr) * max(staged, out, 4)


def out_shared(cf: dict[str, int]) -> bool:
    """Whether the output tile passes through shared memory."""
    return bool(cf["out"] or cf["sb"] > 1 or cf["sc"] > 1)
