"""Counts of the gemm kernel, for the model: instructions, wavefronts, bytes."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.gemm.product import GemmTiling, Product, kept_places, registers, tiling_of
from tilewright.kernels.limits import resident
from tilewright.kernels.tile import NONE
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

# Issue slots per word from shared memory, beyond the share that the model leaves idle anyway: fewer if
# the next words are read early. Fitted to 1,679 configs of four products on an H100.
HIDDEN = {1: 0.4, 2: 0.2}
LAST_TURN, REST = 1, 2  # what a stream splits evenly: the last full wave and the rest, or only the rest
FINDING = 3.0  # instructions to find out whether a tap of a pixel is padding
STREAM_STORE = 4.0  # a block of the stream stores parts of two tiles, and reads those of others back


@dataclass(frozen=True)
class Stream:
    """How a stream distributes its tiles.

    Attributes:
        full_tiles: tiles computed by a block each, in full waves of the device.
        blocks: blocks that split the steps of the other tiles evenly: as many as run at once.
        each: steps of each of these blocks; the first ``longer`` have one more.
    """

    full_tiles: int
    blocks: int
    each: int
    longer: int


def stream_of(device: Device, tiling: GemmTiling, cf: Values) -> Stream | None:
    """Distribute the tiles; None if each tile, or each share of it, has a block of its own."""
    if not cf["stream"]:
        return None
    blocks = device.units * cf["mb"]
    full_tiles = max(0, tiling.tiles // blocks - (cf["stream"] == LAST_TURN)) * blocks
    return Stream(full_tiles, blocks, *divmod((tiling.tiles - full_tiles) * tiling.steps, blocks))


def work_of(pr: Problem, pd: Product, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    tiling = tiling_of(pd, cf)
    stream = stream_of(device, tiling, cf)
    blocks = stream.blocks if stream else tiling.tiles * cf["sg"]  # those whose work is counted
    steps = tiling.tiles * tiling.steps / blocks if stream else ceil_div(tiling.steps, cf["sg"])
    tiles = max(1.0, tiling.tiles / blocks) if stream else 1.0  # that a block stores
    shared = max(1.0, tiles - stream.full_tiles / blocks) if stream else 0.0  # those combined from parts
    channels = steps * cf["cs"] / cf["sb"]  # of one thread
    words = (tiling.kt + tiling.pt) * channels * HIDDEN[cf["fd"]]
    staged = cf["cs"] * (tiling.kb + tiling.pb)  # words of a step
    copies = cf["cs"] * tiling.kb / 4 / tiling.threads + tiling.x_copies
    finding = FINDING * pd.tap_words * (tiling.x_copies if pd.flat else kept_places(pd, tiling))
    loads = cf["tk"] * max(1.0, cf["lk"] / 8) + tiling.pt * max(1.0, 1.0 / cf["lk"]) / 4
    waves = tiling.threads / 32 * channels * loads
    meeting = 3.0 * tiling.kt * tiling.pt if cf["sb"] > 1 else 0.0
    storing = (4.0 * tiling.kt * tiling.pt / cf["sb"] + meeting) * (tiles + shared * (STREAM_STORE - 1.0))
    shares = 2 if stream else cf["sg"]
    return GpuWork(
        blocks=blocks, threads=tiling.threads, registers=registers(cf),
        resident=resident(device, registers(cf), tiling.threads, tiling.shared_bytes, cf["mb"]),
        shared_bytes=tiling.shared_bytes, steps=int(steps), buffers=cf["stages"],
        fma=channels * tiling.kt * tiling.pt, shared_loads=words,
        staging=steps * (4.0 * copies + finding + 20.0), epilogue=storing,
        wavefronts=waves + steps * staged / 32, load_bytes=4.0 * steps * staged,
        store_sectors=tiles * tiling.tile / (8.0 if pd.y_nhwc or cf["v"] * 32 // cf["lk"] >= 8 else 4.0),
        dram_bytes=float(pr.w_bytes + pr.y_bytes) + _x_bytes(pr, pd),
        shares=shares, combine=cf["combine"],
        partial_bytes=0.0 if cf["combine"] == NONE else 4.0 * tiling.tile * blocks * (2 if stream else 1),
        tile_bytes=4.0 * tiling.tile, useful=pd.pixels * pd.k * pd.groups / (tiling.tile * tiling.tiles),
        register_intensity=2.0 * tiling.kt * tiling.pt / (tiling.kt + tiling.pt),
        block_intensity=2.0 * tiling.tile / (tiling.kb + tiling.pb),
    )  # fmt: skip


def _x_bytes(pr: Problem, pd: Product) -> float:
    """Bytes of the input that are read: no rows, and of nhwc no pixels, between those of a 1x1 filter."""
    if pd.columns:
        return 4.0 * pd.column_floats
    skipped = pr.stride[0] * (pr.stride[1] if pd.x_nhwc else 1) if not pd.tapped else 1
    return pr.x_bytes / skipped
