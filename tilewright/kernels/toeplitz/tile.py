"""Sizes of the toeplitz kernel: windows, tiles, how rows are staged, registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arithmetic import round_up
from tilewright.kernels.family import Values
from tilewright.kernels.tile import TWO_PASS, ceil_div, columns_under, rows_under
from tilewright.problem import DTYPE_BYTES, Problem

MOST_IN_FLIGHT = 8  # loads of 16 bytes under way of a thread
EIGHT, BAND = 8, 16  # outputs of a row, and rows, of a product


def window(pr: Problem) -> int:
    """Columns of the input under eight neighbouring outputs."""
    return columns_under(pr, EIGHT)


def steps(pr: Problem) -> int:
    """Products of 16 inputs that make up a window (KS)."""
    return ceil_div(window(pr), 16)


def slope(pr: Problem) -> int:
    """Zeros before a row of the filter: the last of eight outputs takes none of the first inputs."""
    return (EIGHT - 1) * pr.stride[1]


def stored_bytes(pr: Problem, cf: Values) -> int:
    """Bytes of what a sum is stored as: an output, or a sum of f32 or i32."""
    return 4 if cf["combine"] == TWO_PASS else DTYPE_BYTES[pr.dtype_out]


@dataclass(frozen=True)
class ToeplitzTiling:
    """Sizes that follow from a problem and a config; the kernel's defines of the same names.

    Lengths are in numbers of two bytes, except ``shared_bytes`` and ``eights``, the kernel's NC: pieces of
    16 bytes of a row.
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

    @property
    def fragments(self) -> int:
        """Loads of a band: 16 rows by two eights each."""
        return ceil_div(self.eights, 2)


def tiling_of(pr: Problem, cf: Values) -> ToeplitzTiling:
    """Work out the tiling of a config."""
    cb, th, wb = cf["cb"], cf["th"], cf["wb"]
    rows = rows_under(pr, th)
    eights = (wb - 1) * pr.stride[1] + 2 * steps(pr)
    pitch = EIGHT * (eights | 1)
    sums = th * EIGHT * (wb | 1) * stored_bytes(pr, cf) // 2 if pr.layout_out == "nhwc" else 0
    plane = max(rows * pitch + eights % 2 * EIGHT, sums)  # the last row, too, is loaded two eights at a time
    skew = 256 // cb if cb > EIGHT else 0  # a warp that stages all eights of channels writes to all banks
    tile = cb * plane + ceil_div(cb, EIGHT) * skew
    taps = round_up(16 * steps(pr) + slope(pr), EIGHT)
    items = cb * rows * eights  # of eight numbers
    k_tiles, p_tiles, q_tiles = pr.k // cb, ceil_div(pr.p, th), ceil_div(pr.q, EIGHT * wb)
    return ToeplitzTiling(
        k_tiles, p_tiles, q_tiles, pr.n * k_tiles * p_tiles * q_tiles, rows, eights, pitch, plane, skew, tile,
        taps, 2 * (tile + cb * pr.r * taps), items,
    )  # fmt: skip


def row_turns(pr: Problem, tiling: ToeplitzTiling, cf: Values) -> tuple[int, int]:
    """Loads of a lane for a row, and turns of its warp: a row each, or of nchw all that it has lanes for."""
    if pr.layout_in == "nhwc":
        step = 32 * EIGHT // cf["cb"]
        return ceil_div(EIGHT * tiling.eights, step), ceil_div(tiling.rows, cf["warps"])
    return 1, ceil_div(tiling.rows, 32 // tiling.eights)


def rows_in_flight(pr: Problem, tiling: ToeplitzTiling, cf: Values) -> int:
    """Rows of a lane that are under way at once: as many in each turn of the loop over them."""
    each, turns = row_turns(pr, tiling, cf)
    return ceil_div(turns, ceil_div(turns, max(1, MOST_IN_FLIGHT // each)))


def rounds(pr: Problem, tiling: ToeplitzTiling, cf: Values) -> int:
    """Times that a warp waits for rows to come, one after the other."""
    channels = 1 if pr.layout_in == "nhwc" else cf["cb"] // cf["warps"]
    return channels * ceil_div(row_turns(pr, tiling, cf)[1], rows_in_flight(pr, tiling, cf))


def products_of_row(pr: Problem, cf: Values) -> int:
    """Products of a warp for a row of the filter of one channel."""
    return cf["th"] // BAND * cf["wb"] * steps(pr)


def registers(pr: Problem, cf: Values) -> int:
    tiling = tiling_of(pr, cf)
    summing = 4 * (cf["th"] // BAND) * cf["wb"] + 2 * tiling.fragments + 2 * steps(pr) + 46
    return max(summing, 4 * rows_in_flight(pr, tiling, cf) * row_turns(pr, tiling, cf)[0] + 44)
