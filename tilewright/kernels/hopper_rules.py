"""The rules of the hopper family: what the hardware and its kernel forbid, and what would be of no use."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.family import Rule
from tilewright.kernels.hopper_sum import (
    AS_IS,
    COPIED,
    GATHERED,
    HALVED,
    chunks_of,
    most_patches,
    parts_of,
    runs,
    steps,
    taps,
)
from tilewright.kernels.hopper_tile import (
    ROWS,
    SWIZZLED,
    image,
    joint,
    lines,
    outputs_of,
    raster,
    registers,
    registers_at_most,
    sizes,
    threads,
    tiles_ahead,
)
from tilewright.kernels.limits import fits_shared
from tilewright.kernels.shares import COMBINE_NONE
from tilewright.kernels.tile import NONE, TWO_PASS, ceil_div, up_to
from tilewright.problem import Problem

CHUNKS = (2, 4, 8, 16)


def batches(pr: Problem) -> tuple[int, ...]:
    """How many steps may come at once: of one tap, a row, all taps; of 1x1 filters, of so many channels."""
    return tuple(sorted({1, pr.s, pr.r * pr.s})) if pr.r * pr.s > 1 else (1, 2, 4)


def _whole_batches(pr: Problem, way: int, chunks: int, together: bool, batch: int) -> bool:
    """Whether batches make up a patch; or, where patches come with their filters, the sum."""
    of_patch = taps(pr, way)
    return (runs(pr, way, chunks) if together else of_patch) % batch == 0


def _steps_of(pr: Problem, way: int, chunks: int, pieces: int) -> bool:
    """Whether steps of so many pieces make up the sum, without many that are empty."""
    if way == GATHERED:
        return chunks == chunks_of(pr, way) and pieces != SWIZZLED
    return chunks in up_to(max(2, 2 * chunks_of(pr, way) - 1), CHUNKS)


def _pools(pr: Problem, way: int, wn: int, bn: int, tall: int, sc: int, combine: int) -> bool:
    """Whether whoever has whole sums can pool them."""
    pool = pr.epilogue.pool
    if pool is None or combine == TWO_PASS:
        return True
    tile = outputs_of(pr, dict(x=way, wn=wn, bn=bn, tall=tall, combine=combine))
    return combine == NONE and sc == 1 and pool.pad == 0 and min(tile) > 0


def _upright(pr: Problem, *values: int) -> bool:
    """Whether a tile that is a rectangle has lines of its own to copy, and outputs for each warpgroup."""
    way, wn, bn, *_, tall = values
    view = lines(pr, way)[0]
    useful = taps(pr, way) > 1 or pr.epilogue.pool is not None
    return not tall or (useful and wn <= view.p and bn < view.q + 8 and image(pr, *values) is not None)


_BUFFERS = ("x", "wm", "wn", "bn", "mb", "chunks", "pieces", "tall", "batch", "stages", "xs")


def _fits_shared(pr: Problem, device: Device, *values: int, sc: int = 1) -> bool:
    """Say whether the buffers fit; ``values`` are those of _BUFFERS."""
    cf = dict(zip(_BUFFERS, values, strict=True))
    filters = parts_of(pr) * 64 * cf["wm"] * 16 * cf["chunks"] * cf["batch"] * cf["stages"]
    if cf["mb"] * filters > device.shared_per_unit:  # most that do not fit are seen by these alone
        return False
    whole = dict(cf, sc=sc, cm=1, sg=1, combine=NONE)
    # Of accurate an input that is not aligned is copied in parts first, and then by the copy engine.
    reads = (AS_IS, COPIED) if cf["x"] == AS_IS and parts_of(pr) == 2 else (cf["x"],)
    block = max(sizes(pr, whole | dict(x=x)).shared_bytes for x in reads) + 1024  # a flag, in room of its own
    return fits_shared(device, block, cf["mb"])


def _ahead(pr: Problem, *values: int) -> int:
    """Tiles whose data there may be buffers for."""
    return tiles_ahead(pr, dict(zip(("x", "wm", "wn", "bn", "mb", "tall"), values, strict=True)))


def _joint(pr: Problem, *values: int) -> bool:
    """Whether patches come with the filters that read them; ``values`` are those of IMAGED."""
    return joint(pr, image(pr, *values))


def _threads(pr: Problem, wm: int, *values: int) -> int:
    """Threads of a block; ``values`` are those of IMAGED."""
    return threads(dict(wm=wm, wn=values[1]), image(pr, *values))


RULES = (
    Rule("block", lambda device, wm, wn: 128 * (wm * wn + 1) <= device.max_threads,
         "more threads than a block may have"),
    Rule("channels", lambda problem, wm: 64 * (wm - 1) < problem.kg, "warpgroups without channels"),
    Rule("gather", lambda problem, x, chunks, pieces: _steps_of(problem, x, chunks, pieces),
         "what is gathered is one step, pieces apart"),
    Rule("pixels", lambda problem, x, wn, bn: bn * (wn - 1) < raster(problem, x),
         "warpgroups without pixels"),
    Rule("resident", lambda problem, device, x, wm, wn, bn, mb, chunks, pieces, tall: mb * _threads(
        problem, wm, x, wn, bn, chunks, pieces, tall) <= device.threads_per_unit,
        "more threads than a unit holds at once"),
    Rule("registers", lambda problem, device, x, wm, wn, bn, mb, chunks, pieces, tall: registers(
        problem, dict(x=x, bn=bn)) <= registers_at_most(
        _threads(problem, wm, x, wn, bn, chunks, pieces, tall), mb, device.regs_per_unit),
         "more registers than a thread or a unit has"),
    Rule("swizzled", lambda chunks, pieces: pieces != SWIZZLED or chunks in ROWS,
         "the tensor cores know swizzled rows of 32, 64 and 128 bytes"),
    Rule("halves", lambda problem, x, wn, bn, chunks, pieces, tall: x != HALVED or image(
        problem, x, wn, bn, chunks, pieces, tall) is not None,
        "numbers that were split into two of f16 are copied by the copy engine"),
    Rule("rectangle", lambda problem, x, wn, bn, chunks, pieces, tall: _upright(
        problem, x, wn, bn, chunks, pieces, tall),
        "rows of a tile are copied by the copy engine, one line of the raster each"),
    Rule("batch", lambda problem, x, wn, bn, chunks, pieces, tall, batch: _whole_batches(
        problem, x, chunks, _joint(problem, x, wn, bn, chunks, pieces, tall), batch),
         "batches that end inside a patch, or the sum"),
    Rule("joint", lambda problem, x, wn, bn, chunks, pieces, tall, xs: xs == 1 or not _joint(
        problem, x, wn, bn, chunks, pieces, tall),
        "patches of 1x1 filters come with these, in no buffers of their own"),
    Rule("stages", lambda problem, x, wm, wn, bn, mb, chunks, tall, batch, stages: stages <= max(
        2, steps(problem, x, chunks) // batch * _ahead(problem, x, wm, wn, bn, mb, tall)),
        "more buffers than batches"),
    Rule("patches", lambda problem, x, wm, wn, bn, mb, chunks, tall, xs: xs <= runs(
        problem, x, chunks) * _ahead(problem, x, wm, wn, bn, mb, tall),
        "more buffers than runs of channels"),
    Rule("shared", lambda problem, device, x, wm, wn, bn, mb, chunks, pieces, tall, batch, stages, xs:
         _fits_shared(problem, device, x, wm, wn, bn, mb, chunks, pieces, tall, batch, stages, xs),
        "more shared memory than a block may have"),
    Rule("cluster_meets", lambda problem, device, x, wm, wn, bn, mb, chunks, pieces, tall, batch,
         stages, xs, sc: sc == 1 or _fits_shared(
             problem, device, x, wm, wn, bn, mb, chunks, pieces, tall, batch, stages, xs, sc=sc),
         "shares of a cluster meet in shared memory, beside the buffers"),
    Rule("copies", lambda problem, x, wn, bn, cm: cm == 1 or ceil_div(raster(problem, x), bn * wn) > cm // 2,
         "a cluster whose blocks have no pixels"),
    Rule("cluster", lambda device, cm, sc: cm * sc <= device.max_cluster, "more blocks than a cluster holds"),
    Rule("shares", lambda problem, x, chunks, batch, sc, sg: sc * sg * batch <= steps(problem, x, chunks),
         "shares of the sum without steps"),
    Rule("useless_stages", lambda problem, x, chunks, batch, stages, cm, sc, sg: cm * sc * sg == 1 or
         stages <= max(2, ceil_div(steps(problem, x, chunks) // batch, sc * sg)),
        "more buffers than batches of a share"),
    Rule("useless_patches", lambda problem, x, chunks, batch, xs, cm, sc, sg: cm * sc * sg == 1 or
         xs <= most_patches(problem, dict(x=x, chunks=chunks, batch=batch, sc=sc, sg=sg)),
        "more buffers than runs of channels of a share"),
    Rule("next_patch", lambda problem, x, wn, bn, chunks, pieces, tall, batch, xs, sc, sg: xs > 1 or _joint(
        problem, x, wn, bn, chunks, pieces, tall) or most_patches(
        problem, dict(x=x, chunks=chunks, batch=batch, sc=sc, sg=sg)) == 1,
        "a patch is given back when the first products of the next one are under way"),
    COMBINE_NONE,
    Rule("pool", lambda problem, x, wn, bn, tall, sc, combine: _pools(problem, x, wn, bn, tall, sc, combine),
         "a block pools whole windows of a tile that it sums alone, else a second kernel does"),
)  # fmt: skip
