"""Sizes of the direct family's GPU kernel: tiles, staging, registers, shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.family import Values
from tilewright.kernels.limits import MOST_COPIES
from tilewright.kernels.staging import Staging, staged_quads
from tilewright.kernels.tile import NONE, View, along, columns_under, lines, row_runs, rows_under, tiles_along
from tilewright.kernels.word import as_words, word_bytes, word_registers, words
from tilewright.problem import Problem

FEW_CHANNELS = 4  # most channels of nhwc that are staged in the order of memory
_REMEMBERED = 8192  # cached tilings and staged tiles: rules and the model ask for each many times


@dataclass(frozen=True, kw_only=True)
class GpuTiling:
    """Sizes derived from a problem and a config; the kernel has defines of the same names.

    Attributes:
        kb, hb, wb: channels, rows and columns of an output tile.
        team: threads of a block that compute different outputs; threads: of the whole block.
        k_tiles, p_tiles, q_tiles: output tiles of one image and one group, along each side.
        all_tiles: of the layer.
        steps: of a share of the sum; c_padded: channels of all shares.
        xh, xw: rows and columns of the input under a tile.
        f_floats: words of the staged filter; filter_words: of the packed one.
        row, rows: columns and rows of the input under a thread's outputs.
    """

    view: View
    kb: int
    hb: int
    wb: int
    team: int
    threads: int
    k_tiles: int
    p_tiles: int
    q_tiles: int
    all_tiles: int
    steps: int
    c_padded: int
    xh: int
    xw: int
    f_floats: int
    filter_words: int
    row: int
    rows: int

    @property
    def tile(self) -> int:
        """Outputs of a tile."""
        return self.kb * self.hb * self.wb


def tiling_of(pr: Problem, cf: Values) -> GpuTiling:
    """Return the tiling of a config."""
    return _tiling(
        pr, cf["v"] * cf["tk"], cf["th"], cf["tw"], cf["bk"], cf["bh"], cf["bw"], cf["sw"] * cf["sb"],
        cf["cs"], cf["sc"] * cf["sg"], cf["f"] > 0, cf.get("combine", NONE),
    )  # fmt: skip


@lru_cache(_REMEMBERED)
def _tiling(
    pr: Problem, tk: int, th: int, tw: int, bk: int, bh: int, bw: int, inside: int, cs: int, outside: int,
    f: bool, combine: int,
) -> GpuTiling:  # fmt: skip
    """``tk``: output channels of a thread; ``inside``, ``outside``: shares of C in a block and of blocks."""
    view = View.of(pr)
    kb, hb, wb, team = tk * bk, th * bh, tw * bw, bk * bh * bw
    rows, columns = view.outputs(pr)
    k_tiles, p_tiles = ceil_div(pr.kg, kb), tiles_along(pr, combine, view.p, rows, hb)
    q_tiles = tiles_along(pr, combine, view.q, columns, wb)
    step = cs * outside  # channels of one step of all shares
    steps = ceil_div(words(pr), step)
    return GpuTiling(
        view=view, kb=kb, hb=hb, wb=wb, team=team, threads=team * inside,
        k_tiles=k_tiles, p_tiles=p_tiles, q_tiles=q_tiles,
        all_tiles=k_tiles * p_tiles * q_tiles * view.n * pr.groups, steps=steps, c_padded=steps * step,
        xh=rows_under(pr, hb), xw=columns_under(pr, wb), f_floats=lines(cs * pr.r * pr.s * kb) if f else 0,
        filter_words=steps * step * pr.r * pr.s * kb * k_tiles * pr.groups,
        row=columns_under(pr, tw), rows=rows_under(pr, th),
    )  # fmt: skip


def staging(pr: Problem, cf: Values, tiling: GpuTiling, aligned: bool = True) -> Staging:
    """Lay out the staged input tile."""
    if not cf["x"]:
        return Staging((0, 0, 0), tiling.xw, 0, 0, 0)
    step, first = along(pr, cf.get("combine", NONE), tiling.wb)
    return _staged(
        pr, tiling.xh, tiling.xw, tiling.threads, cf["cs"], cf["cv"], cf["sw"] == 1, step, first, aligned
    )


@lru_cache(_REMEMBERED)
def _staged(
    pr: Problem, rows: int, columns: int, threads: int, cs: int, cv: int, whole: bool, step: int, first: int,
    aligned: bool,
) -> Staging:  # fmt: skip
    """``whole``: the lanes of a warp do not split channels; ``step``, ``first``: as of ``along``."""
    view = View.of(pr)
    small = pr.c * view.h * view.w < 1 << 31
    if cv == 4:
        return staged_quads(cs, rows, columns, threads, kept=small)
    nchw, few = pr.layout_in == "nchw", cs == pr.c == pr.cg <= FEW_CHANNELS and not pr.is_integer
    if small and (nchw or few):
        many = 1 if nchw else pr.c  # numbers of a pixel in a row
        each = pr.stride[1] * many
        row = view.w * many, step * each, first * each - pr.pad[2] * many, columns * many
        # If the lanes of a warp split channels, planes of whole sectors would lie in the same banks.
        by_channels = nchw and as_words(pr) and word_bytes(pr) == 4 and whole
        for sectors in (True, False) if by_channels else (False,):
            run, lead, xw = row_runs(pr, *row, aligned, sectors=sectors)
            items = rows * xw * cs // (run * many)
            copies = ceil_div(items, threads)
            if copies <= MOST_COPIES:
                size, plane = lines(copies * threads * run), rows * xw if nchw else 1
                return Staging((plane, xw, many), xw, size, copies, items, run, lead)
    xw = round_up(columns, 4)
    pixels = rows * xw
    plane = pixels if nchw else pixels + (4 - pixels) % 32  # 8 channels x 4 pixels lie in 32 banks
    return Staging((plane, xw, 1), xw, lines(cs * plane + 4), 0, pixels * cs)


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers a thread needs: accumulators, input rows, taps, addresses.

    Input that has to be converted to words needs more: 8 to widen it while staging; to gather bytes in place
    16, and four per input of a row (the least for which no first choice spilled on sm_80 and sm_90).
    """
    tile, row = cf["v"] * cf["tk"] * cf["th"] * cf["tw"], columns_under(pr, cf["tw"])
    live = tile + cf["th"] * round_up(row, 4) * cf.get("cv", 1) + cf["v"] * min(2, cf["tk"])
    made = 0 if as_words(pr) else 16 + 4 * row if pr.is_integer and not cf.get("x", 1) else 8
    return live * word_registers(pr) + made + 36


def shared_bytes(pr: Problem, cf: Values, tiling: GpuTiling) -> int:
    """Shared memory of a block: the staged tiles, reused by the output tile."""
    size = max(staging(pr, cf, tiling).size, staging(pr, cf, tiling, False).size) if cf["x"] else 0
    staged = (size + tiling.f_floats) * cf["stages"]
    pixels = tiling.hb * tiling.wb
    slow, fast = (pixels, tiling.kb) if pr.layout_out == "nhwc" else (tiling.kb, pixels)
    out = slow * (fast + cf["pad"]) * cf["sb"] if out_shared(cf) else 0
    return word_bytes(pr) * max(staged, out, 4)


def out_shared(cf: Values) -> bool:
    """Whether the output tile goes through shared memory."""
    return bool(cf["out"] or cf["sb"] > 1 or cf["sc"] > 1)
