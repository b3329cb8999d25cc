"""Who finishes the sums of a tile and stores them, how, and how many at once."""

from __future__ import annotations

from math import gcd

from tilewright.kernels.family import Values
from tilewright.kernels.hopper.raster import in_pieces, lines
from tilewright.kernels.tile import LAST, TWO_PASS
from tilewright.problem import DTYPE_BYTES, Problem

BY_TILE, OWN, MET = range(3)  # all threads, those who have the sums, the blocks of a cluster
STORE_WORDS, STORE_ROWS, STORE_PLANES = range(3)  # how those who have the sums store them (hopper_own.h)
FEW_MET = 12  # pixels of a warpgroup for each block of its cluster: 1.5 times four sums a thread (measured)
MOST_RUN = 8  # outputs that a thread finishes at once


def out_bytes(pr: Problem, cf: Values) -> int:
    """Bytes of what the kernel stores for an output: of y, or of a partial sum."""
    return 4 if cf["combine"] == TWO_PASS else DTYPE_BYTES[pr.dtype_out]


def run(pr: Problem, cf: Values) -> int:
    """Neighbours in y that a thread finishes at once: of nhwc 16 bytes, or what all pixels are aligned to."""
    if pr.layout_out != "nhwc":
        return 1
    return gcd(pr.kg, min(MOST_RUN, 16 // out_bytes(pr, cf)))


def finish(pr: Problem, cf: Values, aligned: bool = True) -> int:
    """Say who finishes sums and stores them.

    - OWN: each warp stores its own sums, or those that warps of the same pixels hand each other. Without a
      pool, with whole and aligned pieces of 16 bytes; in nchw outputs of 2 bytes. A residual comes as y goes,
      so it has y's type: not where y is requantised.
    - MET: each block of a cluster finishes some of the cluster's pixels, where these are few for a thread;
      of nhwc.
    - BY_TILE: everything else. All threads store, from a tile of sums in shared memory.
    """
    here, nhwc = cf["combine"] != TWO_PASS, pr.layout_out == "nhwc"
    if cf["combine"] == LAST or (here and pr.epilogue.pool):
        return BY_TILE
    if cf["sc"] > 1:
        return MET if nhwc and cf["bn"] <= FEW_MET * cf["sc"] else BY_TILE
    size = out_bytes(pr, cf)
    whole = pr.kg % max(8, 16 // size) == 0 if nhwc else here and _whole_rows(pr, cf)
    return OWN if aligned and whole and not (here and pr.epilogue.add and pr.requantised) else BY_TILE


def stores(pr: Problem, cf: Values) -> int:
    """Say how those who have the sums (OWN) store them: hopper_own.h has the ways."""
    if pr.layout_out == "nchw":
        return STORE_PLANES
    return STORE_WORDS if out_bytes(pr, cf) == 4 else STORE_ROWS


def brings_residual(pr: Problem, cf: Values) -> bool:
    """Whether those who have the sums (OWN) have rows of the residual copied while they multiply."""
    return pr.epilogue.add and stores(pr, cf) == STORE_ROWS and finish(pr, cf) == OWN


def paired(pr: Problem, cf: Values) -> bool:
    """Whether a thread's two rows of the product are neighbouring channels, by the order in the filter.

    Where it stores them so. Not numbers of 2 bytes that go by way of rows in shared memory: a transposing
    store of whole matrices is faster there.
    """
    who = finish(pr, cf)
    return who == MET or (who == OWN and pr.layout_out == "nhwc" and out_bytes(pr, cf) != 2)


def _whole_rows(pr: Problem, cf: Values) -> bool:
    """Whether 8 pixels of the raster, from a multiple of 8 on, are 16 bytes side by side in nchw."""
    view, _, columns = lines(pr, cf["x"], cf["bn"])
    return in_pieces(pr, view) and bool(cf["tall"] or columns.extent % 8 == 0)
