"""Work counts of the direct family on CPU cores, for the model."""

from __future__ import annotations

from math import gcd

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.direct.cpu_tile import (
    AVX2_LANES,
    FAR_BYTES,
    LINE_BYTES,
    LINE_CHANNELS,
    LOOKS,
    CpuTiling,
    dots_bytes,
    in_place_bytes,
    live_vectors,
    one_row,
    reread,
    tiling_of,
    under,
)
from tilewright.kernels.family import Values
from tilewright.kernels.tile import ATOMIC, NONE
from tilewright.kernels.word import filter_bytes, issue_slots, word_bytes, word_registers
from tilewright.kernels.work import CpuWork
from tilewright.problem import Problem

WAY_BYTES, WAYS = 4096, 8  # of a first-level data cache of 32 KB
# Cycles for a line of memory of a 1x1 layer's input in nchw, in planes of so many bytes and more; fewer where
# more channels than so many are computed of it. Of 16 layers with AVX-512 the time was 1.24 times the
# estimate without in the mean (64 channels of 208x208 to 32: 1.60), 1.03 with it (1.16).
LINE_WAIT, FAR_PLANE, HIDING = 12.0, 16 << 10, 64


def work(pr: Problem, device: Device, cf: Values) -> CpuWork:
    """Count the work of one block; ``input_bytes`` adds up the input under each register tile."""
    pr = one_row(pr)
    tiling, taps = tiling_of(pr, cf), pr.r * pr.s
    shares, images, dots = cf["sg"], tiling.view.n * pr.groups, dots_bytes(pr, device)
    tiles_of_block = images * shares / tiling.blocks  # to those of one image and group
    down, across = ceil_div(tiling.view.p, cf["th"]), ceil_div(tiling.view.q, cf["tw"])
    tiles = tiles_of_block * tiling.filter_tiles * down * across
    turns = tiles * tiling.share * taps * tiling.met
    again = reread(pr, device, cf["v"], cf["tk"], cf["th"], cf["tw"])
    looks = cf["tk"] * min(cf["nk"], tiling.filter_tiles) if tiling.skip else 0
    looking = LOOKS * tiling.share * taps * looks
    pixels, outputs = cf["th"] * cf["tw"], tiling.tile_k * cf["th"] * cf["tw"]
    tile_bytes = float(tiling.word) * tiling.share * taps * tiling.tile_k
    few = device.lanes == AVX2_LANES
    return CpuWork(
        blocks=tiling.blocks, dram_bytes=pr.x_bytes + filter_bytes(pr) + pr.y_bytes,
        combine=cf["combine"],
        partial_bytes=0.0 if cf["combine"] == NONE else float(tiling.word) * tiles * outputs * tiling.blocks,
        useful=pr.k * pr.n * pr.p * pr.q * shares / (tiles * tiling.blocks * outputs),
        register_intensity=2.0 * outputs / (pixels + tiling.tile_k),
        block_intensity=2.0 * turns * outputs
        / (tiling.share * tiling.xh * tiling.xw + tile_bytes / tiling.word * cf["nk"]),
        vectors=live_vectors(pr, device, cf["v"], cf["tk"], cf["th"], cf["tw"]) // device.lanes,
        width=cf["v"] * word_registers(pr),
        multiply_adds=turns * cf["tk"] * (pixels + 1 if dots else pixels * issue_slots(pr, device)),
        filter_loads=turns * (cf["tk"] + again * (pixels - 1)), input_loads=turns * pixels, turns=int(turns),
        copying=_copying(pr, cf, tiling, few) * (1 if tiling.steps == 1 else tiles) + looking,
        storing=tiles * _storing(pr, cf, tiling),
        filter_bytes=tile_bytes * tiles * tiling.met,
        filter_once_bytes=tile_bytes * min(cf["nk"], tiling.filter_tiles), filter_tile_bytes=tile_bytes,
        input_bytes=float(tiling.word) * tiles * tiling.share * tiling.met * _under_tile(pr, cf),
        input_tile_bytes=tiling.shared_bytes if cf["x"] else 0, place_bytes=in_place_bytes(pr, cf, tiling),
        place_turns=min(cf["nk"], tiling.filter_tiles),
        memory_waits=0.0 if few else _waits(pr),
    )  # fmt: skip


def _waits(pr: Problem) -> float:
    """Cycles that cores wait for lines of a large image, of which each channel has few under a block."""
    near = pr.h * pr.w * word_bytes(pr) < FAR_PLANE or pr.x_bytes <= FAR_BYTES
    if near or pr.layout_in == "nhwc" or pr.r * pr.s > 1:
        return 0.0
    return LINE_WAIT * pr.x_bytes / LINE_BYTES / pr.stride[0] * min(1.0, HIDING / pr.kg)


def _under_tile(pr: Problem, cf: Values) -> float:
    """Inputs of one channel under a register tile; whole cache lines if too many map to one cache set."""
    h = under(cf["th"], pr.stride[0], pr.r, pr.dilation[0])
    inputs = float(h * under(cf["tw"], pr.stride[1], pr.s, pr.dilation[1]))
    if cf["x"] or pr.layout_in == "nchw":
        return inputs
    apart = word_bytes(pr) * pr.c * pr.stride[1]
    sets = WAY_BYTES // gcd(WAY_BYTES, apart)  # that the pixels of a tile map to
    crowd = inputs / (WAYS * sets)  # above 1 lines are evicted before they are read again
    return inputs * (1.0 + (LINE_CHANNELS - 1) * min(1.0, max(0.0, 2.0 * (crowd - 1.0))))


def _copying(pr: Problem, cf: Values, tiling: CpuTiling, few: bool) -> float:
    """Instructions to copy the input of a block.

    Rows under a wide filter are copied by vectors whatever the stride; AVX-512 was fitted without this.
    """
    if not cf["x"]:
        return 0.0
    if pr.layout_in == "nchw":
        singly = pr.stride[1] > 1 and (pr.s == 1 or pr.is_integer or not few)
        return tiling.share * tiling.xh * (14.0 + tiling.xw * (2.0 if singly else 0.4))
    if tiling.run == pr.c and not pr.is_integer and (pr.s > 1 or pr.stride[1] == 1):  # whole rows
        return tiling.xh * (14.0 + tiling.xw * tiling.share * 0.4)
    return tiling.xh * tiling.xw * (14.0 + tiling.share * (0.15 if tiling.run == LINE_CHANNELS else 0.6))


def _storing(pr: Problem, cf: Values, tiling: CpuTiling) -> float:
    """Instructions to store a register tile: twice as many past an edge, since vectors have parts there."""
    outputs = tiling.tile_k * cf["th"] * cf["tw"]
    if cf["combine"] == ATOMIC:
        return 8.0 * outputs
    if pr.layout_out == "nhwc":
        quick = outputs / cf["v"] * 1.5
    else:
        turns = cf["tk"] * cf["th"] * ceil_div(cf["tw"], cf["v"])
        quick = turns * cf["v"] * (cf["v"].bit_length() + 1.0) + outputs / cf["v"]
        if pr.epilogue.pool and pr.epilogue.add:  # z is read one by one
            quick += 2.0 * outputs
    inside = _inside(pr.kg, tiling.tile_k) * _inside(tiling.view.p, cf["th"])
    return quick * (2.0 - inside * _inside(tiling.view.q, cf["tw"]))


def _inside(size: int, step: int) -> float:
    """Share of tiles that lie wholly inside the image."""
    return size // step / ceil_div(size, step)
