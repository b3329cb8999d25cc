"""The grouped family: depthwise layers and others of small groups, without shared memory.

There is little arithmetic for each input: what limits is how soon its bytes are under way.
"""

from __future__ import annotations

from tilewright.arithmetic import offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.grouped import columns as grouped_columns
from tilewright.kernels.limits import MOST_BODY, RESIDENT, blocks_param, fits_registers, no_kernels, too_large
from tilewright.kernels.requant import requant_defines, scale_operand
from tilewright.kernels.split_k import POOL_APART, operands, partial_sums, second_pass, share_defines
from tilewright.kernels.tile import (
    COMBINE_NAMES,
    NONE,
    TWO_PASS,
    View,
    ceil_div,
    columns_under,
    image_defines,
    layer_defines,
    rows_under,
    single_tile_defines,
    up_to,
)
from tilewright.kernels.word import (
    PACKED_FLAT,
    dtype_code,
    filter_bytes,
    issue_slots,
    read_bytes,
    word_bytes,
    word_registers,
    words,
)
from tilewright.kernels.work import CpuWork, GpuWork, Work
from tilewright.problem import DTYPE_BYTES, DTYPES, Problem

MOST_CHANNELS = 64  # of a group: more are worth a block's shared memory
FEW_OUTPUTS = 4  # channels of a group: they would leave a CPU's vectors half empty, and columns fill them
MOST_OUTPUTS = 128  # channels of a group up to which columns may be better for vectors anyway: y is nchw, too
# Instructions of a core: of an item, an input, an output. Source: fitted to 127 configs of 19 layers on 4
# cores of a Sapphire Rapids (PoCL 3).
ITEM, CHECKING, STORING = 100.0, 6.0, 6.0


def across(pr: Problem) -> bool:
    """Whether a vector lies over the groups: a depthwise layer whose channels are neighbours."""
    return pr.cg == pr.kg == 1 and pr.layout_in == pr.layout_out == "nhwc"


def channels_read(pr: Problem, v: int) -> int:
    """Words of one load of the input."""
    if across(pr):
        return v
    quads = v == 4 and pr.cg % 4 == 0 and pr.layout_in == "nhwc"
    return v if quads and not pr.is_integer else 1


def _over_columns(pr: Problem, device: Device, v: int) -> bool:
    """Whether a vector lies over the columns of a row, in a kernel of its own."""
    return v > 1 and grouped_columns.possible(pr, device)


def reads_quads(pr: Problem, cf: Values) -> bool:
    """Whether a thread of a GPU reads rows four columns at a time: those of nchw, where fours are aligned."""
    divisible = pr.w % 4 == 0 and cf["tw"] * pr.stride[1] % 4 == 0
    return pr.layout_in == "nchw" and pr.dtype in ("f32", "f16", "bf16") and divisible


def stores_quads(pr: Problem, cf: Values) -> bool:
    """Whether it stores four columns at a time."""
    divisible = pr.q % 4 == 0 and cf["tw"] % 4 == 0
    return pr.layout_out == "nchw" and cf["v"] == 1 and cf["combine"] == NONE and divisible


class Grouped(Family):
    """Convolutions of many small groups."""

    name = "grouped"
    dtypes = (*DTYPES, "f8", "q8")
    examples = tuple(f"n1c24h11w12k24r3s3p1g24-{dtype}-nhwc+bias" for dtype in dtypes)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take layers of several groups of few channels."""
        if reason := super().refuses(problem, device) or too_large(problem) or no_kernels(device):
            return reason
        few = problem.cg <= MOST_CHANNELS
        small = problem.kg <= (MOST_OUTPUTS if few else FEW_OUTPUTS)
        if grouped_columns.possible(problem, device) and small:
            return None
        if problem.groups == 1 or not few:
            return f"it is made for several groups of at most {MOST_CHANNELS} input channels"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Offer the tunables, outermost choice first."""
        gpu, together = device.is_gpu, problem.k if across(problem) else problem.kg
        most = min(device.lanes // word_registers(problem), 16)
        widths = (1, 2, 4) if gpu else up_to(max(4, most), (1, 2, 4, 8, 16))
        vectors = Param("v", tuple(v for v in widths if together % v == 0), "output channels of a vector")
        wide = "output columns a thread"
        if grouped_columns.possible(problem, device):
            vectors = Param("v", grouped_columns.widths(problem, most), "output columns of a vector")
            wide = "vectors of a row a thread"
        return (
            vectors,
            Param("th", up_to(problem.p, (1, 2, 3, 4, 7, 8)), "output rows a thread"),
            Param("tw", up_to(problem.q, (1, 2, 3, 4, 7, 8, 14, 16)), wide),
            Param("threads", (32, 64, 128, 256) if gpu else (1,), "threads of a block"),
            blocks_param(1, 2, 4, 8, 12, 16) if gpu else blocks_param(1),
            Param("combine", (NONE, TWO_PASS), "sums stored at once, or left to a second kernel that pools",
                  ("none", "two_pass")),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """State what the hardware and the kernel forbid."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out one launch, two where there is a pool."""
        if _over_columns(problem, device, config["v"]):
            loop = rolled(problem, device, config["v"], config["th"], config["tw"])
            return grouped_columns.blueprint(problem, device, config.values, loop)
        return _blueprint(problem, device, config.values, aligned)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count what one block does, and one thread of a GPU."""
        if _over_columns(problem, device, config["v"]):
            return grouped_columns.work(problem, device, config.values)
        return (_work if device.is_gpu else _cpu_work)(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """All of a group's products, one after the other."""
        return problem.cg * problem.r * problem.s


def _body(pr: Problem, device: Device, v: int, th: int, tw: int) -> int:
    """Multiply-adds of one turn over the channels; a CPU's are of whole vectors."""
    if _over_columns(pr, device, v):
        return pr.r * pr.s * th * tw
    each = 1 if across(pr) else channels_read(pr, v)
    return pr.r * pr.s * th * tw * each * (v if device.is_gpu else 1)


def rolled(pr: Problem, device: Device, v: int, th: int, tw: int) -> bool:
    """Whether the rows of the filter are a loop, since all of them would overflow the instruction cache.

    On a GPU two at a time, of an output row that gives a thread enough to do. On a CPU in nhwc wherever a
    tile has a single row: less code is faster (5x5 at 28x28: 296 instead of 526 us, 3x3: 232 instead of 278).
    """
    body = _body(pr, device, v, th, tw)
    if not device.is_gpu and v > 1 and not _over_columns(pr, device, v):
        return th == 1 and tw > 1 and body // pr.r <= MOST_BODY
    if body <= MOST_BODY:
        return False
    if _over_columns(pr, device, v):
        loop = grouped_columns.rolled_body(pr, th, tw)
        return loop is not None and loop <= MOST_BODY
    return device.is_gpu and th == 1 and tw > 1 and 2 * body // pr.r <= MOST_BODY


def _registers(pr: Problem, v: int, th: int, tw: int) -> int:
    taps = min(pr.r * pr.s, 12) * v
    return (v * (th * tw + 2 * columns_under(pr, tw)) + taps) * word_registers(pr) + 32


def _registers_fit(pr: Problem, device: Device, v: int, th: int, tw: int, threads: int) -> bool:
    if not device.is_gpu:
        return th * tw <= 16
    return fits_registers(device, _registers(pr, v, th, tw), threads)


RULES = (
    Rule("registers_lane", lambda problem, device, v, th, tw: _registers_fit(problem, device, v, th, tw, 32),
         "more registers than a thread has"),
    Rule("body", lambda problem, device, v, th, tw: th * tw * v == 1 or
         _body(problem, device, v, th, tw) <= MOST_BODY or rolled(problem, device, v, th, tw),
         "the loop's body overflows the instruction cache"),
    Rule("registers", lambda problem, device, v, th, tw, threads, mb: _registers_fit(
        problem, device, v, th, tw, threads * mb),
        "more registers than a unit has: the compiler would spill"),
    RESIDENT,
    Rule("columns", lambda problem, device, v, th, tw:
         not _over_columns(problem, device, v) or grouped_columns.fits(problem, v, th, tw),
         "vectors past the end of a row, or more input than a thread has room for"),
    POOL_APART,
)  # fmt: skip


def _items(pr: Problem, cf: Values) -> int:
    """Threads that have something to do."""
    return pr.n * (pr.k // cf["v"]) * ceil_div(pr.p, cf["th"]) * ceil_div(pr.q, cf["tw"])


def _runs(items: int, device: Device) -> int:
    """Blocks on a CPU: each takes a run of items."""
    return min(items, 8 * device.units)


def _blueprint(pr: Problem, device: Device, cf: Values, aligned: bool) -> Blueprint:
    if device.is_gpu and not aligned:  # neither are vectors of the input and output: one channel at a time
        cf = {**cf, "v": 1}
    items = _items(pr, cf)
    blocks = ceil_div(items, cf["threads"]) if device.is_gpu else _runs(items, device)
    combine = cf["combine"]
    main = Launch("grouped", (blocks, 1, 1), (cf["threads"], 1, 1), (*operands(combine), *scale_operand(pr)))
    return Blueprint(
        source="grouped.cu", defines=tuple(_defines(pr, device, cf, blocks, aligned).items()),
        launches=(main, *second_pass(pr, combine)), packed_bytes=filter_bytes(pr),
        pack=(("DTYPE", dtype_code(pr)), ("PACK_K", 1), ("PACK_C", words(pr)), ("PACK_FLAT", 1)),
        packing=PACKED_FLAT,
        workspace=partial_sums(pr, combine),
    )  # fmt: skip


def _defines(pr: Problem, device: Device, cf: Values, blocks: int, aligned: bool) -> Values:
    wide, view = device.is_gpu and aligned, View.unflattened(pr)
    return dict(
        ROLLED=int(rolled(pr, device, cf["v"], cf["th"], cf["tw"])),
        X_QUADS=int(wide and reads_quads(pr, cf)), Y_QUADS=int(wide and stores_quads(pr, cf)),
        VECTOR=cf["v"], TH=cf["th"], TW=cf["tw"], CV=channels_read(pr, cf["v"]),
        ACROSS=int(across(pr)),
        MAX_THREADS=cf["threads"], MIN_BLOCKS=cf["mb"] if device.is_gpu else 1,
        THREADS_ALL=blocks * cf["threads"], CHUNKED=int(not device.is_gpu),
        DTYPE=dtype_code(pr), N=pr.n, CG=pr.cg, CW=words(pr), KG=pr.kg,
        **layer_defines(pr, view, by_group=False), **image_defines(pr, view), **single_tile_defines(),
        **requant_defines(pr),
        Y_VECTOR=int(pr.layout_out == "nhwc" and cf["v"] > 1),
        P_BLOCKS=ceil_div(pr.p, cf["th"]), Q_BLOCKS=ceil_div(pr.q, cf["tw"]),
        **share_defines(cf["combine"]),
        # An item and the next one of its thread, THREADS_ALL on, are counted in 32 bits below that.
        OFFSET64=offset64(4 * pr.n * pr.c * pr.h * pr.w, 4 * pr.z_elements),
    )  # fmt: skip


def _work(pr: Problem, device: Device, cf: Values) -> GpuWork:
    items, each = _items(pr, cf), 1 if across(pr) else channels_read(pr, cf["v"])
    blocks = ceil_div(items, cf["threads"])
    inputs = rows_under(pr, cf["th"]) * columns_under(pr, cf["tw"])
    runs = columns_under(pr, cf["tw"])  # loads of a row
    if reads_quads(pr, cf):
        runs = ceil_div(runs + (-pr.pad[2]) % 4, 4)
    loads, word = rows_under(pr, cf["th"]) * runs * words(pr) / each, float(word_bytes(pr))
    outputs = cf["th"] * cf["tw"] * cf["v"]
    inputs *= words(pr) * (cf["v"] if across(pr) else 1)
    fma = words(pr) * pr.r * pr.s * outputs
    sectors = cf["threads"] * outputs / (8.0 if pr.layout_out == "nhwc" and cf["v"] == 4 else 8.0 / cf["tw"])
    if stores_quads(pr, cf):
        sectors = cf["threads"] * outputs / (8.0 if cf["tw"] == 4 else 4.0)
    return GpuWork(
        blocks=blocks, threads=cf["threads"], registers=_registers(pr, cf["v"], cf["th"], cf["tw"]),
        resident=cf["mb"], fma=float(fma * issue_slots(pr, device)), global_loads=loads / 8,
        staging=loads * 5.0 + words(pr) * pr.r * pr.s * cf["v"],
        epilogue=outputs * 4.0, wavefronts=loads * cf["threads"] / 32 * _lines(pr, cf),
        load_bytes=read_bytes(pr) * inputs * cf["threads"],
        store_sectors=sectors, dram_bytes=pr.x_bytes + filter_bytes(pr) + pr.y_bytes,
        combine=COMBINE_NAMES[cf["combine"]],
        partial_bytes=word * pr.z_elements * (cf["combine"] == TWO_PASS),
        tile_bytes=word * outputs * cf["threads"], useful=pr.z_elements / (items * outputs),
        register_intensity=2.0 * fma / max(1, inputs), block_intensity=2.0 * fma / max(1, inputs),
    )  # fmt: skip


def _lines(pr: Problem, cf: Values) -> float:
    """Cache lines of 128 bytes that a warp's load reads, two at least: neighbours lie ``apart``."""
    apart = cf["tw"] * pr.stride[1] if pr.layout_in == "nchw" else channels_read(pr, cf["v"])
    return min(32.0, max(2.0, apart * DTYPE_BYTES[pr.dtype] * 32 / 128))


def _cpu_work(pr: Problem, device: Device, cf: Values) -> CpuWork:
    v, items, over = cf["v"], _items(pr, cf), across(pr)
    slots = 2 if pr.is_integer and over and v > 1 else issue_slots(pr, device)  # single numbers, no dot4
    blocks = _runs(items, device)
    run = items / blocks
    taps, pixels = words(pr) * pr.r * pr.s, cf["th"] * cf["tw"]
    # Inputs of an item; over groups vectors of them.
    inputs = rows_under(pr, cf["th"]) * columns_under(pr, cf["tw"]) * words(pr)
    loads = inputs / (1 if over else channels_read(pr, v))
    fetched = read_bytes(pr) * inputs * (v if over else 1)
    tile_bytes = float(word_bytes(pr) * taps * v)  # of the filter of an item
    # What of the filter is read before any of it is read again.
    reused_bytes = float(filter_bytes(pr)) if pr.layout_out == "nhwc" else tile_bytes
    intensity = 2.0 * taps * pixels * v / max(1, inputs * (v if over else 1))
    return CpuWork(
        blocks=blocks, dram_bytes=pr.x_bytes + filter_bytes(pr) + pr.y_bytes,
        combine=COMBINE_NAMES[cf["combine"]],
        partial_bytes=float(word_bytes(pr) * pr.z_elements * (cf["combine"] == TWO_PASS)),
        useful=pr.z_elements / (items * pixels * v),
        register_intensity=intensity, block_intensity=intensity,
        vectors=pixels + columns_under(pr, cf["tw"]) + 1, width=v * word_registers(pr),
        multiply_adds=run * taps * pixels * slots,
        filter_loads=run * taps * cf["th"], input_loads=run * inputs, turns=round(run * taps),
        copying=run * (ITEM + CHECKING * loads),
        storing=run * pixels * STORING * (1 if pr.layout_out == "nhwc" else v),
        filter_bytes=run * tile_bytes * cf["th"], filter_once_bytes=min(reused_bytes, run * tile_bytes),
        filter_tile_bytes=reused_bytes, input_bytes=run * fetched, input_tile_bytes=0,
    )  # fmt: skip
