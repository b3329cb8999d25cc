"""The direct family on CPU cores (``direct_cpu.h``): parameters, rules, launches and counts.

One work-item is one core. A block is NK x NH x NW register tiles that share one copy of their input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Buffer, Launch, Param, Rule, Values
from tilewright.kernels.shares import (
    ATOMIC_SUMS,
    COMBINE_NONE,
    SUM_THREADS,
    combine_param,
    meeting_buffers,
    operands,
    second_pass,
    zeros_before,
)
from tilewright.kernels.tile import (
    ATOMIC,
    COMBINE_NAMES,
    LAST,
    NONE,
    TWO_PASS,
    View,
    ceil_div,
    image_defines,
    up_to,
)
from tilewright.kernels.word import as_words, filter_bytes, issue_slots, word_bytes, word_registers, words
from tilewright.kernels.work import CpuWork
from tilewright.problem import DTYPES, MAX_EXTENT, Problem

WORKERS = 4  # work-items for each core: a driver may deal them out unevenly, they share the work evenly
WAY_BYTES, WAYS = 4096, 8  # of a first-level data cache of 32 KB
LOOKS = 5.0  # cycles to look at a vector of the filter, which comes from memory: whether all of it is finite
LINE = 16  # channels of an nhwc input that are copied and read together: one cache line



@dataclass(frozen=True)
class Geometry:
    """Sizes that follow from a problem and a config; the kernel's defines of the same names."""

    view: View
    tile_k: int
    kb: int
    hb: int
    wb: int
    k_tiles: int
    p_tiles: int
    q_tiles: int
    filter_tiles: int
    cs: int
    steps: int
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
    def shared_bytes(self) -> int:
        """The copied input of a block, and what a vector hangs over it."""
        return self.word * (self.cs * self.xh * self.xw + LINE)


def one_row(pr: Problem) -> Problem:
    """Take a classifier, one output an image, as a 1x1 filter over one row of pixels: the same in memory.

    A tile holds several images then, and a filter that was loaded serves them all.
    """
    whole = (pr.r, pr.s, pr.pad) == (pr.h, pr.w, (0, 0, 0, 0)) and not pr.epilogue.pool
    in_order = pr.h * pr.w == 1 or pr.groups == 1 and (pr.c == 1 or pr.layout_in == "nchw")
    channels = pr.c * pr.h * pr.w
    if not (whole and in_order and pr.p * pr.q == 1 and channels <= MAX_EXTENT):
        return pr
    return replace(
        pr, c=channels, h=1, w=1, r=1, s=1, stride=(1, 1), dilation=(1, 1), layout_in="nhwc",
        layout_out="nhwc",
    )  # fmt: skip


def geometry(pr: Problem, cf: Values) -> Geometry:
    """Work out the sizes of a config."""
    view = View.of(pr)
    tile_k = cf["v"] * cf["tk"]
    kb, hb, wb = tile_k * cf["nk"], cf["th"] * cf["nh"], cf["tw"] * cf["nw"]
    share = ceil_div(words(pr), cf["sg"])
    cs = min(cf["cs"], share)
    if words(pr) % LINE == 0 and pr.layout_in == "nhwc":
        cs = ceil_div(cs, LINE) * LINE
    step_h, step_w = pr.stride[0] if pr.r > 1 else 1, pr.stride[1] if pr.s > 1 else 1
    tiles = ceil_div(pr.kg, kb), ceil_div(view.p, hb), ceil_div(view.q, wb)
    steps = ceil_div(share, cs)
    some = taps_met(pr, 0, cf["th"]) * taps_met(pr, 1, cf["tw"]) if any(pr.pad) else 1.0
    skip = (1.0 - some) * hb * wb > LOOKS  # multiply-adds that a vector of the filter is spared
    return Geometry(
        view=view, tile_k=tile_k, kb=kb, hb=hb, wb=wb, k_tiles=tiles[0], p_tiles=tiles[1], q_tiles=tiles[2],
        filter_tiles=ceil_div(pr.kg, tile_k), cs=cs, steps=steps, run=_run(pr, cf, cs, steps),
        met=some if skip else 1.0, skip=skip, word=word_bytes(pr),
        xh=_under(hb, step_h, pr.r, pr.dilation[0]),
        xw=(wb - 1) * step_w + (pr.s - 1) * pr.dilation[1] + 1,
        blocks=tiles[0] * tiles[1] * tiles[2] * view.n * pr.groups * cf["sg"],
    )  # fmt: skip


def _under(outputs: int, step: int, taps: int, apart: int) -> int:
    """Rows, or columns, under so many outputs: without those between taps that lie further apart."""
    band = (outputs - 1) * step + 1
    return (taps - 1) * min(apart, band) + band


@lru_cache(maxsize=4096)
def taps_met(pr: Problem, side: int, tile: int) -> float:
    """Share of the taps along a side (0: rows) that meet the image, the mean of tiles of so many outputs."""
    size, taps, pad = (pr.h, pr.r, pr.pad[0]) if side == 0 else (pr.w, pr.s, pr.pad[2])
    tiles, step = ceil_div((pr.p, pr.q)[side], tile), tile * pr.stride[side]
    reach, met = (tile - 1) * pr.stride[side], 0
    for tap in range(taps if taps > 1 else 0):
        at = tap * pr.dilation[side] - pad  # under the first tile
        met += max(0, min(tiles, ceil_div(size - at, step)) - max(0, ceil_div(-at - reach, step)))
    return met / (tiles * taps) if taps > 1 else 1.0


def _run(pr: Problem, cf: Values, cs: int, steps: int) -> int:
    """Channels that lie side by side in the input as the inner loop reads it."""
    if not cf["x"]:
        return cs * steps
    return LINE if pr.layout_in == "nhwc" and words(pr) % LINE == 0 else cs


def params(pr: Problem, device: Device) -> tuple[Param, ...]:
    """Offer the tunables, outermost choice first."""
    pr = one_row(pr)
    view, lanes = View.of(pr), max(4, min(16, device.lanes) // word_registers(pr))
    widths = (lanes,) if pr.kg % lanes == 0 else tuple(v for v in (4, 8, 16) if v <= lanes)
    channels = sorted({*up_to(words(pr), (16, 64, 256)), words(pr)})
    return (
        Param("v", widths, "output channels of a vector"),
        Param("tk", up_to(ceil_div(pr.kg, 4), (1, 2, 3, 4, 6)),
              "vectors of output channels of a register tile"),
        Param("tw", up_to(view.q, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 20, 24, 28)),
              "output columns of a register tile"),
        Param("th", up_to(view.p, (1, 2, 3, 4, 7)), "output rows of a register tile"),
        Param("nk", up_to(ceil_div(pr.kg, 4), (1, 2, 4, 8, 16, 32, 64)), "register tiles of a block over K"),
        Param("nh", up_to(view.p, (1, 2, 3, 4, 7, 8, 14, 17, 28, 33)), "register tiles of a block over P"),
        Param("nw", up_to(view.q, (1, 2, 4, 8, 16)), "register tiles of a block over Q"),
        Param("sg", (1, 2, 4, 8, 16, 32), "shares of C across the grid"),
        Param("x", (0, 1), "input in place, or copied with its padding", ("global", "shared")),
        Param("cs", tuple(channels), "channels copied per step, or words of 4 (i8)"),
        combine_param(NONE, ATOMIC, TWO_PASS, LAST),
    )  # fmt: skip


def _dots(pr: Problem, device: Device) -> bool:
    """Whether four bytes of each lane are multiplied by one instruction."""
    return pr.dtype == "i8" and device.byte_dots


def _vectors(pr: Problem, device: Device, v: int, tk: int, th: int, tw: int) -> int:
    """Lanes of a tile's vector registers: accumulators, filter vectors, one input (AVX-512 needs none)."""
    inputs: int = device.lanes < 16
    if pr.dtype == "i8":  # a word's bytes take a register each; or what is to be taken off does
        inputs = tk + 1 if _dots(pr, device) else 4
    return (tk * th * tw + tk + inputs) * max(v * word_registers(pr), device.lanes)


def _pools(problem: Problem, th: int, tw: int, x: int, combine: int) -> bool:
    pool = problem.epilogue.pool
    if pool is None or combine == TWO_PASS:
        return True
    whole = (pool.stride, pool.pad) == (pool.size, 0)
    return whole and x == 1 and th % pool.size == 0 and tw % pool.size == 0


def _fits_shared(problem: Problem, device: Device, cf: Values) -> bool:
    return cf["x"] == 0 or geometry(problem, cf).shared_bytes + 64 <= device.shared_per_block


_REGISTERS = "accumulators must fit the vector registers of a core"
RULES = (
    Rule("k_reach", lambda problem, v, tk: v * (tk - 1) < problem.kg, "vectors of a tile without channels"),
    Rule("registers", lambda problem, device, v, tk, tw: _vectors(problem, device, v, tk, 1, tw)
         <= device.regs_per_thread, _REGISTERS),
    Rule("registers", lambda problem, device, v, tk, th, tw: _vectors(problem, device, v, tk, th, tw)
         <= device.regs_per_thread, _REGISTERS),
    Rule("k_block", lambda problem, v, tk, nk: v * tk * (nk - 1) < problem.kg, "tiles without channels"),
    Rule("h_block", lambda problem, th, nh: th * (nh - 1) < View.of(problem).p, "tiles without rows"),
    Rule("w_block", lambda problem, tw, nw: tw * (nw - 1) < View.of(problem).q, "tiles without columns"),
    Rule("shares", lambda problem, sg: sg == 1 or words(problem) >= 16 * sg,
         "shares of fewer than 16 channels"),
    Rule("in_place", lambda problem, x: x == 1 or not any(problem.pad),
         "input in place has no zeros around it"),
    Rule("in_place_words", lambda problem, x: x == 1 or problem.dtype in ("f64", "f32"),
         "input in place is multiplied as it is"),
    Rule("in_place_steps", lambda problem, x, cs: x == 1 or cs == words(problem),
         "input in place is not cut in steps"),
    Rule("steps", lambda problem, sg, cs: cs == words(problem) or cs * sg < words(problem),
         "one step takes all channels of a share: write that as all channels"),
    Rule("one_copy", lambda problem, nk, nh, nw, cs: nk * nh * nw == 1 or cs == words(problem),
         "the register tiles of a block share one copy of all its channels"),
    COMBINE_NONE,
    Rule("pool_tile", _pools,
         "a register tile that pools is made of whole windows, and no tile lies over its neighbour"),
    Rule("atomic_epilogue", lambda problem, combine: combine != ATOMIC or not problem.epilogue,
         "with atomics no core sees the whole sum, which an epilogue needs"),
    ATOMIC_SUMS,
    Rule("shared", _fits_shared, "the copied input does not fit the local memory of a core",
         needs="v tk th tw nk nh nw sg cs x"),
)  # fmt: skip


def blueprint(problem: Problem, device: Device, cf: Values) -> Blueprint:
    """Lay out one launch, two when the shares are summed in a second pass."""
    pr = one_row(problem)
    flat = dict(CG=pr.cg, SIZE_R=1, SIZE_S=1) if pr.c > problem.c else {}
    geo = geometry(pr, cf)
    workers, c_padded = WORKERS * device.units, geo.share * cf["sg"]
    launches, workspace = _launches(pr, device, cf, geo, workers)
    return Blueprint(
        source="direct.cu",
        defines=tuple(_defines(pr, device, cf, geo, workers).items()),
        launches=launches,
        packed_bytes=geo.word * pr.groups * geo.filter_tiles * c_padded * pr.r * pr.s * geo.tile_k,
        pack=(("PACK_K", geo.tile_k), ("PACK_C", c_padded), *flat.items()),
        workspace=workspace,
    )


def _launches(
    pr: Problem, device: Device, cf: Values, geo: Geometry, workers: int
) -> tuple[tuple[Launch, ...], tuple[Buffer, ...]]:
    combine, parts = cf["combine"], geo.blocks * geo.kb * geo.hb * geo.wb
    tiles = geo.blocks // cf["sg"] if combine == LAST else 0
    main = Launch("direct", (workers, 1, 1), (1, 1, 1), (*operands(combine), "partial", "arrived"))
    workspace = meeting_buffers(pr, cf, parts, tiles, geo.word, more=2)  # 2: the workers take tiles in turn
    return (*zeros_before(device, combine), main, *second_pass(pr, combine, chained=False)), workspace


def _defines(pr: Problem, device: Device, cf: Values, geo: Geometry, workers: int) -> Values:
    view = geo.view
    filter_floats = geo.filter_tiles * pr.groups * geo.share * cf["sg"] * pr.r * pr.s * geo.tile_k
    partial = geo.blocks * geo.kb * geo.hb * geo.wb if cf["combine"] == LAST else cf["sg"] * pr.z_elements
    largest = max(pr.n * pr.c * pr.h * pr.w, pr.z_elements, filter_floats, partial)
    return dict(
        ONE_LANE=1, AVX512=int(device.lanes >= 16), VECTOR=cf["v"], TK=cf["tk"], TH=cf["th"], TW=cf["tw"],
        BK=cf["nk"], BH=cf["nh"], BW=cf["nw"], SC=1, SG=cf["sg"], CS=geo.cs, CB=geo.run, STEPS=geo.steps,
        X_SHARED=cf["x"], SKIP_PADDING=int(geo.skip), COMBINE=cf["combine"],
        DTYPE=DTYPES.index(pr.dtype), AS_WORDS=int(as_words(pr)),
        DOT_BYTES=int(_dots(pr, device)),
        C=words(pr), CG=pr.cg, C_ALL=pr.c, H=view.h, W=view.w, K=pr.kg, R=pr.r, S=pr.s, GROUPS_=pr.groups,
        STR_H=pr.stride[0], STR_W=pr.stride[1], DIL_H=pr.dilation[0], DIL_W=pr.dilation[1],
        PAD_T=pr.pad[0], PAD_L=pr.pad[2], X_ALL=pr.n * pr.c * pr.h * pr.w,
        X_NHWC=int(pr.layout_in == "nhwc"), **image_defines(pr, view),
        K_TILES=geo.k_tiles, P_TILES=geo.p_tiles, Q_TILES=geo.q_tiles, C_PADDED=geo.share * cf["sg"],
        K_FASTEST=int(pr.w_bytes < pr.x_bytes), BLOCKS=geo.blocks, WORKERS=workers,
        SHARED_BYTES=geo.shared_bytes if cf["x"] else 64, SUM_THREADS=SUM_THREADS,
        OFFSET64=int(largest >= 1 << 31),
    )  # fmt: skip


def chain(pr: Problem, cf: Values) -> int:
    """Longest run of adds: one share of C, then the shares one after the other."""
    pr = one_row(pr)
    return geometry(pr, cf).share * pr.r * pr.s + cf["sg"] + 1


def work(pr: Problem, device: Device, cf: Values) -> CpuWork:
    """Count what one block does; ``input_bytes`` is the input under each register tile, all together."""
    pr = one_row(pr)
    geo, taps = geometry(pr, cf), pr.r * pr.s
    shares, images, dots = cf["sg"], geo.view.n * pr.groups, _dots(pr, device)
    tiles_of_block = images * shares / geo.blocks  # to those of one image and group
    tiles = (
        tiles_of_block * geo.filter_tiles * ceil_div(geo.view.p, cf["th"]) * ceil_div(geo.view.q, cf["tw"])
    )
    turns = tiles * geo.share * taps * geo.met
    looking = LOOKS * geo.share * taps * cf["tk"] * min(cf["nk"], geo.filter_tiles) if geo.skip else 0.0
    pixels, outputs = cf["th"] * cf["tw"], geo.tile_k * cf["th"] * cf["tw"]
    tile_bytes = float(geo.word) * geo.share * taps * geo.tile_k
    return CpuWork(
        blocks=geo.blocks, dram_bytes=pr.x_bytes + filter_bytes(pr) + pr.y_bytes,
        combine=COMBINE_NAMES[cf["combine"]],
        partial_bytes=0.0 if cf["combine"] == NONE else float(geo.word) * tiles * outputs * geo.blocks,
        useful=pr.k * pr.n * pr.p * pr.q * shares / (tiles * geo.blocks * outputs),
        register_intensity=2.0 * outputs / (pixels + geo.tile_k),
        block_intensity=2.0 * turns * outputs
        / (geo.share * geo.xh * geo.xw + tile_bytes / geo.word * cf["nk"]),
        vectors=_vectors(pr, device, cf["v"], cf["tk"], cf["th"], cf["tw"]) // device.lanes,
        width=cf["v"] * word_registers(pr),
        multiply_adds=turns * cf["tk"] * (pixels + 1 if dots else pixels * issue_slots(pr, device)),
        filter_loads=turns * cf["tk"], input_loads=turns * pixels, turns=int(turns),
        copying=_copying(pr, cf, geo) * (1 if geo.steps == 1 else tiles) + looking,
        storing=tiles * _storing(pr, cf, geo),
        filter_bytes=tile_bytes * tiles * geo.met,
        filter_once_bytes=tile_bytes * min(cf["nk"], geo.filter_tiles), filter_tile_bytes=tile_bytes,
        input_bytes=float(geo.word) * tiles * geo.share * geo.met * _under_tile(pr, cf),
        input_tile_bytes=geo.shared_bytes if cf["x"] else 0,
    )  # fmt: skip


def _under_tile(pr: Problem, cf: Values) -> float:
    """Inputs of one channel under a register tile; whole lines where too many share a set of the cache."""
    h = _under(cf["th"], pr.stride[0], pr.r, pr.dilation[0])
    inputs = float(h * _under(cf["tw"], pr.stride[1], pr.s, pr.dilation[1]))
    if cf["x"] or pr.layout_in == "nchw":
        return inputs
    apart = word_bytes(pr) * pr.c * pr.stride[1]
    sets = WAY_BYTES // gcd(WAY_BYTES, apart)  # that the pixels of a tile fall into
    crowd = inputs / (WAYS * sets)  # beyond 1 lines are lost before they are read again
    return inputs * (1.0 + (LINE - 1) * min(1.0, max(0.0, 2.0 * (crowd - 1.0))))


def _copying(pr: Problem, cf: Values, geo: Geometry) -> float:
    """Instructions to copy the input of a block."""
    if not cf["x"]:
        return 0.0
    if pr.layout_in == "nchw":
        return geo.share * geo.xh * (14.0 + geo.xw * (0.4 if pr.stride[1] == 1 else 2.0))
    return geo.xh * geo.xw * (14.0 + geo.share * (0.15 if geo.run == LINE else 0.6))


def _storing(pr: Problem, cf: Values, geo: Geometry) -> float:
    """Instructions to store a register tile, those that hang over an edge on average."""
    outputs = geo.tile_k * cf["th"] * cf["tw"]
    if pr.layout_out == "nhwc":
        quick = outputs / cf["v"] * 1.5
    else:
        turns = cf["tk"] * cf["th"] * ceil_div(cf["tw"], cf["v"])
        quick = turns * cf["v"] * (cf["v"].bit_length() + 1.0) + outputs / cf["v"]
    inside = _inside(pr.kg, geo.tile_k) * _inside(geo.view.p, cf["th"]) * _inside(geo.view.q, cf["tw"])
    slow = 1.0 - inside if cf["combine"] != ATOMIC else 1.0
    return quick * (1.0 - slow) + 8.0 * outputs * slow


def _inside(size: int, step: int) -> float:
    """Share of tiles that lie wholly inside."""
    return size // step / ceil_div(size, step)
