"""Counts of the planar kernel, for the model."""

from __future__ import annotations

from collections import Counter

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.limits import resident
from tilewright.kernels.planar.tile import ROW, plane, registers, steps, teams, threads, tiling_of
from tilewright.kernels.products import paired
from tilewright.kernels.wgmma import BANKS, BULK, EIGHTH, FETCH, LOOP, POWER, SENDING, SENDING_MORE
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

PRODUCTS = ROW // 32  # of a step
PERMUTED = 16  # words of a fragment that a thread puts together in a step
# Cycles, fitted to 885 trials of 13 layers on an H100:
READING = 250.0  # to do so, which products of the same thread wait for if there is one set
COPYING = 3000.0  # of a step, from when it is sent for until it is there
ASIDE = 60.0  # of a step, that thread 0 sends for it beside its products
SHARED = 2500.0  # for a cluster to meet twice


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    tiling, ni, bn, sc = tiling_of(pr, cf), cf["ni"], cf["bn"], cf["sc"]
    of_block, need, share = threads(pr, ni, cf["sender"]), registers(pr, cf), ceil_div(steps(pr), sc)
    warps, outputs = 4 * teams(pr, ni), ni * bn * plane(pr)
    words = share * PERMUTED * (1.5 if paired(pr) and plane(pr) % 2 else 1.0)  # that a thread reads
    read = bn * 32 / BANKS  # cycles to read the filter's part of a product
    products = share * teams(pr, ni) * PRODUCTS
    x_bytes, w_bytes = float(ni * ROW * plane(pr)), float(tiling.w_bytes)
    own = bn / 2 * 6.0 if sc == 1 else bn / 2 * 1.5  # to finish sums, or to write them to the tile
    met = 0.0 if sc == 1 else 60.0 + outputs / 2 / sc / of_block * (12.0 + 2.0 * sc)
    meeting = bn / 2 * (_conflicts(pr) - 1)  # of a thread's stores to the tile
    sending = SENDING + ni * SENDING_MORE
    product = POWER * max(EIGHTH * bn / 8, read)
    alone = READING + PRODUCTS * product if cf["sets"] == 1 else 0.0
    waits = ASIDE * (1 - cf["sender"]) + (SHARED / share if sc > 1 else 0.0)
    return GpuWork(
        blocks=tiling.tiles * sc, threads=of_block, registers=need,
        resident=resident(device, need, of_block, tiling.shared_bytes, cf["mb"]),
        shared_bytes=tiling.shared_bytes, steps=share, buffers=cf["stages"],
        turn_cycles=max(COPYING / cf["stages"], LOOP, sending, alone) + waits,
        fma=4.0 * share * PRODUCTS, shared_loads=words, staging=60.0 + share * (PERMUTED + 16.0),
        epilogue=40.0 + own + met,
        wavefronts=(words + meeting) * warps + 0.6 * (products * read + share * (x_bytes + w_bytes) / BANKS),
        load_bytes=BULK * share * (x_bytes + w_bytes),
        store_sectors=BULK * outputs * DTYPE_BYTES[pr.dtype_out] / 32 / sc,
        dram_bytes=float(pr.x_bytes + pr.w_bytes + pr.y_bytes),
        fetch=FETCH, stays=cf["turns"] > 1, cluster_blocks=sc, tile_bytes=4.0 * outputs,
        useful=pr.z_elements / (outputs * tiling.tiles),
        block_intensity=2.0 * ROW * outputs / (x_bytes + w_bytes),
        tensor_cycles=products * product,
    )  # fmt: skip


def _conflicts(pr: Problem) -> int:
    """Lanes of a warp whose sums go to the same bank: eight pixels in a row, of four channels two apart."""
    if paired(pr):
        return 1
    banks = Counter((2 * channel * plane(pr) + pixel) % 32 for channel in range(4) for pixel in range(8))
    return max(banks.values())
