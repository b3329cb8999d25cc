"""Counts of the pointwise kernel, for the model."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.limits import resident
from tilewright.kernels.pointwise.tile import (
    SPAN,
    k_tiles,
    kept_bytes,
    places,
    plane,
    registers,
    row_bytes,
    run_out,
    steps,
    strands,
    thins,
    threads,
    tiling_of,
)
from tilewright.kernels.products import paired
from tilewright.kernels.untuned.thin import thinned_bytes
from tilewright.kernels.wgmma import BANKS, EIGHTH, FETCH, TEAM
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

# Cycles, or instructions of a thread, fitted to 431 trials of 27 layers on an H200, to 245 of strands, and
# the first to 1,775 of 145 layers:
READING = 250.0  # to read the words of a product, which the next ones wait for if there is one set
COPYING = 2500.0  # of a step, from when it is sent for until it is there
WORD = 1.6  # for a word of a fragment, besides its load
KEEPING = 1.0  # to finish a sum
ROW = 2.0  # for the copy engine to bring a row of a span
STRAND_ROW = 9.0  # the same of a strand
STORING = 8.0  # for a store
WAITING = 300.0  # for a step, and to release the one before
CACHED = 0.25  # relative time of the L2 cache for a byte


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    tiling, bn, count, of_step = tiling_of(pr, cf), cf["bn"], steps(pr, cf["chunks"]), cf["chunks"] // 2
    turns = cf["teams"] if cf["turns"] else 1  # a team that takes turns is like a block of its own
    teams, need, of_block = cf["teams"] // turns, registers(pr, cf), threads(cf) // turns
    warps, outputs, tiles = 4 * teams, TEAM * teams * bn, places(pr, cf) * k_tiles(pr, cf)
    halves = paired(pr) and plane(pr) % 2  # every other channel's pixels begin in the middle of a word
    loads = 4.0 * count * of_step * (1.5 if halves else 1.0)  # words that a thread reads
    read = bn * 32 / BANKS  # cycles to read the filter's part of a product
    products = teams * of_step * count
    x_bytes = float(tiling.x_bytes)
    w_bytes = 0.3 * tiling.w_bytes if cf["keep"] else float(tiling.w_bytes)
    row = STRAND_ROW if strands(pr) > 1 else ROW
    sending = row * x_bytes / row_bytes(pr) + ROW * w_bytes / SPAN
    product = max(EIGHTH * bn / 8, read)  # what comes and goes takes longer: the clock does not drop
    alone = of_step * (READING + product) if cf["sets"] == 1 else 0.0
    stored = outputs * DTYPE_BYTES[pr.dtype_out] / 32 if turns * cf["mb"] == 1 else 0.0  # or beside products
    read_bytes = pr.x_bytes * pr.p / pr.h if thins(pr) else pr.x_bytes  # whole rows
    kept = 2.0 * outputs * kept_bytes(pr) / BANKS  # written and read
    return GpuWork(
        blocks=tiles, threads=of_block, registers=need,
        resident=turns * resident(device, need, threads(cf), tiling.shared_bytes, cf["mb"]),
        shared_bytes=tiling.shared_bytes // turns, steps=count, buffers=cf["stages"],
        turn_cycles=max(COPYING / cf["stages"] * turns, WAITING, sending * turns, alone),
        fma=4.0 * count * of_step, shared_loads=loads, staging=60.0 + loads * WORD + count * 16.0,
        epilogue=40.0 + bn / 2 * (KEEPING + STORING / run_out(pr)),
        wavefronts=loads * warps + kept + 0.6 * (products * read + count * (x_bytes + w_bytes) / BANKS),
        load_bytes=CACHED * count * (x_bytes + w_bytes), store_sectors=stored,
        dram_bytes=float(read_bytes + pr.w_bytes + pr.y_bytes),
        more_launches=int(thins(pr)), more_bytes=float(pr.x_bytes + thinned_bytes(pr)) if thins(pr) else 0.0,
        fetch=FETCH, stays=True, tile_bytes=4.0 * outputs,
        useful=pr.z_elements / (outputs * tiles),
        block_intensity=2.0 * outputs * cf["chunks"] * 16 / (x_bytes + w_bytes),
        tensor_cycles=products * product,
    )  # fmt: skip
