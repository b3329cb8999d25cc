"""Counts of the toeplitz kernel, for the model."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.limits import resident
from tilewright.kernels.products import INSTRUCTION
from tilewright.kernels.split_k import left_bytes, stored_bytes
from tilewright.kernels.toeplitz.tile import (
    BAND,
    EIGHT,
    ToeplitzTiling,
    number_bytes,
    packed_bytes,
    products_of_row,
    registers,
    rounds,
    steps,
    tiling_of,
)
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

LOAD, STORE = 0.9, 1.4  # for each line that such loads and stores meet (fitted to 29 of 10 layers on an H200)
LINE = 128  # bytes
ROUND_CYCLES = 2000.0  # latency of the rows that a warp loads (fitted to 143 trials of 11 layers on an H100)


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    tiling, warps = tiling_of(pr, cf), cf["warps"]
    threads, channels = 32 * warps, cf["cb"] / warps
    rows = channels * pr.r  # of the filter, for a warp
    products = rows * products_of_row(pr, cf)
    loads = rows * (cf["th"] // BAND) * tiling.fragments
    nhwc, out_nhwc = pr.layout_in == "nhwc", pr.layout_out == "nhwc"
    each, filters = number_bytes(pr), cf["cb"] * pr.r * tiling.taps  # bytes of a number, numbers
    items, copies = tiling.items / threads, each * filters / 16 / threads
    outputs = cf["cb"] * cf["th"] * EIGHT * cf["wb"]
    in_bytes, out_bytes = DTYPE_BYTES[pr.dtype], stored_bytes(pr, cf["combine"])
    converted = EIGHT * {1: 2.0, 2: 0.0, 4: 1.0}[in_bytes]  # bytes to f32, and that to f16; f32 to tf32
    lone = 2.0 if cf["cb"] == EIGHT and each == 2 else 1.0  # half a sector is another block's
    stored = outputs * out_bytes / 32
    resident_ = resident(device, registers(pr, cf), threads, tiling.shared_bytes, cf["mb"])
    inputs = tiling.items * EIGHT
    return GpuWork(
        blocks=tiling.blocks, threads=threads, registers=registers(pr, cf), resident=resident_,
        shared_bytes=tiling.shared_bytes, steps=rounds(pr, tiling, cf),
        fma=products, shared_loads=loads + rows * 6.0 * steps(pr),
        staging=items * ((17.0 if nhwc else 24.0) + converted) + copies * 5.0,
        epilogue=outputs / threads * (6.0 if out_nhwc else 4.0),
        wavefronts=0.6 * (4.0 * loads * warps + (inputs / 32 if nhwc else each * inputs / 128)
                          + (outputs / 16 if out_nhwc else 0.0))
        + _scattered(pr, tiling, outputs),
        load_bytes=in_bytes * inputs * (lone if nhwc else 1.0) + float(each) * filters,
        store_sectors=stored * (lone if out_nhwc else 2.0),
        dram_bytes=float(pr.x_bytes + packed_bytes(pr, tiling) + pr.y_bytes),
        combine=cf["combine"], partial_bytes=left_bytes(pr, cf["combine"]),
        tile_bytes=4.0 * outputs, useful=pr.z_elements / (outputs * tiling.blocks),
        register_intensity=2.0 * INSTRUCTION * products / max(1.0, loads * 256),  # tf32: half of each
        block_intensity=2.0 * pr.r * pr.s * outputs / max(1, inputs),
        tensor_cycles=products * warps * INSTRUCTION / device.tensor_macs, turn_cycles=ROUND_CYCLES,
    )  # fmt: skip


def _scattered(pr: Problem, tiling: ToeplitzTiling, outputs: int) -> float:
    """Wavefronts of a block's loads and stores of single numbers: of planes with rows of an odd number."""
    found = 0.0
    if pr.layout_in == "nchw" and pr.w % 2:
        rows = 32 / tiling.eights  # of a warp's load
        found += LOAD * tiling.items / 4 * max(1.0, rows * min(1.0, pr.w * DTYPE_BYTES[pr.dtype] / LINE))
    if pr.layout_out == "nchw" and pr.q % 2:
        found += STORE * outputs / 32 * max(1.0, 8 * min(1.0, pr.q * DTYPE_BYTES[pr.dtype_out] / LINE))
    return found
