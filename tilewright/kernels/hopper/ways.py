"""How the hopper kernel reads its input (``x``), and which of these ways a layer has.

The kernel knows them by number, too: X_WAY in hopper_tile.h.
"""

from __future__ import annotations

from math import gcd

from tilewright.kernels.limits import MOST_GATHERED
from tilewright.kernels.tile import View
from tilewright.kernels.untuned.nhwc import each
from tilewright.problem import Problem

AS_IS, COPIED, GATHERED, HALVED, PLANES, TURNED, TAPWISE = range(7)
WAYS = ("as it is", "copied to nhwc by a first kernel", "gathered number by number",
        "copied to nhwc in two of f16 for each number, by a second kernel",
        "as it is in nchw, by the copy engine", "as it is in nchw, turned by threads",
        "as it is, anew for each tap")  # fmt: skip
COPIES = (COPIED, HALVED)  # ways that a kernel before this one copies it
NCHW = (PLANES, TURNED)  # ways to read nchw without such a kernel
ANEW = (PLANES, TAPWISE)  # ways in which each step has a patch of its own
MOST_COLUMNS = 1 << 30  # of a row of planes, for places in it to be of 32 bits
MOST_TURNED = 1 << 31  # numbers of x, whose places threads keep in 32 bits
MOST_BITS = 15  # rows or columns of a filter: a thread that gathers keeps a bit of each


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
