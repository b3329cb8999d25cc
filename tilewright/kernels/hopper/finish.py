"""Who finishes the sums of a tile and stores them, and how many at once."""

from __future__ import annotations

from math import gcd

from tilewright.kernels.family import Values
from tilewright.kernels.hopper.raster import in_pieces, lines
from tilewright.kernels.tile import LAST, TWO_PASS
from tilewright.problem import DTYPE_BYTES, Problem

BY_TILE, OWN, MET = range(3)  # all threads, those who have the sums, the blocks of a cluster
FEW_MET = 12  # pixels of a warpgroup for each block of its cluster: 1.5 times four sums a thread (measured)


def run(pr: Problem, cf: Values) -> int:
    """Neighbours in y that a thread finishes at once: of nhwc 16 bytes, or what all pixels are aligned to."""
    if pr.layout_out != "nhwc":
        return 1
    most = 16 // (4 if cf["combine"] == TWO_PASS else DTYPE_BYTES[pr.dtype_out])
    return gcd(pr.kg, most)


def finish(pr: Problem, cf: Values, aligned: bool = True) -> int:
    """Say who finishes sums and stores them.

    - OWN: each warp stores its own sums. Without a pool, with whole and aligned pieces of 16 bytes, and
      without a residual, which would be read 2 bytes at a time; in nchw outputs of 2 bytes.
    - MET: each block of a cluster finishes some of the cluster's pixels, where these are few for a thread;
      of nhwc.
    - BY_TILE: everything else. All threads store, from a tile of sums in shared memory.
    """
    here, nhwc = cf["combine"] != TWO_PASS, pr.layout_out == "nhwc"
    if cf["combine"] == LAST or (here and pr.epilogue.pool):
        return BY_TILE
    if cf["sc"] > 1:
        return MET if nhwc and cf["bn"] <= FEW_MET * cf["sc"] else BY_TILE
    whole = pr.kg % 8 == 0 if nhwc else here and _whole_rows(pr, cf)
    return OWN if aligned and whole and not (here and pr.epilogue.add) else BY_TILE


def _whole_rows(pr: Problem, cf: Values) -> bool:
    """Whether 8 pixels of the raster, from a multiple of 8 on, are 16 bytes side by side in nchw."""
    view, _, columns = lines(pr, cf["x"], cf["bn"])
    return in_pieces(pr, view) and bool(cf["tall"] or columns.extent % 8 == 0)
