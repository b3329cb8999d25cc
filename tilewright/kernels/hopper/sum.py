"""How the hopper kernel reads its input, what it multiplies, and the steps of its sum."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import gcd

from tilewright.kernels.family import Values
from tilewright.kernels.limits import MOST_GATHERED
from tilewright.kernels.products import E4M3, HALVES, PLAIN, TF32, THREE
from tilewright.kernels.tile import View, ceil_div
from tilewright.kernels.untuned.nhwc import each, tap_chunks
from tilewright.problem import Problem

AS_IS, COPIED, GATHERED, HALVED, PLANES, TURNED, TAPWISE = range(7)
WAYS = ("as it is", "copied to nhwc by a first kernel", "gathered number by number",
        "copied to nhwc in two of f16 for each number, by a second kernel",
        "as it is in nchw, by the copy engine", "as it is in nchw, turned by threads",
        "as it is, anew for each tap")  # fmt: skip
NCHW = (PLANES, TURNED)  # ways to read it without a kernel that copies it
ANEW = (PLANES, TAPWISE)  # ways in which each step has a patch of its own
MOST_COLUMNS = 1 << 30  # of a row of planes, for places in it to be of 32 bits
MOST_TURNED = 1 << 31  # numbers of x, whose places threads keep in 32 bits
COPIES = (COPIED, HALVED)
MOST_BITS = 15  # rows or columns of a filter: a thread that gathers keeps a bit of each
# Products that tensor cores add up, before the rest is added in f32: of f8, kernels/bound.py says. Accurate:
# one of tf32, 8 numbers deep, as mma has it, and as FEWEST_ACCURATE was simulated; or two of f16, 16 deep,
# whose rms error in that simulation is 0.4 to 0.6 times strict f32's at 256 products, 0.2 at 2304.
PROMOTED = {E4M3: 4, THREE: 1, HALVES: 2}


def ways(pr: Problem) -> tuple[int, ...]:
    """How the input can be read: whole pieces of channels as they are, else copied; few channels gathered.

    Numbers that are split are so by whoever copies them, and then the copy engine can copy patches. Whole
    pieces it can also bring anew for each tap: the outputs' pixels alone, none between two rows. In nchw
    the tensor cores take pixels side by side too, if numbers have 2 bytes; the copy engine brings them where
    all that it copies begins at a multiple of 16 bytes, and of 1x1 filters wherever planes begin (``leads``).
    Else threads turn pixels into pieces of channels.
    """
    nhwc = pr.layout_in == "nhwc" or pr.h * pr.w == 1
    whole = (AS_IS,) if nhwc and pr.cg % each(pr) == 0 else ()
    split = pr.math == "accurate"
    copied = (COPIED,) if not whole or split else ()
    few = pr.cg * pr.r * pr.s <= MOST_GATHERED and max(pr.r, pr.s) <= MOST_BITS
    gathered = (GATHERED,) if few else ()
    halved = (HALVED,) if split else ()
    if nhwc:
        tapwise = (TAPWISE,) if whole and not split and pr.r * pr.s > 1 else ()
        return whole + copied + gathered + halved + tapwise
    moves = (pr.dilation[1] if pr.s > 1 else 0, pr.pad[2], View.of(pr).w)  # from one box to another
    aligned = pr.stride[1] == 1 and not any(move % each(pr) for move in moves)
    planes = (PLANES,) if (aligned or leads(pr) > 1) and pr.dtype in ("f16", "bf16") else ()
    turned = (TURNED,) if pr.n * pr.c * pr.h * pr.w < MOST_TURNED else ()
    return whole + copied + gathered + halved + planes + turned


def leads(pr: Problem) -> int:
    """Channels of nchw until one begins at a multiple of 16 bytes again, as the first does (hopper_lead.h).

    1 where all do; and where planes are not read at any place: 1x1 filters alone, of whole rounds of leads.
    """
    view = View.of(pr)
    found = each(pr) // gcd(view.w, each(pr))
    pointwise = view.h == 1 and view.w == view.q and (pr.r, pr.s) == (1, 1) and not pr.epilogue.pool
    whole = pr.cg % found == 0 and found * view.w < MOST_COLUMNS
    return found if pointwise and not any(pr.pad) and whole else 1


def skewed(pr: Problem, way: int) -> bool:
    """Whether the copy engine brings planes that begin anywhere."""
    return way == PLANES and leads(pr) > 1


def leap(pr: Problem) -> int:
    """Channels from one lead to the next longer one, but for whole rounds of ``leads``."""
    return View.of(pr).w * leads(pr) // each(pr) % leads(pr)


def turns_runs(pr: Problem, way: int) -> bool:
    """Whether what is turned comes by the copy engine, as runs of pixels (hopper_turn.h).

    Numbers of 2 bytes, whole pieces along channels and pixels; not where rows are left out, which a run has:
    those of an image of one row, too, if its row is in another phase or between two places.
    """
    whole = pr.h * pr.w % each(pr) == 0 and pr.cg % each(pr) == 0
    all_rows = pr.stride[0] == 1 or (pr.h == pr.r == 1 and pr.pad[0] == 0)
    return way == TURNED and pr.dtype in ("f16", "bf16") and whole and all_rows


def products(pr: Problem, way: int) -> int:
    """What is multiplied: numbers as they are, rounded to tf32, split into two of tf32 or of f16, or e4m3."""
    if pr.math != "strict":
        return TF32 if pr.math == "tf32" else HALVES if way == HALVED else THREE
    return E4M3 if pr.dtype == "f8" else PLAIN


def parts_of(pr: Problem) -> int:
    """Tiles that a step has of each operand: the high parts of numbers, and the low ones."""
    return 2 if pr.math == "accurate" else 1


def copied_parts(pr: Problem, mapped: bool) -> int:
    """Parts of each number of the copied input: whoever copies it splits them for the copy engine alone."""
    return parts_of(pr) if mapped else 1


def numbers(pr: Problem, way: int) -> int:
    """Numbers of a piece of 16 bytes."""
    return 8 if way == HALVED else each(pr)


def promotions(pr: Problem, cf: Values) -> int:
    """How often the sums of a step are promoted."""
    kind = products(pr, cf["x"])
    return ceil_div(cf["chunks"] // 2, PROMOTED[kind]) if kind in PROMOTED else 0


def chunks_of(pr: Problem, way: int) -> int:
    """Pieces of 16 bytes of the sum under one tap, and of one lead.

    Of all of it where it is gathered, in steps of two.
    """
    if way == GATHERED:
        return ceil_div(pr.cg * pr.r * pr.s, 2 * each(pr)) * 2
    return ceil_div(pr.cg // (leads(pr) if skewed(pr, way) else 1), numbers(pr, way))


def taps(pr: Problem, way: int) -> int:
    """Steps of a run of channels, which one patch serves, unless each has a patch of its own (ANEW).

    Planes that begin anywhere have one for each lead, as if channels that follow each other were taps.
    """
    return 1 if way == GATHERED else leads(pr) if skewed(pr, way) else pr.r * pr.s


def runs(pr: Problem, way: int, chunks: int) -> int:
    """Runs of channels of the sum."""
    return ceil_div(chunks_of(pr, way), chunks)


def held(pr: Problem, cf: Values) -> int:
    """16-byte pieces per pixel and group in the input buffer, per part; of split f16 whole steps."""
    return runs(pr, HALVED, cf["chunks"]) * cf["chunks"] if cf["x"] == HALVED else tap_chunks(pr)


def steps(pr: Problem, way: int, chunks: int) -> int:
    """Steps of the sum."""
    return runs(pr, way, chunks) * taps(pr, way)


def most_steps(pr: Problem, cf: Values) -> int:
    """Steps of the longest share of the sum."""
    return max(end - start for start, end in _shares(pr, cf))


def most_patches(pr: Problem, cf: Values) -> int:
    """Patches that a share of the sum has, at most: a share may begin and end inside the taps of one."""
    of_patch = 1 if cf["x"] in ANEW else taps(pr, cf["x"])
    return max((end - 1) // of_patch - start // of_patch + 1 for start, end in _shares(pr, cf))


def _shares(pr: Problem, cf: Values) -> Iterator[tuple[int, int]]:
    """First step of each share of the sum, and the one behind its last: whole batches."""
    count, whole = cf["sc"] * cf["sg"], steps(pr, cf["x"], cf["chunks"]) // cf["batch"]
    return pairwise(share * whole // count * cf["batch"] for share in range(count + 1))
