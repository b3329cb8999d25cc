"""Sizes of the shifted kernel: its tiles, shared memory and registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.family import Values
from tilewright.kernels.products import in_chunk
from tilewright.problem import DTYPE_BYTES, Problem

PIECE = 16  # bytes
TEAM = 64  # pixels of a warpgroup
BARRIERS = 16  # bytes of a buffer's two
ALIGNMENT = 1024  # of swizzled rows
WORDS = 4  # registers of a lane's words of a tap of a product
MARGIN = 28  # registers besides those and the sums, and 2 for each column of the filter
APART = 6  # more in tf32, where two pixels are seen apart
BANKS = 128  # bytes of a row of all banks
MOST_RUN = 16  # bytes that a thread stores at once


def channels(pr: Problem, chunks: int) -> int:
    """Channels of a run (CHANNELS), of which a row of the filter has ``chunks`` pieces of 16 bytes."""
    return chunks * in_chunk(pr)


def runs(pr: Problem, chunks: int) -> int:
    """Runs of the sum over C."""
    return ceil_div(pr.c, channels(pr, chunks))


def steps(pr: Problem, chunks: int) -> int:
    """Steps of the sum: a row of the filter over a run each."""
    return runs(pr, chunks) * pr.r


def paired(pr: Problem) -> bool:
    """Whether a lane's two pixels are neighbours (PAIRED)."""
    return DTYPE_BYTES[pr.dtype] == 2


def wide(pr: Problem) -> int:
    """Pixels from one row of a tile to the next (WIDE)."""
    return round_up(pr.q, 2) if paired(pr) else pr.q


def teams(pr: Problem, rows: int, ni: int) -> int:
    """Warpgroups that multiply (TEAMS)."""
    return ceil_div(ni * rows * wide(pr), TEAM)


def threads(pr: Problem, rows: int, ni: int) -> int:
    """Threads of a block: those that multiply, and a warpgroup that sends."""
    return 128 * (teams(pr, rows, ni) + 1)


def patch(pr: Problem, rows: int) -> int:
    """Numbers of a plane from the first that a tile's taps read to the last."""
    (up_h, up_w), (apart_h, apart_w) = pr.stride, pr.dilation
    down = (rows - 1) * up_h + (pr.r - 1) * apart_h
    return down * pr.w + (pr.q - 1) * up_w + (pr.s - 1) * apart_w + 1


def pitch(pr: Problem, rows: int) -> int:
    """Bytes from a plane of a run to the next (PITCH), where four lanes' channels are in different banks.

    These are two planes apart, or one in tf32, and so 32 bytes at least: eight pixels of tf32, or eight of
    f16 and the numbers between them where a stride leaves those out.
    """
    size = DTYPE_BYTES[pr.dtype]
    odd = BANKS // 4 * size // 4  # 16 bytes, or 32 of tf32: an odd multiple of it
    found = round_up((patch(pr, rows) + in_chunk(pr) - 1) * size, odd)
    return found if found // odd % 2 else found + odd


def meets_image(pr: Problem, rows: int) -> bool:
    """Whether every tile of ``rows`` rows of outputs reads some of a plane, of which it copies a piece."""

    def begin(p: int) -> int:
        first = (p * pr.stride[0] - pr.pad[0]) * pr.w - pr.pad[2]
        return first - first % in_chunk(pr)

    last = (ceil_div(pr.p, rows) - 1) * rows
    return begin(0) + pitch(pr, rows) // DTYPE_BYTES[pr.dtype] > 0 and begin(last) < pr.h * pr.w


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers a thread needs: to multiply, or to add up the shares of a cluster."""
    beside = MARGIN + 2 * pr.s + (0 if paired(pr) else APART)
    return max(cf["bn"] // 2 + cf["sets"] * WORDS * pr.s + beside, 60 + 4 * cf["sc"])


def run_out(pr: Problem, rows: int) -> int:
    """Neighbouring pixels that a thread stores at once (RUN_OUT): of a tile's rows, wherever it begins."""
    if wide(pr) != pr.q:
        return 1
    most = MOST_RUN // DTYPE_BYTES[pr.dtype_out]
    return gcd(gcd(pr.p * pr.q, rows * pr.q), most)


@dataclass(frozen=True, kw_only=True)
class ShiftedTiling:
    """Sizes derived from a problem and a config.

    ``w_bytes``, ``x_bytes``: of a step's filters, of a run; ``tile_pixels``, ``tile_pitch``: of the tile of
    sums, which overlays these, in numbers; ``x_from``, ``bars_from``: where runs and barriers begin.
    """

    k_tiles: int
    tiles: int
    w_bytes: int
    x_bytes: int
    tile_pixels: int
    tile_pitch: int
    x_from: int
    bars_from: int
    shared_bytes: int


def tiling_of(pr: Problem, cf: Values) -> ShiftedTiling:
    """Return the tiling of a config."""
    rows, ni, bn = cf["rows"], cf["ni"], cf["bn"]
    k_tiles = ceil_div(pr.k, bn)
    w_bytes = bn * PIECE * cf["chunks"] * pr.s
    x_bytes = ni * channels(pr, cf["chunks"]) * pitch(pr, rows)
    tile_pixels = ni * rows * wide(pr)
    tile_pitch = round_up(tile_pixels, 8) + 4  # two channels on, 8 or 24 banks on
    x_from = cf["stages"] * w_bytes
    bars_from = round_up(max(x_from + cf["xs"] * x_bytes, bn * tile_pitch * 4), BANKS)
    return ShiftedTiling(
        k_tiles=k_tiles, tiles=ceil_div(pr.n, ni) * ceil_div(pr.p, rows) * k_tiles,
        w_bytes=w_bytes, x_bytes=x_bytes, tile_pixels=tile_pixels, tile_pitch=tile_pitch, x_from=x_from,
        bars_from=bars_from,
        shared_bytes=bars_from + BARRIERS * (cf["stages"] + cf["xs"]) + ALIGNMENT,
    )  # fmt: skip
