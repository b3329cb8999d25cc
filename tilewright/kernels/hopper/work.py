"""Counts of the hopper kernel, for the model: instructions, cycles of the tensor cores, bytes."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.floor import least_bytes
from tilewright.kernels.family import Values
from tilewright.kernels.hopper.finish import MET, OWN, STORE_WORDS, finish, run, stores
from tilewright.kernels.hopper.image import joint
from tilewright.kernels.hopper.raster import places_of, raw_stages_of
from tilewright.kernels.hopper.sum import (
    PROMOTED,
    held,
    most_patches,
    most_steps,
    numbers,
    parts_of,
    products,
    promotions,
)
from tilewright.kernels.hopper.tile import HopperTiling, registers, tiling_of
from tilewright.kernels.hopper.ways import (
    COPIES,
    GATHERED,
    HALVED,
    TAPWISE,
    TURNED,
    leads,
    skewed,
    turns_runs,
)
from tilewright.kernels.products import TF32, THREE, in_chunk
from tilewright.kernels.split_k import stored_bytes
from tilewright.kernels.tile import NONE
from tilewright.kernels.untuned.nhwc import copied_bytes
from tilewright.kernels.wgmma import BANKS, BULK, EIGHTH, FETCH, LOOP, POWER, SENDING, SENDING_MORE
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

# Fitted to the trials of f16 and i8 in benchmarks/h100/trials.jsonl.gz, unless marked as measured by clocks
# inside the kernel or by a microbenchmark (benchmarks/h100/NOTES.md), or as guesses.
COPY_CYCLES = 1300.0  # from the start of a copy to its arrival, from main memory with all units busy
MEETING = 1500.0  # cost of combining the sums of a cluster in shared memory, in issue slots
MEETING_FOURS = 1250.0  # the same if each thread sends its sums itself (A/B of both)
NARROW = 1.5  # relative time of a sector stored from registers, 4 bytes a thread: 32 contiguous bytes
AGAIN = 0.5  # relative time of a byte of patches that are copied again per tap (231 configs of 11 layers)
UNSHARED = 0.9  # share of a byte's time that sharing it in a cluster does not save
SKEWED_ROW = 5.0  # copy-engine cycles per channel of a span that begins anywhere (859 trials of 6 layers)
MOVING = 6.0  # cycles to move sums, per column of them (the same)
DRAIN = 60.0  # cycles from the last product until its sums can be promoted (guess)
BY_THREADS = 12.0  # bytes per cycle that three warps copy piece by piece (clocks: 8 to 15)
BY_TURNING = 5.0  # that they load number by number and transpose (fitted to 191 trials of 14 layers)
BY_RUNS = 13.0  # that they transpose after the copy engine copied them (fitted to 1,033 trials of 7 layers)
TURNING = 2.5  # instructions to load a number by itself and pack it with others
COPIED_AT_ONCE = 96 * 8  # pieces that three warps have in flight to be rounded


def work_of(pr: Problem, device: Device, cf: Values) -> GpuWork:
    """Count the work of one block and one thread."""
    tiling, combine = tiling_of(pr, device, cf), cf["combine"]
    steps, patches = most_steps(pr, cf), most_patches(pr, cf)
    teams, tile = cf["wm"] * cf["wn"], tiling.kb * tiling.nb
    read = (64 + cf["bn"]) * 32 / BANKS  # cycles to read the operands of a product
    count = steps * teams * cf["chunks"] / 2 * (3 if parts_of(pr) == 2 else 1)  # products
    cycles = max(EIGHTH * cf["bn"] / 8, read)  # of one
    shared = UNSHARED + (1.0 - UNSHARED) / cf["cm"]
    again = AGAIN if cf["x"] == TAPWISE else 1.0
    w_bytes, x_bytes = steps * tiling.w_bytes, patches * tiling.x_bytes * again
    stored = 4 if combine != NONE else stored_bytes(pr, combine)
    words = finish(pr, cf) == OWN and stores(pr, cf) == STORE_WORDS
    runs = tile / run(pr, cf) / cf["sc"] / tiling.threads  # of a thread
    size = DTYPE_BYTES[pr.dtype]
    x_copied = x_bytes / parts_of(pr) * tiling.x_parts  # otherwise low parts are computed here
    copied, gathered = cf["x"] in COPIES, cf["x"] == GATHERED
    looks = int(cf["x"] == HALVED)  # a launch to find the input's largest number, and one to fall back
    moved, deep = copied_bytes(pr, held(pr, cf), tiling.x_parts), cf["chunks"] * numbers(pr, cf["x"])
    gathering = tiling.nb / tiling.threads * (40.0 + 6.0 * pr.terms)  # slots of a thread
    by_threads = 0 if tiling.image or gathered else patches * places_of(pr, cf) * cf["chunks"]  # pieces
    copy_slots = {TF32: 18.0, THREE: 46.0}.get(products(pr, cf["x"]), 8.0)
    if cf["x"] == TURNED and not turns_runs(pr, cf["x"]):
        copy_slots += TURNING * in_chunk(pr)
    promoted = steps * promotions(pr, cf)
    filters = parts_of(pr) * pr.w_bytes * in_chunk(pr) / numbers(pr, cf["x"])
    return GpuWork(
        blocks=tiling.blocks, threads=tiling.threads, registers=registers(pr, cf), resident=cf["mb"],
        shared_bytes=tiling.shared_bytes, steps=steps, buffers=max(2, cf["stages"]),
        fma=(count * 4 + promoted * teams * cf["bn"] / 2) / (teams + 1),
        staging=60.0 + (gathering if gathered else by_threads / tiling.threads * copy_slots)
        + steps / cf["batch"] * 16.0,
        epilogue=40.0 + _storing(pr, cf, runs),
        wavefronts=0.6 * (count * read + (x_bytes + w_bytes) / BANKS),
        load_bytes=BULK * (w_bytes * shared + (2.0 * size * pr.cg * tiling.nb if gathered else x_copied)),
        store_sectors=tile * stored / 32 / cf["sc"] * (NARROW if words else 1.0),
        dram_bytes=float(least_bytes(pr, device) - pr.w_bytes + filters),
        fetch=FETCH if tiling.image else 1.0, stays=tiling.stays,
        cluster_blocks=cf["sc"] * cf["cm"], shares=cf["sg"],  # shares meet in ``epilogue``
        combine=combine, partial_bytes=0.0 if combine == NONE else 4.0 * tile * tiling.blocks / cf["sc"],
        tile_bytes=4.0 * tile,
        useful=pr.n * pr.p * pr.q * pr.kg / (tiling.px_tiles * tiling.nb * tiling.k_tiles * tiling.kb),
        block_intensity=2.0 * tile * deep * size / (tiling.w_bytes + tiling.x_bytes * patches / steps),
        more_launches=int(copied) + 2 * looks,
        more_bytes=float((1 + looks) * pr.x_bytes + moved) if copied else 0.0,
        tensor_cycles=POWER * count * cycles + promoted * _idle(pr, cf, cycles),
        turn_cycles=_turn(pr, cf, tiling, steps, patches, by_threads),
    )  # fmt: skip


def _turn(
    pr: Problem, cf: Values, tiling: HopperTiling, steps: int, patches: int, by_threads: int
) -> float:
    """Least cycles of a step: its longest wait; ``patches``, ``by_threads`` (pieces): of all steps."""
    deep = cf["chunks"] * numbers(pr, cf["x"])
    return max(
        COPY_CYCLES / (cf["stages"] * cf["batch"]), LOOP / cf["batch"], _sending(pr, cf, tiling),
        _rounding(pr, cf, tiling) * patches / steps, by_threads * 16 / _bytes_copied(pr, cf) / steps,
        tiling.lines * deep * SKEWED_ROW if skewed(pr, cf["x"]) else 0.0,
    ) + _moving(pr, cf, tiling)  # fmt: skip


def _storing(pr: Problem, cf: Values, runs: float) -> float:
    """Instructions of a thread to finish and store its sums, or to write them to a tile and store runs."""
    sums, who = cf["bn"] / 2, finish(pr, cf)
    if who == OWN:
        return sums * (3.0 if stores(pr, cf) == STORE_WORDS else 2.0)
    if who == MET:
        return MEETING_FOURS + sums * 2.0 + ceil_div(cf["bn"], 8 * cf["sc"]) * (40.0 + 8.0 * cf["sc"])
    meeting = MEETING if cf["sc"] > 1 else 0.0
    return meeting + sums * 1.2 + runs * (20.0 + (5.0 + cf["sc"]) * run(pr, cf))


def _idle(pr: Problem, cf: Values, cycles: float) -> float:
    """Cycles of a promotion in which the tensor cores idle, per block.

    Products of a unit's other warpgroups fill them; in accurate also the warpgroup's own with low parts.
    """
    teams = cf["wm"] * cf["wn"] * cf["mb"]
    high = min(cf["chunks"] // 2, PROMOTED.get(products(pr, cf["x"]), 1))
    low = 2 * high if parts_of(pr) == 2 else 0
    others = ((teams - 1) * (high + low) + low) * cycles
    return max(0.0, DRAIN + cf["bn"] / 2 - others) / cf["mb"]


def _sending(pr: Problem, cf: Values, tiling: HopperTiling) -> float:
    """Cycles per step of the thread that issues the copies of filters, and of patches if they are mapped."""
    copies = tiling.raster.phases * tiling.lines  # of a patch
    if joint(pr, cf["x"], tiling.image):  # a patch for each step
        return (SENDING + cf["batch"] * copies * SENDING_MORE) / cf["batch"]
    patches = (SENDING + (copies - 1) * SENDING_MORE) / (pr.r * pr.s) if tiling.image else 0.0
    return SENDING / cf["batch"] + patches


def _moving(pr: Problem, cf: Values, tiling: HopperTiling) -> float:
    """Cycles per step to move sums to the columns of the next lead (hopper_lead.h)."""
    if not skewed(pr, cf["x"]):
        return 0.0
    of_lead = tiling.steps // leads(pr)
    return (DRAIN + MOVING * cf["bn"]) / of_lead


def _bytes_copied(pr: Problem, cf: Values) -> float:
    """Bytes of a patch that threads copy per cycle."""
    if cf["x"] != TURNED:
        return BY_THREADS
    return BY_RUNS if turns_runs(pr, cf["x"]) else BY_TURNING


def _rounding(pr: Problem, cf: Values, tiling: HopperTiling) -> float:
    """Cycles until a patch has gone through registers, for which the next one's copies wait."""
    through = cf["x"] == TURNED or products(pr, cf["x"]) in (TF32, THREE)
    if not through or cf["x"] == GATHERED or tiling.image:
        return 0.0
    pieces = places_of(pr, cf) * cf["chunks"]
    if turns_runs(pr, cf["x"]):
        return COPY_CYCLES / raw_stages_of(cf) + pieces * 16 / BY_RUNS
    return COPY_CYCLES * ceil_div(pieces, COPIED_AT_ONCE)
