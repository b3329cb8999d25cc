"""Counts of the stem kernel, for the model."""

from __future__ import annotations

import math

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.limits import resident
from tilewright.kernels.products import INSTRUCTION
from tilewright.kernels.split_k import ALONE_SECTORS, alone, left_bytes, stored_bytes
from tilewright.kernels.stem.tile import (
    SECTOR,
    line_of,
    loads,
    meets,
    piece,
    pools,
    registers,
    runs_of,
    tiling_of,
    turned,
    w_registers,
)
from tilewright.kernels.tile import NONE, windows
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

# Fitted to the family's trials in benchmarks/h100/trials.jsonl.gz.
STORED = 0.3  # relative to the model's time of stores: other blocks multiply meanwhile
PART = 3.0  # the same of a part of a sector (NOTES of the H200 runs: rows that begin anywhere)
ADDED = 3.0  # the same of a sector of z, which is read when its sum is there (365 trials)
WAITED = 1.6  # tensor-core cycles per cycle of a product: too few warps hide its latency
COPIED, NUMBERS, PAIRS = 20.0, 3.0, 2.5  # instructions of a copy, and factors if it moves one number, two
FETCH, FILLED = 0.5, 0.306  # time to the first data; share of a unit's first loads that nothing hides
FETCH_BYTES = 63_900.0  # that a unit reads from the L2 cache in that time, by the model's coefficients
FETCHED = 0.6  # relative slots of loads from global memory: the filter's are issued together


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    runs, tiling, (pixels, channels) = runs_of(pr, cf), tiling_of(pr, cf), piece(pr)
    threads, steps, size = 32 * cf["wm"] * cf["wn"], runs.steps(pr), DTYPE_BYTES[pr.dtype]
    pieces = tiling.turns * cf["pt"]  # of pixels, of a warp
    products = pieces * cf["kt"] * steps
    x_loads = pieces * steps * loads(pr, runs)
    fetched = pieces * steps * 2 * (pixels // 8) * (2 if runs.unaligned else 1)  # words of a lane
    w_loads = steps * cf["kt"] * w_registers(pr) / 4 * (tiling.turns if cf["f"] else 1)
    combine = cf["combine"]
    sums = cf["th"] * cf["tw"] * tiling.kb
    outputs = windows(pr, combine, cf["th"]) * windows(pr, combine, cf["tw"]) * tiling.kb
    x_bytes = tiling.image.nbytes * tiling.image.row / tiling.image.pitch
    copies = x_bytes / runs.chunk / threads * {1: NUMBERS, 2: PAIRS}.get(runs.copy, 1.0)
    together = resident(device, registers(pr, cf), threads, tiling.shared_bytes, cf["mb"])
    filled = (x_bytes + tiling.w_bytes) * min(together, ceil_div(tiling.blocks, device.units))
    added = sums * DTYPE_BYTES[pr.dtype_out] * (pr.epilogue.add and combine == NONE)  # bytes of z
    cached = min(pr.y_bytes, device.l2_bytes)  # bytes of y; the rest must go to memory meanwhile
    return GpuWork(
        blocks=tiling.blocks, threads=threads, registers=registers(pr, cf),
        resident=together, fetch=FETCH + FILLED * filled / FETCH_BYTES,
        shared_bytes=tiling.shared_bytes,
        fma=products + x_loads * runs.unaligned, shared_loads=x_loads + w_loads * cf["f"],
        global_loads=FETCHED * w_loads * (1 - cf["f"]),
        staging=copies * COPIED + 40.0 + pieces * 18.0,
        epilogue=pieces * (pixels * channels * cf["kt"] / 32) * (4.0 + 4.0 / tiling.run),
        wavefronts=0.8 * (threads / 32) * (fetched * tiling.image.crowd + 4.0 * w_loads)
        + tiling.image.nbytes / 128,
        load_bytes=x_bytes + tiling.w_bytes,
        store_sectors=outputs * _sectors(pr, cf, tiling.run) + added / SECTOR * ADDED,
        dram_bytes=added * tiling.blocks + pr.x_bytes + pr.w_bytes + STORED * cached + (pr.y_bytes - cached),
        combine=combine, partial_bytes=left_bytes(pr, combine),
        tile_bytes=4.0 * sums, useful=pr.z_elements / (sums * tiling.blocks),
        register_intensity=2.0 * INSTRUCTION * products / max(1.0, (fetched + w_loads) * 64),
        block_intensity=2.0 * pr.terms * sums * size / (tiling.image.nbytes + tiling.w_bytes),
        tensor_cycles=WAITED * products * (threads // 32) * INSTRUCTION / device.tensor_macs,
    )  # fmt: skip


def _sectors(pr: Problem, cf: Values, run: int) -> float:
    """Sectors of an output that is stored, whole ones or what takes as long."""
    nbytes = stored_bytes(pr, cf["combine"])
    whole, lanes = meets(pr, cf) or line_of(pr, cf) % run == 0, 4 * turned(pr, cf)
    if pr.layout_out == "nhwc" or pools(pr, cf["combine"]):
        if alone(pr, nbytes):
            return ALONE_SECTORS
        return STORED * nbytes / min(SECTOR, 4 * (run if whole else 1) * nbytes)
    numbers = lanes * run  # of a channel, that a store writes; neighbours, unless they are stored one by one
    times = 1 if whole else run  # stores for these
    neighbours = numbers if whole or lanes == 4 else lanes
    piece, step = neighbours * nbytes, math.gcd(pr.q * nbytes, SECTOR)
    cost = 0.0
    for start in range(0, SECTOR, step):
        touched = ceil_div(start + piece, SECTOR)
        full = max(0, (start + piece) // SECTOR - ceil_div(start, SECTOR)) if whole or lanes > 4 else 0
        cost += STORED * full + PART * (touched - full)
    return times * cost * step / SECTOR / numbers
