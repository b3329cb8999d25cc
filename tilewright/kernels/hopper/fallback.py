"""The last launch of a layer with numbers split into two of f16: strict f32 where that lost too much."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arithmetic import ceil_div
from tilewright.kernels.blueprint import Blueprint, Launch
from tilewright.problem import Problem

# Threads of a block, channels and columns of a tile, terms of a step, steps summed in a partial sum.
_SIZES = dict(THREADS=256, KB=64, COLUMNS=64, DEPTH=16, PARTIAL_STEPS=4)
_SHARED_BYTES = 2 * _SIZES["DEPTH"] * 2 * (_SIZES["COLUMNS"] + 4) * 4  # one step loads, one multiplies


def launch(pr: Problem, units: int, moved: str) -> Launch:
    """Return the launch, of few blocks: mostly they have nothing to do."""
    pool = pr.epilogue.pool
    outs = max(1, _SIZES["COLUMNS"] // (pool.size**2 if pool else 1))
    tiles = pr.groups * ceil_div(pr.kg, _SIZES["KB"]) * ceil_div(pr.n * pr.y_p * pr.y_q, outs)
    return Launch(
        "fallback", (min(units, tiles), 1, 1), (_SIZES["THREADS"], 1, 1), ("x", "w", "bias", "z", "y", moved),
        shared_bytes=_SHARED_BYTES, chained=True,
    )  # fmt: skip


def program(layer: Mapping[str, int], pr: Problem, rows: int, tiles_bytes: int) -> Blueprint:
    """Return its program; ``layer``: the defines of the images, x and the filter.

    The packed filter has ``rows`` rows per group; data about them follow ``tiles_bytes`` bytes of tiles.
    """
    defines = {**layer, **_SIZES, "W_ROWS": rows, "MISFITS_AT": tiles_bytes // 4 + pr.groups * rows}
    return Blueprint("fallback.cu", (*defines.items(), ("SHARED_BYTES", _SHARED_BYTES)), (), packed_bytes=0)


def beside_bytes(pr: Problem, rows: int) -> int:
    """Bytes after the tiles: two words per row, and the original filter in whole pieces of 16 bytes."""
    return 8 * pr.groups * rows + ceil_div(pr.w_bytes, 16) * 16


def chain(pr: Problem) -> int:
    """Length of the longest chain of adds: the terms of a partial sum, then the partial sums."""
    run = _SIZES["PARTIAL_STEPS"] * _SIZES["DEPTH"]
    return run + ceil_div(pr.terms, run)
