"""Sizes of the stem kernel: runs under an output, staged rows, slices of channels, registers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.arithmetic import round_up
from tilewright.kernels.family import Values
from tilewright.kernels.tile import NONE, along, ceil_div, tiles_along
from tilewright.problem import DTYPE_BYTES, Problem

WORD, LANES = 4, 4  # bytes of a fragment's register, and lanes that share a pixel
STORE = 16  # bytes of outputs that a thread has side by side, at most
LONGEST = STORE  # outputs of them: those of one byte


@dataclass(frozen=True)
class Runs:
    """What a row of the filter sees of an image: a run of neighbours in memory.

    Attributes:
        planes: planes of the image: its channels in nchw.
        column: bytes of a column of a plane.
        step: bytes from one output's run to the next one's.
        numbers: numbers of a run.
        copy: bytes that a copy moves, of whole rows of the image.
        lead: staged bytes of a row before the run of its first output.
        shift: numbers of a run's first word before it, for every output.
        unaligned: whether runs begin anywhere in a word, so that one is made of two.
        quarters: words of a run that each of its lanes takes.
    """

    planes: int
    column: int
    step: int
    numbers: int
    copy: int
    lead: int
    shift: int
    unaligned: bool
    quarters: int

    def words(self, pr: Problem) -> int:
        """Words of a pixel that a lane takes in all."""
        return self.planes * pr.r * self.quarters

    def steps(self, pr: Problem) -> int:
        """Products along the sum: a lane has two words of each."""
        return ceil_div(self.words(pr), 2)


def runs(pr: Problem, cf: Values | None = None, aligned: bool = True) -> Runs:
    """Work out how runs lie in memory, and in words, under a config's tiles, or under one of the whole image.

    Every tile begins where the first does in what a copy moves. Arrays that are not aligned are packed alike.
    """
    nhwc, number = pr.layout_in == "nhwc", DTYPE_BYTES[pr.dtype]
    unit = pr.c if nhwc else 1
    column = unit * number
    step = pr.stride[1] * column
    most = math.gcd(16, pr.w * column)  # pieces lie inside a row of the image or outside
    combine = cf["combine"] if cf else NONE
    if cf and tiles_along(pr, combine, pr.q, pr.y_q, cf["tw"]) > 1:
        most = math.gcd(most, along(pr, combine, cf["tw"])[0] * step)
    copy = most if most >= WORD else number
    first = along(pr, combine, 1)[1] * pr.stride[1] - pr.pad[2]  # column under the first output
    lead = first * column % copy if copy >= WORD else 0  # staged one by one they begin where they are needed
    unaligned = step % WORD > 0
    shift = 0 if unaligned else lead % WORD // number
    if not aligned:
        copy, lead = number, shift * number
    quarters = ceil_div(ceil_div((shift + pr.s * unit) * number, WORD), LANES)
    return Runs(
        1 if nhwc else pr.c, column, step, pr.s * unit, copy, lead, shift, unaligned, quarters
    )  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Sizes that follow from a problem and a config.

    ``pitch``: bytes of a staged row. ``group``: pieces of a product whose channels alternate, in nchw pixels.
    ``turns``: passes of a warp over the tile's pixels. ``x_bytes``, ``w_bytes``: staged by a block.
    ``sum_pitch``: words of a row of sums that wait for the block's pool, 0 where there is none.
    """

    pitch: int
    kb: int
    k_tiles: int
    p_tiles: int
    q_tiles: int
    blocks: int
    group: int
    turns: int
    x_bytes: int
    w_bytes: int
    sum_pitch: int
    shared_bytes: int


def piece(pr: Problem) -> tuple[int, int]:
    """Pixels and channels of a product."""
    return (16, 8) if pr.layout_out == "nhwc" else (8, 16)


def w_registers(pr: Problem) -> int:
    """Registers of a lane that hold the filter, for a piece and a step."""
    return 2 if pr.layout_out == "nhwc" else 4


def group(pr: Problem, cf: Values) -> int:
    """Pieces whose channels, or pixels, alternate: as many as fill what a thread stores at once."""
    pieces = cf["kt"] if pr.layout_out == "nhwc" else cf["pt"]
    return math.gcd(pieces, STORE // DTYPE_BYTES[pr.dtype_out] // 2)


def sizes(pr: Problem, cf: Values) -> Sizes:
    """Work out the sizes of a config."""
    combine, it, (pixels, channels) = cf["combine"], runs(pr, cf), piece(pr)
    rows = (cf["th"] - 1) * pr.stride[0] + (pr.r - 1) * pr.dilation[0] + 1
    need = it.lead + (cf["tw"] - 1) * it.step + LANES * WORD * it.quarters + WORD * it.unaligned
    pitch = round_up(need, 16)
    kb = channels * cf["kt"] * cf["wn"]
    k_tiles = ceil_div(pr.k, kb)
    p_tiles = tiles_along(pr, combine, pr.p, pr.y_p, cf["th"])
    q_tiles = tiles_along(pr, combine, pr.q, pr.y_q, cf["tw"])
    w_bytes = 128 * it.steps(pr) * w_registers(pr) * cf["kt"] * cf["wn"]
    x_bytes = it.planes * rows * pitch
    pixels_of_tile, nhwc = cf["th"] * cf["tw"], pr.layout_out == "nhwc"
    # Whole runs, and four words more: the next row lies in other banks.
    sum_pitch = (kb if nhwc else round_up(pixels_of_tile, LONGEST)) + 4 if pools(pr, combine) else 0
    return Sizes(
        pitch, kb, k_tiles, p_tiles, q_tiles, pr.n * k_tiles * p_tiles * q_tiles, group(pr, cf),
        ceil_div(pixels_of_tile, pixels * cf["pt"] * cf["wm"]), x_bytes, w_bytes, sum_pitch,
        w_bytes * cf["f"] + round_up(x_bytes, 128) + 4 * sum_pitch * (pixels_of_tile if nhwc else kb),
    )  # fmt: skip


def pools(pr: Problem, combine: int) -> bool:
    """Whether a block pools its own sums."""
    return pr.epilogue.pool is not None and combine == NONE


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers a thread needs: sums, the filter's, where it reads, masks, addresses."""
    it = runs(pr, cf)
    halves = piece(pr)[0] // 8
    filter_ = w_registers(pr) * cf["kt"] * (2 if cf["f"] else it.steps(pr))
    return 4 * cf["pt"] * cf["kt"] + filter_ + cf["pt"] * halves * (4 + it.unaligned) + 2 * it.quarters + 36
