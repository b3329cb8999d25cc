"""Counts of the narrow kernel, for the model."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, round_up
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.limits import resident
from tilewright.kernels.narrow.tile import edge, filter_bytes, registers, rows, shared_bytes, sums, taps, tile
from tilewright.kernels.split_k import left_bytes
from tilewright.kernels.tile import rows_under
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

BESIDE = 16  # columns in the sectors on both sides of a tile's row


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    threads, combine, split = 32 * cf["warps"], cf["combine"], cf["split"]
    hb, wb = tile(cf)
    blocks = pr.n * ceil_div(pr.p, hb) * ceil_div(pr.q, wb)
    need, shared, share = registers(pr, cf), shared_bytes(pr, cf), pr.c // split
    own, outputs = rows(pr, cf) * cf["tw"], sums(pr, cf)
    beside = rows(pr, cf) * (pr.s - 1 + edge(pr))
    x_bytes = 4.0 * pr.c * rows_under(pr, hb) * (wb + BESIDE)
    return GpuWork(
        blocks=blocks, threads=threads, registers=need,
        resident=resident(device, need, threads, shared, cf["mb"]), shared_bytes=shared, steps=share,
        fma=float(share * outputs * pr.r * pr.s), shared_loads=share * round_up(taps(pr), 4),
        staging=share * (2.0 * beside + 4.0 * rows(pr, cf)),
        epilogue=outputs * (12.0 + 2.0 * (split > 1)),
        wavefronts=cf["warps"] * share * (round_up(taps(pr), 4) + own + beside),
        load_bytes=x_bytes + filter_bytes(pr), store_sectors=pr.k * hb * wb / 2.0,
        dram_bytes=float(pr.x_bytes + pr.w_bytes + pr.y_bytes),
        combine=combine, partial_bytes=left_bytes(pr, combine),
        tile_bytes=4.0 * pr.k * hb * wb, useful=pr.z_elements / (pr.k * hb * wb * blocks),
        register_intensity=2.0 * outputs * pr.r * pr.s / (own + taps(pr)),
        block_intensity=2.0 * pr.r * pr.s * pr.c * pr.k * hb * wb / max(1.0, x_bytes / 4),
    )  # fmt: skip
