"""Sizes of the planar kernel: its tiles, shared memory and registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.family import Values
from tilewright.problem import Problem

STEP = 64  # channels: a row of the filter is 128 bytes, which wgmma swizzles
BYTES = 2  # of a number
SUM_BYTES = 4
PAIRS = 32  # pairs of pixels of a warpgroup
LINE = 128  # bytes to which planes of a step are rounded up
BESIDE = 16  # bytes that lanes may read past the last plane
BARRIERS = 16  # bytes of a step's two
ALIGNMENT = 1024  # of swizzled rows
FRAGMENTS = 16  # registers of a lane's words of a step
MARGIN = 28  # registers besides those and the sums


def plane(pr: Problem) -> int:
    """Pixels of a plane (HW)."""
    return pr.h * pr.w


def steps(pr: Problem) -> int:
    """Steps of the sum over C."""
    return ceil_div(pr.c, STEP)


def teams(pr: Problem, ni: int) -> int:
    """Warpgroups that multiply (TEAMS): of whole pairs of pixels."""
    return ceil_div(ni * ceil_div(plane(pr), 2), PAIRS)


def threads(pr: Problem, ni: int, sender: int) -> int:
    """Threads of a block: those that multiply, and a warp that only sends, if there is one."""
    return 128 * teams(pr, ni) + 32 * sender


def tiles_of(pr: Problem, cf: Values) -> int:
    """Tiles of outputs."""
    return ceil_div(pr.n, cf["ni"]) * ceil_div(pr.k, cf["bn"])


def registers(cf: Values) -> int:
    """Estimate of the registers a thread needs."""
    return cf["bn"] // 2 + cf["sets"] * FRAGMENTS + MARGIN


@dataclass(frozen=True, kw_only=True)
class PlanarTiling:
    """Sizes derived from a problem and a config.

    ``w_bytes``, ``x_bytes``: of a step. ``x_from``, ``tile_from``, ``bars_from``: where planes, the tile and
    barriers begin. The tile holds outputs, or sums of a share, and overlays steps unless a block has several
    tiles.
    """

    k_tiles: int
    tiles: int
    blocks: int
    w_bytes: int
    x_bytes: int
    x_from: int
    tile_from: int
    bars_from: int
    shared_bytes: int


def tiling_of(pr: Problem, cf: Values) -> PlanarTiling:
    """Return the tiling of a config."""
    ni, bn, stages, sc = cf["ni"], cf["bn"], cf["stages"], cf["sc"]
    k_tiles = ceil_div(pr.k, bn)
    w_bytes = bn * STEP * BYTES
    x_bytes = round_up(ni * STEP * plane(pr) * BYTES + BESIDE, LINE)
    tile_bytes = ni * bn * plane(pr) * (SUM_BYTES if sc > 1 else BYTES)
    tiles, buffers = tiles_of(pr, cf), stages * (w_bytes + x_bytes)
    tile_from = buffers if cf["turns"] > 1 else 0
    bars_from = round_up(max(buffers, tile_from + tile_bytes), LINE)
    return PlanarTiling(
        k_tiles=k_tiles, tiles=tiles, blocks=ceil_div(tiles, cf["turns"]) * sc, w_bytes=w_bytes,
        x_bytes=x_bytes, x_from=stages * w_bytes, tile_from=tile_from, bars_from=bars_from,
        shared_bytes=bars_from + BARRIERS * stages + ALIGNMENT,
    )  # fmt: skip
