"""Registers of the shifted kernel's threads: estimates, and who hands some on."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.limits import (
    PRODUCT,
    SENDING,
    SPARE,
    fits_registers,
    registers_at_most,
    registers_handed,
)
from tilewright.kernels.products import paired
from tilewright.kernels.shifted.tile import channels, shape_of
from tilewright.problem import Problem

WORDS = 4  # registers of a lane's words of a tap of a product
MARGIN = 28  # registers besides those and the sums, and 2 for each column of the filter
APART = 6  # more in tf32, where two pixels are seen apart
KEPT = 4  # more where blocks stay, and their tiles go on across rows
# More where pixels are tall: for words of two bytes or of four; across rows; for each filter column from the
# fourth on; for z; in runs of eight pieces, twice if there is z.
TALL, TALL_TF32, TALL_ACROSS, TALL_WIDE, TALL_Z, TALL_LONG = 16, 8, 4, 18, 8, 24
MORE_SENT = 8  # of a thread that sends, where it has more of an image to look after


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers of a thread that multiplies."""
    beside = MARGIN + 2 * pr.s + (0 if paired(pr) else APART)
    beside += KEPT if cf["across"] and cf["stay"] else 0
    if cf["tall"] > 1:
        beside += (TALL if paired(pr) else TALL_TF32) + TALL_ACROSS * cf["across"]
        beside += TALL_WIDE * max(0, pr.s - 3) + TALL_Z * pr.epilogue.add
        beside += TALL_LONG * (1 + pr.epilogue.add) * (cf["chunks"] == 8)
    return cf["tall"] * cf["bn"] // 2 + cf["sets"] * WORDS * pr.s + beside


def registers_to_send(pr: Problem, cf: Values) -> int:
    """Registers that a thread which sends keeps, if it hands others on."""
    if not cf["across"]:
        return SENDING
    fewer = pr.c % channels(pr, cf["chunks"]) > 0  # channels of the last run
    return SENDING + MORE_SENT * (fewer + max(0, shape_of(pr, cf).met_images - 2))


def registers_to_store(cf: Values) -> int:
    """Estimate of the registers of a thread that adds up the shares of a cluster."""
    return 60 + 4 * cf["sc"]


def hands_on(problem: Problem, device: Device, cf: Values) -> bool:
    """Whether those who send hand registers on: there are too few for each thread to have as many."""
    most = max(registers(problem, cf), registers_to_store(cf))
    return not fits_registers(device, most, shape_of(problem, cf).threads * cf["mb"], spare=SPARE)


def fits(problem: Problem, device: Device, cf: Values) -> bool:
    """Whether no thread needs more registers than there are, those that are handed on among them."""
    if not hands_on(problem, device, cf):
        return True
    shape, blocks, held, tall = shape_of(problem, cf), cf["mb"], device.regs_per_unit, cf["tall"]
    most = registers_at_most(shape.threads, blocks, held)
    handed = registers_handed(shape.teams, blocks, held, registers_to_send(problem, cf))
    return (registers(problem, cf) <= handed
            and max(registers_to_store(cf), tall * cf["bn"] // 2 + PRODUCT) <= most)  # fmt: skip
