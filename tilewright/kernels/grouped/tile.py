"""Which kernel of the grouped family runs a config; tiles of the first: what a thread reads and holds."""

from __future__ import annotations

from enum import Enum, auto

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.grouped import channels as grouped_channels
from tilewright.kernels.grouped import columns as grouped_columns
from tilewright.kernels.grouped import runs as grouped_runs
from tilewright.kernels.grouped.channels import across
from tilewright.kernels.limits import MOST_BODY
from tilewright.kernels.tile import NONE, columns_under
from tilewright.kernels.word import word_registers
from tilewright.problem import Problem

# Inputs of a row that a CPU's compiler keeps apart. With 1,200 it took 33 s (1,040: 0.4 s), the layer 10 ms
# (3 ms); with 65,536 vectors of 16 they overflow the stack, which ends the process.
MOST_ROW = 1040


class Kernel(Enum):
    """The kernels of the family, by what the lanes of a vector are; only the first is a GPU's, too."""

    IN_PLACE = auto()  # output channels; the input is read where it lies (grouped.cu)
    CHANNELS = auto()  # output channels; the input is copied
    COLUMNS = auto()  # columns of a row
    RUNS = auto()  # pixels of an image


def kernel_of(pr: Problem, device: Device, v: int, th: int, tw: int) -> Kernel:
    """Return the kernel that runs a config."""
    if v > 1 and grouped_runs.takes(pr, device):
        return Kernel.RUNS
    if v > 1 and grouped_columns.possible(pr, device):
        return Kernel.COLUMNS
    return Kernel.CHANNELS if grouped_channels.takes(pr, device, v, th, tw) else Kernel.IN_PLACE


def channels_read(pr: Problem, v: int) -> int:
    """Words of one load of the input."""
    if across(pr):
        return v
    quads = v == 4 and pr.cg % 4 == 0 and pr.layout_in == "nhwc"
    return v if quads and not pr.is_integer else 1


def reads_quads(pr: Problem, cf: Values) -> bool:
    """Whether a thread of a GPU reads rows four columns at a time: in nchw, if fours are aligned."""
    divisible = pr.w % 4 == 0 and cf["tw"] * pr.stride[1] % 4 == 0
    return pr.layout_in == "nchw" and pr.dtype in ("f32", "f16", "bf16") and divisible


def stores_quads(pr: Problem, cf: Values) -> bool:
    """Whether it stores four columns at a time."""
    divisible = pr.q % 4 == 0 and cf["tw"] % 4 == 0
    return pr.layout_out == "nchw" and cf["v"] == 1 and cf["combine"] == NONE and divisible


def items_of(pr: Problem, cf: Values) -> int:
    """Number of items: threads that have work."""
    return pr.n * (pr.k // cf["v"]) * ceil_div(pr.p, cf["th"]) * ceil_div(pr.q, cf["tw"])


def blocks_of(items: int, device: Device, cf: Values) -> int:
    """Blocks of a launch: on a GPU a thread has an item, on a CPU a core takes runs of items."""
    if device.is_gpu:
        return ceil_div(items, cf["threads"])
    return min(items, grouped_columns.RUNS * device.units)


def body_of(pr: Problem, device: Device, v: int, th: int, tw: int) -> int:
    """Multiply-adds of one iteration over the channels; on a CPU of whole vectors."""
    kernel = kernel_of(pr, device, v, th, tw)
    if kernel is Kernel.COLUMNS:
        return pr.r * pr.s * th * tw
    if kernel is Kernel.CHANNELS:
        return pr.r * pr.s * th * tw * (pr.cg if grouped_channels.over_groups(pr, v) else 1)
    each = 1 if across(pr) else channels_read(pr, v)
    return pr.r * pr.s * th * tw * each * (v if device.is_gpu else 1)


def rolled(pr: Problem, device: Device, v: int, th: int, tw: int) -> bool:
    """Whether the rows of the filter are a loop, since unrolled they would overflow the instruction cache.

    On a GPU two at a time, for one output row with enough work for a thread. On a CPU in nhwc whenever a
    tile has a single row: less code is faster (5x5 at 28x28: 296 instead of 526 us, 3x3: 232 instead of 278).
    """
    body, columns = body_of(pr, device, v, th, tw), kernel_of(pr, device, v, th, tw) is Kernel.COLUMNS
    if not device.is_gpu and v > 1 and not columns:
        return th == 1 and tw > 1 and body // pr.r <= MOST_BODY
    if body <= MOST_BODY:
        return False
    if columns:
        loop = grouped_columns.rolled_body(pr, th, tw)
        return loop is not None and loop <= MOST_BODY
    return device.is_gpu and th == 1 and tw > 1 and 2 * body // pr.r <= MOST_BODY


def row_fits(pr: Problem, device: Device, v: int, th: int, tw: int) -> bool:
    """Whether a CPU's thread can hold the inputs of a row under its outputs, those between taps too."""
    copied = kernel_of(pr, device, v, th, tw) in (Kernel.COLUMNS, Kernel.CHANNELS)
    return device.is_gpu or copied or columns_under(pr, tw) <= MOST_ROW


def registers(pr: Problem, v: int, th: int, tw: int) -> int:
    """Estimate of the registers a thread of a GPU needs: sums, two input rows, taps, addresses."""
    taps = min(pr.r * pr.s, 12) * v
    return (v * (th * tw + 2 * columns_under(pr, tw)) + taps) * word_registers(pr) + 32
