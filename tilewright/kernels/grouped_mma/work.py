"""Counts of the grouped_mma kernel, for the model."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.grouped_mma.tile import CHANNELS, PIECE, PIXELS, registers, sizes
from tilewright.kernels.limits import resident
from tilewright.kernels.tile import COMBINE_NAMES, TWO_PASS, ceil_div
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

PRODUCT = 16 * 8 * 16  # multiply-adds of an instruction of f16; those of i8 take as long

# Fitted to trials of the family on an H100 (benchmarks/h100/trials.jsonl.gz).
FIRST = 0.69  # of the time to the first data
COPIED, PLACED, FINISHED = 45.0, 12.0, 0.5  # instructions of a copy, an address, an output
STORED, PORT, WAITED = 0.1, 0.7, 2.0  # times what is counted: stores, matrices loaded, products
LINES = 2.7  # cycles of the port of shared memory for a line of y: what stores take, rather than their bytes


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count what one block and one thread do."""
    sz, warps = sizes(pr, cf), cf["wm"] * cf["wn"]
    threads, outputs = 32 * warps, CHANNELS * cf["nt"]
    strips, pixels = sz.turns * cf["bw"], sz.turns * cf["pt"] * PIXELS  # of a warp
    loads, addresses = strips * sz.seen * ceil_div(sz.row_sum, 2), strips * ceil_div(sz.row_sum, 2)
    products = pixels // PIXELS * cf["bw"] * cf["nt"] * pr.r * ceil_div(sz.row_sum, 2)
    short = products * sz.row_sum / (2 * ceil_div(sz.row_sum, 2))  # where a half counts half
    staged = sz.pieces * sz.rows * sz.columns
    combine, kb = cf["combine"], outputs * cf["bw"] * cf["wn"]
    sums = cf["th"] * cf["tw"] * kb
    out_bytes = 4 if combine == TWO_PASS else DTYPE_BYTES[pr.dtype_out]
    w_bytes = 128.0 * sz.words * cf["wn"]
    lines = warps * pixels * cf["bw"] * 2 * cf["nt"] / (sz.run * sz.turned)  # of y that stores reach
    stored = 4 * sz.run * out_bytes * cf["bw"]  # neighbouring bytes of a pixel that a warp stores
    return GpuWork(
        blocks=sz.blocks, threads=threads, registers=registers(pr, cf),
        resident=resident(device, registers(pr, cf), threads, sz.shared_bytes, cf["mb"]), first=FIRST,
        shared_bytes=sz.shared_bytes, steps=1, buffers=0,
        fma=products, shared_loads=loads, global_loads=sz.words / 4,
        staging=staged / threads * COPIED + addresses * PLACED,
        epilogue=pixels * outputs * cf["bw"] / 32 * (FINISHED + 2.0 * FINISHED / sz.run),
        wavefronts=PORT * (2.0 * strips * sz.seen * sz.row_sum * warps + staged / 8 + LINES * lines),
        load_bytes=PIECE * staged * (1.0 if sz.pieces % 2 == 0 else 2.0) + w_bytes,
        store_sectors=STORED * sums * out_bytes / min(32, stored),
        dram_bytes=pr.x_bytes + w_bytes * sz.k_tiles + pr.y_bytes, cluster=1, shares=1,
        combine=COMBINE_NAMES[combine],
        partial_bytes=4.0 * pr.z_elements * (combine == TWO_PASS),
        tile_bytes=4.0 * sums, useful=pr.z_elements / (sums * sz.blocks),
        register_intensity=2.0 * PRODUCT * short / max(1.0, loads * 256),
        block_intensity=2.0 * pr.r * pr.s * pr.cg * sums / max(1, sz.shared_bytes + w_bytes),
        tensor_cycles=WAITED * short * warps * PRODUCT / device.tensor_macs, turn_cycles=0.0,
    )  # fmt: skip
