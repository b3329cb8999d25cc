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


def columns(pr: Problem, parts: int) -> int:
    """Outputs of a row that a tile has (COLUMNS), if rows are in ``parts`` parts: all, or a multiple of 8."""
    return pr.q if parts == 1 else round_up(ceil_div(pr.q, parts), EIGHT)


@dataclass(frozen=True)
class Shape:
    """Outputs of a tile: ``rows`` rows of ``columns`` outputs, of ``images`` images."""

    problem: Problem
    rows: int
    columns: int
    images: int

    @property
    def wide(self) -> int:
        """Pixels from one row of a tile to the next (WIDE)."""
        return round_up(self.columns, 2) if paired(self.problem) else self.columns

    @property
    def pixels(self) -> int:
        """Pixels of a tile, those between its rows among them (TILE_PIXELS)."""
        return self.images * self.rows * self.wide

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
        return ceil_div(pr.n, self.images) * ceil_div(pr.p, self.rows) * ceil_div(pr.q, self.columns)

    @property
    def patch(self) -> int:
        """Numbers of a plane from the first that a tile's taps read to the last."""
        pr = self.problem
        (up_h, up_w), (apart_h, apart_w) = pr.stride, pr.dilation
        down = (self.rows - 1) * up_h + (pr.r - 1) * apart_h
        return down * pr.w + (self.columns - 1) * up_w + (pr.s - 1) * apart_w + 1

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
    def meets_image(self) -> bool:
        """Whether every tile reads some of a plane, of which it copies a piece."""
        pr = self.problem

        def start(p: int, q: int) -> int:
            return (p * pr.stride[0] - pr.pad[0]) * pr.w + q * pr.stride[1] - pr.pad[2]

        last = start(*((ceil_div(size, of_tile) - 1) * of_tile
                       for size, of_tile in ((pr.p, self.rows), (pr.q, self.columns))))  # fmt: skip
        lead = in_chunk(pr) - 1  # at most
        return start(0, 0) - lead + self.pitch // DTYPE_BYTES[pr.dtype] > 0 and last < pr.h * pr.w

    @property
    def run_out(self) -> int:
        """Neighbouring pixels that a thread stores at once (RUN_OUT): of a tile, wherever it begins."""
        pr = self.problem
        if self.wide != self.columns:
            return 1
        most = MOST_RUN // DTYPE_BYTES[pr.dtype_out]
        begins = self.rows * pr.q if self.columns == pr.q else gcd(pr.q, self.columns)
        return gcd(gcd(pr.p * pr.q, begins), most)


def shape_of(pr: Problem, cf: Values) -> Shape:
    """Return the outputs of a config's tiles."""
    return Shape(pr, cf["rows"], columns(pr, cf["parts"]), cf["ni"])


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
    return cf["bn"] // 2 + cf["sets"] * WORDS * pr.s + beside


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
    w_bytes = bn * PIECE * chunks * pr.s
    x_bytes = shape.images * channels(pr, chunks) * shape.pitch
    tile_pitch = round_up(shape.pixels, 8) + 4  # two channels on, 8 or 24 banks on
    x_from = cf["stages"] * w_bytes
    sums = 0 if cf["stay"] else bn * tile_pitch * 4
    bars_from = round_up(max(x_from + cf["xs"] * x_bytes, sums), BANKS)
    return ShiftedTiling(
        k_tiles=k_tiles(pr, cf), tiles=tiles(pr, cf),
        w_bytes=w_bytes, x_bytes=x_bytes, tile_pitch=tile_pitch, x_from=x_from, bars_from=bars_from,
        shared_bytes=bars_from + BARRIERS * (cf["stages"] + cf["xs"]) + ALIGNMENT,
    )  # fmt: skip
