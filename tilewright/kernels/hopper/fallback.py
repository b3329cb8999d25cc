"""The last launch of a layer whose numbers were split in two of f16: strict f32, where that lost too much."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arithmetic import ceil_div
from tilewright.kernels.family import Blueprint, Launch
from tilewright.problem import Problem

# Threads of a block, channels and sums of a tile, terms of a step, steps that are added up by themselves.
_SIZES = dict(THREADS=256, KB=64, COLUMNS=64, DEPTH=16, PARTIAL_STEPS=4)
_SHARED_BYTES = 2 * _SIZES["DEPTH"] * 2 * (_SIZES["COLUMNS"] + 4) * 4  # one step comes, one is multiplied


def launch(pr: Problem, units: int, moved: str) -> Launch:
    """Return the launch, of few blocks: most of the time they find nothing to do."""
    pool = pr.epilogue.pool
    outs = max(1, _SIZES["COLUMNS"] // (pool.size**2 if pool else 1))
    tiles = pr.groups * ceil_div(pr.kg, _SIZES["KB"]) * ceil_div(pr.n * pr.y_p * pr.y_q, outs)
    return Launch(
        "fallback", (min(units, tiles), 1, 1), (_SIZES["THREADS"], 1, 1), ("x", "w", "bias", "z", "y", moved),
        shared_bytes=_SHARED_BYTES, chained=True,
    )  # fmt: skip


def program(layer: Mapping[str, int], pr: Problem, rows: int, tiles_bytes: int) -> Blueprint:
    """Return its program: ``layer`` spells out images, x and the filter.

    Packed, a group has so many rows; what was found of them lies behind so many bytes of tiles.
    """
    defines = {**layer, **_SIZES, "W_ROWS": rows, "MISFITS_AT": tiles_bytes // 4 + pr.groups * rows}
    return Blueprint("fallback.cu", (*defines.items(), ("SHARED_BYTES", _SHARED_BYTES)), (), packed_bytes=0)


def beside_bytes(pr: Problem, rows: int) -> int:
    """Bytes behind the tiles: two words for each row, and the filter as it was; whole pieces of 16."""
    return 8 * pr.groups * rows + ceil_div(pr.w_bytes, 16) * 16


def chain(pr: Problem) -> int:
    """Length of the longest chain of adds: a run of terms, then the runs."""
    run = _SIZES["PARTIAL_STEPS"] * _SIZES["DEPTH"]
    return run + ceil_div(pr.cg * pr.r * pr.s, run)
