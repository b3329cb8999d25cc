"""The grouped family on CPU cores, nchw to nchw (``grouped_columns.cu``): lanes over the columns of a row."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64, round_up
from tilewright.device import Device
from tilewright.kernels.direct.cpu_tile import taps_met
from tilewright.kernels.family import Blueprint, Values
from tilewright.kernels.limits import MOST_BODY
from tilewright.kernels.requant import requant_defines
from tilewright.kernels.split_k import left_bytes, share_defines
from tilewright.kernels.tile import (
    View,
    columns_under,
    image_defines,
    layer_defines,
    rows_under,
    single_tile_defines,
)
from tilewright.kernels.whole_sums import whole_sums
from tilewright.kernels.word import (
    PACKED_FLAT,
    dtype_code,
    filter_bytes,
    in_tiles,
    word_bytes,
    word_registers,
    words,
)
from tilewright.kernels.work import CpuWork
from tilewright.problem import Problem

MOST_KEPT = 40  # sums and taps that stay in registers; of more, each line reads the taps
OF_LINE = 3.0  # cycles to ask whether a line lies in the image, or a vector of taps is finite
MOST_SUMS = 16  # accumulator vectors of a tile: the input and a tap need registers, too
NEAR_BYTES = 24 << 10  # of an item's copied input, which stays in the L1 cache beside what is stored
# The same for a filter of one tap, whose tiles share no lines: longer runs load faster from memory
# (64 channels of 256x256, to 2: 803 -> 763 us; to 32: 4311 -> 3812 on a machine at half speed).
NEAR_BYTES_OF_ONE_TAP = 96 << 10
MOST_BYTES = 256 << 10  # of it, as it lies on the stack of a thread
ITEMS_EACH = 4  # items per core, if there are enough rows: with fewer, cores wait for the last one
RUNS = 8  # runs of items per core, each a block
WINDOW = 256  # instructions that a core looks ahead: sums of small filters overlap with the next tile's
# Instructions of a core: per item, vector copied, vector stored.
ITEM, COPYING, STORING = 150.0, 4.0, 4.0


def possible(pr: Problem, device: Device) -> bool:
    """Whether the lanes of a vector may be columns."""
    return not device.is_gpu and pr.layout_in == pr.layout_out == "nchw"


def widths(pr: Problem, most: int) -> tuple[int, ...]:
    """Choices of a vector's columns, fewer than half past a row's end; 1: by the kernel of other layouts."""
    return tuple(v for v in (1, 2, 4, 8, 16) if v == 1 or v <= most and v < 2 * pr.q)


def copied_bytes(pr: Problem, v: int, rows: int, columns: int) -> int:
    """Bytes of the input that an item copies for ``rows`` and ``columns`` of outputs."""
    line = round_up(columns_under(pr, columns) + v - 1, v)
    return word_bytes(pr) * pr.cg * rows_under(pr, rows) * line


def fits(pr: Problem, v: int, th: int, tw: int) -> bool:
    """Whether no vector of a tile lies wholly past the end of a row, and its input fits the stack."""
    return (tw - 1) * v < pr.q and copied_bytes(pr, v, th, tw * v) <= MOST_BYTES


def outputs_at_once(pr: Problem, th: int, tw: int) -> int:
    """Output channels of a tile: as many as the registers have room for, and the instruction cache.

    One if there are several groups: the model was fitted to that, and predicts more at once to be 1.3 to 1.8
    times as fast as they are (512 channels of 28x28 in 32 groups, stride 2).
    """
    if pr.groups > 1:
        return 1
    fits = (
        tk for tk in (8, 6, 4, 3, 2)
        if tk <= pr.kg and th * tw * tk <= MOST_SUMS and pr.r * pr.s * th * tw * tk <= MOST_BODY
    )  # fmt: skip
    return next(fits, 1)


def taps_stay(pr: Problem, th: int, tw: int) -> bool:
    """Whether the taps of a channel stay in registers, not read again for each line of a tile."""
    return outputs_at_once(pr, th, tw) * (pr.r * pr.s + th * tw) <= MOST_KEPT


def rows_met(pr: Problem, v: int, th: int, tw: int) -> float:
    """Share of the rows of taps that are multiplied: those in the image, if leaving out the others pays."""
    met = taps_met(pr, 0, 1)
    saved = (1.0 - met) * pr.terms * outputs_at_once(pr, th, tw) * th * tw
    asked = pr.cg * rows_under(pr, th) * OF_LINE + pr.terms / v * OF_LINE
    return met if pr.r > 1 and pr.terms >= v and saved > asked else 1.0


def rolled_body(pr: Problem, th: int, tw: int) -> int | None:
    """Vectors multiplied in the code if the filter's rows are a loop; None if they cannot be.

    Input rows at both ends of a tile lie under only some of its output rows, and are not part of the loop;
    they are counted for layers of stride and dilation 1.
    """
    if th == 1:
        return pr.s * tw
    if pr.stride[0] > 1 or pr.dilation[0] > 1 or th > pr.r:
        return None
    return pr.s * tw * th * th


def item_sides(pr: Problem, device: Device, cf: Values) -> tuple[int, int]:
    """Rows and columns of an item: whole rows, as many as fit the L1 cache and leave work for all cores."""
    v, th, tile = cf["v"], cf["th"], cf["tw"] * cf["v"]
    near = NEAR_BYTES_OF_ONE_TAP if pr.r * pr.s == 1 else NEAR_BYTES
    columns = round_up(pr.q, v)
    while columns > tile and copied_bytes(pr, v, th, columns) > near:
        columns = max(tile, ceil_div(columns, 2 * tile) * tile)
    rows = pr.p
    alike = pr.n * pr.groups * ceil_div(pr.q, columns)
    while rows > th and (
        copied_bytes(pr, v, rows, columns) > near or alike * ceil_div(pr.p, rows) < ITEMS_EACH * device.units
    ):
        rows = max(th, ceil_div(rows, 2 * th) * th)
    return rows, columns


def _items(pr: Problem, rows: int, columns: int) -> int:
    return pr.n * pr.groups * ceil_div(pr.p, rows) * ceil_div(pr.q, columns)


def blueprint(pr: Problem, device: Device, cf: Values, rolled: bool) -> Blueprint:
    """Return the launch, or two if there is a pool; ``rolled``: the filter's rows are a loop."""
    rows, columns = item_sides(pr, device, cf)
    blocks = min(_items(pr, rows, columns), RUNS * device.units)
    defines = dict(
        TH=cf["th"], ROLLED=int(rolled), TK=outputs_at_once(pr, cf["th"], cf["tw"]),
        TAPS_STAY=int(taps_stay(pr, cf["th"], cf["tw"])),
        SKIP_LINES=int(rows_met(pr, cf["v"], cf["th"], cf["tw"]) < 1.0),
        ITEM_ROWS=rows, ITEM_COLUMNS=columns, P_BLOCKS=ceil_div(pr.p, rows), Q_BLOCKS=ceil_div(pr.q, columns),
    )  # fmt: skip
    return launch("grouped_columns.cu", pr, device, cf, blocks, defines)


def launch(
    source: str, pr: Problem, device: Device, cf: Values, blocks: int, own: dict[str, int],
    tile: int | None = 1,
) -> Blueprint:  # fmt: skip
    """Return the launch of a kernel that copies or streams its input on CPU cores, or two if there is a pool.

    Args:
        source: its file.
        own: its own defines, beside those that all such kernels have.
        tile: filters of a group that are packed side by side; None: those of all groups are.
    """
    defines = dict(
        VECTOR=cf["v"], AVX512=int(device.lanes >= 16), TW=cf["tw"], **own,
        MAX_THREADS=1, THREADS_ALL=blocks, CHUNKED=1,
        DTYPE=dtype_code(pr), N=pr.n, CG=pr.cg, CW=words(pr), KG=pr.kg,
        **layer_defines(pr, View.unflattened(pr), by_group=False), **image_defines(pr, View.unflattened(pr)),
        **single_tile_defines(), **requant_defines(pr), **share_defines(cf["combine"]),
        OFFSET64=offset64(4 * pr.x_elements, 4 * pr.z_elements),
    )  # fmt: skip
    pack = (("DTYPE", dtype_code(pr)), ("PACK_K", tile or 1), ("PACK_C", words(pr)))
    return whole_sums(
        "grouped", pr, cf["combine"], blocks, 1, defines, filter_bytes(pr),
        pack if tile else (*pack, ("PACK_FLAT", 1)),
        packing=in_tiles(tile, words(pr)) if tile else PACKED_FLAT, source=source,
    )  # fmt: skip


def work(pr: Problem, device: Device, cf: Values) -> CpuWork:
    """Count the work of a config."""
    v, th, tw = cf["v"], cf["th"], cf["tw"]
    tk = outputs_at_once(pr, th, tw)
    rows, columns = item_sides(pr, device, cf)
    items = _items(pr, rows, columns)
    blocks = min(items, RUNS * device.units)
    run = items / blocks
    tiles = run * ceil_div(pr.kg, tk) * ceil_div(rows, th) * ceil_div(min(columns, pr.q), tw * v)
    met = rows_met(pr, v, th, tw)
    taps, vectors = pr.terms * met, tiles * tk * th * tw
    each = pr.stride[1] if pr.stride[1] < 3 else v  # loads of a vector
    seen = tiles * pr.cg * rows_under(pr, th) * met * pr.s * tw  # vectors of the input
    loads, shuffles = seen * each, seen * (each - 1)  # which take the pipes of multiply-adds
    lines = 1 if taps_stay(pr, th, tw) else th  # that read a tap
    copied = copied_bytes(pr, v, rows, columns)
    copies = copied / (word_bytes(pr) * v)
    overlaps = min(1.0, taps * tk * th * tw / WINDOW)
    channel_bytes = float(word_bytes(pr) * words(pr) * pr.r * pr.s)  # of a channel's filter
    intensity = 2.0 * taps * vectors / max(1.0, loads)
    return CpuWork(
        blocks=blocks, dram_bytes=pr.x_bytes + filter_bytes(pr) + pr.y_bytes,
        combine=cf["combine"], partial_bytes=left_bytes(pr, cf["combine"]),
        useful=pr.z_elements / (blocks * vectors * v),
        register_intensity=intensity, block_intensity=intensity,
        vectors=tk * th * tw + tw + 1, width=v * word_registers(pr),
        multiply_adds=vectors * taps * (2 if pr.is_integer else 1) + shuffles,
        filter_loads=tiles * tk * taps * lines, input_loads=loads, turns=round(tiles * pr.cg),
        chain=tiles * taps * overlaps,
        copying=run * (ITEM + COPYING * copies), storing=STORING * vectors,
        filter_bytes=tiles * tk * channel_bytes, filter_once_bytes=run * pr.kg * channel_bytes,
        filter_tile_bytes=channel_bytes,
        input_bytes=loads * v * word_bytes(pr) / each, input_tile_bytes=copied,
    )  # fmt: skip
