"""Work counts of the direct family's GPU kernel, for the model: instructions, wavefronts, bytes."""

from __future__ import annotations

from functools import lru_cache

from tilewright.arithmetic import ceil_div, round_up
from tilewright.device import Device
from tilewright.kernels.direct.gpu_tile import (
    GpuTiling,
    out_shared,
    registers,
    shared_bytes,
    staging,
    tiling_of,
)
from tilewright.kernels.family import Values
from tilewright.kernels.tile import NONE
from tilewright.kernels.word import (
    as_words,
    filter_bytes,
    issue_slots,
    read_bytes,
    word_bytes,
    word_registers,
)
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

ENGINE_FETCH = 1.1  # time of the copy engine to the first filter, relative to threads; fitted


def work(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    tiling = tiling_of(pr, cf)
    taps, registers_of = pr.r * pr.s, word_registers(pr)
    channels = cf["cs"] // (cf["sw"] * cf["sb"]) * tiling.steps  # of one thread
    tile, shares = tiling.tile, cf["sc"] * cf["sg"]
    blocks = tiling.all_tiles * shares
    fma = channels * taps * cf["v"] * cf["tk"] * cf["th"] * cf["tw"]
    shared_f = min(1, cf["f"])
    x_words, x_waves = _x_loads(pr, cf, tiling)
    f_words, f_waves = taps * cf["tk"] * cf["v"], taps * cf["tk"] * _f_wavefronts(pr, cf, tiling)
    shared_loads = channels * registers_of * (x_words * cf["x"] + f_words * shared_f)
    global_loads = channels * registers_of * (x_words * (1 - cf["x"]) + f_words * (1 - shared_f))
    warps = max(1, tiling.threads // 32)
    x_step = cf["cs"] * tiling.xh * tiling.xw
    f_step = cf["cs"] * taps * tiling.kb
    staged = _staged_by_thread(pr, cf, tiling)
    staged += (cf["f"] == 1) * registers_of * f_step / tiling.threads / 4 * 1.5
    word = float(word_bytes(pr))
    return GpuWork(
        blocks=blocks, threads=tiling.threads, registers=registers(pr, cf), resident=cf["mb"],
        shared_bytes=shared_bytes(pr, cf, tiling),
        steps=tiling.steps, buffers=_buffers(pr, cf), fma=fma * issue_slots(pr, device),
        shared_loads=shared_loads, global_loads=global_loads, staging=staged * tiling.steps,
        epilogue=_epilogue(cf, tiling) * registers_of,
        wavefronts=warps * channels * (x_waves * cf["x"] + f_waves * shared_f)
        + tiling.steps * registers_of * (_staged_words(pr, cf, tiling) + f_step * shared_f) / 32,
        load_bytes=tiling.steps * (read_bytes(pr) * x_step + word * f_step),
        store_sectors=_store_sectors(pr, cf, tiling) / cf["sc"],
        dram_bytes=pr.x_bytes + filter_bytes(pr) + pr.y_bytes,
        cluster_shares=cf["sc"], shares=cf["sg"], combine=cf["combine"],
        partial_bytes=0.0 if cf["combine"] == NONE else word * tile * blocks / cf["sc"],
        tile_bytes=word * tile,
        useful=pr.z_elements / (tile * blocks / shares),
        register_intensity=2.0 * taps * cf["v"] * cf["tk"] * cf["th"] * cf["tw"]
        / (tiling.rows * tiling.row + taps * cf["v"] * cf["tk"]),
        block_intensity=2.0 * taps * tile * cf["cs"] / (x_step + f_step),
        fetch=ENGINE_FETCH if cf["f"] == 2 else 1.0,
    )  # fmt: skip


def _staged_by_thread(pr: Problem, cf: Values, tiling: GpuTiling) -> float:
    """Instructions of a thread that stage the input of a step."""
    xs = staging(pr, cf, tiling)
    return xs.items / tiling.threads * ((5.0 if xs.copies else 22.0) + _making(pr, xs.run))


def _staged_words(pr: Problem, cf: Values, tiling: GpuTiling) -> float:
    """Words of the input staged in a step, as the shared-memory port counts them: four per copy."""
    items = staging(pr, cf, tiling).items
    return (4.0 * items if as_words(pr) else float(cf["cs"] * tiling.xh * tiling.xw)) * cf["x"]


def _making(pr: Problem, run: int) -> float:
    """Instructions to convert what a copy stages (widen a run, gather bytes); 0 for a plain copy."""
    if as_words(pr):
        return 0.0
    return 12.0 if pr.is_integer else 2.0 * run


def _buffers(pr: Problem, cf: Values) -> int:
    """Staging buffers; only copies that bypass the registers overlap with the multiply-adds."""
    if not cf["x"] + cf["f"]:
        return 0
    return cf["stages"] if as_words(pr) or not cf["x"] else 1


def _x_loads(pr: Problem, cf: Values, tiling: GpuTiling) -> tuple[float, float]:
    """Words that a lane reads, and wavefronts of its warp, for the input rows of one channel."""
    across, down = cf["tw"] * pr.stride[1], cf["th"] * pr.stride[0]
    tx = staging(pr, cf, tiling).strides
    quad = cf["cv"] == 4 or (across % 4 == 0 and tx[2] == 1)
    words = 4 if cf["x"] and quad else 1
    instructions = pr.r * cf["th"] * (tiling.row / cf["cv"] if cf["cv"] == 4 else ceil_div(tiling.row, words))
    waves = wavefronts(
        cf["bk"], cf["bw"], cf["bh"], cf["sw"], cf["wfast"],
        0, across * tx[2], down * tx[1], tx[0] * cf["cv"], words, word_registers(pr),
    )  # fmt: skip
    row = round_up(tiling.row, words) if words > 1 and cf["cv"] == 1 else tiling.row
    return pr.r * cf["th"] * row, instructions * waves


def _f_wavefronts(pr: Problem, cf: Values, tiling: GpuTiling) -> float:
    """Wavefronts of a warp's load of one vector of the filter."""
    channel = pr.r * pr.s * tiling.kb * cf["cv"]
    return wavefronts(cf["bk"], cf["bw"], cf["bh"], cf["sw"], cf["wfast"], cf["v"], 0, 0, channel, cf["v"],
                      word_registers(pr))  # fmt: skip


@lru_cache(maxsize=65536)
def wavefronts(
    bk: int, bw: int, bh: int, sw: int, wfast: int, by_k: int, by_w: int, by_h: int, by_share: int,
    words: int, banks_of_word: int = 1,
) -> int:  # fmt: skip
    """Cycles of the shared-memory port for one load of a warp: the most words read from one bank.

    ``by_k`` to ``by_share`` are the distances, in words, between lanes that are neighbours in K, W, H
    and in their share of C; each lane reads ``words`` words, each in one or two of the 4-byte banks.
    """
    banks: dict[int, set[int]] = {}
    for lane in range(32):
        t, share = lane % (32 // sw), lane // (32 // sw)
        k = t // (bw * bh) if wfast else t % bk
        w = t % bw if wfast else t // bk % bw
        h = t // bw % bh if wfast else t // (bk * bw) % bh
        first = k * by_k + w * by_w + h * by_h + share * by_share
        for part in range(first * banks_of_word, (first + words) * banks_of_word):
            banks.setdefault(part % 32, set()).add(part)
    return max(len(parts) for parts in banks.values())


def _epilogue(cf: Values, tiling: GpuTiling) -> float:
    """Instructions of a thread from its accumulators to memory."""
    mine = tiling.tile / tiling.team
    count = 4.0 * mine
    if out_shared(cf):
        summed = tiling.tile / tiling.threads / cf["sc"]  # outputs that a thread finishes
        count = 3.0 * mine + summed * (10.0 + 3.0 * cf["sb"] + 3.0 * cf["sc"])
    if cf["sw"] > 1:
        count += 2.0 * cf["sw"].bit_length() * mine
    return count


def _store_sectors(pr: Problem, cf: Values, tiling: GpuTiling) -> float:
    """Sectors that a block writes, depending on whether outputs of neighbouring threads share them."""
    if out_shared(cf):
        run = tiling.kb if pr.layout_out == "nhwc" else tiling.wb
    elif pr.layout_out == "nhwc":
        run = cf["bk"] * cf["v"]
    elif cf["tw"] % 4 == 0 and tiling.view.q % 4 == 0:
        run = 4
    else:
        run = max(1, 8 // cf["tw"]) if cf["wfast"] else 1
    return tiling.tile / min(32.0 / DTYPE_BYTES[pr.dtype_out], max(1.0, run))
