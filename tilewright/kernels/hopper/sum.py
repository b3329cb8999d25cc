"""What the hopper kernel multiplies, and the steps of its sum."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tilewright.arithmetic import ceil_div
from tilewright.kernels.family import Values
from tilewright.kernels.hopper.ways import ANEW, GATHERED, HALVED, leads, skewed
from tilewright.kernels.products import E4M3, HALVES, PLAIN, TF32, THREE, in_chunk
from tilewright.kernels.untuned.nhwc import tap_chunks
from tilewright.problem import Problem

# Products that tensor cores add up before they are promoted (added in f32). For f8 see
# kernels/error_bound.py. Accurate: one of tf32, 8 numbers deep, as in mma, and as FEWEST_ACCURATE was
# simulated; or two of f16, 16 deep, whose rms error in that simulation is 0.4 to 0.6 times strict f32's at
# 256 products, 0.2 at 2304.
PROMOTED = {E4M3: 4, THREE: 1, HALVES: 2}
COLUMNS = 3  # of a filter, each of which has sums of its own where they slide


def products(pr: Problem, way: int) -> int:
    """What is multiplied: numbers as they are, rounded to tf32, split into two of tf32 or of f16, or e4m3."""
    if pr.math != "strict":
        return TF32 if pr.math == "tf32" else HALVES if way == HALVED else THREE
    return E4M3 if pr.dtype == "f8" else PLAIN


def parts_of(pr: Problem) -> int:
    """Tiles of each operand in a step: two if numbers are split into high and low parts."""
    return 2 if pr.math == "accurate" else 1


def copied_parts(pr: Problem, mapped: bool) -> int:
    """Parts of each number of the copied input: the copying kernel splits them only for the copy engine."""
    return parts_of(pr) if mapped else 1


def numbers(pr: Problem, way: int) -> int:
    """Numbers in a piece of 16 bytes."""
    return 8 if way == HALVED else in_chunk(pr)


def promotions(pr: Problem, cf: Values) -> int:
    """How often the sums of a step are promoted; 0 if they are not."""
    product = products(pr, cf["x"])
    return ceil_div(cf["chunks"] // 2, PROMOTED[product]) if product in PROMOTED else 0


def chunks_of(pr: Problem, way: int) -> int:
    """16-byte pieces of the sum of one tap, and of one lead.

    If the input is gathered, those of the whole sum, rounded up to an even number.
    """
    if way == GATHERED:
        return ceil_div(pr.terms, 2 * in_chunk(pr)) * 2
    return ceil_div(pr.cg // (leads(pr) if skewed(pr, way) else 1), numbers(pr, way))


def taps(pr: Problem, way: int) -> int:
    """Steps of a run of channels, which share one patch, unless each has a patch of its own (ANEW).

    Planes that begin anywhere have one for each lead, as if consecutive channels were taps.
    """
    return 1 if way == GATHERED else leads(pr) if skewed(pr, way) else pr.r * pr.s


def runs(pr: Problem, way: int, chunks: int) -> int:
    """Runs of channels of the sum."""
    return ceil_div(chunks_of(pr, way), chunks)


def held(pr: Problem, cf: Values) -> int:
    """16-byte pieces per pixel and group in the input buffer, per part; whole steps if split into f16."""
    return runs(pr, HALVED, cf["chunks"]) * cf["chunks"] if cf["x"] == HALVED else tap_chunks(pr)


def steps(pr: Problem, way: int, chunks: int) -> int:
    """Steps of the sum."""
    return runs(pr, way, chunks) * taps(pr, way)


def most_steps(pr: Problem, cf: Values) -> int:
    """Steps of the longest share of the sum."""
    return max(end - start for start, end in _shares(pr, cf))


def most_patches(pr: Problem, cf: Values) -> int:
    """Most patches of a share of the sum, which may begin and end inside the taps of one."""
    of_patch = 1 if cf["x"] in ANEW else taps(pr, cf["x"])
    return max((end - 1) // of_patch - start // of_patch + 1 for start, end in _shares(pr, cf))


def _shares(pr: Problem, cf: Values) -> Iterator[tuple[int, int]]:
    """First step of each share of the sum, and the one after its last; shares have whole batches."""
    count, whole = cf["sc"] * cf["sg"], steps(pr, cf["x"], cf["chunks"]) // cf["batch"]
    return pairwise(share * whole // count * cf["batch"] for share in range(count + 1))
