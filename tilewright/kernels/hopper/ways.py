"""The ways in which the hopper kernel can read its input (``x``), and which of them a layer has.

The kernel has the same numbers: X_WAY in hopper_tile.h.
"""

from __future__ import annotations

from math import gcd

from tilewright.kernels.limits import MOST_BITS, MOST_GATHERED
from tilewright.kernels.products import in_chunk
from tilewright.kernels.tile import View
from tilewright.problem import Problem

AS_IS, COPIED, GATHERED, HALVED, PLANES, TURNED, TAPWISE, SLID = range(8)
WAYS = ("as it is", "copied to nhwc by a first kernel", "gathered number by number",
        "copied to nhwc in two of f16 for each number, by a second kernel",
        "as it is in nchw, by the copy engine", "as it is in nchw, turned by threads",
        "as it is, anew for each tap", "as it is in nchw, sums for each column of the filter")  # fmt: skip
COPIES = (COPIED, HALVED)  # ways in which an earlier kernel copies the input
NCHW = (PLANES, TURNED, SLID)  # ways to read nchw without such a kernel
ANEW = (PLANES, TAPWISE)  # ways in which each step has a patch of its own
MOST_COLUMNS = 1 << 30  # of a row of planes, so that positions in it fit 32 bits
MOST_TURNED = 1 << 31  # numbers of x, whose positions threads keep in 32 bits


def ways(pr: Problem) -> tuple[int, ...]:
    """How the input can be read: whole pieces of channels as they are, else copied; few channels gathered.

    If numbers are split, a copying kernel can do it, and then the copy engine can copy patches. It can also
    copy whole pieces again for each tap: only the outputs' pixels, none between two rows. In nchw the tensor
    cores can take pixels as they lie in a row, if numbers have 2 bytes; the copy engine copies them if all
    its copies begin at a multiple of 16 bytes, and for 1x1 filters wherever planes begin (``leads``). Under
    three columns of a filter sums can move instead (``slides``). Otherwise threads transpose pixels into
    pieces of channels.
    """
    nhwc = pr.layout_in == "nhwc" or pr.h * pr.w == 1
    whole = (AS_IS,) if nhwc and pr.cg % in_chunk(pr) == 0 else ()
    split = pr.math == "accurate"
    copied = (COPIED,) if not whole or split else ()
    few = pr.terms <= MOST_GATHERED and max(pr.r, pr.s) <= MOST_BITS
    gathered = (GATHERED,) if few else ()
    halved = (HALVED,) if split else ()
    if nhwc:
        tapwise = (TAPWISE,) if whole and not split and pr.r * pr.s > 1 else ()
        return whole + copied + gathered + halved + tapwise
    moves = (pr.dilation[1] if pr.s > 1 else 0, pr.pad[2], View.of(pr).w)  # from one box to another
    aligned = pr.stride[1] == 1 and not any(move % in_chunk(pr) for move in moves)
    planes = (PLANES,) if (aligned or leads(pr) > 1) and pr.dtype in ("f16", "bf16") else ()
    slid = (SLID,) if slides(pr) and pr.dtype in ("f16", "bf16") else ()
    turned = (TURNED,) if pr.x_elements < MOST_TURNED else ()
    return whole + copied + gathered + halved + planes + turned + slid


def leads(pr: Problem) -> int:
    """Period, in channels of nchw, of those that begin at a multiple of 16 bytes (hopper_lead.h).

    1 if all do, and if planes may not begin anywhere: only those of 1x1 filters with whole periods may.
    """
    view = View.of(pr)
    found = in_chunk(pr) // gcd(view.w, in_chunk(pr))
    pointwise = view.h == 1 and view.w == view.q and (pr.r, pr.s) == (1, 1) and not pr.epilogue.pool
    whole = pr.cg % found == 0 and found * view.w < MOST_COLUMNS
    return found if pointwise and not any(pr.pad) and whole else 1


def slides(pr: Problem) -> bool:
    """Whether each column of the filter can have sums of its own, which then slide (hopper_slide.h).

    Three columns side by side, with one of padding on either side, and no stride; rows of whole pieces of
    16 bytes.
    """
    columns = (pr.s, *pr.stride, pr.dilation[1], *pr.pad[2:])
    return columns == (3, 1, 1, 1, 1, 1) and pr.w % in_chunk(pr) == 0


def skewed(pr: Problem, way: int) -> bool:
    """Whether the copy engine copies planes that may begin anywhere (``leads`` > 1)."""
    return way == PLANES and leads(pr) > 1


def leap(pr: Problem) -> int:
    """Channels from one lead to the next longer one, modulo ``leads``."""
    return View.of(pr).w * leads(pr) // in_chunk(pr) % leads(pr)


def turns_runs(pr: Problem, way: int) -> bool:
    """Whether the copy engine copies what threads then transpose, as runs of pixels (hopper_turn.h).

    For numbers of 2 bytes in whole pieces along channels and pixels; not if a stride skips rows, which a run
    would include: nor for an image of one row, if its row is in another phase or between two places.
    """
    whole = pr.h * pr.w % in_chunk(pr) == 0 and pr.cg % in_chunk(pr) == 0
    all_rows = pr.stride[0] == 1 or (pr.h == pr.r == 1 and pr.pad[0] == 0)
    return way == TURNED and pr.dtype in ("f16", "bf16") and whole and all_rows
