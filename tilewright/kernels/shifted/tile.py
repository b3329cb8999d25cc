"""Sizes of the shifted kernel: its tiles, shared memory and registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.arithmetic import ceil_div, round_up
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.products import in_chunk
from tilewright.problem import DTYPE_BYTES, Problem

PIECE = 16  # bytes
TEAM = 64  # pixels of a warpgroup
EIGHT = 8  # outputs: parts of a row are a multiple of them
BARRIERS = 16  # bytes of a buffer's two
ALIGNMENT = 1024  # of swizzled rows
WORDS = 4  # registers of a lane's words of a tap of a product
MARGIN = 28  # registers besides those and the sums, and 2 for each column of the filter
APART = 6  # more in tf32, where two pixels are seen apart
KEPT = 4  # more where blocks stay, and their tiles go on across rows
# More where pixels are tall: for words of two bytes or of four; across rows; for each filter column from the
# fourth on; for z; in runs of eight pieces, twice if there is z.
TALL, TALL_TF32, TALL_ACROSS, TALL_WIDE, TALL_Z, TALL_LONG = 16, 8, 4, 18, 8, 24
SENDS, MORE_SENT = 32, 8  # registers of a thread that sends; more where it has more of an image to look after
BANKS = 128  # bytes of a row of all banks
MOST_RUN = 16  # bytes that a thread stores at once


def channels(pr: Problem, chunks: int) -> int:
    """Channels of a run (CHANNELS), of which a row of the filter has ``chunks`` pieces of 16 bytes."""
    return chunks * in_chunk(pr)


def runs(pr: Problem, chunks: int) -> int:
    """Runs of the sum over C."""
    return ceil_div(pr.c, channels(pr, chunks))


def steps(pr: Problem, cf: Values) -> int:
    """Steps of the sum: a row of the filter over a run each, or all rows of it where pixels are tall."""
    return runs(pr, cf["chunks"]) * (pr.r if cf["tall"] == 1 else 1)


def seen(pr: Problem, tall: int) -> int:
    """Rows of the image under the outputs of a pixel (SEEN)."""
    return (tall - 1) * pr.stride[0] + pr.r if tall > 1 else pr.r


def paired(pr: Problem) -> bool:
    """Whether a lane's two pixels are neighbours (PAIRED)."""
    return DTYPE_BYTES[pr.dtype] == 2


def columns(pr: Problem, parts: int) -> int:
    """Outputs of a row that a tile has (COLUMNS), if rows are in ``parts`` parts: all, or a multiple of 8."""
    return pr.q if parts == 1 else round_up(ceil_div(pr.q, parts), EIGHT)


@dataclass(frozen=True)
class Shape:
    """Outputs of a tile: ``rows`` rows of ``columns`` pixels, of ``images`` images.

    A pixel is ``tall`` outputs of a column, one below the other. ``across``: the tile goes on across ends
    of rows and images until its warpgroups are full: a run of pixels.
    """

    problem: Problem
    rows: int
    columns: int
    images: int
    across: bool = False
    tall: int = 1

    @property
    def wide(self) -> int:
        """Pixels from one row of a tile to the next (WIDE)."""
        return round_up(self.columns, 2) if paired(self.problem) else self.columns

    @property
    def pixels(self) -> int:
        """Pixels of a tile, those between its rows among them (TILE_PIXELS)."""
        pixels = self.images * self.rows * self.wide
        return round_up(pixels, TEAM) if self.across else pixels

    @property
    def p_rows(self) -> int:
        """Rows of pixels of an image (P_ROWS)."""
        return ceil_div(self.problem.p, self.tall)

    @property
    def of_image(self) -> int:
        """Pixels from one image to the next (PIXELS): of the tile, or of a run of them all."""
        return (self.p_rows if self.across else self.rows) * self.wide

    @property
    def teams(self) -> int:
        """Warpgroups that multiply (TEAMS)."""
        return ceil_div(self.pixels, TEAM)

    @property
    def threads(self) -> int:
        """Threads of a block: those that multiply, and a warpgroup that sends."""
        return 128 * (self.teams + 1)

    @property
    def places(self) -> int:
        """How many tiles there are of an output channel."""
        pr = self.problem
        if self.across:
            return ceil_div(pr.n * self.of_image, self.pixels)
        return ceil_div(pr.n, self.images) * ceil_div(self.p_rows, self.rows) * ceil_div(pr.q, self.columns)

    @property
    def met_images(self) -> int:
        """Images that a tile has some of, at most (IMAGES)."""
        return min(self.problem.n, _met(self.pixels, self.of_image)) if self.across else self.images

    @property
    def under(self) -> int:
        """Rows of the image under those of the tile, from the first to the last."""
        pr = self.problem
        return (self.rows * self.tall - 1) * pr.stride[0] + (pr.r - 1) * pr.dilation[0] + 1

    @property
    def span(self) -> int:
        """Columns of the image under those of the tile, from the first to the last (SPAN_COLUMNS)."""
        pr = self.problem
        return (self.columns - 1) * pr.stride[1] + (pr.s - 1) * pr.dilation[1] + 1

    @property
    def split(self) -> bool:
        """Whether a piece of each row comes by itself (SPLIT): of parts of rows that begin at pieces."""
        return self.columns < self.problem.q and self.problem.w % in_chunk(self.problem) == 0

    @property
    def row_w(self) -> int:
        """Numbers from one row of the image to the next in shared memory (ROW_W)."""
        each = in_chunk(self.problem)
        return (self.span + 2 * (each - 1)) // each * each if self.split else self.problem.w

    @property
    def patch(self) -> int:
        """Numbers of a plane, or of several images', from the first that a tile's taps read to the last."""
        pr, padded = self.problem, in_chunk(self.problem) - 1
        up_h, of_row = pr.stride[0], (pr.r - 1) * pr.dilation[0] * self.row_w + self.span
        if not self.across:
            return (self.rows * self.tall - 1) * up_h * self.row_w + of_row
        rows = _met(self.pixels, self.wide) * self.tall
        return max((rows - images) * up_h * pr.w + images * (of_row + 2 * padded)
                   for images in (1, self.met_images))  # fmt: skip

    @property
    def pitch(self) -> int:
        """Bytes from a plane of a run to the next (PITCH), where four lanes' channels are in different banks.

        These are two planes apart, or one in tf32, and so 32 bytes at least: eight pixels of tf32, or eight
        of f16 and the numbers between them where a stride leaves those out.
        """
        size = DTYPE_BYTES[self.problem.dtype]
        odd = BANKS // 4 * size // 4  # 16 bytes, or 32 of tf32: an odd multiple of it
        found = round_up((self.patch + in_chunk(self.problem) - 1) * size, odd)
        return found if found // odd % 2 else found + odd

    @property
    def outputs(self) -> int:
        """Outputs of a tile, if it is in the middle of all."""
        return self.tall * (self.pixels if self.across else self.images * self.rows * self.columns)

    @property
    def sent(self) -> float:
        """Bytes of a channel that a tile is sent, in the mean."""
        pr = self.problem
        if not self.across:
            return self.images * self.pitch
        under = self.pixels / self.wide * self.tall * pr.stride[0]  # rows
        beside = (1 + self.pixels / self.of_image) * (pr.r - 1) * pr.dilation[0]
        return min(self.pitch, (under + beside) * pr.w * DTYPE_BYTES[pr.dtype])

    @property
    def meets_image(self) -> bool:
        """Whether every tile reads some of a plane, of which it copies a piece."""
        pr = self.problem
        (up_h, up_w), (top, _, left, _) = pr.stride, pr.pad
        if self.across:  # so does every row
            return (pr.r - 1) * pr.dilation[0] >= top and (self.p_rows - 1) * self.tall * up_h - top < pr.h

        last_row, last_column = (
            (ceil_div(size, of_tile) - 1) * of_tile * up - before
            for size, of_tile, up, before in (
                (self.p_rows, self.rows, self.tall * up_h, top), (pr.q, self.columns, up_w, left))
        )  # fmt: skip
        if self.split:
            return self.span > left and last_column < pr.w and self.under > top and last_row < pr.h
        return self.patch > top * pr.w + left and last_row * pr.w + last_column < pr.h * pr.w

    @property
    def run_out(self) -> int:
        """Neighbouring pixels that a thread stores at once (RUN_OUT): of a tile, wherever it begins."""
        pr = self.problem
        if self.wide != self.columns:
            return 1
        most = MOST_RUN // DTYPE_BYTES[pr.dtype_out]
        whole = self.pixels if self.across else self.rows * pr.q
        begins = whole if self.columns == pr.q else gcd(pr.q, self.columns)
        return gcd(gcd(pr.p * pr.q, begins), most)


def _met(run: int, length: int) -> int:
    """Pieces of ``length`` that a run has some of, at most: runs follow each other, as pieces do."""
    return (length - gcd(length, run) + run - 1) // length + 1


def shape_of(pr: Problem, cf: Values) -> Shape:
    """Return the outputs of a config's tiles."""
    return Shape(pr, cf["rows"], columns(pr, cf["parts"]), cf["ni"], bool(cf["across"]), cf["tall"])


def k_tiles(pr: Problem, cf: Values) -> int:
    """Tiles of the output channels (K_TILES)."""
    return ceil_div(pr.k, cf["bn"])


def tiles(pr: Problem, cf: Values) -> int:
    """All tiles of outputs (TILES)."""
    return shape_of(pr, cf).places * k_tiles(pr, cf)


def blocks(pr: Problem, device: Device, cf: Values) -> int:
    """Blocks of the launch; of those that stay each has tiles of the same channels."""
    if not cf["stay"]:
        return tiles(pr, cf) * cf["sc"]
    of_channels = k_tiles(pr, cf)
    return min(tiles(pr, cf), device.units * cf["mb"] // of_channels * of_channels)


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers of a thread that multiplies."""
    beside = MARGIN + 2 * pr.s + (0 if paired(pr) else APART)
    beside += KEPT if cf["across"] and cf["stay"] else 0
    if cf["tall"] > 1:
        beside += (TALL if paired(pr) else TALL_TF32) + TALL_ACROSS * cf["across"]
        beside += TALL_WIDE * max(0, pr.s - 3) + TALL_Z * pr.epilogue.add
        beside += TALL_LONG * (1 + pr.epilogue.add) * (cf["chunks"] == 8)
    return cf["tall"] * cf["bn"] // 2 + cf["sets"] * WORDS * pr.s + beside


def registers_to_send(pr: Problem, cf: Values) -> int:
    """Registers that a thread which sends keeps, if it hands others on."""
    if not cf["across"]:
        return SENDS
    fewer = pr.c % channels(pr, cf["chunks"]) > 0  # channels of the last run
    return SENDS + MORE_SENT * (fewer + max(0, shape_of(pr, cf).met_images - 2))


def registers_to_store(cf: Values) -> int:
    """Estimate of the registers of a thread that adds up the shares of a cluster."""
    return 60 + 4 * cf["sc"]


@dataclass(frozen=True, kw_only=True)
class ShiftedTiling:
    """Sizes derived from a problem and a config.

    ``w_bytes``, ``x_bytes``: of a step's filters, of a run; ``tile_pitch``: of the tile of sums, which
    overlays these, in numbers; ``x_from``, ``bars_from``: where runs and barriers begin.
    """

    k_tiles: int
    tiles: int
    w_bytes: int
    x_bytes: int
    tile_pitch: int
    x_from: int
    bars_from: int
    shared_bytes: int


def tiling_of(pr: Problem, cf: Values) -> ShiftedTiling:
    """Return the tiling of a config."""
    shape, bn, chunks = shape_of(pr, cf), cf["bn"], cf["chunks"]
    w_bytes = bn * PIECE * chunks * pr.s * (pr.r if cf["tall"] > 1 else 1)
    x_bytes = (1 if shape.across else shape.images) * channels(pr, chunks) * shape.pitch
    tile_pitch = round_up(shape.pixels, 8) + 4  # two channels on, 8 or 24 banks on
    x_from = cf["stages"] * w_bytes
    sums = 0 if cf["stay"] else bn * tile_pitch * 4
    bars_from = round_up(max(x_from + cf["xs"] * x_bytes, sums), BANKS)
    return ShiftedTiling(
        k_tiles=k_tiles(pr, cf), tiles=tiles(pr, cf),
        w_bytes=w_bytes, x_bytes=x_bytes, tile_pitch=tile_pitch, x_from=x_from, bars_from=bars_from,
        shared_bytes=bars_from + BARRIERS * (cf["stages"] + cf["xs"]) + ALIGNMENT,
    )  # fmt: skip
