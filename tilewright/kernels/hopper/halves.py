"""Launches before a kernel that reads two f16 numbers for each f32 number of the input (halves.h)."""

from __future__ import annotations

from dataclasses import replace

from tilewright.arithmetic import ceil_div, offset64
from tilewright.kernels.blueprint import FOLLOWS, Blueprint, Buffer, Launch
from tilewright.kernels.products import HALVES
from tilewright.kernels.untuned.nhwc import COPY_THREADS, copied_first, copy_of
from tilewright.problem import Problem

MOVED = "moved"  # buffer that begins with the input's shift (halves.h) and its misfits (halves_guard.h)
_AT_ONCE = 8  # numbers that a thread of largest.cu reads at once


def _blocks(pr: Problem) -> int:
    """Blocks that search for the largest number: at most as many as nhwc.cu has threads to read them."""
    return min(COPY_THREADS, ceil_div(pr.x_elements, COPY_THREADS * _AT_ONCE))


def halved_first(blueprint: Blueprint, pr: Problem, chunks: int) -> Blueprint:
    """Return the blueprint after launches that find the largest number of x, and split x.

    Its first launch reads the split numbers, of twice ``chunks`` per pixel.
    """
    blocks, copy = _blocks(pr), copy_of(pr, chunks, HALVES, 2)
    split = copied_first(blueprint, copy._replace(
        launch=replace(copy.launch, args=("x", "copied", MOVED), chained=True),
        defines=copy.defines | dict([FOLLOWS], BLOCKS=blocks),
    ))  # fmt: skip
    largest = dict(COUNT=pr.x_elements, OFFSET64=offset64(4 * pr.x_elements), BLOCKS=blocks)
    return replace(
        split,
        launches=(Launch("largest", (blocks, 1, 1), (COPY_THREADS, 1, 1), ("x", MOVED)), *split.launches),
        workspace=(*split.workspace, Buffer(MOVED, 4 * (blocks + 2))),
        parts=(Blueprint("largest.cu", tuple(largest.items()), (), packed_bytes=0), *split.parts),
    )
