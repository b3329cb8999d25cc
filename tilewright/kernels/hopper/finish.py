"""Which threads finish the sums of a tile and store them, how, and how many at once."""

from __future__ import annotations

from math import gcd

from tilewright.kernels.family import Values
from tilewright.kernels.hopper.raster import in_pieces, raster_of
from tilewright.kernels.split_k import stored_bytes
from tilewright.kernels.tile import LAST, TWO_PASS
from tilewright.problem import Problem

BY_TILE, OWN, MET = range(3)  # all threads, the warps that own the sums, the blocks of a cluster
STORE_WORDS, STORE_ROWS, STORE_PLANES = range(3)  # how warps store their own sums (hopper_own.h)
FEW_MET = 12  # pixels of a warpgroup per block of its cluster: 1.5 times four sums per thread (measured)
MOST_RUN = 8  # outputs that a thread finishes at once


def run(pr: Problem, cf: Values) -> int:
    """Contiguous outputs that a thread finishes at once: in nhwc 16 bytes, or fewer that divide kg."""
    if pr.layout_out != "nhwc":
        return 1
    return gcd(pr.kg, min(MOST_RUN, 16 // stored_bytes(pr, cf["combine"])))


def finish(pr: Problem, cf: Values, aligned: bool = True) -> int:
    """Return which threads finish sums and store them.

    - OWN: each warp stores its own sums, or those that warps of the same pixels exchange. Without a pool, in
      whole and aligned pieces of 16 bytes; in nchw outputs of 2 bytes. A residual is loaded in the way that
      y is stored, so it must have y's type: not if y is requantised.
    - MET: each block of a cluster finishes some of its pixels, if there are few per thread; in nhwc.
    - BY_TILE: everything else. All threads store, from a tile of sums in shared memory.
    """
    here, nhwc = cf["combine"] != TWO_PASS, pr.layout_out == "nhwc"
    if cf["combine"] == LAST or (here and pr.epilogue.pool):
        return BY_TILE
    if cf["sc"] > 1:
        return MET if nhwc and cf["bn"] <= FEW_MET * cf["sc"] else BY_TILE
    size = stored_bytes(pr, cf["combine"])
    whole = pr.kg % max(8, 16 // size) == 0 if nhwc else here and _whole_rows(pr, cf)
    return OWN if aligned and whole and not (here and pr.epilogue.add and pr.requantised) else BY_TILE


def stores(pr: Problem, cf: Values) -> int:
    """Return how warps store their own sums (OWN): hopper_own.h has the ways."""
    if pr.layout_out == "nchw":
        return STORE_PLANES
    return STORE_WORDS if stored_bytes(pr, cf["combine"]) == 4 else STORE_ROWS


def brings_residual(pr: Problem, cf: Values) -> bool:
    """Whether rows of the residual are copied during the main loop, for warps that store their own sums."""
    return pr.epilogue.add and stores(pr, cf) == STORE_ROWS and finish(pr, cf) == OWN


def paired(pr: Problem, cf: Values) -> bool:
    """Whether the filter is ordered so that a thread's two rows of the product are neighbouring channels.

    It is where a thread stores them together. Not for numbers of 2 bytes that go through rows in shared
    memory: a transposing store of whole matrices is faster there.
    """
    who = finish(pr, cf)
    return who == MET or (who == OWN and pr.layout_out == "nhwc" and stored_bytes(pr, cf["combine"]) != 2)


def _whole_rows(pr: Problem, cf: Values) -> bool:
    """Whether 8 pixels of the raster, from a multiple of 8 on, are 16 contiguous bytes in nchw."""
    raster = raster_of(pr, cf["x"], cf["bn"])
    return in_pieces(pr, raster.view) and bool(cf["tall"] or raster.columns.extent % 8 == 0)
