"""The grouped family on CPU cores in nhwc (``grouped_channels.cu``): lanes over output channels."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Values
from tilewright.kernels.grouped.columns import launch
from tilewright.kernels.split_k import left_bytes
from tilewright.kernels.tile import columns_under, rows_under
from tilewright.kernels.word import filter_bytes, word_bytes, word_registers
from tilewright.kernels.work import CpuWork
from tilewright.problem import Problem

# Of a depthwise filter with more taps copies always pay (7x7 of 256 channels at 56x56: 1353 -> 604 us). With
# fewer, and where lines are long and channels few, tall tiles that read in place are faster yet (3x3 of 32
# channels at 112x112 by 4x2 122 us, 159 by copies, 211 to 228 by wide tiles in place; of 192 at 28x28 113 us,
# 78 by copies).
FEW_TAPS = 9
NEAR_BYTES = 128 << 10  # of an item's copied input, and so of a tile's: most is in the L2 cache
ITEMS_EACH = 8  # items per core, if there are enough rows: with fewer, cores wait for the last one
RUNS = 32  # runs of items per core, each a block. With 8, PoCL gave one of two cores up to twice as many
# Instructions of a core: per item, vector copied, vector stored.
ITEM, COPYING, STORING = 150.0, 12.0, 16.0


def across(pr: Problem) -> bool:
    """Whether the lanes of a vector may be groups: of a depthwise layer with contiguous channels."""
    return pr.cg == pr.kg == 1 and pr.layout_in == pr.layout_out == "nhwc"


def over_groups(pr: Problem, v: int) -> bool:
    """Whether the lanes of a vector are output channels of several groups, not of one."""
    return v > pr.kg


def possible(pr: Problem, device: Device) -> bool:
    """Whether the kernel computes the layer; words of four i8 are left to ``grouped.cu``."""
    in_nhwc = pr.layout_in == pr.layout_out == "nhwc"
    return not device.is_gpu and in_nhwc and pr.groups > 1 and (across(pr) or not pr.is_integer)


def divides(pr: Problem, v: int) -> bool:
    """Whether vectors fill one group, or several that have as many inputs as outputs."""
    return pr.kg % v == 0 or (pr.cg == pr.kg and v % pr.kg == pr.k % v == 0)


def takes(pr: Problem, device: Device, v: int, th: int, tw: int) -> bool:
    """Whether a config is of this kernel: of ``grouped.cu`` are tall tiles of few taps, and far dilations."""
    if v == 1 or not possible(pr, device) or copied_bytes(pr, v, 1, 1) > NEAR_BYTES:
        return False
    return pr.cg > 1 or pr.r * pr.s > FEW_TAPS or th <= tw


def copied_bytes(pr: Problem, v: int, rows: int, columns: int) -> int:
    """Bytes of the input that an item copies for ``rows`` and ``columns`` of outputs."""
    channels = v if over_groups(pr, v) else pr.cg
    return word_bytes(pr) * channels * rows_under(pr, rows) * columns_under(pr, columns)


def row_stays(pr: Problem, device: Device, cf: Values) -> bool:
    """Whether the inputs of a line stay in registers beside a tile's sums, not read again for each tap."""
    vectors = columns_under(pr, cf["tw"]) + cf["th"] * cf["tw"] + 2
    return vectors * max(cf["v"] * word_registers(pr), device.lanes) <= device.regs_per_thread


def item_sides(pr: Problem, device: Device, cf: Values) -> tuple[int, int]:
    """Rows and columns of an item: whole rows, as many as stay near and leave work for all cores."""
    v, th, tw = cf["v"], cf["th"], cf["tw"]
    columns, rows = pr.q, pr.p
    while columns > tw and copied_bytes(pr, v, th, columns) > NEAR_BYTES:
        columns = max(tw, ceil_div(columns, 2 * tw) * tw)
    enough = ITEMS_EACH * device.units
    while rows > th and (
        copied_bytes(pr, v, rows, columns) > NEAR_BYTES or _items(pr, v, rows, columns) < enough
    ):
        rows = max(th, ceil_div(rows, 2 * th) * th)
    return rows, columns


def fits(pr: Problem, device: Device, v: int, th: int, tw: int) -> bool:
    """Whether the input of a tile has room on the stack of a thread, and lanes of several groups one row.

    Of more rows the compiler makes broadcasts of numbers in place of shuffles, and spills what they give.
    """
    mixed = possible(pr, device) and over_groups(pr, v) and pr.cg > 1
    if not takes(pr, device, v, th, tw):
        return not mixed
    return copied_bytes(pr, v, th, tw) <= NEAR_BYTES and (th == 1 or not mixed)


def _items(pr: Problem, v: int, rows: int, columns: int) -> int:
    return pr.n * (pr.k // max(v, pr.kg)) * ceil_div(pr.p, rows) * ceil_div(pr.q, columns)


def blueprint(pr: Problem, device: Device, cf: Values, rolled: bool) -> Blueprint:
    """Return the launch, or two if there is a pool; ``rolled``: the filter's rows are a loop."""
    over = over_groups(pr, cf["v"])
    rows, columns = item_sides(pr, device, cf)
    blocks = min(_items(pr, cf["v"], rows, columns), RUNS * device.units)
    defines = dict(
        TH=cf["th"], ROLLED=int(rolled), ROW_STAYS=int(row_stays(pr, device, cf)), ACROSS=int(over),
        ITEM_ROWS=rows, ITEM_COLUMNS=columns, P_BLOCKS=ceil_div(pr.p, rows), Q_BLOCKS=ceil_div(pr.q, columns),
    )  # fmt: skip
    return launch("grouped_channels.cu", pr, device, cf, blocks, defines, None if over else cf["v"])


def work(pr: Problem, device: Device, cf: Values) -> CpuWork:
    """Count the work of a config."""
    v, th, tw = cf["v"], cf["th"], cf["tw"]
    rows, columns = item_sides(pr, device, cf)
    items = _items(pr, v, rows, columns)
    blocks = min(items, RUNS * device.units)
    over = over_groups(pr, v)
    run = items / blocks
    tiles = run * ceil_div(rows, th) * ceil_div(columns, tw) * (1 if over else pr.kg // v)
    vectors = tiles * th * tw
    stays = row_stays(pr, device, cf)
    line = columns_under(pr, tw) if stays else pr.s * tw
    seen = tiles * pr.cg * line * (pr.r if th == 1 else rows_under(pr, th))  # inputs loaded
    shuffles = seen / 2 if over and pr.cg > 1 else 0.0  # instructions as those that copy
    copied = copied_bytes(pr, v, rows, columns) / (word_bytes(pr) * v)  # vectors
    tap_bytes = float(word_bytes(pr) * pr.terms * v)  # of a tile
    intensity = 2.0 * pr.terms * vectors / max(1.0, seen)
    return CpuWork(
        blocks=blocks, dram_bytes=pr.x_bytes + filter_bytes(pr) + pr.y_bytes,
        combine=cf["combine"], partial_bytes=left_bytes(pr, cf["combine"]),
        useful=pr.z_elements / (blocks * vectors * v),
        register_intensity=intensity, block_intensity=intensity,
        vectors=th * tw + (line if stays else 0) + 2, width=v * word_registers(pr),
        multiply_adds=vectors * pr.terms * (2 if pr.is_integer else 1),
        filter_loads=tiles * pr.terms * th, input_loads=seen, turns=round(tiles * pr.terms),
        copying=run * (ITEM + COPYING * copied) + shuffles, storing=STORING * vectors,
        filter_bytes=tiles * tap_bytes, filter_once_bytes=run * max(1, pr.kg // v) * tap_bytes,
        filter_tile_bytes=tap_bytes,
        input_bytes=seen * (v if over else 1) * word_bytes(pr), input_tile_bytes=0,
    )  # fmt: skip
