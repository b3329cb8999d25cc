"""Split-K: how shares of the sum over C are combined across the grid; rules, launches, buffers for specs."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import ZERO, Buffer, Launch, Param, Rule
from tilewright.kernels.requant import scale_operand
from tilewright.kernels.tile import ATOMIC, COMBINE_NAMES, LAST, NONE, TWO_PASS
from tilewright.kernels.word import word_bytes
from tilewright.problem import DTYPE_BYTES, Problem

SUM_THREADS = 256
ALONE_SECTORS = 2.0  # sectors that take as long as a number stored by itself (2,700 trials of mma)


def may_combine(pr: Problem, shares: int, combine: int) -> bool:
    """Whether shares across the grid may be combined in this way. A single share needs no combining, except
    that a pooled layer may leave it to a second kernel (TWO_PASS)."""
    if shares > 1:
        return combine != NONE
    return combine == NONE or (combine == TWO_PASS and pr.epilogue.pool is not None)


def pool_apart(pr: Problem) -> int:
    """How a kernel that cannot pool passes on whole sums: to a second one (TWO_PASS) if there is a pool."""
    return TWO_PASS if pr.epilogue.pool else NONE


COMBINE_NONE = Rule(
    "combine_none",
    lambda problem, sg, combine: may_combine(problem, sg, combine),
    "shares across the grid need combining",
)
ATOMIC_EPILOGUE = Rule(
    "atomic_epilogue",
    lambda problem, combine: combine != ATOMIC or not (problem.epilogue or problem.requantised),
    "with atomics no thread sees the whole sum, which an epilogue needs",
)
ATOMIC_SUMS = Rule(
    "atomic_sums",
    lambda problem, combine: combine != ATOMIC or problem.dtype_out in ("f64", "f32", "i32"),
    "sums of 32 bits are not added to an output of fewer",
)
LAST_ORDER = Rule(
    "last_order",
    lambda device, combine: combine != LAST or device.orders_blocks,
    "the last block to arrive adds up what others wrote, and OpenCL promises no GPU that it sees that",
)
SECOND_POOLS = Rule(
    "pool",
    lambda problem, combine: not problem.epilogue.pool or combine == TWO_PASS,
    "only the second kernel pools",
)
POOL_APART = Rule(
    "pool", lambda problem, combine: combine == pool_apart(problem), "the second kernel is there to pool"
)


def combine_param(*ways: int, doc: str = "how the grid's shares meet") -> Param:
    """The tunable that says how shares are combined."""
    return Param("combine", ways, doc, tuple(COMBINE_NAMES[way] for way in ways))


# Rules of kernels with whole sums.
POOL_PARAM = combine_param(NONE, TWO_PASS, doc="sums stored at once, or left to a second kernel that pools")


def share_defines(combine: int, sc: int = 1, sg: int = 1) -> dict[str, int]:
    """The defines of tile.h for the shares of C across a cluster and the grid, and how they are combined."""
    return dict(COMBINE=combine, SC=sc, SG=sg, SUM_THREADS=SUM_THREADS)


def operands(combine: int, x: str = "x") -> tuple[str, ...]:
    """The first arguments of a kernel; its sums go to y, or to a buffer for a second kernel."""
    return (x, "w", "bias", "z", "partial" if combine == TWO_PASS else "y")


def second_pass(pr: Problem, combine: int, chained: bool = True) -> tuple[Launch, ...]:
    """The launch that adds up the shares in ``partial`` and pools, if a kernel has stored its sums there."""
    if combine != TWO_PASS:
        return ()
    groups, args = ceil_div(pr.y_elements, SUM_THREADS), ("partial", "bias", "z", "y", *scale_operand(pr))
    return (Launch("sum_shares", (groups, 1, 1), (SUM_THREADS, 1, 1), args, chained=chained),)


def combining(main: Launch, pr: Problem, device: Device, combine: int) -> tuple[Launch, ...]:
    """The launch of a kernel that combines shares, and those that it needs: one before it zeroes y for atomic
    adds, if blocks do not do so themselves (tile.h); one after it is the second pass."""
    zeroes = combine == ATOMIC and not device.is_cuda
    before = (Launch(ZERO, (1, 1, 1), (1, 1, 1), ("y",)),) if zeroes else ()
    return (*before, main, *second_pass(pr, combine))


def left_bytes(pr: Problem, combine: int) -> int:
    """Bytes of complete sums that the kernel of ``second_pass`` reads; 0 if there is none."""
    return word_bytes(pr) * pr.z_elements if combine == TWO_PASS else 0


def stored_bytes(pr: Problem, combine: int) -> int:
    """Bytes in which a sum is stored: as an output, or for a second kernel."""
    return word_bytes(pr) if combine == TWO_PASS else DTYPE_BYTES[pr.dtype_out]


def alone(pr: Problem, nbytes: int) -> bool:
    """Whether sums of ``nbytes`` are stored one by one: 2 bytes in rows of nchw that begin at half words."""
    plane = pr.y_p * pr.y_q
    return nbytes == 2 and pr.layout_out == "nchw" and plane % 2 == 1 and plane > 1


def partial_sums(pr: Problem, combine: int) -> tuple[Buffer, ...]:
    """The buffer for complete sums that the kernel of ``second_pass`` reads."""
    return (Buffer("partial", left_bytes(pr, combine)),) if combine == TWO_PASS else ()


def reduction_buffers(
    pr: Problem, cf: Mapping[str, int], parts: int, tiles: int, word: int = 4, more: int = 0
) -> tuple[Buffer, Buffer]:
    """The buffers that combine shares: partial sums of ``word`` bytes, and arrival counters.

    Args:
        parts: partial sums that blocks store for the last one to arrive.
        tiles: output tiles. Each has an arrival counter, or one for each block of a cluster that finishes a
            part of it.
        more: further counters that the kernel needs.
    """
    combine = cf["combine"]
    sums = {TWO_PASS: cf["sg"] * pr.z_elements, LAST: parts}.get(combine, 0)
    counters = {ATOMIC: tiles, LAST: tiles * cf.get("sc", 1)}.get(combine, 0) + more
    return Buffer("partial", word * sums), Buffer("arrived", 4 * counters, zeroed=True)
