"""Counts of the mma kernel, for the model: instructions, cycles of the tensor cores, wavefronts, bytes."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.device.architectures import mma_f64
from tilewright.kernels.family import Values
from tilewright.kernels.limits import RESERVED_SHARED, resident, tap_words
from tilewright.kernels.mma.tile import (
    COPIES,
    GATHERED,
    PLANES,
    chunks_of,
    pixels_on_m,
    products,
    registers,
    row_pieces,
    stores_fours,
    tiling_of,
)
from tilewright.kernels.products import (
    DOUBLE,
    E4M3,
    INSTRUCTION,
    INSTRUCTION_F64,
    PLAIN,
    TF32,
    THREE,
    in_chunk,
)
from tilewright.kernels.split_k import ALONE_SECTORS, alone
from tilewright.kernels.tile import NONE, ProductTiling
from tilewright.kernels.untuned.nhwc import copied_bytes
from tilewright.kernels.word import word_bytes
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

WAVEFRONT = 0.6  # relative to the model's cycles, fitted to loads with conflicts; ldmatrix has none
COUNTED = 24.0  # instructions to find the taps of a wide filter that meet the image (by counting them)
FAR_LINE = 0.8  # wavefronts of each line of 128 bytes in which a warp's load has a number, past the first
COPY_CYCLES = 800.0  # from the start of a copy to its arrival, from main memory with all units busy (guess)
# By PRODUCTS: m16n8 instructions of a piece, a thread's adds besides, instructions to prepare its fragments.
_ISSUED = {PLAIN: (2, 0, 0), TF32: (2, 0, 4), THREE: (6, 16, 24), E4M3: (2, 8, 0), DOUBLE: (2, 0, 0)}
_ISSUED_90 = {**_ISSUED, E4M3: (4, 16, 8)}  # sm_90 widens e4m3 to f16 and adds two sums for one (its SASS)


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    tiling, combine = tiling_of(pr, cf), cf["combine"]
    shares = cf["sc"] * cf["sg"]
    blocks, steps = tiling.tiles * shares, ceil_div(tiling.steps, shares)
    fragments = steps * cf["chunks"] / 2 / cf["sb"]  # along the sum, of a warp
    pieces, warps = cf["mt"] * cf["nt"], tiling.threads // 32
    product, planes, numbers = products(pr, cf["x"]), cf["x"] == PLANES, in_chunk(pr)
    reads = fragments * (cf["mt"] + (0 if planes else cf["nt"]))  # of a warp: 4 wavefronts each
    loads = reads * (2 if product == DOUBLE else 1)  # by ldmatrix, or a row's number after the other
    singles = fragments * cf["nt"] * numbers if planes else 0.0  # of a lane, a wavefront each but of f64
    waves = 4.0 * reads + singles * ((4 if pr.p * pr.q % 2 else 2) if product == DOUBLE else 1)
    packs = max(0.0, 1 - 4 / numbers)  # instructions to put a number into its word
    x_pieces = numbers * row_pieces(pr, tiling.pb) if planes else tiling.pb
    x_bytes, w_bytes = 16 * steps * cf["chunks"] * x_pieces, 16 * steps * cf["chunks"] * tiling.kb
    issued = _ISSUED_90 if device.capability == 90 else _ISSUED
    multiplies, adds, prepares = issued[product]
    meeting = 8.0 * pieces if cf["sb"] * cf["sc"] > 1 else 0.0
    tile_bytes = float(word_bytes(pr) * tiling.tile)  # of sums
    out_bytes = word_bytes(pr) if combine != NONE else DTYPE_BYTES[pr.dtype_out]
    copied = cf["x"] in COPIES
    run = 32 if pixels_on_m(pr) else 4 * out_bytes * 4
    useful = pr.n * pr.p * pr.q * pr.k / (tiling.tile * tiling.tiles)
    lone = alone(pr, out_bytes) or (combine == NONE and not stores_fours(pr))
    return GpuWork(
        blocks=blocks, threads=tiling.threads, registers=registers(pr, cf),
        resident=resident(device, registers(pr, cf), tiling.threads, tiling.shared_bytes, cf["mb"]),
        shared_bytes=tiling.shared_bytes, steps=steps, buffers=cf["stages"],
        fma=fragments * (pieces * (multiplies + adds) + (cf["mt"] + cf["nt"]) * prepares),
        shared_loads=loads + singles * (1 + packs),
        staging=_staging(pr, cf, tiling, steps),
        epilogue=40.0 + meeting + 8.0 * pieces * (4.0 if combine == NONE else 2.0) / cf["sb"],
        wavefronts=WAVEFRONT * (waves * warps + (x_bytes * (1 + cf["l1"]) + w_bytes) / 128
                                + _far_lines(pr, cf, tiling, steps)),
        load_bytes=float(x_bytes * _missed(pr, device, cf, tiling) + w_bytes),
        store_sectors=tiling.tile * (ALONE_SECTORS * useful if lone else out_bytes / min(32, run)),
        dram_bytes=float(pr.x_bytes + pr.w_bytes + pr.y_bytes),
        cluster_shares=cf["sc"], shares=cf["sg"], combine=combine,
        partial_bytes=0.0 if combine == NONE else tile_bytes * tiling.tiles * cf["sg"],
        tile_bytes=tile_bytes, useful=useful,
        register_intensity=2.0 * 256 * pieces / (16 * (cf["mt"] + cf["nt"])),
        block_intensity=2.0 * tiling.tile / (tiling.kb + tiling.pb),
        more_launches=int(copied),
        more_bytes=float(pr.x_bytes + copied_bytes(pr, chunks_of(pr, cf["x"]))) if copied else 0.0,
        tensor_cycles=fragments * pieces * warps * multiplies * _cycles(product, device),
        turn_cycles=COPY_CYCLES / (cf["stages"] - 1),
    )  # fmt: skip


def _far_lines(pr: Problem, cf: Values, tiling: ProductTiling, steps: int) -> float:
    """Wavefronts of the lines, past the first, that a block's gathering loads meet: a lane has a pixel."""
    if cf["x"] != GATHERED:
        return 0.0
    apart = pr.stride[1] * (pr.c if pr.layout_in == "nhwc" else 1) * DTYPE_BYTES[pr.dtype]
    loads = tiling.x_copies * cf["chunks"] * in_chunk(pr) * steps * tiling.threads // 32
    return FAR_LINE * loads * max(0.0, min(32.0, 32 * apart / 128) - 1)


def _cycles(product: int, device: Device) -> float:
    """Cycles that the tensor cores of a unit take for one m16n8 instruction."""
    if product == DOUBLE:
        return INSTRUCTION_F64 / (mma_f64(device.capability) or device.tensor_macs / 16)  # as on sm_80
    return INSTRUCTION / device.tensor_macs


def _staging(pr: Problem, cf: Values, tiling: ProductTiling, steps: int) -> float:
    """Instructions of a thread that stage the input and the filter, in ``steps`` steps."""
    words = tap_words(pr)
    taps = 3.0 * (pr.r + pr.s) if words == 1 else COUNTED
    first = tiling.x_copies * (20.0 + taps)  # where each pixel begins, and its taps
    copying = cf["chunks"] * (4.0 * in_chunk(pr) + 3.0) if cf["x"] == GATHERED else 6.0 * words
    x_slots = tiling.x_copies * copying
    filter_copies = ceil_div(tiling.kb * cf["chunks"], tiling.threads)
    return first + steps * (x_slots + 1.5 * filter_copies + 20.0)


def _missed(pr: Problem, device: Device, cf: Values, tiling: ProductTiling) -> float:
    """Share of the input's bytes read from the L2 cache: the rest is in L1, read before for other taps."""
    if not cf["l1"] and cf["x"] != GATHERED:
        return 1.0
    rows = ceil_div(tiling.pb, pr.q) * pr.stride[0] + (pr.r - 1) * pr.dilation[0]
    window = min(rows * pr.w, pr.n * pr.h * pr.w)  # pixels under the tile
    room = device.shared_per_unit - cf["mb"] * (tiling.shared_bytes + RESERVED_SHARED)
    fits = cf["mb"] * window * 16 * cf["chunks"] <= room
    return min(1.0, window / (pr.r * pr.s * tiling.pb)) if fits else 1.0
