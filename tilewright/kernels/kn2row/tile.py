"""Sizes of the kn2row kernel: rows of taps in shared memory, words of the input, registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arithmetic import ceil_div
from tilewright.kernels.family import Values
from tilewright.kernels.products import LANES, WORD, in_word
from tilewright.kernels.tile import columns_under
from tilewright.problem import DTYPE_BYTES, Problem

MOST_TAPS = 96  # of all output channels: a warp has the sums of all of them
PIECE, EIGHT = 16, 8  # taps and pixels of a product
RUN_BYTES = 16  # most that a lane loads at once
CHUNK_WORDS = 16  # words of a pixel in two products
MOST_AT_ONCE = 16  # most loads of a lane in flight
MOST_IN_BODY = 640  # most products in a loop's body
SUM_BYTES = 4


def tap_rows(pr: Problem) -> int:
    """Rows of the filter that have taps (TAP_R): all; or one, if all taps of a large filter are too many."""
    return pr.r if pr.k * pr.r * pr.s <= MOST_TAPS else 1


def summed_rows(pr: Problem) -> int:
    """Rows of the filter whose products are summed before taps are kept (SUM_R)."""
    return pr.r // tap_rows(pr)


def rows_at_once(pr: Problem) -> int:
    """Rows of taps that a warp sums at once (ROWS): two have all but one of the R pixels in common."""
    return 2 if summed_rows(pr) > 1 and pr.dilation[0] == 1 and pr.p > 1 else 1


def read_rows(pr: Problem) -> int:
    """Rows of the image that a warp reads for these."""
    return summed_rows(pr) + rows_at_once(pr) - 1


def batches_in_flight(pr: Problem) -> int:
    """Batches of chunks whose loads are under way at once: a large filter's next one is asked for ahead."""
    return 2 if summed_rows(pr) > 1 else 1


def taps(pr: Problem) -> int:
    """Taps of all output channels: the results computed for each pixel."""
    return pr.k * tap_rows(pr) * pr.s


def rows_of_taps(pr: Problem, outputs: int) -> int:
    """Rows of taps that ``outputs`` rows of outputs add up."""
    return outputs + (tap_rows(pr) - 1) * pr.dilation[0]


def pieces(pr: Problem) -> int:
    """Products for all taps of eight pixels, in each step of the sum (MT)."""
    return ceil_div(taps(pr), PIECE)


def chunks(pr: Problem) -> int:
    """Steps of the sum over C, of two products each."""
    return ceil_div(pr.c, CHUNK_WORDS * in_word(pr))


def runs(pr: Problem) -> tuple[int, ...]:
    """Choices of consecutive pixels of a channel that a lane loads at once (VX): whole words; in nhwc one."""
    number = DTYPE_BYTES[pr.dtype]
    found = (v for v in (8, 4, 2, 1) if WORD <= v * number <= RUN_BYTES and pr.w % v == 0)
    return (1,) if pr.layout_in == "nhwc" else tuple(found) or (1,)


def whole(pr: Problem, run: int) -> bool:
    """Whether aligned arrays are read in whole words: pixels of whole 16 bytes, or in nchw runs of words."""
    number = DTYPE_BYTES[pr.dtype]
    return pr.c * number % RUN_BYTES == 0 if pr.layout_in == "nhwc" else run * number >= WORD


def lead(pr: Problem, run: int) -> int:
    """Columns loaded before the first that a tile needs, as it begins with a whole run."""
    return -pr.pad[2] % run


def widths(pr: Problem, eights: tuple[int, ...]) -> tuple[int, ...]:
    """Output columns of tiles that need exactly so many eights of input columns; and all columns."""
    more = columns_under(pr, 1) - 1
    found = {(EIGHT * n - lead(pr, v) - more) // v * v for n in eights for v in runs(pr)}
    return (*sorted(v for v in found if 0 < v < pr.q), pr.q)


@dataclass(frozen=True, kw_only=True)
class Kn2rowTiling:
    """Sizes derived from a problem and a config; the kernel has defines of the same names.

    ``rows``: of taps of a tile, in ``turns`` iterations of ``rb``. ``columns``: of the input, whole
    eights; ``pitch``: from one tap's row to the next tap's. ``ring``: rows whose taps are kept.
    """

    p_tiles: int
    q_tiles: int
    blocks: int
    rows: int
    turns: int
    columns: int
    pitch: int
    ring: int
    w_bytes: int
    shared_bytes: int


def columns_of(pr: Problem, tw: int, run: int) -> int:
    """Columns of the input under a tile, rounded up to whole eights."""
    return EIGHT * ceil_div(lead(pr, run) + columns_under(pr, tw), EIGHT)


def tiling_of(pr: Problem, cf: Values) -> Kn2rowTiling:
    """Return the tiling of a config."""
    th, rb, split = cf["th"], cf["rb"], cf["split"]
    rows, columns = rows_of_taps(pr, th), columns_of(pr, cf["tw"], cf["vx"])
    turns = ceil_div(rows, rb)
    pitch = EIGHT * (columns // EIGHT | 1)  # an odd number of eights puts neighbouring taps in other banks
    ring = rb if turns == 1 else rows_of_taps(pr, 1) - 1 + 2 * rb
    w_bytes = summed_rows(pr) * chunks(pr) * 2 * pieces(pr) * 32 * RUN_BYTES
    p_tiles, q_tiles = ceil_div(pr.p, th), ceil_div(pr.q, cf["tw"])
    return Kn2rowTiling(
        p_tiles=p_tiles, q_tiles=q_tiles, blocks=pr.n * p_tiles * q_tiles, rows=rows, turns=turns,
        columns=columns, pitch=pitch, ring=ring, w_bytes=w_bytes,
        shared_bytes=w_bytes * cf["f"] + SUM_BYTES * ring * split * taps(pr) * pitch,
    )  # fmt: skip


def units(pr: Problem, cf: Values) -> int:
    """Warps that have pixels in a step of a share, if each takes pixels only once."""
    return ceil_div(cf["rb"] // rows_at_once(pr) * columns_of(pr, cf["tw"], cf["vx"]), EIGHT * cf["pt"])


def chunk_loads(pr: Problem, cf: Values) -> int:
    """Loads of a lane per chunk of its pixels."""
    if pr.layout_in == "nhwc":
        return cf["pt"]
    return ceil_div(cf["pt"], cf["vx"]) * LANES * in_word(pr)


def chunks_at_once(pr: Problem, cf: Values) -> int:
    """Chunks whose loads are in flight together (AT_ONCE): the same number in each loop iteration."""
    loads = batches_in_flight(pr) * chunk_loads(pr, cf)
    share, most = max(1, chunks(pr) // cf["split"]), max(1, MOST_AT_ONCE // loads)
    return next(n for n in range(min(share, most), 0, -1) if share % n == 0)


def batches_in_body(pr: Problem, cf: Values) -> int:
    """Batches of chunks that the loop over them has in its body (BODY): the same number in each iteration."""
    if batches_in_flight(pr) == 1:
        return 1
    at_once = chunks_at_once(pr, cf)
    batches = read_rows(pr) * chunks(pr) // cf["split"] // at_once
    most = max(1, MOST_IN_BODY // (2 * pieces(pr) * cf["pt"] * rows_at_once(pr) * at_once))
    return next(n for n in range(min(batches, most), 0, -1) if batches % n == 0)


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers a thread needs: sums, words of the input and the filter, addresses."""
    sums = 4 * pieces(pr) * cf["pt"] * rows_at_once(pr)
    words = 4 * cf["pt"] * chunks_at_once(pr, cf) * batches_in_flight(pr)
    kept = 8 * pieces(pr) * chunks_at_once(pr, cf) * (rows_at_once(pr) - 1)  # of the row that comes next, too
    filter_ = 8 * pieces(pr) * summed_rows(pr) * chunks(pr) // cf["split"] if cf["f"] == 0 else 8 + kept
    return sums + words + filter_ + 3 * ceil_div(cf["pt"], cf["vx"]) + 34
