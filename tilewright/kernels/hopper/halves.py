"""Launches before a kernel that reads two f16 numbers for each f32 number of the input (halves.h)."""

from __future__ import annotations

from dataclasses import replace

from tilewright.arithmetic import ceil_div, offset64
from tilewright.kernels.blueprint import Blueprint, Buffer, Launch
from tilewright.kernels.products import HALVES
from tilewright.kernels.untuned.nhwc import COPY_THREADS, copied_bytes, copier, copy, copy_defines
from tilewright.problem import Problem

MOVED = "moved"  # buffer that begins with the input's shift (halves.h) and its misfits (halves_guard.h)
_AT_ONCE = 8  # numbers that a thread of largest.cu reads at once


def _count(pr: Problem) -> int:
    return pr.n * pr.c * pr.h * pr.w


def _blocks(pr: Problem) -> int:
    """Blocks that search for the largest number: at most as many as nhwc.cu has threads to read them."""
    return min(COPY_THREADS, ceil_div(_count(pr), COPY_THREADS * _AT_ONCE))


def launches(pr: Problem, chunks: int) -> tuple[Launch, Launch]:
    """Return the launches that find the largest number of x and split x: into twice ``chunks`` per pixel."""
    second = replace(copy(pr, chunks), args=("x", "copied", MOVED), chained=True)
    return Launch("largest", (_blocks(pr), 1, 1), (COPY_THREADS, 1, 1), ("x", MOVED)), second


def programs(pr: Problem, chunks: int) -> tuple[Blueprint, Blueprint]:
    """Return the programs of these launches."""
    blocks = dict(BLOCKS=_blocks(pr))
    first = dict(COUNT=_count(pr), OFFSET64=offset64(4 * _count(pr))) | blocks
    second = copy_defines(pr, chunks, 2) | dict(COPIED_AS=HALVES) | blocks
    return (
        Blueprint("largest.cu", tuple(first.items()), (), packed_bytes=0),
        copier(second),
    )


def workspace(pr: Problem, chunks: int) -> tuple[Buffer, Buffer]:
    """Return the buffers that they write."""
    return Buffer("copied", copied_bytes(pr, chunks, 2)), Buffer(MOVED, 4 * (_blocks(pr) + 2))
