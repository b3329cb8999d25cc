"""Counts of the shifted kernel, for the model."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.limits import resident
from tilewright.kernels.products import paired
from tilewright.kernels.shifted.registers import registers, registers_to_store
from tilewright.kernels.shifted.tile import (
    PIECE,
    channels,
    filter_rows,
    image_rows,
    runs,
    shape_of,
    steps,
    tiling_of,
)
from tilewright.kernels.wgmma import BANKS, BULK, EIGHTH, FETCH, LOOP, POWER, SENDING, SENDING_MORE
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

# Cycles, or instructions of a thread, fitted to 2,046 trials of 118 layers on an H100 and an H200; 575 with
# tiles across rows, not among those, take 1.1 times what is predicted in the median:
READING = 530.0  # to read the words of a product, which the next ones wait for if there is one set
COPYING = 6400.0  # of a run, from when it is sent for until it is there
SENDERS = 3  # warps that send planes, one after the other of their lanes
SHARED = 6000.0  # for a cluster to meet twice; this and ADDED by 841 trials of 98 layers on an H200
WORD = 0.6  # for a word of a fragment, besides its load
STEP = 9.0  # for a step, besides its products
ROUNDED = 1.0  # to round it to tf32
STORED = 20.0  # for an output
ADDED = 100.0  # for a run of outputs, and each share of it
AT_ONCE = 4  # outputs of such a run
STORING = 20.0  # for a store of sums from registers, fitted to 841 trials of 18 layers on an H200


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    tiling, shape, bn, sc = tiling_of(pr, cf), shape_of(pr, cf), cf["bn"], cf["sc"]
    chunks, of_tap = cf["chunks"], cf["chunks"] // 2  # products
    tall, of_step = cf["tall"], filter_rows(pr, cf["tall"])  # rows of the filter
    of_run = pr.r // of_step  # steps
    need = max(registers(pr, cf), registers_to_store(cf))
    of_block, warps, share = shape.threads, 4 * shape.teams, ceil_div(steps(pr, cf), sc)
    outputs = bn * shape.outputs
    of_all = runs(pr, chunks)
    patches = min(of_all, ceil_div(share - 1, of_run) + 1) if sc > 1 else of_all
    taps = share * of_step * pr.s  # and outputs of a pixel: fragments that are multiplied
    rows = share * image_rows(pr, tall)  # that a lane reads
    words = (pr.s - 1) * pr.dilation[1] + pr.stride[1] + 2 + 2 * (pr.w % 2)  # of 2 bytes, under two pixels
    loads = rows * of_tap * 4 * (words / 2 if paired(pr) else pr.s)  # of a thread
    apart = 4 * pr.h * pr.w % PIECE  # bytes from a lane's first plane to the next lane's
    conflicts = float(max(1 + (apart > 0), min(pr.stride[1], 4)))
    read = bn * 32 / BANKS  # cycles to read the filter's part of a product
    products = taps * tall * shape.teams * of_tap
    deep = patches * channels(pr, chunks)  # channels of the sum
    x_bytes, w_bytes = deep * shape.sent, share * float(tiling.w_bytes)
    at_once = 2 if paired(pr) and pr.q % 2 == 0 else 1  # sums that a thread stores from registers
    own = tall * bn / 2 * (STORING / at_once if cf["stay"] else 1.5)  # to store, or to put into the tile
    run = AT_ONCE if sc > 1 else shape.run_out
    runs_out = 0.0 if cf["stay"] else shape.pixels * bn / run / sc / of_block  # of a thread
    sending = (SENDING + shape.met_images * channels(pr, chunks) / SENDERS * SENDING_MORE) * patches / share
    product = POWER * max(EIGHTH * bn / 8, read)
    alone = of_tap * (rows * READING + taps * tall * product) / share if cf["sets"] == 1 else 0.0
    waits = SHARED / share if sc > 1 else 0.0
    return GpuWork(
        blocks=tiling.tiles * sc, threads=of_block, registers=need,
        resident=resident(device, need, of_block, tiling.shared_bytes, cf["mb"]),
        shared_bytes=tiling.shared_bytes, steps=share, buffers=cf["stages"],
        turn_cycles=max(COPYING / (cf["xs"] * of_run), LOOP, sending, alone) + waits,
        fma=4.0 * taps * tall * of_tap, shared_loads=loads,
        staging=60.0 + loads * (WORD + (0.0 if paired(pr) else ROUNDED)) + rows * STEP,
        epilogue=40.0 + own + runs_out * (STORED * run + ADDED * sc),
        wavefronts=loads * conflicts * warps + 0.6 * (products * read + (x_bytes + w_bytes) / BANKS),
        load_bytes=BULK * (x_bytes + w_bytes), store_sectors=outputs * DTYPE_BYTES[pr.dtype_out] / 32 / sc,
        dram_bytes=float(pr.x_bytes + pr.w_bytes + pr.y_bytes),
        fetch=FETCH, stays=bool(cf["stay"]), cluster_blocks=sc, tile_bytes=4.0 * outputs,
        useful=pr.z_elements / (outputs * tiling.tiles),
        block_intensity=2.0 * outputs * pr.r * pr.s * deep * DTYPE_BYTES[pr.dtype] / (x_bytes + w_bytes),
        tensor_cycles=products * product,
    )  # fmt: skip
