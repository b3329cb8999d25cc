"""Sizes of the toeplitz kernel: windows, tiles, how rows are staged, registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.family import Values
from tilewright.kernels.split_k import stored_bytes
from tilewright.kernels.tile import columns_under, rows_under
from tilewright.problem import Problem

MOST_IN_FLIGHT = 8  # 16-byte loads of a thread in flight, of eight numbers each in f16
EIGHT, BAND = 8, 16  # consecutive outputs of a row, and rows, of a product


def window(pr: Problem) -> int:
    """Columns of the input under eight neighbouring outputs."""
    return columns_under(pr, EIGHT)


def number_bytes(pr: Problem) -> int:
    """Bytes of a staged number: tf32, or f16 or bf16."""
    return 4 if pr.dtype == "f32" else 2


def depth(pr: Problem) -> int:
    """Inputs of a product, in total 32 bytes: a fragment's columns."""
    return 32 // number_bytes(pr)


def steps(pr: Problem) -> int:
    """Products that make up a window (KS)."""
    return ceil_div(window(pr), depth(pr))


def slope(pr: Problem) -> int:
    """Zeros before a row of the filter, as the last of eight outputs does not use the first inputs."""
    return (EIGHT - 1) * pr.stride[1]


def eights_of(pr: Problem, wb: int) -> int:
    """Eights of input columns under ``wb`` eights of outputs, with whole fragments for the last of them."""
    return (wb - 1) * pr.stride[1] + steps(pr) * depth(pr) // EIGHT


@dataclass(frozen=True)
class ToeplitzTiling:
    """Sizes derived from a problem and a config; the kernel has defines of the same names.

    Lengths are in staged numbers, except ``shared_bytes`` and ``eights`` (the kernel's NC): eights of a row's
    columns.
    """

    k_tiles: int
    p_tiles: int
    q_tiles: int
    blocks: int
    rows: int
    eights: int
    pitch: int
    plane: int
    skew: int
    tile: int
    taps: int
    shared_bytes: int
    items: int
    fragments: int


def tiling_of(pr: Problem, cf: Values) -> ToeplitzTiling:
    """Return the tiling of a config."""
    cb, th, wb, each = cf["cb"], cf["th"], cf["wb"], number_bytes(pr)
    rows, piece, eights = rows_under(pr, th), 16 // each, eights_of(pr, wb)
    fragments = ceil_div(EIGHT * eights, depth(pr))
    pitch = piece * (EIGHT * eights // piece | 1)  # an odd number of 16-byte pieces puts rows in other banks
    sums = th * EIGHT * (wb | 1) * stored_bytes(pr, cf["combine"]) // each if pr.layout_out == "nhwc" else 0
    plane = max(rows * pitch + depth(pr) * fragments - EIGHT * eights, sums)  # also of the last row
    skew = 256 // cb if cb > EIGHT else 0  # a warp that stages all eights of channels writes to all banks
    tile = cb * plane + ceil_div(cb, EIGHT) * skew
    taps = round_up(depth(pr) * steps(pr) + slope(pr), EIGHT)
    items = cb * rows * eights  # of eight numbers
    k_tiles, p_tiles, q_tiles = pr.k // cb, ceil_div(pr.p, th), ceil_div(pr.q, EIGHT * wb)
    return ToeplitzTiling(
        k_tiles, p_tiles, q_tiles, pr.n * k_tiles * p_tiles * q_tiles, rows, eights, pitch, plane, skew, tile,
        taps, each * (tile + cb * pr.r * taps), items, fragments,
    )  # fmt: skip


def packed_bytes(pr: Problem, tiling: ToeplitzTiling) -> int:
    """Bytes of the packed filter: for each of its rows the taps and the zeros around them."""
    return number_bytes(pr) * pr.k * pr.r * tiling.taps


def row_turns(pr: Problem, tiling: ToeplitzTiling, cf: Values) -> tuple[int, int]:
    """Loads of a lane for a row, and iterations of its warp: a row each, or in nchw all it has lanes for."""
    if pr.layout_in == "nhwc":
        step = 32 * EIGHT // cf["cb"]
        return ceil_div(EIGHT * tiling.eights, step), ceil_div(tiling.rows, cf["warps"])
    return 1, ceil_div(tiling.rows, 32 // tiling.eights)


def rows_in_flight(pr: Problem, tiling: ToeplitzTiling, cf: Values) -> int:
    """Rows of a lane in flight at once: the same number in each loop iteration."""
    each, turns = row_turns(pr, tiling, cf)
    return ceil_div(turns, ceil_div(turns, max(1, 2 * MOST_IN_FLIGHT // (number_bytes(pr) * each))))


def rounds(pr: Problem, tiling: ToeplitzTiling, cf: Values) -> int:
    """How often a warp waits for rows, one wait after the other."""
    channels = 1 if pr.layout_in == "nhwc" else cf["cb"] // cf["warps"]
    return channels * ceil_div(row_turns(pr, tiling, cf)[1], rows_in_flight(pr, tiling, cf))


def products_of_row(pr: Problem, cf: Values) -> int:
    """Products of a warp for a row of the filter of one channel."""
    return cf["th"] // BAND * cf["wb"] * steps(pr)


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers a thread needs, to sum or to hold the rows in flight."""
    tiling = tiling_of(pr, cf)
    summing = 4 * (cf["th"] // BAND) * cf["wb"] + 2 * tiling.fragments + 2 * steps(pr) + 46
    held = 2 * number_bytes(pr) * rows_in_flight(pr, tiling, cf) * row_turns(pr, tiling, cf)[0]
    return max(summing, held + 44)
