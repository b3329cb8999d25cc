"""Calibration: what one device really does. The floor and the model's estimates rest on it."""

from __future__ import annotations

from dataclasses import replace

from tilewright.device import Rates
from tilewright.errors import DeviceError
from tilewright.kernels import tools
from tilewright.runtime import rates
from tilewright.runtime.base import Runtime

READ_BYTES = 256 << 20
RUNS = 15


def calibrate(runtime: Runtime) -> Rates:
    """Measure a device and keep the figures in the user's cache folder; takes about a second.

    The read is of 256 MB, more than any cache. The time of an empty kernel is taken off both it and
    the multiply-adds, since ``Device.floor_us`` adds it again.

    Args:
        runtime: an open CUDA or OpenCL runtime; its ``device`` has the new rates afterwards.

    Returns:
        The measured rates, with source "calibrated".

    Raises:
        DeviceError: NumPy cannot be calibrated, or the times make no sense (a device in other use).
    """
    if runtime.device.backend == "numpy":
        raise DeviceError("calibrate: NumPy runs no kernels; choose cpu, cuda or opencl")
    empty_us, read_us, arithmetic_us, flops, nbytes = _times(runtime)
    if min(read_us, arithmetic_us) <= empty_us or empty_us <= 0:
        raise DeviceError(f"calibrate: {runtime.device.name} gave no usable times; is it in other use?")
    found = Rates(
        empty_us=round(empty_us, 3),
        read_gbs=round(nbytes / (read_us - empty_us) / 1e3, 1),
        f32_tflops=round(flops / (arithmetic_us - empty_us) / 1e6, 4),
        source="calibrated",
    )
    rates.keep(runtime.device, found)
    runtime.device = replace(runtime.device, rates=found)
    return found


def _times(runtime: Runtime) -> tuple[float, float, float, int, int]:
    """Return the us of an empty kernel, a read and the multiply-adds, then the flops and bytes."""
    blueprint = tools.flush(runtime.device, READ_BYTES)
    defines = dict(blueprint.defines)
    loaded = runtime.load(runtime.compile(blueprint))
    buffer, sink = runtime.alloc(READ_BYTES), runtime.alloc(64)
    runtime.fill(buffer, 0)
    runtime.fill(sink, 0)
    read, empty, multiply_add = blueprint.launches

    def least_us(run: int) -> float:
        launch = (empty, read, multiply_add)[run]
        memories = [sink] if run == 0 else [buffer, sink]
        runtime.launch(loaded, launch, memories)
        times = [runtime.timed(lambda: runtime.launch(loaded, launch, memories)) for _ in range(RUNS)]
        return min(times)

    lanes = defines["THREADS_ALL"] * defines["VECTOR"]
    flops = 2 * lanes * defines["CHAINS"] * defines["ROUNDS"]
    return least_us(0), least_us(1), least_us(2), flops, 4 * defines["BUFFER_FLOATS"]
