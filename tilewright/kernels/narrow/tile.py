"""Sizes of the narrow kernel: rows of the input, shared memory, registers."""

from __future__ import annotations

from tilewright.arithmetic import round_up
from tilewright.kernels.family import Values
from tilewright.kernels.tile import rows_under
from tilewright.problem import Problem

BYTES = 4  # of a number
RUN = 4  # numbers that a lane loads at once
MARGIN = 30  # registers besides sums, rows and taps


def taps(pr: Problem) -> int:
    """Taps of an input channel for all output channels."""
    return pr.k * pr.r * pr.s


def filter_bytes(pr: Problem) -> int:
    """Bytes of the filter that a block keeps in shared memory."""
    return BYTES * pr.c * round_up(taps(pr), RUN)


def edge(pr: Problem) -> int:
    """Columns that a thread needs next to its own, on the side that needs more (EDGE)."""
    return max(pr.pad[2], pr.s - 1 - pr.pad[2])


def rows(pr: Problem, cf: Values) -> int:
    """Rows of the input under a thread (ROWS)."""
    return rows_under(pr, cf["th"])


def sums(pr: Problem, cf: Values) -> int:
    """Sums of a thread (SUMS)."""
    return pr.k * cf["th"] * cf["tw"]


def team(cf: Values) -> int:
    """Threads that work on one share of C (TEAM)."""
    return 32 * cf["warps"] // cf["split"]


def tile(cf: Values) -> tuple[int, int]:
    """Rows and columns of a block's outputs (HB, WB)."""
    return team(cf) // cf["bw"] * cf["th"], cf["bw"] * cf["tw"]


def shared_bytes(pr: Problem, cf: Values) -> int:
    """Shared memory of a block: the filter, reused by the sums of a share."""
    return max(filter_bytes(pr), BYTES * team(cf) * sums(pr, cf) if cf["split"] > 1 else 0)


def whole(pr: Problem, cf: Values) -> bool:
    """Whether lanes read aligned arrays four numbers at a time: all columns of a lane are inside, or none."""
    return pr.w % cf["tw"] == 0


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers a thread needs: sums, rows in flight, taps, addresses."""
    seen, one_by_one = cf["tw"] + pr.s - 1, 0 if whole(pr, cf) else 8 * cf["tw"]
    on_their_way = cf["depth"] * (cf["tw"] + edge(pr)) + one_by_one
    return sums(pr, cf) + on_their_way + round_up(taps(pr), RUN) + seen + MARGIN
