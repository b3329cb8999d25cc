"""Sizes of the planar kernel: its tiles, shared memory and registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.family import Values
from tilewright.kernels.products import paired
from tilewright.kernels.wgmma import ALIGNMENT, BANKS, BARRIER, SUM_BYTES, TEAM
from tilewright.problem import DTYPE_BYTES, Problem

ROW = 128  # bytes of the filter's row in a step, which wgmma swizzles
BESIDE = 16  # bytes that lanes may read past the last plane
FRAGMENTS = 16  # registers of a lane's words of a step
MARGIN = 28  # registers besides those and the sums
APART = 10  # more in tf32, where two pixels are seen apart, and
APART_SHARES = 6  # where shares meet


def plane(pr: Problem) -> int:
    """Pixels of a plane (HW)."""
    return pr.h * pr.w


def of_step(pr: Problem) -> int:
    """Channels of a step (OF_STEP)."""
    return ROW // DTYPE_BYTES[pr.dtype]


def steps(pr: Problem) -> int:
    """Steps of the sum over C (STEPS)."""
    return ceil_div(pr.c, of_step(pr))


def teams(pr: Problem, ni: int) -> int:
    """Warpgroups that multiply (TEAMS): of whole pairs of pixels, where there are pairs."""
    return ceil_div(ni * (round_up(plane(pr), 2) if paired(pr) else plane(pr)), TEAM)


def threads(pr: Problem, ni: int, sender: int) -> int:
    """Threads of a block: those that multiply, and a warp that only sends, if there is one."""
    return 128 * teams(pr, ni) + 32 * sender


def tiles_of(pr: Problem, cf: Values) -> int:
    """Tiles of outputs (TILES)."""
    return ceil_div(pr.n, cf["ni"]) * ceil_div(pr.k, cf["bn"])


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers a thread needs."""
    apart = 0 if paired(pr) else APART + APART_SHARES * (cf["sc"] > 1)
    return cf["bn"] // 2 + cf["sets"] * FRAGMENTS + MARGIN + apart


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
    w_bytes = bn * ROW
    x_bytes = round_up(ni * ROW * plane(pr) + BESIDE, BANKS)
    tile_bytes = ni * bn * plane(pr) * (SUM_BYTES if sc > 1 else DTYPE_BYTES[pr.dtype_out])
    tiles, buffers = tiles_of(pr, cf), stages * (w_bytes + x_bytes)
    tile_from = buffers if cf["turns"] > 1 else 0
    bars_from = round_up(max(buffers, tile_from + tile_bytes), BANKS)
    return PlanarTiling(
        k_tiles=k_tiles, tiles=tiles, blocks=ceil_div(tiles, cf["turns"]) * sc, w_bytes=w_bytes,
        x_bytes=x_bytes, x_from=stages * w_bytes, tile_from=tile_from, bars_from=bars_from,
        shared_bytes=bars_from + 2 * BARRIER * stages + ALIGNMENT,
    )  # fmt: skip
