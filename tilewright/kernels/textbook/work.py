"""Sizes of the textbook kernels, and their counts for the model."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.limits import RESERVED_SHARED
from tilewright.kernels.tile import columns_under, rows_under
from tilewright.kernels.work import CpuWork, GpuWork, Work
from tilewright.problem import Problem

NAIVE, TILE, UNROLL, GEMM_NAIVE, GEMM_UNCOALESCED, GEMM_COALESCED, TENSOR_NAIVE, TENSOR_TILED = range(8)
DEPTH = 32  # channels of a step of TENSOR_TILED


def side(pr: Problem, pool: int) -> int:
    """Sums along one side of a pool's window that a thread holds at once."""
    return pr.epilogue.pool.size if pr.epilogue.pool and pool else 1


def tiles(pr: Problem, cf: Values) -> tuple[int, int, int]:
    """Blocks along K, P and Q of an image; in a gemm or tensor step, along K and the pixels of all images."""
    if cf["step"] >= TENSOR_NAIVE:
        rows, columns = warp_tile(cf)
        return ceil_div(pr.k, rows * cf["bk"]), ceil_div(pr.n * pr.p * pr.q, columns * cf["bh"]), 1
    if cf["step"] >= GEMM_NAIVE:
        return ceil_div(pr.k, cf["bw"]), ceil_div(pr.n * pr.p * pr.q, cf["bw"]), 1
    return ceil_div(pr.k, cf["bk"]), ceil_div(pr.y_p, cf["bh"]), ceil_div(pr.y_q, cf["bw"])


def warp_tile(cf: Values) -> tuple[int, int]:
    """Output channels and pixels of a warp in a tensor step."""
    return (32, 32) if cf["step"] == TENSOR_TILED else (16, 16)


def tile_floats(pr: Problem, cf: Values) -> int:
    """Inputs of one channel under a block."""
    sums, forward = side(pr, cf["pool"]), pr.epilogue.pool.stride if pr.epilogue.pool else 1
    down, across = ((cf[name] - 1) * forward + sums for name in ("bh", "bw"))
    return rows_under(pr, down) * columns_under(pr, across)


def staged_words(cf: Values) -> int:
    """Words that a thread of a tensor step copies to shared memory at once, all in flight."""
    return DEPTH // 2 * (cf["bh"] + cf["bk"]) // (cf["bh"] * cf["bk"]) if cf["step"] == TENSOR_TILED else 0


def tensor_registers(cf: Values) -> int:
    """Estimate of the registers of a thread in a tensor step: its sums, fragments, words in flight.

    Each of these words takes itself and its address.
    """
    rows, columns = warp_tile(cf)
    return rows * columns // 32 + 48 + 3 * staged_words(cf)


def shared_bytes(pr: Problem, cf: Values) -> int:
    """Shared memory of a block."""
    if cf["step"] >= TENSOR_NAIVE:
        return 4 * 32 * (cf["bh"] + cf["bk"]) * (DEPTH // 2 + 4) if cf["step"] == TENSOR_TILED else 0
    if cf["step"] >= GEMM_NAIVE:
        return 4 * 2 * cf["bw"] * (cf["bw"] + 1) if cf["step"] > GEMM_NAIVE else 0
    return 4 * tile_floats(pr, cf) if cf["step"] > NAIVE else 0


def work_of(pr: Problem, device: Device, cf: Values) -> Work:
    """Count the work of one block and one thread; on a CPU that of a core, which runs a whole block."""
    if cf["step"] >= TENSOR_NAIVE:
        return _tensor(pr, device, cf)
    work = _gemm(pr, device, cf) if cf["step"] >= GEMM_NAIVE else _conv(pr, device, cf)
    return work if device.is_gpu else _of_core(work)


def _of_core(work: GpuWork) -> CpuWork:
    """Count the threads of a block in succession, in scalars; the L1 cache holds what they load.

    42 configs of three layers took 0.64 of the estimate on one core of a Zen 4 (standard deviation 1.8-fold);
    counting instructions for addresses only made that worse.
    """
    products = work.fma * work.threads
    filters = (work.shared_loads + work.global_loads) * work.threads - products
    return CpuWork(
        blocks=work.blocks, dram_bytes=work.dram_bytes, combine=work.combine,
        partial_bytes=work.partial_bytes, useful=work.useful, register_intensity=work.register_intensity,
        block_intensity=work.block_intensity, more_launches=work.more_launches, more_bytes=work.more_bytes,
        vectors=3, width=1, multiply_adds=products, filter_loads=filters, input_loads=products,
        turns=round(filters), copying=work.staging * work.threads,
        storing=work.epilogue * work.threads, filter_bytes=4.0 * filters, filter_once_bytes=0.0,
        filter_tile_bytes=0.0, input_bytes=4.0 * products, input_tile_bytes=0,
    )  # fmt: skip


def _conv(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count a step of the convolution."""
    sums, pool = side(pr, cf["pool"]), pr.epilogue.pool
    parts = (pool.size // sums) ** 2 if pool else 1
    threads, taps = cf["bw"] * cf["bh"] * cf["bk"], parts * pr.c * pr.r * pr.s
    staged, tile = cf["step"] > NAIVE, parts * pr.c * tile_floats(pr, cf)
    apart = pr.stride[1] * (pool.stride if pool else 1)  # distance of neighbours' inputs in shared memory
    conflicts = gcd(apart, 32) if cf["bw"] > 16 else 1
    k, p, q = tiles(pr, cf)
    return _work(
        pr, device, cf, pr.n * k * p * q, threads, pr.c * parts if staged else 1,
        fma=float(taps * sums**2), shared_loads=float(taps * sums**2 if staged else 0),
        global_loads=float(taps if staged else taps * (1 + sums**2)),
        staging=12.0 * tile / threads if staged else 0.0,
        wavefronts=ceil_div(threads, 32) * taps * sums**2 * float(conflicts if staged else 1),
        load_bytes=4.0 * (tile + cf["bk"] * taps), registers=sums**2 + 32, outputs=threads,
        run=min(8, cf["bw"]) if pr.layout_out == "nchw" else 1,
    )  # fmt: skip


def _gemm(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count a step of the matrix product."""
    t, (k, pixels, _) = cf["bw"], tiles(pr, cf)
    staged, turns = cf["step"] > GEMM_NAIVE, ceil_div(pr.c, cf["bw"])
    words = 2.0 * (turns if staged else pr.c)  # that a thread reads from global memory
    turned = cf["step"] == GEMM_COALESCED
    sectors = 1.0 if turned else 8.0  # of the filter fetched, per sector of needed data
    work = _work(
        pr, device, cf, k * pixels, t * t, turns if staged else 1,
        fma=float(pr.c), shared_loads=2.0 * pr.c if staged else 0.0,
        global_loads=words, staging=8.0 * turns if staged else 0.0,
        wavefronts=t * t / 32 * (2.0 * pr.c if staged else words * 8),
        load_bytes=4.0 * t * pr.c * (1.0 + sectors), registers=32, outputs=t * t,
        run=min(8, t) if pr.layout_out == "nhwc" else 1,
    )  # fmt: skip
    return replace(work, more_launches=1, more_bytes=2.0 * pr.w_bytes) if turned else work


def _tensor(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count a step of the matrix product on tensor cores; in naive all 8 rows of a load lie apart."""
    rows, columns = warp_tile(cf)
    warps, (k, pixels, _) = cf["bh"] * cf["bk"], tiles(pr, cf)
    staged, depth = cf["step"] == TENSOR_TILED, DEPTH if cf["step"] == TENSOR_TILED else 16
    steps = ceil_div(pr.c, depth)
    read = steps * depth / 16 * (4 * rows / 16 + 2 * columns / 8)  # words of a lane
    words = steps * depth / 2 * (rows * cf["bk"] + columns * cf["bh"]) / (32 * warps) if staged else read
    work = _work(
        pr, device, cf, k * pixels, 32 * warps, steps, fma=steps * depth / 16 * rows * columns / 128,
        shared_loads=read if staged else 0.0, global_loads=words, staging=8.0 * words,
        wavefronts=warps * (read + words if staged else words * 8),
        load_bytes=2.0 * steps * depth * (rows * cf["bk"] + columns * cf["bh"]) * (1 if staged else 2),
        registers=tensor_registers(cf), outputs=rows * columns * warps,
        run=16 if pr.layout_out == "nchw" else 2,
    )  # fmt: skip
    cycles = steps * depth * rows * columns * warps / device.tensor_macs
    down, across = rows * cf["bk"], columns * cf["bh"]  # of a block
    return replace(
        work, tensor_cycles=cycles, register_intensity=2.0 * rows * columns / (rows + columns),
        block_intensity=2.0 * down * across / (down + across),
    )  # fmt: skip


def _work(
    pr: Problem, device: Device, cf: Values, blocks: int, threads: int, turns: int, *, fma: float,
    shared_loads: float, global_loads: float, staging: float, wavefronts: float, load_bytes: float,
    registers: int, outputs: int, run: int,
) -> GpuWork:  # fmt: skip
    shared = shared_bytes(pr, cf)
    room = (
        device.threads_per_unit // threads, device.regs_per_unit // (registers * threads),
        device.shared_per_unit // (shared + RESERVED_SHARED), device.blocks_per_unit,
    )  # fmt: skip
    return GpuWork(
        blocks=blocks, threads=threads, registers=registers, resident=max(1, min(room)),
        shared_bytes=shared, steps=turns, buffers=int(shared > 0), fma=fma, shared_loads=shared_loads,
        global_loads=global_loads, staging=staging, epilogue=12.0, wavefronts=wavefronts,
        load_bytes=load_bytes, store_sectors=outputs / run, dram_bytes=float(pr.bytes),
        tile_bytes=4.0 * outputs, useful=pr.y_elements / (blocks * outputs),
        register_intensity=2.0 * fma / (shared_loads + global_loads),
        block_intensity=2.0 * fma * threads * 4.0 / load_bytes,
    )  # fmt: skip
