"""Calibration: the rates that one device really reaches, on which the floor and the model's estimates rest.

Other work on the machine makes calibrated rates too low, and the floor too high: so the best calibration ever
counts, and a correct kernel that beats the floor raises the rates too (``outdone``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tilewright.device import Rates
from tilewright.errors import DeviceError
from tilewright.floor import floor, floor_us
from tilewright.kernels.untuned import tools
from tilewright.problem import Problem
from tilewright.runtime import rates
from tilewright.runtime.base import Memory, Run, Runtime

READ_BYTES = 256 << 20  # on a GPU: of a shorter read, starting it is a part
CPU_READ_BYTES = 64 << 20  # 3 ms at 20 GB/s: a busy machine may be quiet that long
_SECONDS = 0.5  # of the empty kernel and the read; and again of the multiply-adds
_LEAST_RUNS = 5
# The most that faster kernels can make of what was measured, which on a busy machine is too low by about that
# much. What is faster still says nothing of the device: a time that is little more than an empty kernel's, or
# one taken wrong; and only ``calibrate --anew`` would ever lower the rates again.
_MOST_RAISED = 1.3


def calibrate(runtime: Runtime, anew: bool = False) -> Rates:
    """Measure a device and keep the figures in the user's cache folder; takes about a second.

    The read is cold, like every timed run. The multiply-adds are tried in several shapes. Of many runs
    in turns the fastest counts, and so does the best of all calibrations: whatever else the machine does
    makes it slower (two busy processes on 4 cores: by 28%, for as long as they run). The time of an empty
    kernel is taken off both, since ``floor.floor_us`` adds it again.

    Args:
        runtime: an open CUDA or OpenCL runtime; its ``device`` has the new rates afterwards.
        anew: forget earlier calibrations.

    Returns:
        The best rates measured, with source "calibrated".

    Raises:
        DeviceError: NumPy cannot be calibrated, or the times make no sense (a device in other use).
    """
    if not runtime.device.runs_kernels:
        raise DeviceError("calibrate: NumPy runs no kernels; choose cpu, cuda or opencl")
    read_us, empty_us = _least_us(runtime, _reading(runtime))
    flops, runs = _multiplying(runtime)
    times_us = _least_us(runtime, runs)
    if min(read_us, *times_us) <= empty_us or empty_us <= 0:
        raise DeviceError(f"calibrate: {runtime.device.name} gave no usable times; is it in other use?")
    rate = max(count / (us - empty_us) for count, us in zip(flops, times_us, strict=True))
    found = Rates(
        empty_us=round(empty_us, 3),
        read_gbs=round(_read_bytes(runtime) / (read_us - empty_us) / 1e3, 1),
        f32_tflops=round(rate / 1e6, 4),
        source="calibrated",
    )
    measured, kept = found, rates.calibrated(runtime.device).rates
    if kept.source == "calibrated" and not anew:
        measured, found = _better(found, rates.measured(runtime.device)), _better(found, kept)
    rates.keep(runtime.device, found, measured)
    runtime.device = replace(runtime.device, rates=found)
    return found


def outdone(runtime: Runtime, problem: Problem, us: float, multiplies: float = 1.0) -> float:
    """Return a layer's floor in us; first raise the rates if a kernel was faster than they allow.

    They rise to at most 1.3 times what was measured, so a kernel may still be faster than the floor.

    Args:
        runtime: where it ran; its ``device`` has the new rates afterwards.
        problem: the layer.
        us: the cold median of a kernel whose answer was right.
        multiplies: ``Family.multiplies`` of the kernel.
    """
    device, least = runtime.device, floor(problem, runtime.device)
    took_us = us - least.empty_us
    by_datasheet = device.is_cuda and problem.precision != "f32"
    f32_more = 1.0 if by_datasheet else least.arithmetic_us * multiplies / max(took_us, 1e-9)
    read_more = least.memory_us / max(took_us, 1e-9)
    if device.rates.source != "calibrated" or took_us <= 0 or max(f32_more, read_more) <= 1.0:
        return least.us
    measured, before = rates.measured(device), _better(device.rates, rates.calibrated(device).rates)
    found = replace(
        device.rates, f32_tflops=min(device.rates.f32_tflops * f32_more, _MOST_RAISED * measured.f32_tflops),
        read_gbs=min(device.rates.read_gbs * read_more, _MOST_RAISED * measured.read_gbs),
    )  # fmt: skip
    found = _better(found, before)
    if found != before:
        rates.keep(device, found, measured)
    runtime.device = replace(device, rates=found)
    return floor_us(problem, runtime.device)


def _better(a: Rates, b: Rates) -> Rates:
    """Return the better of each figure."""
    return replace(
        a, empty_us=min(a.empty_us, b.empty_us), read_gbs=max(a.read_gbs, b.read_gbs),
        f32_tflops=max(a.f32_tflops, b.f32_tflops),
    )  # fmt: skip


def _read_bytes(runtime: Runtime) -> int:
    return READ_BYTES if runtime.device.is_gpu else CPU_READ_BYTES


def _reading(runtime: Runtime) -> list[Run]:
    """Return what reads a large buffer, and what does nothing."""
    blueprint = tools.flush(runtime.device, _read_bytes(runtime))
    loaded = runtime.load(runtime.compile(blueprint))
    buffer, sink = _zeros(runtime, _read_bytes(runtime)), _zeros(runtime, 64)
    read, empty = blueprint.launches
    return [
        partial(runtime.launch, loaded, read, [buffer, sink]),
        partial(runtime.launch, loaded, empty, [sink]),
    ]


def _multiplying(runtime: Runtime) -> tuple[list[int], list[Run]]:
    """Return what runs multiply-adds in several shapes, and the flops of each.

    One core of a CPU counts for all: another program may well have a core to itself, but hardly each of them.
    """
    device, flops = runtime.device, []
    memories = [_zeros(runtime, 4 * tools.PEAK_FLOATS), _zeros(runtime, 64)]
    runs: list[Run] = []
    for shape in tools.peaks(device):
        loaded, all_units = runtime.load(runtime.compile(shape.blueprint)), shape.blueprint.launches[0]
        of_one = replace(all_units, grid=(1, 1, 1))
        each_has_one = not device.is_gpu and all_units.grid[0] == device.units
        for launch in (all_units, of_one) if each_has_one else (all_units,):
            runs.append(partial(runtime.launch, loaded, launch, memories))
            flops.append(shape.flops)
    return flops, runs


def _least_us(runtime: Runtime, runs: Sequence[Run]) -> list[float]:
    """Return the least time of each of some launches, run in turns."""
    for run in runs:  # once to warm up
        run()
    runtime.synchronize()
    times: list[list[float]] = [[] for _ in runs]
    end = time.monotonic() + _SECONDS
    while len(times[0]) < _LEAST_RUNS or time.monotonic() < end:
        for run, seen in zip(runs, times, strict=True):
            seen.append(runtime.timed(run))
    return [min(seen) for seen in times]


def _zeros(runtime: Runtime, nbytes: int) -> Memory:
    memory = runtime.alloc(nbytes)
    runtime.fill(memory, 0)
    return memory
