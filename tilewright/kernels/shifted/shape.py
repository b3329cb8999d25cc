"""Shapes of the shifted kernel's tiles: which outputs a block has, and what of the image is under them."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.products import in_chunk, paired
from tilewright.kernels.wgmma import BANKS, TEAM
from tilewright.problem import DTYPE_BYTES, Problem

EIGHT = 8  # outputs: parts of a row are a multiple of them
MOST_RUN = 16  # bytes that a thread stores at once


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
