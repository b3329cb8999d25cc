"""Counts of the grouped kernel, for the model."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.floor import least_flops
from tilewright.kernels.family import Values
from tilewright.kernels.grouped.channels import across
from tilewright.kernels.grouped.tile import (
    blocks_of,
    channels_read,
    items_of,
    reads_quads,
    registers,
    stores_quads,
)
from tilewright.kernels.limits import resident
from tilewright.kernels.split_k import left_bytes
from tilewright.kernels.tile import columns_under, rows_under
from tilewright.kernels.word import filter_bytes, issue_slots, read_bytes, word_bytes, word_registers, words
from tilewright.kernels.work import CpuWork, GpuWork, Work
from tilewright.problem import DTYPE_BYTES, Problem

# Instructions of a core: per item, input, output. Source: fitted to 127 configs of 19 layers on 4
# cores of a Sapphire Rapids (PoCL 3).
ITEM, CHECKING, STORING = 100.0, 6.0, 6.0
FETCH = 0.5  # on a GPU: time to the first data, where 1 is that of blocks that stage it (11,955 trials)


def work_of(pr: Problem, device: Device, cf: Values) -> Work:
    """Count the work of one block, and on a GPU of one thread."""
    return (_gpu_work if device.is_gpu else _cpu_work)(pr, device, cf)


def _gpu_work(pr: Problem, device: Device, cf: Values) -> GpuWork:
    items, each = items_of(pr, cf), 1 if across(pr) else channels_read(pr, cf["v"])
    blocks = blocks_of(items, device, cf)
    inputs = rows_under(pr, cf["th"]) * columns_under(pr, cf["tw"])
    runs = columns_under(pr, cf["tw"])  # loads of a row
    if reads_quads(pr, cf):
        runs = ceil_div(runs + (-pr.pad[2]) % 4, 4)
    loads, word = rows_under(pr, cf["th"]) * runs * words(pr) / each, float(word_bytes(pr))
    outputs = cf["th"] * cf["tw"] * cf["v"]
    inputs *= words(pr) * (cf["v"] if across(pr) else 1)
    fma = words(pr) * pr.r * pr.s * outputs
    sectors = cf["threads"] * outputs / (8.0 if pr.layout_out == "nhwc" else 8.0 / cf["tw"])
    if stores_quads(pr, cf):
        sectors = cf["threads"] * outputs / (8.0 if cf["tw"] == 4 else 4.0)
    need = registers(pr, cf["v"], cf["th"], cf["tw"])
    seen = least_flops(pr) / pr.flops  # of the inputs: the rest is padding
    return GpuWork(
        blocks=blocks, threads=cf["threads"], registers=need,
        resident=resident(device, need, cf["threads"], 0, cf["mb"]),
        fma=float(fma * issue_slots(pr, device)), global_loads=loads / 8,
        staging=loads * 5.0 + words(pr) * pr.r * pr.s * cf["v"],
        epilogue=outputs * 4.0, wavefronts=seen * loads * cf["threads"] / 32 * _lines(pr, cf),
        load_bytes=seen * read_bytes(pr) * inputs * cf["threads"],
        store_sectors=sectors, dram_bytes=pr.x_bytes + filter_bytes(pr) + pr.y_bytes,
        fetch=FETCH, streams=True, combine=cf["combine"], partial_bytes=left_bytes(pr, cf["combine"]),
        tile_bytes=word * outputs * cf["threads"], useful=pr.z_elements / (items * outputs),
        register_intensity=2.0 * fma / max(1, inputs), block_intensity=2.0 * fma / max(1, inputs),
    )  # fmt: skip


def _lines(pr: Problem, cf: Values) -> float:
    """Cache lines of 128 bytes that a warp's load reads, at least two: neighbours lie ``apart``."""
    apart = cf["tw"] * pr.stride[1] if pr.layout_in == "nchw" else channels_read(pr, cf["v"])
    return min(32.0, max(2.0, apart * DTYPE_BYTES[pr.dtype] * 32 / 128))


def _cpu_work(pr: Problem, device: Device, cf: Values) -> CpuWork:
    v, items, over = cf["v"], items_of(pr, cf), across(pr)
    slots = 2 if pr.is_integer and over and v > 1 else issue_slots(pr, device)  # single numbers, no dot4
    blocks = blocks_of(items, device, cf)
    run = items / blocks
    taps, pixels = words(pr) * pr.r * pr.s, cf["th"] * cf["tw"]
    # Inputs of an item, or vectors of them if lanes are groups.
    inputs = rows_under(pr, cf["th"]) * columns_under(pr, cf["tw"]) * words(pr)
    loads = inputs / (1 if over else channels_read(pr, v))
    fetched = read_bytes(pr) * inputs * (v if over else 1)
    tile_bytes = float(word_bytes(pr) * taps * v)  # of an item's filter
    # Bytes of the filter read before any of them is read again.
    reused_bytes = float(filter_bytes(pr)) if pr.layout_out == "nhwc" else tile_bytes
    intensity = 2.0 * taps * pixels * v / max(1, inputs * (v if over else 1))
    return CpuWork(
        blocks=blocks, dram_bytes=pr.x_bytes + filter_bytes(pr) + pr.y_bytes,
        combine=cf["combine"], partial_bytes=left_bytes(pr, cf["combine"]),
        useful=pr.z_elements / (items * pixels * v),
        register_intensity=intensity, block_intensity=intensity,
        vectors=pixels + columns_under(pr, cf["tw"]) + 1, width=v * word_registers(pr),
        multiply_adds=run * taps * pixels * slots,
        filter_loads=run * taps * cf["th"], input_loads=run * inputs, turns=round(run * taps),
        copying=run * (ITEM + CHECKING * loads),
        storing=run * pixels * STORING * (1 if pr.layout_out == "nhwc" else v),
        filter_bytes=run * tile_bytes * cf["th"], filter_once_bytes=min(reused_bytes, run * tile_bytes),
        filter_tile_bytes=reused_bytes, input_bytes=run * fetched, input_tile_bytes=0,
    )  # fmt: skip
