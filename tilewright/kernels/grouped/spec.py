"""The grouped family: depthwise layers and others of small groups, without shared memory.

There is little arithmetic per input: the limit is how soon loads are in flight.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule, Values
from tilewright.kernels.grouped import channels as grouped_channels
from tilewright.kernels.grouped import columns as grouped_columns
from tilewright.kernels.grouped import runs as grouped_runs
from tilewright.kernels.grouped.channels import across
from tilewright.kernels.grouped.tile import (
    Kernel,
    blocks_of,
    body_of,
    channels_read,
    items_of,
    kernel_of,
    reads_quads,
    registers,
    rolled,
    row_fits,
    stores_quads,
)
from tilewright.kernels.grouped.work import work_of
from tilewright.kernels.limits import (
    BLOCK,
    MOST_BODY,
    RESIDENT,
    blocks_param,
    fits_registers,
    no_kernels,
    too_large,
)
from tilewright.kernels.requant import requant_defines
from tilewright.kernels.split_k import POOL_APART, POOL_PARAM, share_defines
from tilewright.kernels.tile import View, image_defines, layer_defines, single_tile_defines, up_to
from tilewright.kernels.whole_sums import whole_sums
from tilewright.kernels.word import PACKED_FLAT, dtype_code, filter_bytes, word_registers, words
from tilewright.kernels.work import Work
from tilewright.problem import DTYPES, Problem

MOST_CHANNELS = 64  # of a group: with more, shared memory pays
FEW_OUTPUTS = 4  # channels of a group that would leave a CPU's vectors half empty: columns fill them
MOST_OUTPUTS = 128  # channels of a group for which vectors of columns may still be better: y is nchw, too


class Grouped(Family):
    """Convolutions of many small groups."""

    name = "grouped"
    precisions = (*DTYPES, "f8", "q8")
    examples = tuple(f"n1c24h11w12k24r3s3p1g24-{dtype}-nhwc+bias" for dtype in precisions)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support layers of several groups of few channels."""
        if reason := super().refuses(problem, device) or too_large(problem) or no_kernels(device):
            return reason
        few = problem.cg <= MOST_CHANNELS
        small = problem.kg <= (MOST_OUTPUTS if few else FEW_OUTPUTS)
        if grouped_columns.possible(problem, device) and (small or grouped_runs.takes(problem, device)):
            return None
        if problem.groups == 1 or not few:
            return f"it is made for several groups of at most {MOST_CHANNELS} input channels"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        gpu, together = device.is_gpu, problem.k if across(problem) else problem.kg
        most = min(device.lanes // word_registers(problem), 16)
        widths = (1, 2, 4) if gpu else up_to(max(4, most), (1, 2, 4, 8, 16))
        if grouped_channels.possible(problem, device):
            widths = tuple(v for v in widths if grouped_channels.divides(problem, v))
        else:
            widths = tuple(v for v in widths if together % v == 0)
        vectors = Param("v", widths, "output channels of a vector")
        wide, tall = "output columns a thread", problem.p
        if grouped_runs.takes(problem, device):
            vectors = Param("v", grouped_runs.widths(problem, most), "pixels of a vector")
            wide, tall = "vectors of pixels a step", 1
        elif grouped_columns.possible(problem, device):
            vectors = Param("v", grouped_columns.widths(problem, most), "output columns of a vector")
            wide = "vectors of a row a thread"
        return (
            vectors,
            Param("th", up_to(tall, (1, 2, 3, 4, 7, 8)), "output rows a thread"),
            Param("tw", up_to(problem.q, (1, 2, 3, 4, 7, 8, 14, 16)), wide),
            Param("threads", (32, 64, 128, 256) if gpu else (1,), "threads of a block"),
            blocks_param(1, 2, 4, 8, 12, 16) if gpu else blocks_param(1),
            POOL_PARAM,
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if there is a pool."""
        cf = config.values
        loop = rolled(problem, device, cf["v"], cf["th"], cf["tw"])
        match kernel_of(problem, device, cf["v"], cf["th"], cf["tw"]):
            case Kernel.RUNS:
                return grouped_runs.blueprint(problem, device, cf)
            case Kernel.COLUMNS:
                return grouped_columns.blueprint(problem, device, cf, loop)
            case Kernel.CHANNELS:
                return grouped_channels.blueprint(problem, device, cf, loop)
        return _blueprint(problem, device, cf, aligned)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count the work of one block, and on a GPU of one thread."""
        cf = config.values
        return WORK[kernel_of(problem, device, cf["v"], cf["th"], cf["tw"])](problem, device, cf)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """All products of a group, one after the other."""
        return problem.terms


WORK: dict[Kernel, Callable[[Problem, Device, Values], Work]] = {
    Kernel.IN_PLACE: work_of, Kernel.CHANNELS: grouped_channels.work, Kernel.COLUMNS: grouped_columns.work,
    Kernel.RUNS: grouped_runs.work,
}  # fmt: skip


def _registers_fit(pr: Problem, device: Device, v: int, th: int, tw: int, threads: int) -> bool:
    if not device.is_gpu:
        return th * tw <= 16
    return fits_registers(device, registers(pr, v, th, tw), threads)


RULES = (
    Rule("registers_lane", lambda problem, device, v, th, tw: _registers_fit(problem, device, v, th, tw, 32),
         "more registers than a thread has"),
    Rule("body", lambda problem, device, v, th, tw: th * tw * v == 1 or
         body_of(problem, device, v, th, tw) <= MOST_BODY or rolled(problem, device, v, th, tw),
         "the loop's body overflows the instruction cache"),
    Rule("registers", lambda problem, device, v, th, tw, threads, mb: _registers_fit(
        problem, device, v, th, tw, threads * mb),
        "more registers than a unit has: the compiler would spill"),
    BLOCK,
    RESIDENT,
    Rule("columns", lambda problem, device, v, th, tw:
         kernel_of(problem, device, v, th, tw) is not Kernel.COLUMNS
         or grouped_columns.fits(problem, v, th, tw),
         "vectors past the end of a row, or more input than a thread has room for"),
    Rule("lines", lambda problem, device, v, th, tw:
         grouped_channels.fits(problem, device, v, th, tw),
         "more input under a tile than a thread has room for, or several rows of a vector's groups"),
    Rule("pixels", lambda problem, device, v, th, tw:
         kernel_of(problem, device, v, th, tw) is not Kernel.RUNS
         or grouped_runs.fits(problem, device, v, tw),
         "vectors past the end of an image, or more sums than registers"),
    Rule("row", lambda problem, device, v, th, tw: row_fits(problem, device, v, th, tw),
         "more inputs under a row of outputs than PoCL keeps apart, for a large dilation or stride"),
    POOL_APART,
)  # fmt: skip


def _blueprint(pr: Problem, device: Device, cf: Values, aligned: bool) -> Blueprint:
    if device.is_gpu and not aligned:  # nor are vectors of the input and output: one channel at a time
        cf = {**cf, "v": 1}
    blocks = blocks_of(items_of(pr, cf), device, cf)
    return whole_sums(
        "grouped", pr, cf["combine"], blocks, cf["threads"], _defines(pr, device, cf, blocks, aligned),
        filter_bytes(pr), (("DTYPE", dtype_code(pr)), ("PACK_K", 1), ("PACK_C", words(pr)), ("PACK_FLAT", 1)),
        packing=PACKED_FLAT,
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
        # Below that, the number of a thread's next item, THREADS_ALL further, fits 32 bits.
        OFFSET64=offset64(4 * pr.x_elements, 4 * pr.z_elements),
    )  # fmt: skip
