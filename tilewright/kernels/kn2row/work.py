"""Counts of the kn2row kernel, for the model."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.kn2row.tile import (
    batches_in_flight,
    chunk_loads,
    chunks,
    chunks_at_once,
    pieces,
    read_rows,
    registers,
    rows_at_once,
    summed_rows,
    tap_rows,
    taps,
    tiling_of,
    units,
)
from tilewright.kernels.limits import resident
from tilewright.kernels.products import INSTRUCTION
from tilewright.kernels.split_k import left_bytes, stored_bytes
from tilewright.kernels.tile import rows_under
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

# Fitted to 3,600 trials on an H100, and of large filters to 430 on an H200.
LOAD_CYCLES = 600.0  # latency of the loads that a warp issues together
PIXEL_LINES = 8.0  # a load of a warp is of eight pixels; in nchw of four channels
ADD_CYCLES, FINISH_CYCLES = 12.0, 250.0  # of a tap that a thread adds up, and of an output


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    tiling, warps, split, combine = tiling_of(pr, cf), cf["warps"], cf["split"], cf["combine"]
    threads, share = 32 * warps, chunks(pr) / split
    rounds = ceil_div(units(pr, cf), warps // split)  # batches of pixels of a warp in an iteration
    turns = tiling.turns * rounds
    passes = turns * share * summed_rows(pr) * rows_at_once(pr)  # over a chunk of its pixels
    products = passes * 2 * pieces(pr) * cf["pt"]
    x_loads, w_loads = turns * share * read_rows(pr) * chunk_loads(pr, cf), passes * 2 * pieces(pr) * cf["f"]
    lines = PIXEL_LINES if pr.layout_in == "nhwc" else PIXEL_LINES / 2  # of the L1 cache that a load meets
    pixels, sums = tiling.rows * tiling.columns, pr.k * cf["th"] * cf["tw"]
    added = tap_rows(pr) * pr.s * split  # for an output
    adds = sums * added
    waits = rounds * share * read_rows(pr) / chunks_at_once(pr, cf) * LOAD_CYCLES / batches_in_flight(pr)
    finishing = FINISH_CYCLES + ADD_CYCLES * added
    waits += ceil_div(pr.k * cf["rb"] * cf["tw"], threads) * finishing
    x_bytes = float(rows_under(pr, cf["th"]) * tiling.columns * pr.c * DTYPE_BYTES[pr.dtype])
    return GpuWork(
        blocks=tiling.blocks, threads=threads, registers=registers(pr, cf),
        resident=resident(device, registers(pr, cf), threads, tiling.shared_bytes, cf["mb"]),
        shared_bytes=tiling.shared_bytes, steps=tiling.turns, turn_cycles=waits,
        fma=products + adds / threads, shared_loads=w_loads + adds / threads,
        staging=x_loads * 8.0 + turns * cf["pt"] * (16.0 + 3.0 * taps(pr) / 16),
        epilogue=sums / threads * 30.0,
        wavefronts=(pixels * taps(pr) * split + adds) / 32 + (4.0 * w_loads + lines * x_loads) * warps,
        load_bytes=x_bytes + tiling.w_bytes,
        store_sectors=sums * stored_bytes(pr, combine) / 32,
        dram_bytes=float(pr.x_bytes + tiling.w_bytes + pr.y_bytes),
        combine=combine, partial_bytes=left_bytes(pr, combine),
        tile_bytes=4.0 * sums, useful=pr.z_elements / (sums * tiling.blocks),
        register_intensity=2.0 * INSTRUCTION * products / max(1.0, (x_loads * 4 + w_loads * 4) * 64),
        block_intensity=2.0 * pr.r * pr.s * pr.c * sums * DTYPE_BYTES[pr.dtype] / max(1.0, x_bytes),
        tensor_cycles=products * warps * INSTRUCTION / device.tensor_macs,
    )  # fmt: skip
