"""Counts of the stem kernel, for the model."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.limits import resident
from tilewright.kernels.stem.tile import piece, registers, runs, sizes, w_registers
from tilewright.kernels.tile import COMBINE_NAMES, TWO_PASS
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

PRODUCT = 16 * 8 * 16  # multiply-adds of an instruction of f16; those of i8 and tf32 take as long

STORED = 0.5  # of the time that the model has for stores: other blocks multiply meanwhile


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count what one block and one thread do."""
    it, sz, (pixels, channels) = runs(pr, cf), sizes(pr, cf), piece(pr)
    threads, steps = 32 * cf["wm"] * cf["wn"], it.steps(pr)
    pieces = sz.turns * cf["pt"]  # of pixels, of a warp
    products = pieces * cf["kt"] * steps
    loads = pieces * steps * 2 * (pixels // 8) * (2 if it.unaligned else 1)
    w_loads = steps * cf["kt"] * w_registers(pr) / 4 * (sz.turns if cf["f"] else 1)
    outputs = cf["th"] * cf["tw"] * sz.kb
    out_bytes = 4 if cf["combine"] == TWO_PASS else DTYPE_BYTES[pr.dtype_out]
    copies = sz.x_bytes / it.copy / threads
    stored = 2 * sz.group * out_bytes  # bytes that a thread stores at once
    return GpuWork(
        blocks=sz.blocks, threads=threads, registers=registers(pr, cf),
        resident=resident(device, registers(pr, cf), threads, sz.shared_bytes, cf["mb"]),
        shared_bytes=sz.shared_bytes, steps=1, buffers=0,
        fma=products + loads * it.unaligned, shared_loads=loads + w_loads * cf["f"],
        global_loads=w_loads * (1 - cf["f"]),
        staging=copies * 14.0 + 40.0 + pieces * 12.0,
        epilogue=pieces * (pixels * channels * cf["kt"] / 32) * (2.0 + 8.0 / (2 * sz.group)),
        wavefronts=0.6 * (threads / 32) * (loads + 4.0 * w_loads) + sz.x_bytes / 128,
        load_bytes=float(sz.x_bytes + sz.w_bytes),
        store_sectors=STORED * outputs * out_bytes / min(32, 4 * stored),
        dram_bytes=float(pr.x_bytes + pr.w_bytes) + STORED * pr.y_bytes, cluster=1, shares=1,
        combine=COMBINE_NAMES[cf["combine"]],
        partial_bytes=4.0 * pr.z_elements * (cf["combine"] == TWO_PASS),
        tile_bytes=4.0 * outputs, useful=pr.z_elements / (outputs * sz.blocks),
        register_intensity=2.0 * PRODUCT * products / max(1.0, (loads + w_loads) * 64),
        block_intensity=2.0 * pr.r * pr.s * pr.c * outputs / max(1, sz.x_bytes + sz.w_bytes),
        tensor_cycles=products * (threads // 32) * PRODUCT / device.tensor_macs, turn_cycles=0.0,
    )  # fmt: skip
