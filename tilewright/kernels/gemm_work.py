"""Counts of the gemm kernel, for the model: instructions, wavefronts, bytes."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.gemm_product import Sizes, product, registers, sizes
from tilewright.kernels.limits import resident
from tilewright.kernels.tile import COMBINE_NAMES, NONE, ceil_div
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

# Issue slots of a word from shared memory, beyond the share that the model leaves idle anyway: less
# where the next words are read early. Fitted to 1,679 configs of four products on an H100.
HIDDEN = {1: 0.4, 2: 0.2}
LAST_TURN, REST = 1, 2  # what a stream shares out: the last full turn and the rest, or the rest alone
STREAM_STORE = 4.0  # a block of the stream stores parts of two tiles, and reads others' back


def whole_tiles(device: Device, sz: Sizes, cf: Values) -> int:
    """Tiles of a stream that have a block each: they fill turns of the device."""
    at_once = device.units * cf["mb"]
    return max(0, sz.tiles // at_once - (cf["stream"] == LAST_TURN)) * at_once if cf["stream"] else 0


def grid(device: Device, sz: Sizes, cf: Values) -> int:
    """Blocks of the launch: one for each share of each tile; a stream ends with as many as run at once."""
    return whole_tiles(device, sz, cf) + device.units * cf["mb"] if cf["stream"] else sz.tiles * cf["sg"]


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count what one block and one thread do."""
    pd = product(pr)
    sz = sizes(pd, cf)
    blocks = device.units * cf["mb"] if cf["stream"] else sz.tiles * cf["sg"]  # whose work is counted
    turns = sz.tiles * sz.turns / blocks if cf["stream"] else ceil_div(sz.turns, cf["sg"])
    tiles = max(1.0, sz.tiles / blocks) if cf["stream"] else 1.0  # that a block stores
    channels = turns * cf["cs"] / cf["sb"]  # of one thread
    words = (sz.kt + sz.pt) * channels * HIDDEN[cf["fd"]]
    step = cf["cs"] * (sz.kb + sz.pb)
    copies = cf["cs"] * sz.kb / 4 / sz.threads + sz.x_copies
    loads = cf["tk"] * max(1.0, cf["lk"] / 8) + sz.pt * max(1.0, 1.0 / cf["lk"]) / 4
    waves = sz.threads / 32 * channels * loads
    meeting = 3.0 * sz.kt * sz.pt if cf["sb"] > 1 else 0.0
    storing = (4.0 * sz.kt * sz.pt / cf["sb"] + meeting) * (STREAM_STORE if cf["stream"] else 1.0)
    shares = cf["sg"] if not cf["stream"] else 2
    return GpuWork(
        blocks=blocks, threads=sz.threads, registers=registers(cf),
        resident=resident(device, registers(cf), sz.threads, sz.shared_bytes, cf["mb"]),
        shared_bytes=sz.shared_bytes, steps=ceil_div(int(turns), 1), buffers=cf["stages"],
        fma=channels * sz.kt * sz.pt, shared_loads=words, global_loads=0.0,
        staging=turns * (4.0 * copies + 20.0), epilogue=tiles * storing,
        wavefronts=waves + turns * step / 32, load_bytes=4.0 * turns * step,
        store_sectors=tiles * sz.tile / (8.0 if pd.y_nhwc or cf["v"] * 32 // cf["lk"] >= 8 else 4.0),
        dram_bytes=4.0 * pd.groups * pd.k * pd.c + 4.0 * pd.x_floats + pr.y_bytes,
        cluster=1, shares=shares, combine=COMBINE_NAMES[cf["combine"]],
        partial_bytes=0.0 if cf["combine"] == NONE else 4.0 * sz.tile * blocks * (2 if cf["stream"] else 1),
        tile_bytes=4.0 * sz.tile, useful=pd.pixels * pd.k * pd.groups / (sz.tile * sz.tiles),
        register_intensity=2.0 * sz.kt * sz.pt / (sz.kt + sz.pt),
        block_intensity=2.0 * sz.tile / (sz.kb + sz.pb),
    )  # fmt: skip
