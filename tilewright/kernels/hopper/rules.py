"""The rules of the hopper family: limits of the hardware and its kernel, and configs of no use."""

from __future__ import annotations

from dataclasses import replace

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Rule, Values
from tilewright.kernels.hopper.finish import brings_residual
from tilewright.kernels.hopper.image import IMAGED, SWIZZLED, image_of, joint
from tilewright.kernels.hopper.layout import filter_bytes
from tilewright.kernels.hopper.raster import outputs_of, pool_of, raster_of
from tilewright.kernels.hopper.sum import COLUMNS, chunks_of, most_patches, parts_of, runs, steps, taps
from tilewright.kernels.hopper.tile import (
    DECLARED,
    TURNING,
    most_registers,
    registers,
    threads,
    tiles_ahead,
    tiling_of,
)
from tilewright.kernels.hopper.ways import (
    AS_IS,
    COPIED,
    GATHERED,
    HALVED,
    PLANES,
    SLID,
    TAPWISE,
    TURNED,
    skewed,
    turns_runs,
)
from tilewright.kernels.limits import (
    SPILLS,
    TOO_FULL,
    block_rule,
    fits_shared,
    registers_at_most,
    resident_rule,
)
from tilewright.kernels.split_k import COMBINE_NONE
from tilewright.kernels.tile import NONE, View, up_to
from tilewright.problem import Problem

CHUNKS = (2, 4, 8, 16)
ROWS = (2, 4, 8)  # pieces of a row that the tensor cores and the copy engine can swizzle
FEWEST = dict(batch=1, stages=2, xs=1)  # fewest buffers, of the smallest batches
# Parameters that rules depend on: of the input's tensor map, of a block, of its buffers.
IMAGE = " ".join(IMAGED)
BLOCK = f"{IMAGE} wm mb"
BUFFERS = f"{BLOCK} batch stages xs"


def batches(pr: Problem) -> tuple[int, ...]:
    """Allowed batch sizes: one tap, a row of the filter, all taps; for 1x1 filters 1, 2, 4 channel steps."""
    return tuple(sorted({1, pr.s, pr.r * pr.s})) if pr.r * pr.s > 1 else (1, 2, 4)


def _whole_batches(problem: Problem, cf: Values) -> bool:
    """Whether batches make up a patch; if patches come with their filters, the whole sum, or a lead's."""
    way = cf["x"]
    if skewed(problem, way):
        return runs(problem, way, cf["chunks"]) % cf["batch"] == 0
    whole = steps(problem, way, cf["chunks"]) if _joint(problem, cf) else taps(problem, way)
    return whole % cf["batch"] == 0


def _steps_of(problem: Problem, x: int, chunks: int, pieces: int) -> bool:
    """Whether steps of ``chunks`` pieces make up the sum without many empty pieces."""
    if x == GATHERED:
        return chunks == chunks_of(problem, x) and pieces != SWIZZLED
    return chunks in up_to(max(2, 2 * chunks_of(problem, x) - 1), CHUNKS)


def _pools(problem: Problem, cf: Values) -> bool:
    """Whether a block has the whole sums of whole windows, so that it can pool them."""
    pool = pool_of(problem, cf)
    if pool is None:
        return True
    alone = cf["combine"] == NONE and cf["sc"] == 1
    return alone and pool.pad == 0 and min(outputs_of(problem, cf)) > 0


def _upright(problem: Problem, cf: Values) -> bool:
    """Whether a rectangular tile has lines that the copy engine copies, and outputs for each warpgroup."""
    if not cf["tall"]:
        return True
    view = View.of(problem)
    useful = taps(problem, cf["x"]) > 1 or problem.epilogue.pool is not None
    filled = cf["wn"] <= view.p and cf["bn"] < view.q + 8
    return useful and filled and image_of(problem, cf) is not None


def _fits_shared(problem: Problem, device: Device, cf: Values) -> bool:
    """Whether the buffers fit, with the shares of a cluster once they are chosen."""
    filters = filter_bytes(problem, cf) * cf["batch"] * cf["stages"]
    if cf["mb"] * filters > device.shared_per_unit:  # a quick check that finds most that do not fit
        return False
    whole = dict(sc=1) | cf | dict(cm=1, sg=1, combine=NONE)
    if brings_residual(problem, whole):  # its rows are checked once it is known who finishes
        problem = replace(problem, epilogue=replace(problem.epilogue, beta=0.0))
    # An unaligned input is first copied (in accurate, in parts), and then read by the copy engine.
    apart = (cf["x"] == AS_IS and parts_of(problem) == 2) or turns_runs(problem, cf["x"])
    reads = (cf["x"], COPIED) if apart else (cf["x"],)
    block = max(tiling_of(problem, device, whole | dict(x=x)).shared_bytes for x in reads)
    return fits_shared(device, block, cf["mb"], declared=DECLARED)


def _rows_fit(problem: Problem, device: Device, cf: Values) -> bool:
    """Whether rows of a residual fit beside the buffers, if they are copied there."""
    if not brings_residual(problem, cf):
        return True
    return fits_shared(device, tiling_of(problem, device, cf).shared_bytes, cf["mb"], declared=DECLARED)


def _joint(pr: Problem, cf: Values) -> bool:
    """Whether patches share the buffers of their filters."""
    return joint(pr, cf["x"], image_of(pr, cf))


def _threads(pr: Problem, cf: Values) -> int:
    """Threads of a block."""
    return threads(cf, image_of(pr, cf))


def _fits_registers(problem: Problem, device: Device, cf: Values) -> bool:
    return registers(problem, cf) <= most_registers(cf, _threads(problem, cf), device.regs_per_unit)


RULES = (
    block_rule(lambda device, wm, wn: 128 * (wm * wn + 1) <= device.max_threads),
    Rule("channels", lambda problem, wm: 64 * (wm - 1) < problem.kg, "warpgroups without channels"),
    Rule("gather", _steps_of, "a gathered input (x=2) needs one step that covers the sum, and pieces=0"),
    Rule("pixels", lambda problem, x, wn, bn: bn * (wn - 1) < raster_of(problem, x, bn).places,
         "warpgroups without pixels"),
    resident_rule(lambda problem, device, cf:
                  cf["mb"] * _threads(problem, cf) <= device.threads_per_unit, needs=BLOCK),
    Rule("registers", _fits_registers, SPILLS, needs=BLOCK),
    Rule("turned", lambda problem, device, x, wm, wn, mb: x != TURNED or turns_runs(problem, x) or
         registers_at_most(128 * (wm * wn + 1), mb, device.regs_per_unit) >= TURNING,
         "more registers than a unit has, by the threads that turn the input"),
    Rule("swizzled", lambda chunks, pieces: pieces != SWIZZLED or chunks in ROWS,
         "the tensor cores know swizzled rows of 32, 64 and 128 bytes"),
    Rule("mapped", lambda problem, cf:
         cf["x"] not in (HALVED, PLANES, TAPWISE, SLID) or image_of(problem, cf) is not None,
         "numbers split into two of f16, planes in spans of 16, 32 or 64 pixels (bn), rows for three columns "
         "of the filter, and patches of one tap are copied by the copy engine",
         needs=IMAGE),
    Rule("rectangle", _upright, "rows of a tile are copied by the copy engine, one line of the raster each",
         needs=IMAGE),
    Rule("patch", lambda problem, device, cf: _fits_shared(problem, device, cf | FEWEST),
         f"{TOO_FULL}, with the fewest buffers", needs=BLOCK),
    Rule("batch", _whole_batches, "batches that end inside a patch, or the sum",
         needs=f"{IMAGE} batch"),
    Rule("columns", lambda x, batch: x != SLID or batch % COLUMNS == 0,
         "each column of the filter has sums of its own: a batch has all three"),
    Rule("handed", lambda x, wm, wn, mb: x != SLID or (mb == 1 and wm * wn > 1),
         "a block that hands registers on has all of a unit's, for two warpgroups or more that sum"),
    Rule("joint", lambda problem, cf: cf["xs"] == 1 or not _joint(problem, cf),
         "patches that one step reads come with its filters, in no buffers of their own",
         needs=f"{IMAGE} xs"),
    Rule("stages", lambda problem, device, cf: cf["stages"] <= max(
        2, steps(problem, cf["x"], cf["chunks"]) // cf["batch"] * tiles_ahead(problem, device, cf)),
        "more buffers than batches", needs="x wm wn bn mb chunks tall batch stages"),
    Rule("patches", lambda problem, device, cf: cf["xs"] <= runs(
        problem, cf["x"], cf["chunks"]) * tiles_ahead(problem, device, cf),
        "more buffers than runs of channels", needs="x wm wn bn mb chunks tall xs"),
    Rule("shared", _fits_shared, TOO_FULL, needs=BUFFERS),
    Rule("cluster_meets", lambda problem, device, cf: cf["sc"] == 1 or _fits_shared(problem, device, cf),
         "shares of a cluster meet in shared memory, beside the buffers",
         needs=f"{BUFFERS} sc"),
    Rule("residual", _rows_fit, "rows of the residual are copied beside the buffers",
         needs=f"{BUFFERS} cm sc sg combine"),
    Rule("copies", lambda problem, x, wn, bn, cm:
         cm == 1 or ceil_div(raster_of(problem, x, bn).places, bn * wn) > cm // 2,
         "a cluster whose blocks have no pixels"),
    Rule("cluster", lambda device, cm, sc: cm * sc <= device.max_cluster, "more blocks than a cluster holds"),
    Rule("shares", lambda problem, x, chunks, batch, sc, sg: sc * sg * batch <= steps(problem, x, chunks),
         "shares of the sum without steps"),
    Rule("useless_stages", lambda problem, x, chunks, batch, stages, cm, sc, sg: cm * sc * sg == 1 or
         stages <= max(2, ceil_div(steps(problem, x, chunks) // batch, sc * sg)),
        "more buffers than batches of a share"),
    Rule("useless_patches", lambda problem, cf: cf["cm"] * cf["sc"] * cf["sg"] == 1 or
         cf["xs"] <= most_patches(problem, cf),
         "more buffers than runs of channels of a share", needs="x chunks batch xs cm sc sg"),
    Rule("next_patch", lambda problem, cf:
         cf["xs"] > 1 or _joint(problem, cf) or most_patches(problem, cf) == 1,
         "needs two buffers for patches: one is released only once the next is in use",
         needs=f"{IMAGE} batch xs sc sg"),
    COMBINE_NONE,
    Rule("pool", _pools,
         "a block pools whole windows of a tile that it sums alone, else a second kernel does",
         needs="x wn bn tall sc combine"),
)  # fmt: skip
