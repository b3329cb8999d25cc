"""Blueprints of auxiliary kernels: check, flush, and the calibration loops."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.arithmetic import offset64
from tilewright.device import Device
from tilewright.kernels.blueprint import Blueprint, Launch
from tilewright.kernels.untuned import spread
from tilewright.kernels.word import dtype_code
from tilewright.problem import Problem

CHECK_FIGURES = 8
PEAK_FLOATS = 256
CODE_BYTES = 256 << 10  # an H100's second-level instruction cache has 128 KB


def _few(device: Device) -> int:
    """Blocks of which each thread's figures go to the host: one a unit."""
    return max(device.units, 8)


def check(problem: Problem, device: Device) -> Blueprint:
    """Return the launch that compares y with the reference: buffers y, ref, size, limits, found.

    ``limits`` holds the four numbers of an ``ErrorBound``; ``found`` receives CHECK_FIGURES f64 per thread.
    In strict math an infinity must have the sign of the reference's, and NaN must be NaN.
    """
    elements = problem.y_elements
    blocks, defines = spread(device, elements, _few(device))
    defines |= dict(ELEMENTS=elements, OFFSET64=offset64(8 * elements))
    defines |= dict(DTYPE=dtype_code(problem.portable), Y_I8=int(problem.dtype_out == "i8"))
    defines["ALIKE"] = int(problem.math == "strict")
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
    word = gcd(4, problem.y_bytes)
    words = problem.y_bytes // word
    blocks, defines = spread(device, words, _few(device))
    launch = Launch("same", (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1), ("a", "b", "found"))
    defines |= dict(ELEMENTS=words, WORD_BYTES=word, OFFSET64=offset64(8 * words))
    return Blueprint("same.cu", tuple(defines.items()), (launch,), packed_bytes=0)


def flush(device: Device, nbytes: int) -> Blueprint:
    """Return two launches: flush (buffer, sink), empty (sink)."""
    vector = 4 if device.is_gpu else min(device.lanes, 8)  # 16: more than AVX2 code has registers for
    floats = nbytes // 64 * 16
    blocks, defines = spread(device, floats // vector)
    defines |= dict(VECTOR=vector, BUFFER_FLOATS=floats, OFFSET64=offset64(nbytes))
    grid, block = (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1)
    return Blueprint(
        source="flush.cu",
        defines=tuple(defines.items()),
        launches=(
            Launch("flush", grid, block, ("buffer", "sink")),
            Launch("empty", (1, 1, 1), block, ("sink",)),
        ),
        packed_bytes=0,
    )


def code(device: Device) -> Blueprint:
    """Return the launch that runs CODE_BYTES of straight-line code on all schedulers: buffer sink."""
    launch = Launch("code", (2 * device.units, 1, 1), (128, 1, 1), ("sink",))
    return Blueprint("code.cu", (("CODE_BYTES", CODE_BYTES),), (launch,), packed_bytes=0)


@dataclass(frozen=True)
class Peak:
    """A launch, multiply_add (start, sink), that may reach the device's peak; and its flops."""

    blueprint: Blueprint
    flops: int


def peaks(device: Device) -> list[Peak]:
    """Return the launches to try for the f32 peak; ``start`` holds PEAK_FLOATS zeros at least.

    On a GPU all blocks are resident at once, fewer with more chains. On a CPU a core runs one work-item.
    """
    if device.is_gpu:
        most = device.threads_per_unit // 256
        shapes = ((2, most), (4, most), (4, most // 2), (8, most // 2), (8, most // 4))
        return [_peak(device, 4, chains, blocks) for chains, blocks in shapes if blocks]
    vectors = [width for width in (8, 16) if width <= device.lanes] or [device.lanes]
    return [_peak(device, v, chains, blocks) for v in vectors for chains in (8, 12) for blocks in (1, 8)]


def _peak(device: Device, vector: int, chains: int, blocks_of_unit: int) -> Peak:
    """Return the launch of one shape; in all shapes a unit does the same work."""
    gpu = device.is_gpu
    threads, turns = (256, 512 // (vector * chains)) if gpu else (1, 8)
    work = 1 << (17 if gpu else 21)  # vector multiply-adds of a unit's threads, each: 1 ms, 0.2 ms on a CPU
    rounds, blocks = work // (blocks_of_unit * chains * turns), device.units * blocks_of_unit
    wide = int(not gpu and device.lanes >= 16)
    defines = dict(VECTOR=vector, CHAINS=chains, TURNS=turns, ROUNDS=rounds, AVX512=wide)
    launch = Launch("multiply_add", (blocks, 1, 1), (threads, 1, 1), ("start", "sink"))
    flops = 2 * blocks * threads * vector * chains * turns * rounds
    return Peak(Blueprint("peak.cu", tuple(defines.items()), (launch,), packed_bytes=0), flops)
