"""Resource limits of a device: registers, shared memory and threads of the blocks of a unit."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Param, Rule
from tilewright.problem import Problem

DECLARED_SHARED = 128  # bytes that a kernel declares beside its tiles, at most: a flag, barriers
RESERVED_SHARED = 1024  # bytes of each block that CUDA keeps for itself
MOST_BODY = 1200  # multiply-adds unrolled into one loop body: more overflow the instruction cache
MOST_WEIGHTS = 1 << 28  # numbers of a filter
MOST_GATHERED = 160  # numbers of all taps and channels that a thread gathers: their loads are unrolled
SCHEDULERS = 4  # of a unit
SPARE = 5  # registers that the compiler may need above an estimate that counts fragments and sums
MOST_COPIES = 16  # addresses of staging copies that a thread keeps in registers

SPILLS = "more registers than a thread or a unit has: the compiler would spill"


def blocks_param(*values: int) -> Param:
    """The tunable that says how many blocks a unit is to hold at once: MIN_BLOCKS of the kernel."""
    return Param("mb", values, "blocks that a unit holds at once (bounds the registers of a thread)")


def block_rule(holds: Callable[..., bool]) -> Rule:
    """The rule that a block has no more threads than it may."""
    return Rule("block", holds, "more threads than a block may have")


def resident_rule(holds: Callable[..., bool]) -> Rule:
    """The rule that a unit has the threads of the blocks that it is to hold at once."""
    return Rule("resident", holds, "more threads than a unit holds at once")


def schedulers_rule(holds: Callable[..., bool]) -> Rule:
    """The rule that a unit holds a warp for each of its SCHEDULERS."""
    return Rule("schedulers", holds, "a unit has four schedulers to keep busy")


def shared_rule(holds: Callable[..., bool], needs: str) -> Rule:
    """The rule that a block has the shared memory of its tiles."""
    return Rule("shared", holds, "more shared memory than a block may have", needs)


# Of families one of whose parameters is the threads of a block.
BLOCK = block_rule(lambda device, threads: threads <= device.max_threads)
RESIDENT = resident_rule(
    lambda device, threads, mb: not device.is_gpu or threads * mb <= device.threads_per_unit
)


def too_large(problem: Problem) -> str | None:
    """Refuse a filter whose elements are not counted in 32 bits once it is packed."""
    numbers = problem.k * problem.cg * problem.r * problem.s
    return f"its filter has more than {MOST_WEIGHTS:,} numbers" if numbers > MOST_WEIGHTS else None


def no_tensor_cores(device: Device) -> str | None:
    """Say so if a device has no tensor cores with ``mma.sync`` of sm_80."""
    return None if device.tensor_macs else "the device has no tensor cores with the products of sm_80"


def no_gpu(device: Device) -> str | None:
    """Say so if a device is not a GPU."""
    return None if device.is_gpu else "it is made for the threads of a GPU"


def no_kernels(device: Device) -> str | None:
    """Say so if a device runs no kernels at all."""
    return None if device.backend in ("cuda", "opencl") else f"the {device.backend} backend runs no kernels"


def fits_registers(device: Device, need: int, threads: int, spare: int = 15) -> bool:
    """Whether a thread may have ``need`` registers, and a unit has them for so many threads.

    ``spare``: registers that the compiler may need above the estimate.
    """
    per_scheduler = ceil_div(threads, SCHEDULERS * device.lanes) * device.lanes  # threads of the fullest one
    held = device.regs_per_unit // SCHEDULERS
    return need <= device.regs_per_thread - spare and need * per_scheduler <= held


def fits_shared(device: Device, tiles: int, blocks: int, declared: int = DECLARED_SHARED) -> bool:
    """Whether a block may have so many bytes of shared memory, and a unit has them for so many blocks.

    Tiles begin at a whole line, after the bytes that the kernel has ``declared``.
    """
    block = tiles + declared
    return block <= device.shared_per_block and blocks * (block + RESERVED_SHARED) <= device.shared_per_unit


def resident(device: Device, registers: int, threads: int, shared_bytes: int, least: int) -> int:
    """Blocks that a unit holds at once: at least ``least``, which was asked for, and more if they fit."""
    by_registers = device.regs_per_unit // ((registers + 8) * threads)
    by_shared = device.shared_per_unit // (shared_bytes + DECLARED_SHARED + RESERVED_SHARED)
    return max(least, min(by_registers, by_shared, device.threads_per_unit // threads))
