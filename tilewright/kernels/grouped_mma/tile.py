"""Sizes of the grouped_mma kernel: bundles of groups, staged pixels, registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.family import Values
from tilewright.kernels.products import in_word
from tilewright.kernels.split_k import stored_bytes
from tilewright.kernels.tile import columns_under, rows_under
from tilewright.problem import DTYPE_BYTES, Problem

PIECE = 16  # bytes of a row of a matrix (ldmatrix), of a copy, and of a thread's store
PIXELS, CHANNELS = 16, 8  # of a product
EIGHT = 8  # rows of a matrix: as many columns of a tile, which lie in different banks


@dataclass(frozen=True)
class GroupBundle:
    """Groups that are multiplied together: their input channels are whole pieces of 16 bytes.

    Attributes:
        groups: 1, or as many small ones as fill a piece; the filter has zeros for other groups' channels.
        pieces: of a pixel's input channels.
        outputs: output channels.
    """

    groups: int
    pieces: int
    outputs: int

    @property
    def tiles(self) -> int:
        """Pieces of 8 output channels."""
        return self.outputs // CHANNELS


def bundle_of(pr: Problem) -> GroupBundle | None:
    """The bundle of a layer; None if groups do not fill pieces, or their outputs do not fill products."""
    numbers = PIECE // DTYPE_BYTES[pr.dtype]
    groups = max(1, numbers // pr.cg)
    channels, outputs = groups * pr.cg, groups * pr.kg
    if channels % numbers or outputs % CHANNELS or pr.groups % groups:
        return None
    return GroupBundle(groups, channels // numbers, outputs)


@dataclass(frozen=True, kw_only=True)
class GroupedMmaTiling:
    """Sizes derived from a problem and a config.

    Attributes:
        bundle: groups that are multiplied together.
        parts: parts of a bundle's outputs, one per warp.
        row_sum: pieces along a row of the filter: two make a product, an odd last one half of one.
        seen: rows of the image under a strip's outputs.
        columns: of the image under a tile, from the first to the last.
        length: columns one stride apart, which are staged contiguously.
        pieces: staged pieces of a pixel: of all the block's bundles.
        swizzle: pieces that are exchanged, so that eight pixels lie in different banks; a power of two.
        run: contiguous outputs of a thread.
        turned: bundles among which lanes exchange runs, so that a thread stores as many runs of one bundle.
        words: registers of a lane for the filter.
        turns: strips of 16 columns, or twice 8, that a warp takes one after the other.
    """

    bundle: GroupBundle
    parts: int
    row_sum: int
    seen: int
    rows: int
    columns: int
    length: int
    pieces: int
    swizzle: int
    run: int
    turned: int
    words: int
    turns: int
    k_tiles: int
    p_tiles: int
    q_tiles: int
    blocks: int
    shared_bytes: int


def pieces_of_sum(pr: Problem, bundle: GroupBundle) -> int:
    """Pieces along the sum of an output: registers of the filter for eight outputs."""
    return pr.r * pr.s * bundle.pieces


def columns_at_once(pr: Problem, aligned: bool = True) -> tuple[int, int]:
    """Columns of a channel that a thread loads at once in nchw, and how many precede the first needed."""
    run = in_word(pr)
    if pr.layout_in == "nhwc" or pr.w % run or not aligned:
        return 1, 0
    return run, -pr.pad[2] % run  # tiles begin at multiples of eight columns


def strip_rows(tw: int, pt: int) -> int:
    """Rows of a strip: its two runs of eight columns are side by side, or one below the other."""
    return 2 * pt if tw // EIGHT % 2 else pt


def tiling_of(pr: Problem, cf: Values) -> GroupedMmaTiling:
    """Return the tiling of a config."""
    return _sizes(pr, *(cf[name] for name in ("th", "tw", "nt", "bw", "pt", "wn", "wm", "combine")))


@lru_cache(maxsize=4096)
def _sizes(
    pr: Problem, th: int, tw: int, nt: int, bw: int, pt: int, wn: int, wm: int, combine: int
) -> GroupedMmaTiling:  # fmt: skip
    bundle = bundle_of(pr)
    assert bundle
    rows, columns = rows_under(pr, th), columns_under(pr, tw)
    parts = bundle.tiles // nt
    bundles = max(1, wn * bw // parts)  # 0 for a config that a rule forbids
    length, pieces = ceil_div(columns, pr.stride[1]), bundle.pieces * bundles
    seen = {i * pr.stride[0] + r * pr.dilation[0] for i in range(pt) for r in range(pr.r)}
    out_bytes = stored_bytes(pr, combine)
    runs = (16, 8, 4, 2) if pr.layout_out == "nhwc" else (2,)
    run = next(run for run in runs if run * out_bytes <= PIECE and nt % (run // 2) == 0)
    strips = th // strip_rows(tw, pt) * tw * strip_rows(tw, pt) // (PIXELS * pt)
    whole = pr.layout_out == "nhwc" and run * out_bytes >= 4  # words
    most = PIECE // (run * out_bytes) if whole else 1
    k_tiles = pr.groups // bundle.groups // bundles
    p_tiles, q_tiles = ceil_div(pr.p, th), ceil_div(pr.q, tw)
    return GroupedMmaTiling(
        bundle=bundle, parts=parts, row_sum=pr.s * bundle.pieces, seen=len(seen), rows=rows, columns=columns,
        length=length, pieces=pieces, swizzle=min(EIGHT, pieces & -pieces), run=run,
        turned=min(most, bw & -bw), words=round_up(pieces_of_sum(pr, bundle) * nt * bw, 4),
        turns=ceil_div(strips, wm), k_tiles=k_tiles, p_tiles=p_tiles, q_tiles=q_tiles,
        blocks=pr.n * k_tiles * p_tiles * q_tiles, shared_bytes=PIECE * pieces * rows * length * pr.stride[1],
    )  # fmt: skip


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers a thread needs: sums, bias and scale of its channels, filter, addresses."""
    tiling, channels = tiling_of(pr, cf), 2 * cf["bw"] * cf["nt"]
    held = 2 * cf["pt"] + pr.epilogue.bias + pr.requantised
    return channels * held + tiling.words + ceil_div(tiling.row_sum, 2) * cf["bw"] + tiling.row_sum + 41
