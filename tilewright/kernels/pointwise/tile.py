"""Sizes of the pointwise kernel: its runs of pixels, tiles, shared memory and registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.arithmetic import ceil_div, round_up
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.limits import PRODUCT, registers_at_most, registers_handed
from tilewright.kernels.products import in_chunk
from tilewright.kernels.untuned.thin import plane_thinned
from tilewright.kernels.wgmma import ALIGNMENT, BARRIER, SUM_BYTES, TEAM
from tilewright.problem import DTYPE_BYTES, Problem

SPAN = 128  # bytes of a plane
PIECE = 16  # bytes
BOX = 8  # rows of which a box has a multiple: their bytes are one of 128, at which it may begin
PART = 32  # output channels that go to y at once
FRAGMENT = 8  # registers of a set of fragments: words of a product, and what is read for it ahead
MARGIN = 42  # registers besides those and the sums
ADDING = 8  # more where bias or z is added


def plane(pr: Problem) -> int:
    """Pixels of a plane of y, and of x that are read (HW)."""
    return pr.p * pr.q


def thins(pr: Problem) -> bool:
    """Whether the pixels that are read are copied first, to planes of their own (thin.cu)."""
    return max(pr.stride) > 1


def plane_in(pr: Problem) -> int:
    """Pixels from one plane of x, or of its copy, to the next (PLANE_IN)."""
    return plane_thinned(pr) if thins(pr) else plane(pr)


def strands(pr: Problem) -> int:
    """Channels whose planes together are a multiple of 16 bytes (STRANDS): a box has one of each so many."""
    return in_chunk(pr) // gcd(plane_in(pr), in_chunk(pr))


def boxes(pr: Problem, chunks: int) -> bool:
    """Whether the channels of a step are boxes of eights of each strand."""
    return channels(pr, chunks) % (strands(pr) * BOX) == 0


def row_bytes(pr: Problem) -> int:
    """Bytes of a span in shared memory (ROW_BYTES): of strands a piece more, since most begin within one."""
    return SPAN + PIECE * (strands(pr) > 1)


def span(pr: Problem) -> int:
    """Pixels of a span (SPAN_PIXELS)."""
    return SPAN // DTYPE_BYTES[pr.dtype]


def spans(pr: Problem, cf: Values) -> int:
    """Spans of a tile (SPANS): 64 pixels of the team whose turn it is, or of each that computes it."""
    return (1 if cf["turns"] else cf["teams"]) * TEAM // span(pr)


def places(pr: Problem, cf: Values) -> int:
    """Runs of spans, which go on from image to image (PLACES)."""
    return ceil_div(pr.n * ceil_div(plane(pr), span(pr)), spans(pr, cf))


def channels(pr: Problem, chunks: int) -> int:
    """Channels of a step (CHANNELS), of which a row of the filter has ``chunks`` pieces of 16 bytes."""
    return chunks * in_chunk(pr)


def steps(pr: Problem, chunks: int) -> int:
    """Steps of the sum (STEPS)."""
    return ceil_div(pr.c, channels(pr, chunks))


def k_tiles(pr: Problem, cf: Values) -> int:
    """Tiles of the output channels (K_TILES)."""
    return ceil_div(pr.k, cf["bn"])


def blocks(pr: Problem, device: Device, cf: Values) -> int:
    """Blocks of the launch: each has tiles of the same channels."""
    of_channels = k_tiles(pr, cf)
    most = max(1, device.units * cf["mb"] // of_channels)
    return min(places(pr, cf), most) * of_channels


def tiles_of_block(pr: Problem, device: Device, cf: Values) -> int:
    """Tiles of a block, at most."""
    return ceil_div(places(pr, cf), blocks(pr, device, cf) // k_tiles(pr, cf))


def threads(cf: Values) -> int:
    """Threads of a block: those that multiply, and a warpgroup one thread of which sends."""
    return 128 * (cf["teams"] + 1)


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers of a thread that multiplies."""
    adding = ADDING if pr.epilogue.bias or pr.epilogue.add else 0
    return cf["bn"] // 2 + cf["sets"] * FRAGMENT + MARGIN + adding


def launched(device: Device, cf: Values) -> int:
    """Registers of a thread as a block begins."""
    return registers_at_most(threads(cf), cf["mb"], device.regs_per_unit)


def hands_on(pr: Problem, device: Device, cf: Values) -> bool:
    """Whether those who send hand registers on: there are too few for each thread to have as many."""
    return registers(pr, cf) > launched(device, cf)


def fits(problem: Problem, device: Device, cf: Values) -> bool:
    """Whether no thread needs more registers than there are, those that are handed on among them."""
    if not hands_on(problem, device, cf):
        return True
    handed = registers_handed(cf["teams"], cf["mb"], device.regs_per_unit)
    return registers(problem, cf) <= handed and cf["bn"] // 2 + PRODUCT <= launched(device, cf)


def kept_bytes(pr: Problem) -> int:
    """Bytes of a number on its way to y: a sum if z is added to it (kept_t)."""
    return SUM_BYTES if pr.epilogue.add else DTYPE_BYTES[pr.dtype_out]


def run_out(pr: Problem) -> int:
    """Neighbouring pixels that a thread stores at once where y begins at 16 bytes (RUN_OUT)."""
    return gcd(plane(pr), PIECE // kept_bytes(pr))


@dataclass(frozen=True, kw_only=True)
class PointwiseTiling:
    """Sizes derived from a problem and a config, in bytes.

    ``w_bytes``, ``x_bytes``: of a step's filter, and spans; ``x_from``, ``out_from``, ``bars_from``: where
    spans, what goes to y and barriers begin; ``out_bytes``: of a team, two parts of its channels.
    """

    w_bytes: int
    x_bytes: int
    x_from: int
    out_from: int
    out_bytes: int
    bars_from: int
    shared_bytes: int


def tiling_of(pr: Problem, cf: Values) -> PointwiseTiling:
    """Return the tiling of a config."""
    teams, stages, chunks = cf["teams"], cf["stages"], cf["chunks"]
    w_buffers = steps(pr, chunks) if cf["keep"] else stages
    barriers = 2 * stages + (w_buffers if cf["keep"] else 0)
    w_bytes, x_bytes = cf["bn"] * PIECE * chunks, spans(pr, cf) * channels(pr, chunks) * row_bytes(pr)
    x_from = round_up(w_buffers * w_bytes, ALIGNMENT)
    out_from, out_bytes = x_from + stages * x_bytes, 2 * PART * TEAM * kept_bytes(pr)
    bars_from = out_from + teams * out_bytes
    return PointwiseTiling(
        w_bytes=w_bytes, x_bytes=x_bytes, x_from=x_from, out_from=out_from, out_bytes=out_bytes,
        bars_from=bars_from, shared_bytes=bars_from + BARRIER * barriers + ALIGNMENT,
    )  # fmt: skip
