"""The layout of a block's shared memory, defined here only; the kernel has defines of the same names.

::

    0             filters: STAGES * BATCH tiles of W_BYTES      at the end overlaid by the tile of sums,
    X_FROM        patches: X_STAGES of X_BYTES                  [SLOW][PITCH] of 4 bytes, or rows of pixels
    RAW_FROM      channels of nchw as they are, before they are transposed
    TABLE_FROM    positions in x of a patch's places, or in a patch of pixels to be transposed; not if mapped
    OUTS_FROM     positions of outputs in y, unless blocks are persistent
    OWN_FROM      rows or tables of warps that store while buffers are filled (persistent blocks), or that
                  have a residual copied by then
    MEET_FROM     partial sums from the shares of a cluster, for this block's rows or pairs of pixels
    EDGES_FROM    sums of the first and last column of each team, if they slide (hopper_slide.h)
    BARS_FROM     barriers
    SHARED_END

If numbers are split, a tile of filters and a patch have two parts each: the high parts, then the low parts.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.family import Values
from tilewright.kernels.hopper.finish import BY_TILE, MET, OWN, STORE_WORDS, brings_residual, stores
from tilewright.kernels.hopper.image import SWIZZLED, image_of, joint
from tilewright.kernels.hopper.raster import SEGMENT, places_of, raw_stages_of, segments_of
from tilewright.kernels.hopper.sum import parts_of
from tilewright.kernels.hopper.ways import SLID
from tilewright.kernels.split_k import stored_bytes
from tilewright.kernels.wgmma import ALIGNMENT, BARRIER
from tilewright.problem import Problem

OWN_ROWS = 32  # pixels that warps store at once while buffers are filled
OWN_PIXELS = 64  # pixels of a channel that a warp stores at once in nchw
WARP_CHANNELS = 16
DUMP = 4  # extra entries of a table, 16 bytes, for pixels that are no place of a patch


class Layout(NamedTuple):
    """Offsets in shared memory and sizes of what lies there, in bytes unless stated otherwise.

    Attributes:
        w_bytes, x_bytes: of a tile of filters, of a patch, with low parts.
        x_next: from a piece of a place in a patch to its next piece, if pieces lie apart.
        x_stages: patches that there is room for.
        x_bars: pairs of barriers for them; 0 if patches share the barriers of their filters.
        kt: channels of the tile of sums; the elements of its side ``fast`` are contiguous.
        pitch: numbers from one row of the tile of sums to the next, without bank conflicts in a warp.
        own_rows: pixels of a team that warps store at once, if they store their own sums.
        own_pitch: from one of these to the next: 8 of them are in different banks. In nchw from one of a
            warp's channels to the next.
        mine: rows of the tile of sums that a block of a cluster finishes.
        pairs: pairs of pixels that it finishes (MET).
        segments: segments of pixels of a patch that are transposed; 0 if none are.
        raw_stages: patches that there is room for before they are transposed.
    """

    w_bytes: int
    x_bytes: int
    x_next: int
    x_stages: int
    x_bars: int
    kt: int
    fast: int
    slow: int
    pitch: int
    own_rows: int
    own_pitch: int
    mine: int
    pairs: int
    segments: int
    raw_stages: int
    x_from: int
    raw_from: int
    table_from: int
    outs_from: int
    own_from: int
    meet_from: int
    edges_from: int
    bars_from: int
    shared_end: int

    def defines(self) -> Values:
        """Return the kernel's defines: ``X_FROM`` for ``x_from``."""
        return {name.upper(): value for name, value in self._asdict().items()}


def filter_bytes(pr: Problem, cf: Values) -> int:
    """Bytes of a tile of filters, with low parts."""
    return 16 * 64 * cf["wm"] * cf["chunks"] * parts_of(pr)


def _own_rows(pr: Problem, cf: Values, few: bool) -> tuple[int, int, int]:
    """Rows through which warps store their own sums: how many at once, the pitch of one, bytes of all."""
    size = stored_bytes(pr, cf["combine"])
    of_matrices = 32 // size  # pixels that a warp writes there at once
    rows = round_up(cf["bn"], of_matrices)
    if pr.layout_out == "nchw":
        rows = min(rows, OWN_PIXELS)
        pitch = 2 * rows + 16
        return rows, pitch, 4 * cf["wm"] * cf["wn"] * WARP_CHANNELS * pitch
    rows, pitch = min(rows, OWN_ROWS) if few else rows, size * 64 * cf["wm"] + 16
    return rows, pitch, 0 if stores(pr, cf) == STORE_WORDS else cf["wn"] * rows * pitch


def layout(pr: Problem, cf: Values, stays: bool, who: int | None = None) -> Layout:
    """Lay out a block's shared memory; ``stays``: it is persistent; ``who``: finishes sums (None: any)."""
    kb, nb, sc, parts = 64 * cf["wm"], cf["bn"] * cf["wn"], cf["sc"], parts_of(pr)
    image, places = image_of(pr, cf), places_of(pr, cf)
    # filters and patches
    w_bytes = filter_bytes(pr, cf)
    x_next = 16 * places + 16  # 16 more: pieces of one place lie in different banks
    x_bytes = (16 * places if cf["pieces"] == SWIZZLED else x_next) * cf["chunks"] * parts
    x_stages, x_bars = (cf["stages"] * cf["batch"], 0) if joint(pr, cf["x"], image) else (cf["xs"], cf["xs"])

    # the tile of sums; or rows of pixels, and their tables
    kt = min(kb, round_up(pr.kg, 8))
    slow, fast, pitch = (nb, kt, kt + 4) if pr.layout_out == "nhwc" else (kt, nb, nb + (40 - nb % 32) % 32)
    brings = who in (None, OWN) and brings_residual(pr, cf)
    own_rows, own_pitch, rows_bytes = _own_rows(pr, cf, few=stays and not brings)
    tables_bytes = 16 * cf["wm"] * nb  # one for each warp
    own_bytes = tables_bytes if stores(pr, cf) == STORE_WORDS else rows_bytes

    # partial sums of this block's outputs, from the shares of a cluster
    mine, pairs = ceil_div(slow, sc), ceil_div(nb // 2, sc)
    shares = {MET: 8 * pairs * kb, BY_TILE: 4 * mine * pitch}  # bytes of one share, by who finishes
    meet_bytes = sc * max(size for one, size in shares.items() if who in (None, one)) if sc > 1 else 0

    # what is to be transposed, and a table's entries: places of a patch, or pixels (with a dump for others)
    segments = segments_of(pr, cf)
    raw_stages = raw_stages_of(cf) if segments else 0
    raw_bytes = 2 * SEGMENT * segments * cf["chunks"] * 8
    entries = max(places, segments * SEGMENT + DUMP if segments else 0)

    # offsets, one after the other
    x_from = cf["stages"] * cf["batch"] * w_bytes
    raw_from = x_from + x_stages * x_bytes
    if segments:
        raw_from = round_up(raw_from, ALIGNMENT)
    table_from = max(4 * slow * pitch, rows_bytes, raw_from + raw_stages * raw_bytes)
    outs_from = table_from + (0 if image else 4 * entries)
    own_from = outs_from + (0 if stays else ceil_div(nb, 4) * 16)
    meet_from = own_from + (own_bytes if stays or brings else 0)
    edges_from = meet_from + meet_bytes
    bars_from = edges_from + (8 * 64 * cf["wm"] * cf["wn"] if cf["x"] == SLID else 0)
    return Layout(
        w_bytes=w_bytes, x_bytes=x_bytes, x_next=x_next, x_stages=x_stages, x_bars=x_bars,
        kt=kt, fast=fast, slow=slow, pitch=pitch, own_rows=own_rows, own_pitch=own_pitch, mine=mine,
        pairs=pairs, segments=segments, raw_stages=raw_stages, x_from=x_from, raw_from=raw_from,
        table_from=table_from, outs_from=outs_from, own_from=own_from,
        meet_from=meet_from, edges_from=edges_from, bars_from=bars_from,
        shared_end=bars_from + BARRIER * (2 * (cf["stages"] + x_bars) + 2 + raw_stages),
    )  # fmt: skip
