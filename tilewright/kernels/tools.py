"""Blueprints of the kernels that serve the others: pack, check, flush, and the calibration loops."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Launch
from tilewright.kernels.reference import sizes, spread
from tilewright.problem import DTYPES, Problem

CHECK_FIGURES = 8
CHAINS = {True: 8, False: 12}  # of multiply-adds, on a GPU, on a CPU: more than latency times issue rate
ROUNDS = {True: 4096, False: 1 << 18}  # on a GPU, on a CPU: a few milliseconds


def pack(problem: Problem, device: Device, geometry: tuple[tuple[str, int], ...], nbytes: int) -> Blueprint:
    """Return the launch that packs a kcrs filter: buffers w, packed.

    ``geometry`` is ``Blueprint.pack`` of the family: PACK_K, PACK_C, the latter in words (see pack.cu).
    """
    blocks, defines = spread(device, nbytes // (8 if problem.dtype == "f64" else 4))
    big = dict(OFFSET64=int(nbytes >= 1 << 31))
    return Blueprint(
        source="pack.cu",
        defines=tuple((sizes(problem) | dict(geometry) | defines | big).items()),
        launches=(Launch("pack", (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1), ("w", "packed")),),
        packed_bytes=0,
    )


def check(problem: Problem, device: Device) -> Blueprint:
    """Return the launch that compares y with the reference: buffers y, ref, size, limits, found.

    ``limits`` are the four numbers of a ``Bound``; ``found`` takes CHECK_FIGURES f64 for each thread.
    """
    elements = problem.y_elements
    blocks, defines = spread(device, elements)
    defines |= dict(ELEMENTS=elements, OFFSET64=int(elements >= 1 << 28), DTYPE=DTYPES.index(problem.dtype))
    return Blueprint(
        source="check.cu",
        defines=tuple(defines.items()),
        launches=(
            Launch("check", (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1),
                   ("y", "ref", "size", "limits", "found")),
        ),
        packed_bytes=0,
    )  # fmt: skip


def same(problem: Problem, device: Device) -> Blueprint:
    """Return the launch that counts differing words of two outputs: buffers a, b, found."""
    word = 4 if problem.y_bytes % 4 == 0 else 2
    words = problem.y_bytes // word
    blocks, defines = spread(device, words)
    launch = Launch("same", (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1), ("a", "b", "found"))
    defines |= dict(ELEMENTS=words, WORD_BYTES=word, OFFSET64=int(words >= 1 << 28))
    return Blueprint("same.cu", tuple(defines.items()), (launch,), packed_bytes=0)


def flush(device: Device, nbytes: int) -> Blueprint:
    """Return three launches: flush (buffer, sink), empty (sink), multiply_add (buffer, sink)."""
    vector = 4 if device.lanes == 32 else min(device.lanes, 8)  # 16: more than AVX2 code has registers for
    floats = nbytes // 64 * 16
    blocks, defines = spread(device, floats // vector)
    gpu = device.lanes == 32
    defines |= dict(VECTOR=vector, BUFFER_FLOATS=floats, CHAINS=CHAINS[gpu], ROUNDS=ROUNDS[gpu],
                    OFFSET64=int(nbytes >= 1 << 31))  # fmt: skip
    grid, block = (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1)
    return Blueprint(
        source="flush.cu",
        defines=tuple(defines.items()),
        launches=(
            Launch("flush", grid, block, ("buffer", "sink")),
            Launch("empty", (1, 1, 1), block, ("sink",)),
            Launch("multiply_add", grid, block, ("buffer", "sink")),
        ),
        packed_bytes=0,
    )
