"""Sizes of the stem kernel: runs under an output, staged rows, slices of channels, registers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.family import Values
from tilewright.kernels.products import LANES, WORD
from tilewright.kernels.split_k import stored_bytes
from tilewright.kernels.tile import NONE, along, rows_under, tiles_along
from tilewright.problem import DTYPE_BYTES, Problem

BANKS = 32  # of shared memory, a word each
PIECE = 16  # most bytes of a copy
STORE = 16  # most bytes of a thread's contiguous outputs
LONGEST = STORE  # most of these outputs: those of one byte
SECTOR = 32  # bytes


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The inputs under a row of the filter: a contiguous run in memory.

    Attributes:
        planes: planes of the image: its channels in nchw.
        column: bytes of a column of a plane.
        gap: bytes between staged columns, so that lanes read from different banks.
        step: staged bytes from one output's run to the next output's.
        numbers: numbers of a run.
        copy: bytes of a copy; they divide a row of the image.
        lead: staged bytes of a row before the run of its first output.
        shift: numbers in a run's first word before the run, the same for every output.
        unaligned: whether runs begin anywhere in a word, so that a word is put together from two.
        fan: planes, rows and words of a run that the four lanes of a pixel load at once, a word each.
        quarters: words of a run that each of its lanes loads.
    """

    planes: int
    column: int
    gap: int
    step: int
    numbers: int
    copy: int
    lead: int
    shift: int
    unaligned: bool
    fan: tuple[int, int, int]
    quarters: int

    @property
    def chunk(self) -> int:
        """Bytes that a thread copies at once: of numbers of 2 bytes two, one after the other."""
        return WORD if self.copy == 2 else self.copy

    def words(self, pr: Problem) -> int:
        """Words of a pixel that a lane loads in total."""
        return self.planes // self.fan[0] * (pr.r // self.fan[1]) * self.quarters

    def steps(self, pr: Problem) -> int:
        """Products along the sum, each with two words of a lane."""
        return ceil_div(self.words(pr), 2)


def runs_of(pr: Problem, cf: Values | None = None, aligned: bool = True) -> Runs:
    """Return how runs lie in memory and in words, for a config's tiles, or for one tile of the whole image.

    All tiles have the same alignment to copies. Unaligned arrays use the same order of the packed filter.
    """
    nhwc, number = pr.layout_in == "nhwc", DTYPE_BYTES[pr.dtype]
    unit = pr.c if nhwc else 1
    column = unit * number
    step = pr.stride[1] * column
    most = math.gcd(PIECE, pr.w * column)  # a piece lies wholly inside a row of the image or outside
    combine = cf["combine"] if cf else NONE
    if cf and tiles_along(pr, combine, pr.q, pr.y_q, cf["tw"]) > 1:
        most = math.gcd(most, along(pr, combine, cf["tw"])[0] * step)
    copy = most if most >= WORD else number
    first = along(pr, combine, 1)[1] * pr.stride[1] - pr.pad[2]  # column under the first output
    lead = first * column % copy if copy >= WORD else 0  # 0 if staged number by number
    unaligned = step % WORD > 0
    shift = 0 if unaligned else lead % WORD // number
    if not aligned:
        copy, lead = number, shift * number
    planes, words = 1 if nhwc else pr.c, ceil_div((shift + pr.s * unit) * number, WORD)
    fan = _fan(planes, pr.r, words)
    gaps = (0, PIECE) if nhwc and column % PIECE == 0 else (0,)
    gap = min(gaps, key=lambda gap: crowd(step + pr.stride[1] * gap, 0, 0, fan))
    return Runs(
        planes=planes, column=column, gap=gap, step=step + pr.stride[1] * gap, numbers=pr.s * unit, copy=copy,
        lead=lead, shift=shift, unaligned=unaligned, fan=fan, quarters=ceil_div(words, fan[2]),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def crowd(step: int, row: int, plane: int, fan: tuple[int, int, int]) -> int:
    """Most words that a load reads from one bank: eight pixels ``step`` bytes apart, with four lanes each."""
    found: dict[int, set[int]] = {}
    for lane in range(8 * LANES):
        pixel, quarter = divmod(lane, LANES)
        rest, word = divmod(quarter, fan[2])
        byte = pixel * step + rest % fan[1] * row + rest // fan[1] * plane + WORD * word
        found.setdefault(byte // WORD % BANKS, set()).add(byte // WORD)
    return max(map(len, found.values()))


def _fan(planes: int, rows: int, words: int) -> tuple[int, int, int]:
    """Planes, rows and words that four lanes load at once: for fewest words in total, preferably of a run."""
    fans = [(LANES // (r * w), r, w) for w in (4, 2, 1) for r in (4, 2, 1) if r * w <= LANES]
    fits = [(p, r, w) for p, r, w in fans if planes % p == 0 and rows % r == 0]
    return min(fits, key=lambda fan: ceil_div(words, fan[2]) * fan[2])


@dataclass(frozen=True)
class Staged:
    """A tile's rows of the image in shared memory: bytes of a row, from one to the next, and of all.

    ``crowd``: most words that a load reads from one bank.
    """

    row: int
    pitch: int
    crowd: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class StemTiling:
    """Sizes derived from a problem and a config.

    ``run``: contiguous outputs of a thread. ``turns``: passes of a warp over the tile's pixels.
    ``w_bytes``: of the filter, staged by a block. ``held``: whether a thread pools its own sums.
    ``sum_pitch``: words of a row of sums in shared memory, if the block pools them there, or 0.
    """

    image: Staged
    kb: int
    k_tiles: int
    p_tiles: int
    q_tiles: int
    blocks: int
    run: int
    turns: int
    w_bytes: int
    held: bool
    sum_pitch: int
    shared_bytes: int


def piece(pr: Problem) -> tuple[int, int]:
    """Pixels and channels of a product."""
    return (16, 8) if pr.layout_out == "nhwc" else (8, 16)


def loads(pr: Problem, runs: Runs) -> int:
    """Loads of a lane for a product's pixels: one of four matrices if columns are pairs of pieces."""
    if pr.layout_in == pr.layout_out == "nhwc" and runs.column % (2 * PIECE) == 0:
        return 1
    return 2 * piece(pr)[0] // 8 * (2 if runs.unaligned else 1)


def w_registers(pr: Problem) -> int:
    """Registers of a lane for the filter, per piece and step."""
    return 2 if pr.layout_out == "nhwc" else 4


def pools(pr: Problem, combine: int) -> bool:
    """Whether a block pools its own sums."""
    return pr.epilogue.pool is not None and combine == NONE


def held(pr: Problem, cf: Values) -> bool:
    """Whether a thread has whole windows of the block's pool: squares of four, of two pieces of pixels."""
    pool = pr.epilogue.pool
    squares = pool is not None and (pool.size, pool.stride, pool.pad) == (2, 2, 0)
    return squares and pools(pr, cf["combine"]) and cf["th"] % 2 == cf["tw"] % 2 == cf["pt"] % 2 == 0


def outputs(pr: Problem, cf: Values) -> int:
    """Contiguous outputs of a thread (RUN_OUT): channels of alternating pieces, in nchw pixels or windows.

    No more than a line has whole runs of: else they are stored one by one, each far from its neighbours', and
    a warp writes to a sector again and again.
    """
    most, nhwc = STORE // DTYPE_BYTES[pr.dtype_out], pr.layout_out == "nhwc"
    least = 1 if held(pr, cf) and not nhwc else 2  # a window, or two neighbours of a product
    run = least * math.gcd(cf["kt"] if nhwc else cf["pt"] * least // 2, most // least)
    return run if meets(pr, cf) else max(least, math.gcd(run, line_of(pr, cf)))


def turned(pr: Problem, cf: Values) -> int:
    """Runs that lanes exchange (TURNED), so that a store of nchw has a longer piece of a channel: where rows
    of y do not begin with a sector, or a store would have less than one.
    """
    run, nbytes = outputs(pr, cf), stored_bytes(pr, cf["combine"])
    if pr.layout_out == "nhwc" or pools(pr, cf["combine"]) or run * nbytes % WORD:
        return 1
    if pr.q * nbytes % SECTOR == 0 and 4 * run * nbytes >= SECTOR:
        return 1
    return math.gcd(2 * cf["pt"] // run, 8)


def line_of(pr: Problem, cf: Values) -> int:
    """Outputs such that a run of y, if their number is a multiple of its own, is stored at once."""
    if pr.layout_out == "nhwc":
        return pr.k
    side = 2 if held(pr, cf) else 1
    return math.gcd(cf["tw"] // side, pr.q // side)


def meets(pr: Problem, cf: Values) -> bool:
    """Whether the sums of a pool's window meet in shared memory."""
    return pools(pr, cf["combine"]) and not held(pr, cf)


def staged(pr: Problem, cf: Values, runs: Runs) -> Staged:
    """Return how the rows under a tile are staged; it depends on ``combine``, ``th`` and ``tw``."""
    rows = rows_under(pr, cf["th"])
    seen = runs.fan[2] * WORD * runs.quarters + WORD * runs.unaligned
    row = round_up(runs.lead + (cf["tw"] - 1) * (runs.step - pr.stride[1] * runs.gap) + seen, PIECE)
    least = row + ceil_div(row, runs.column) * runs.gap
    pitches = range(least, least + (1 if runs.fan[2] == LANES else 4 * BANKS), PIECE)
    crowds = {pitch: crowd(runs.step, pitch * pr.dilation[0], pitch * rows, runs.fan) for pitch in pitches}
    pitch = min(pitches, key=lambda pitch: crowds[pitch])
    return Staged(row, pitch, crowds[pitch], runs.planes * rows * pitch)


def tiling_of(pr: Problem, cf: Values) -> StemTiling:
    """Return the tiling of a config."""
    combine, runs, (pixels, channels) = cf["combine"], runs_of(pr, cf), piece(pr)
    image = staged(pr, cf, runs)
    kb = channels * cf["kt"] * cf["wn"]
    k_tiles = ceil_div(pr.k, kb)
    p_tiles = tiles_along(pr, combine, pr.p, pr.y_p, cf["th"])
    q_tiles = tiles_along(pr, combine, pr.q, pr.y_q, cf["tw"])
    w_bytes = 128 * runs.steps(pr) * w_registers(pr) * cf["kt"] * cf["wn"]
    pixels_of_tile, nhwc = cf["th"] * cf["tw"], pr.layout_out == "nhwc"
    # Whole runs, and four words more so that the next row lies in other banks.
    sum_pitch = (kb if nhwc else round_up(pixels_of_tile, LONGEST)) + 4 if meets(pr, cf) else 0
    sums_bytes = 4 * sum_pitch * (pixels_of_tile if nhwc else kb)
    return StemTiling(
        image=image, kb=kb, k_tiles=k_tiles, p_tiles=p_tiles, q_tiles=q_tiles,
        blocks=pr.n * k_tiles * p_tiles * q_tiles, run=outputs(pr, cf),
        turns=ceil_div(pixels_of_tile, pixels * cf["pt"] * cf["wm"]), w_bytes=w_bytes, held=held(pr, cf),
        sum_pitch=sum_pitch, shared_bytes=w_bytes * cf["f"] + round_up(image.nbytes, 128) + sums_bytes,
    )  # fmt: skip


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers a thread needs: sums, the filter, read offsets, masks, addresses."""
    runs = runs_of(pr, cf)
    halves = piece(pr)[0] // 8
    masks = 2 * min(runs.quarters, 4) if loads(pr, runs) > 1 else 0
    filter_ = w_registers(pr) * cf["kt"] * (2 if cf["f"] else runs.steps(pr))
    return 4 * cf["pt"] * cf["kt"] + filter_ + cf["pt"] * halves * (4 + runs.unaligned) + masks + 36
