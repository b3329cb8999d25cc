"""The grouped family on CPU cores, nchw to nchw, of one tap to few channels (``grouped_runs.cu``)."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Values
from tilewright.kernels.grouped import columns as grouped_columns
from tilewright.kernels.split_k import left_bytes
from tilewright.kernels.word import filter_bytes, word_bytes, word_registers, words
from tilewright.kernels.work import CpuWork
from tilewright.problem import Problem

# Of a group (19 and 21 are the classes of much-used data sets). From 64 channels of 256x256 to 21 takes
# 1323 us (columns.py: 1430), to 24 1652 (1461); from 256 of 128x128 to 21 1.5 ms (direct: 2.3).
MOST_FILTERS = 21
# Of sums, in the L1 cache. Twice and four times as many take as long, within the 10% that times vary.
NEAR_BYTES = 32 << 10
LEAST_RUN = 512  # pixels of an item, if there are so many: of fewer, what comes is not foreseen
CHANNELS = 16  # at once: the hardware follows so many streams


def takes(pr: Problem, device: Device) -> bool:
    """Whether the layer is of this kernel: one tap, of every pixel, to few channels of a group."""
    every = (pr.r, pr.s, *pr.stride, *pr.pad) == (1, 1, 1, 1, 0, 0, 0, 0)
    few = pr.kg <= MOST_FILTERS and vectors(pr, 1) * device.lanes <= device.regs_per_thread
    return grouped_columns.possible(pr, device) and every and few


def vectors(pr: Problem, tw: int) -> int:
    """Vectors of a step: sums, inputs of a channel and a tap."""
    return pr.kg * tw + tw + 1


def widths(pr: Problem, most: int) -> tuple[int, ...]:
    """Choices of a vector's pixels, of which an image has as many; 1: by the kernel of other layouts."""
    return tuple(v for v in (2, 4, 8, 16) if v <= min(most, pr.p * pr.q)) or (1,)


def fits(pr: Problem, device: Device, v: int, tw: int) -> bool:
    """Whether a step stays in registers, and an image has pixels for each of its vectors."""
    lanes = max(v * word_registers(pr), device.lanes)
    return vectors(pr, tw) * lanes <= device.regs_per_thread and (tw - 1) * v < pr.p * pr.q


def run_of(pr: Problem, device: Device, cf: Values) -> int:
    """Pixels of an item: as many as have their sums in the L1 cache, and leave work for all cores."""
    step, pixels = cf["tw"] * cf["v"], pr.p * pr.q
    run = max(1, NEAR_BYTES // (word_bytes(pr) * pr.kg) // step) * step
    least, alike = max(step, LEAST_RUN), pr.n * pr.groups
    while run >= 2 * least and alike * ceil_div(pixels, run) < grouped_columns.ITEMS_EACH * device.units:
        run = ceil_div(run, 2 * step) * step
    return run


def _items(pr: Problem, run: int) -> int:
    return pr.n * pr.groups * ceil_div(pr.p * pr.q, run)


def blueprint(pr: Problem, device: Device, cf: Values) -> Blueprint:
    """Return the launch, or two if there is a pool."""
    run = run_of(pr, device, cf)
    blocks = min(_items(pr, run), grouped_columns.RUNS * device.units)
    defines = dict(RUN=run, CHANNELS=min(CHANNELS, pr.cg), Q_BLOCKS=ceil_div(pr.p * pr.q, run))
    return grouped_columns.launch("grouped_runs.cu", pr, device, cf, blocks, defines)


def work(pr: Problem, device: Device, cf: Values) -> CpuWork:
    """Count the work of a config."""
    v, tw, run = cf["v"], cf["tw"], run_of(pr, device, cf)
    items = _items(pr, run)
    blocks = min(items, grouped_columns.RUNS * device.units)
    steps = items / blocks * ceil_div(min(run, pr.p * pr.q), tw * v)
    passes, sums = ceil_div(pr.cg, CHANNELS), steps * pr.kg * tw  # vectors
    seen = steps * pr.cg * tw
    channel_bytes = float(word_bytes(pr) * words(pr))  # of a channel's filter
    intensity = 2.0 * pr.cg * sums / max(1.0, seen)
    return CpuWork(
        blocks=blocks, dram_bytes=pr.x_bytes + filter_bytes(pr) + pr.y_bytes,
        combine=cf["combine"], partial_bytes=left_bytes(pr, cf["combine"]),
        useful=pr.z_elements / (blocks * sums * v),
        register_intensity=intensity, block_intensity=intensity,
        vectors=vectors(pr, tw), width=v * word_registers(pr),
        multiply_adds=sums * pr.cg * (2 if pr.is_integer else 1),
        filter_loads=steps * pr.kg * pr.cg, input_loads=seen, turns=round(steps * pr.cg),
        copying=items / blocks * grouped_columns.ITEM + 2 * (passes - 1) * sums,
        storing=grouped_columns.STORING * sums,
        filter_bytes=steps * pr.kg * channel_bytes, filter_once_bytes=items / blocks * pr.kg * channel_bytes,
        filter_tile_bytes=channel_bytes, input_bytes=seen * v * word_bytes(pr), input_tile_bytes=0,
    )  # fmt: skip
