"""Tiles of the direct family on CPU cores: blocks, the input that a block copies, taps inside the image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.arithmetic import ceil_div, round_up
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.tile import View
from tilewright.kernels.word import word_bytes, word_registers, words
from tilewright.problem import MAX_EXTENT, Problem

LOOKS = 5.0  # cycles to check that a vector of the filter, loaded from memory, is finite
AVX2_LANES = 8  # of an x86 core with 16 registers
FLAT_COLUMNS = 7  # widest filter whose taps are unrolled
LINE_CHANNELS = 16  # channels of an nhwc input copied and read together: one cache line
LINE_BYTES = 64
FAR_BYTES = 2 << 20  # larger arrays come from memory; up to 1.2 MB it made no clear difference
# With AVX-512 a block of a 1x1 layer asks for a far input in place of up to so many bytes: seven layers with
# 32 to 172 KB a block took 0 to 17% less time (128 channels of 136x136: 2470 -> 2090 us), two with 344 KB and
# more 0 to 10% more.
ASKED_BYTES = 192 << 10


@dataclass(frozen=True, kw_only=True)
class CpuTiling:
    """Sizes derived from a problem and a config; the kernel has defines of the same names.

    Attributes:
        tile_k: output channels of a register tile.
        kb, hb, wb: channels, rows and columns of a block.
        k_tiles, p_tiles, q_tiles: blocks of one image and one group, along each side; blocks: of the layer.
        filter_tiles: register tiles of a group's channels; filter_words: of the packed filter.
        cs, steps: channels copied per step, and steps of a share of C; c_padded: channels of all shares.
        run: consecutive channels of the input as the inner loop reads it (CB).
        met: share of the taps that fall inside the image, if the others are skipped; skip: whether they are.
        word: bytes of a word.
        xh, xw: rows and columns of the copied input.
    """

    view: View
    tile_k: int
    kb: int
    hb: int
    wb: int
    k_tiles: int
    p_tiles: int
    q_tiles: int
    filter_tiles: int
    filter_words: int
    cs: int
    steps: int
    c_padded: int
    run: int
    met: float
    skip: bool
    word: int
    xh: int
    xw: int
    blocks: int

    @property
    def share(self) -> int:
        """Channels of one share of C."""
        return self.steps * self.cs

    @property
    def outputs(self) -> int:
        """Outputs of all blocks, those of each share of C counted."""
        return self.blocks * self.kb * self.hb * self.wb

    @property
    def shared_bytes(self) -> int:
        """Bytes of a block's copied input, and of what a vector may read past its end."""
        return self.word * (self.cs * self.xh * self.xw + LINE_CHANNELS)


def one_row(pr: Problem) -> Problem:
    """Rewrite a classifier (one output per image) as a 1x1 filter over one row of pixels: the same memory.

    A tile then holds several images, which share each loaded filter.
    """
    covers = (pr.r, pr.s, pr.pad) == (pr.h, pr.w, (0, 0, 0, 0)) and not pr.epilogue.pool
    in_order = pr.h * pr.w == 1 or pr.groups == 1 and (pr.c == 1 or pr.layout_in == "nchw")
    channels = pr.c * pr.h * pr.w
    if not (covers and in_order and pr.p * pr.q == 1 and channels <= MAX_EXTENT):
        return pr
    return replace(
        pr, c=channels, h=1, w=1, r=1, s=1, stride=(1, 1), dilation=(1, 1), layout_in="nhwc",
        layout_out="nhwc",
    )  # fmt: skip


def tiling_of(pr: Problem, cf: Values) -> CpuTiling:
    """Return the tiling of a config."""
    view = View.of(pr)
    tile_k = cf["v"] * cf["tk"]
    kb, hb, wb = tile_k * cf["nk"], cf["th"] * cf["nh"], cf["tw"] * cf["nw"]
    share = ceil_div(words(pr), cf["sg"])
    cs = min(cf["cs"], share)
    if words(pr) % LINE_CHANNELS == 0 and pr.layout_in == "nhwc":
        cs = round_up(cs, LINE_CHANNELS)
    step_h, step_w = pr.stride[0] if pr.r > 1 else 1, pr.stride[1] if pr.s > 1 else 1
    tiles = ceil_div(pr.kg, kb), ceil_div(view.p, hb), ceil_div(view.q, wb)
    steps, filter_tiles = ceil_div(share, cs), ceil_div(pr.kg, tile_k)
    c_padded = steps * cs * cf["sg"]
    some = taps_met(pr, 0, cf["th"]) * taps_met(pr, 1, cf["tw"]) if any(pr.pad) else 1.0
    skip = (1.0 - some) * hb * wb > LOOKS  # multiply-adds saved per vector of the filter
    return CpuTiling(
        view=view, tile_k=tile_k, kb=kb, hb=hb, wb=wb, k_tiles=tiles[0], p_tiles=tiles[1], q_tiles=tiles[2],
        filter_tiles=filter_tiles, filter_words=pr.groups * filter_tiles * c_padded * pr.r * pr.s * tile_k,
        cs=cs, steps=steps, c_padded=c_padded, run=_run(pr, cf, cs, steps),
        met=some if skip else 1.0, skip=skip, word=word_bytes(pr),
        xh=under(hb, step_h, pr.r, pr.dilation[0]),
        xw=(wb - 1) * step_w + (pr.s - 1) * pr.dilation[1] + 1,
        blocks=tiles[0] * tiles[1] * tiles[2] * view.n * pr.groups * cf["sg"],
    )  # fmt: skip


def under(outputs: int, step: int, taps: int, apart: int) -> int:
    """Input rows (or columns) under so many outputs, without the gaps between taps that lie far apart."""
    band = (outputs - 1) * step + 1
    return (taps - 1) * min(apart, band) + band


@lru_cache(maxsize=4096)
def taps_met(pr: Problem, side: int, tile: int) -> float:
    """Share of the taps along a side (0: rows) inside the image, averaged over tiles of ``tile`` outputs."""
    size, taps, pad = (pr.h, pr.r, pr.pad[0]) if side == 0 else (pr.w, pr.s, pr.pad[2])
    tiles, step = ceil_div((pr.p, pr.q)[side], tile), tile * pr.stride[side]
    reach, met, apart = (tile - 1) * pr.stride[side], 0, pr.dilation[side]
    # Taps before the first or after the last of these fall outside the image for all tiles.
    first, last = max(0, (pad - reach - tiles * step) // apart), min(taps, ceil_div(size + pad, apart))
    for tap in range(first, last) if taps > 1 else ():
        at = tap * apart - pad  # under the first tile
        met += max(0, min(tiles, ceil_div(size - at, step)) - max(0, ceil_div(-at - reach, step)))
    return met / (tiles * taps) if taps > 1 else 1.0


def _run(pr: Problem, cf: Values, cs: int, steps: int) -> int:
    """Consecutive channels of the input as the inner loop reads it."""
    if not cf["x"]:
        return cs * steps
    return LINE_CHANNELS if pr.layout_in == "nhwc" and words(pr) % LINE_CHANNELS == 0 else cs


def in_place_bytes(pr: Problem, cf: Values, tiling: CpuTiling) -> float:
    """Bytes of cache lines under a block that reads nchw input in place: rows begin anywhere in a line."""
    if cf["x"] or pr.layout_in == "nhwc":
        return 0.0
    rows = min(tiling.view.p, tiling.hb), pr.stride[0], pr.r, pr.dilation[0]
    columns = under(min(tiling.view.q, tiling.wb), pr.stride[1], pr.s, pr.dilation[1])
    return float(tiling.share * under(*rows) * (tiling.word * columns + LINE_BYTES))


def asks_for_input(pr: Problem, cf: Values, tiling: CpuTiling, few: bool) -> bool:
    """Whether tiles ask for the lines of the next block's input, read in place."""
    held = in_place_bytes(pr, cf, tiling)
    far = pr.r * pr.s == 1 and pr.x_bytes > FAR_BYTES and held <= ASKED_BYTES
    return held > 0 and (few or far)


def dots_bytes(pr: Problem, device: Device) -> bool:
    """Whether one instruction multiplies the four bytes of each lane."""
    return pr.is_integer and device.byte_dots


def reread(pr: Problem, device: Device, v: int, tk: int, th: int, tw: int) -> int:
    """Filter vectors of a tile without a register (all but one): with AVX2 a multiply-add can read memory."""
    if pr.is_integer or device.lanes != AVX2_LANES:
        return 0
    spare = device.regs_per_thread // max(v * word_registers(pr), device.lanes) - tk * th * tw - 1
    return min(tk - 1, max(0, tk - spare))


def live_vectors(pr: Problem, device: Device, v: int, tk: int, th: int, tw: int) -> int:
    """Lanes of a tile's vector registers: accumulators, filter vectors, one input (AVX-512 needs none)."""
    inputs: int = device.lanes < 16
    if pr.is_integer:  # a register for each byte of a word, or for what is to be subtracted
        inputs = tk + 1 if dots_bytes(pr, device) else 4
    filters = tk - reread(pr, device, v, tk, th, tw)
    return (tk * th * tw + filters + inputs) * max(v * word_registers(pr), device.lanes)
