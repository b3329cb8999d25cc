"""Resource limits of a device: registers, shared memory and threads of a unit's blocks."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.device.architectures import WGMMA
from tilewright.kernels.family import Param, Rule, Values
from tilewright.problem import Problem

DECLARED_SHARED = 128  # most bytes that a kernel declares besides its tiles: a flag, barriers
RESERVED_SHARED = 1024  # bytes per block that CUDA reserves
MOST_BODY = 1200  # multiply-adds unrolled into one loop body: more would overflow the instruction cache
MOST_WEIGHTS = 1 << 28  # numbers of a filter
MOST_GATHERED = 160  # numbers of all taps and channels that a thread gathers: their loads are unrolled
MOST_BITS = 15  # rows or columns of a filter of which a thread keeps a bit each
FEWEST_IN_GROUP = 8  # channels that an implicit GEMM takes of a group, if there are several
MOST_TAPS = (1 << 16) - 1  # rows or columns of a padded filter, which are counted in 16 bits otherwise
SCHEDULERS = 4  # of a unit
MOST_THREADS = 512  # of a block, where its warps are a product of parameters
SENDING, MOST_HANDED = 32, 240  # registers of a thread that hands others on; most of one that gets them
PRODUCT = 30  # registers besides its sums without which the compiler refuses a product of wgmma
SPARE = 5  # registers that the compiler may need above an estimate that counts fragments and sums
ROUGHLY = 15  # above one that counts sums and little else
MOST_COPIES = 16  # addresses of staging copies that a thread keeps in registers

SPILLS = "more registers than a thread or a unit has: the compiler would spill"
TOO_FULL = "more shared memory than a block may have"

Needs = Callable[[Problem, Values], int]  # what a config takes: registers, bytes


def blocks_param(*values: int) -> Param:
    """The tunable of how many blocks a unit shall hold at once: the kernel's MIN_BLOCKS."""
    return Param("mb", values, "blocks that a unit holds at once (bounds the registers of a thread)")


def block_rule(holds: Callable[..., bool], needs: str = "") -> Rule:
    """The rule that a block does not have too many threads."""
    return Rule("block", holds, "more threads than a block may have", needs)


def resident_rule(holds: Callable[..., bool], needs: str = "") -> Rule:
    """The rule that a unit has enough threads for the blocks that it shall hold at once."""
    return Rule("resident", holds, "more threads than a unit holds at once", needs)


def warps_rules(counts: str) -> tuple[Rule, Rule, Rule]:
    """The rules of a block with as many warps as the product of the parameters ``counts``.

    A unit shall hold at least one warp per scheduler (SCHEDULERS).
    """
    held = f"{counts} mb"
    return (
        block_rule(lambda device, cf:
                   32 * prod(cf.values()) <= min(MOST_THREADS, device.max_threads), counts),
        Rule("schedulers", lambda cf: prod(cf.values()) >= SCHEDULERS,
             "a unit has four schedulers to keep busy", held),
        resident_rule(lambda device, cf: 32 * prod(cf.values()) <= device.threads_per_unit, held),
    )  # fmt: skip


def thread_rule(registers: Needs, needs: str) -> Rule:
    """The rule that a thread has its registers, in a block of any size: it cuts a search early."""
    return Rule("thread", lambda problem, device, cf:
                fits_registers(device, registers(problem, cf), 1, SPARE), SPILLS, needs)  # fmt: skip


def registers_rule(
    registers: Needs, threads: Callable[[Values], int], needs: str, name: str = "registers",
    spare: int = SPARE,
) -> Rule:  # fmt: skip
    """The rule that a GPU's thread has its registers, and a unit those of the blocks that it shall hold.

    Without ``mb`` among what it ``needs`` it asks for one block, and cuts a search early.
    """
    return Rule(name, lambda problem, device, cf: not device.is_gpu or fits_registers(
        device, registers(problem, cf), threads(cf) * cf.get("mb", 1), spare), SPILLS, needs)  # fmt: skip


def shared_rule(tiles: Needs, needs: str, declared: int = DECLARED_SHARED) -> Rule:
    """The rule that a block has the bytes of its tiles, and a unit those of the blocks that it shall hold.

    Without ``mb``, as for registers.
    """
    return Rule("shared", lambda problem, device, cf: fits_shared(
        device, tiles(problem, cf), cf.get("mb", 1), declared), TOO_FULL, needs)  # fmt: skip


# Rules of families with the threads of a block as a parameter.
BLOCK = block_rule(lambda device, threads: threads <= device.max_threads)
RESIDENT = resident_rule(
    lambda device, threads, mb: not device.is_gpu or threads * mb <= device.threads_per_unit
)


# Of families with wgmma whose blocks have ``bn`` output channels, 32 or a multiple.
COLUMNS_OF_32 = Rule(
    "channels", lambda problem, bn: bn == 32 or bn < problem.k + 32,
    "32 columns of a product, or more, without channels",
)  # fmt: skip


def too_large(problem: Problem) -> str | None:
    """Refuse a filter with too many elements, once packed, to be counted in 32 bits."""
    much = problem.w_elements > MOST_WEIGHTS
    return f"its filter has more than {MOST_WEIGHTS:,} numbers" if much else None


def too_wide(problem: Problem) -> str | None:
    """Refuse a padded filter with more rows or columns than taps.h counts."""
    if any(problem.pad) and max(problem.r, problem.s) > MOST_TAPS:
        return f"its filter has more than {MOST_TAPS:,} rows or columns, and the input is padded"
    return None


def thin_groups(problem: Problem) -> str | None:
    """Refuse several groups of so few channels that products of tensor cores would be mostly empty."""
    if problem.groups > 1 and min(problem.cg, problem.kg) < FEWEST_IN_GROUP:
        return f"groups of fewer than {FEWEST_IN_GROUP} channels leave most of a product empty"
    return None


def not_planes(problem: Problem) -> str | None:
    """Refuse what is not planes of one group, in and out: other layouts, and several groups."""
    if (problem.layout_in, problem.layout_out) != ("nchw", "nchw"):
        return "it reads planes and writes planes: it takes x and y in nchw"
    return "it is made for layers of one group" if problem.groups > 1 else None


def tap_words(problem: Problem) -> int:
    """Registers in which a thread keeps the taps that meet the image at a place (taps.h)."""
    return 2 if any(problem.pad) and max(problem.r, problem.s) > MOST_BITS else 1


def no_tensor_cores(device: Device) -> str | None:
    """Say so if a device has no tensor cores with ``mma.sync`` of sm_80."""
    return None if device.tensor_macs else "the device has no tensor cores with the products of sm_80"


def no_wgmma(device: Device) -> str | None:
    """Say so if a device has no tensor cores with ``wgmma``, and is none on which they are emulated."""
    elsewhere = device.is_cuda and device.capability != WGMMA
    lacks = elsewhere or not device.is_gpu or not device.tensor_macs
    return "it is made for the tensor cores of sm_90" if lacks else None


def no_gpu(device: Device) -> str | None:
    """Say so if a device is not a GPU."""
    return None if device.is_gpu else "it is made for the threads of a GPU"


def no_tensor_gpu(device: Device) -> str | None:
    """Say so if a device is not a GPU with tensor cores."""
    return no_gpu(device) or no_tensor_cores(device)


def no_kernels(device: Device) -> str | None:
    """Say so if a device runs no kernels at all."""
    return None if device.runs_kernels else f"the {device.backend} backend runs no kernels"


def fits_registers(device: Device, need: int, threads: int, spare: int = ROUGHLY) -> bool:
    """Whether a thread may have ``need`` registers, and a unit has enough for ``threads`` threads.

    ``spare``: registers that the compiler may need above the estimate.
    """
    per_scheduler = ceil_div(threads, SCHEDULERS * device.lanes) * device.lanes  # threads of the fullest one
    held = device.regs_per_unit // SCHEDULERS
    return need <= device.regs_per_thread - spare and need * per_scheduler <= held


def registers_at_most(of_block: int, blocks: int, per_unit: int) -> int:
    """Most registers of a thread such that a unit holds ``blocks`` blocks of ``of_block`` threads.

    Each of a unit's four schedulers has a quarter of its registers, and whole warps.
    """
    warps = ceil_div(of_block // 32 * blocks, SCHEDULERS)
    return min(255, per_unit // SCHEDULERS // (warps * 32) // 8 * 8)


def registers_handed(teams: int, blocks: int, per_unit: int, sending: int = SENDING) -> int:
    """Most registers of a thread of ``teams`` warpgroups that sum, in eights: one that sends hands its on.

    A block has what it is launched with; who asked for more than is left would wait for ever.
    """
    launched = (teams + 1) * registers_at_most(128 * (teams + 1), blocks, per_unit)
    return min(MOST_HANDED, (launched - sending) // teams // 8 * 8)


def handed_on(teams: int, blocks: int, device: Device, sending: int = SENDING) -> dict[str, int]:
    """Return the defines of the registers that a warpgroup that sends hands on to ``teams`` that sum.

    ``sending``: what a thread of it keeps, a multiple of 8.
    """
    return dict(
        REGS_SENDING=sending,
        REGS_SUMMING=registers_handed(teams, blocks, device.regs_per_unit, sending),
        REGS_ALL=registers_at_most(128 * (teams + 1), blocks, device.regs_per_unit),
    )  # fmt: skip


def fits_shared(device: Device, tiles: int, blocks: int, declared: int = DECLARED_SHARED) -> bool:
    """Whether a block may have ``tiles`` bytes of shared memory, and a unit enough for ``blocks`` blocks.

    Tiles begin at a whole line, after the ``declared`` bytes of the kernel.
    """
    block = tiles + declared
    return block <= device.shared_per_block and blocks * (block + RESERVED_SHARED) <= device.shared_per_unit


def resident(device: Device, registers: int, threads: int, shared_bytes: int, least: int) -> int:
    """Blocks that a unit holds at once: the requested ``least``, and more if they fit."""
    by_registers = device.regs_per_unit // ((registers + 8) * threads)
    by_shared = device.shared_per_unit // (shared_bytes + DECLARED_SHARED + RESERVED_SHARED)
    return max(least, min(by_registers, by_shared, device.threads_per_unit // threads))
