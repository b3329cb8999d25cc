"""Counts of the grouped_mma kernel, for the model."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.grouped_mma.tile import (
    CHANNELS,
    PIECE,
    PIXELS,
    GroupedMmaTiling,
    columns_at_once,
    registers,
    tiling_of,
)
from tilewright.kernels.limits import resident
from tilewright.kernels.products import INSTRUCTION
from tilewright.kernels.split_k import left_bytes, stored_bytes
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

# Fitted to trials of the family on an H100 (benchmarks/h100/trials.jsonl.gz).
FETCH = 0.63  # relative time to the first data
COPIED, PLACED, FINISHED = 42.0, 17.0, 0.75  # instructions per copy, address, output
LOADED = 55.0  # instructions per load of nchw, for which the next loads wait
STORED, PORT = 0.05, 0.57  # factors of the counts of stores and of loaded matrices
LINES = 3.2  # cycles of the shared-memory port per line of x or y, which bounds stores, not their bytes


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    tiling, warps = tiling_of(pr, cf), cf["wm"] * cf["wn"]
    threads, outputs = 32 * warps, CHANNELS * cf["nt"]
    strips, pixels = tiling.turns * cf["bw"], tiling.turns * cf["pt"] * PIXELS  # of a warp
    pairs = ceil_div(tiling.row_sum, 2)  # of pieces, along a row of the filter
    loads, addresses = strips * tiling.seen * pairs, strips * pairs
    products = pixels // PIXELS * cf["bw"] * cf["nt"] * pr.r * pairs
    short = products * tiling.row_sum / (2 * pairs)  # with half products counted half
    staged = tiling.pieces * tiling.rows * tiling.columns
    x_bytes, loaded, touched = _read(pr, tiling)
    combine, kb = cf["combine"], outputs * cf["bw"] * cf["wn"]
    sums = cf["th"] * cf["tw"] * kb
    out_bytes = stored_bytes(pr, combine)
    w_bytes = 128.0 * tiling.words * cf["wn"]
    lines = warps * pixels * cf["bw"] * 2 * cf["nt"] / (tiling.run * tiling.turned)  # of y that are stored to
    lines = lines / (2 if pr.layout_out == "nchw" and out_bytes == 2 else 1) + touched
    stored = 4 * tiling.run * out_bytes * cf["bw"]  # contiguous bytes of a pixel that a warp stores
    return GpuWork(
        blocks=tiling.blocks, threads=threads, registers=registers(pr, cf),
        resident=resident(device, registers(pr, cf), threads, tiling.shared_bytes, cf["mb"]), fetch=FETCH,
        shared_bytes=tiling.shared_bytes, fma=products, shared_loads=loads, global_loads=tiling.words / 4,
        staging=(staged * COPIED + loaded * LOADED) / threads + addresses * PLACED,
        epilogue=pixels * outputs * cf["bw"] / 32 * (FINISHED + 2.0 * FINISHED / tiling.run),
        wavefronts=PORT * (2.0 * strips * tiling.seen * tiling.row_sum * warps + staged / 8 + LINES * lines),
        load_bytes=x_bytes + w_bytes,
        store_sectors=STORED * sums * out_bytes / min(32, stored),
        dram_bytes=pr.x_bytes + w_bytes * tiling.k_tiles + pr.y_bytes, combine=combine,
        partial_bytes=left_bytes(pr, combine),
        tile_bytes=4.0 * sums, useful=pr.z_elements / (sums * tiling.blocks),
        register_intensity=2.0 * INSTRUCTION * short / max(1.0, loads * 256),
        block_intensity=2.0 * pr.terms * sums * DTYPE_BYTES[pr.dtype] / (tiling.shared_bytes + w_bytes),
        tensor_cycles=short * warps * INSTRUCTION / device.tensor_macs,
    )  # fmt: skip


def _read(pr: Problem, tiling: GroupedMmaTiling) -> tuple[float, float, float]:
    """Bytes of x that a block reads; for nchw also the number of its loads and of the lines they touch."""
    if pr.layout_in == "nhwc":
        staged = tiling.pieces * tiling.rows * tiling.columns
        return PIECE * staged * (1.0 if tiling.pieces % 2 == 0 else 2.0), 0.0, 0.0
    run, lead = columns_at_once(pr)
    runs, size = ceil_div(lead + tiling.columns, run), DTYPE_BYTES[pr.dtype]
    rows = tiling.rows * tiling.pieces * PIECE / size  # of all channels
    x_bytes = rows * 32.0 * ceil_div(runs * run * size + 16, 32)
    return x_bytes, rows * runs, rows * (1.0 + runs * run * size / 128)
