"""Sizes of the shifted kernel: its steps, tiles and shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arithmetic import ceil_div, round_up
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.products import in_chunk
from tilewright.kernels.shifted.shape import Shape, columns
from tilewright.kernels.wgmma import ALIGNMENT, BANKS, BARRIER
from tilewright.problem import Problem

PIECE = 16  # bytes


def channels(pr: Problem, chunks: int) -> int:
    """Channels of a run (CHANNELS), of which a row of the filter has ``chunks`` pieces of 16 bytes."""
    return chunks * in_chunk(pr)


def runs(pr: Problem, chunks: int) -> int:
    """Runs of the sum over C (RUNS)."""
    return ceil_div(pr.c, channels(pr, chunks))


def steps(pr: Problem, cf: Values) -> int:
    """Steps of the sum: over a run each (STEPS)."""
    return runs(pr, cf["chunks"]) * pr.r // filter_rows(pr, cf["tall"])


def filter_rows(pr: Problem, tall: int) -> int:
    """Rows of the filter of a step: one, or all where pixels are tall (OF_STEP)."""
    return pr.r if tall > 1 else 1


def image_rows(pr: Problem, tall: int) -> int:
    """Rows of the image that a lane reads in a step, one after the other (ROWS_OF_STEP)."""
    return (tall - 1) * pr.stride[0] + pr.r if tall > 1 else 1


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


@dataclass(frozen=True, kw_only=True)
class ShiftedTiling:
    """Sizes derived from a problem and a config.

    ``w_bytes``, ``x_bytes``: of a step's filters (STEP_BYTES), of a run; ``tile_pitch``: of the tile of sums,
    which overlays these, in numbers; ``x_from``, ``bars_from``: where runs and barriers begin.
    """

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
    w_bytes = bn * PIECE * chunks * pr.s * filter_rows(pr, cf["tall"])
    x_bytes = (1 if shape.across else shape.images) * channels(pr, chunks) * shape.pitch
    tile_pitch = round_up(shape.pixels, 8) + 4  # two channels on, 8 or 24 banks on
    x_from = cf["stages"] * w_bytes
    sums = 0 if cf["stay"] else bn * tile_pitch * 4
    bars_from = round_up(max(x_from + cf["xs"] * x_bytes, sums), BANKS)
    return ShiftedTiling(
        tiles=tiles(pr, cf),
        w_bytes=w_bytes, x_bytes=x_bytes, tile_pitch=tile_pitch, x_from=x_from, bars_from=bars_from,
        shared_bytes=bars_from + 2 * BARRIER * (cf["stages"] + cf["xs"]) + ALIGNMENT,
    )  # fmt: skip
