"""Devices are opened, once each, and listed. Nothing is imported until opened."""

from __future__ import annotations

import os
import threading

from tilewright.device import BACKENDS, Device
from tilewright.errors import DeviceError, RunError, TilewrightError, first_error, how_to_get
from tilewright.runtime import forked
from tilewright.runtime.base import Runtime

# What tells OpenCL's loader and PoCL which drivers and devices there are.
_TOLD = ("OCL_ICD_FILENAMES", "OCL_ICD_VENDORS", "POCL_DEVICES")
_opened: dict[tuple[str, int], Runtime] = {}
_opening = threading.Lock()  # plans are kept by their runtime: of a device there may be one only


def open_runtime(backend: str | None = None, index: int = 0) -> Runtime:
    """Open a device; the same one is given every time.

    Args:
        backend: one of BACKENDS, or cpu, which is OpenCL's where it is installed, else NumPy; None: the best
            there is (CUDA, OpenCL on the CPU, NumPy).
        index: number of the device within its backend.

    Raises:
        DeviceError: there is no such device; says what was looked for and what to install. Or this process
            was forked from one that had opened a device.
        RunError: it is there and cannot be opened; the text has the driver's words.
    """
    if backend != "numpy":
        forked.refuse()
    if backend is None:
        try:
            return _open("cuda", index)
        except DeviceError:
            return open_runtime("cpu", index)
    if backend == "cpu":
        try:
            return _open("cpu", index)
        except DeviceError:
            if index:
                raise
            return _open("numpy", 0)
    return _open(backend, index)


def _open(backend: str, index: int) -> Runtime:
    """Return the runtime of a device; threads that want it first wait for the one that opens it."""
    if (found := _opened.get((backend, index))) is not None:
        return found
    with _opening:
        if (backend, index) not in _opened:
            _opened[backend, index] = _cpu(index) if backend == "cpu" else _anew(backend, index)
        return _opened[backend, index]


def _cpu(index: int) -> Runtime:
    """Return a CPU: OpenCL's device of the same index, whose CPUs come first."""
    found = _opened.get(("opencl", index))
    if found is None or not found.unified:  # of what is no CPU the error says so
        found = _opened["opencl", index] = _anew("cpu", index)
    return found


def _anew(backend: str, index: int) -> Runtime:
    if backend in ("cuda", "cpu", "opencl"):
        found = _driven(backend, index)
        forked.opened()
        return found
    if backend == "numpy" and index == 0:
        from tilewright.runtime.host import NumpyRuntime

        return NumpyRuntime()
    known = ", ".join(("cpu", *BACKENDS))
    raise DeviceError(f"device {backend}:{index}: must be one of {known}, and there is one numpy")


def _driven(backend: str, index: int) -> Runtime:
    """Open a device that has a driver, whose errors come in our words."""
    try:
        if backend == "cuda":
            from tilewright.runtime.cuda import CudaRuntime

            return CudaRuntime(index)
        from tilewright.runtime.opencl import OpenclRuntime

        return OpenclRuntime(index, cpu=backend == "cpu")
    except TilewrightError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {first_error(str(error))}"
        raise RunError(
            f"{backend}:{index}: cannot be opened ({said}); choose another device, see 'tilewright doctor'"
        ) from error


def instead_of_numpy(option: str) -> str:
    """Say how to get a device that runs kernels: one is there without the option, or must be installed."""
    best = open_runtime().device
    if best.backend != "numpy":
        return f"leave out {option}, {best.name} would do"
    return f"{how_to_get('opencl')}, or '.[cuda]' for a GPU{_told('opencl')}"


def list_devices() -> list[Device | DeviceError]:
    """Return every device that can be opened; of the others, and of a backend that has none, the reason."""
    found: list[Device | DeviceError] = []
    for backend in BACKENDS:
        try:
            count = _count(backend)
        except TilewrightError as error:  # OpenCL needs a folder to write to, too
            found.append(DeviceError(f"{backend}: {error}{_told(backend)}"))
            continue
        found += [_device(backend, index) for index in range(count)]
        if not count:
            found.append(DeviceError(f"{backend}: the driver has no device{_told(backend)}"))
    return found


def _told(backend: str) -> str:
    """Return what the environment says that may hide OpenCL's devices, to be added to why there is none."""
    given = [name for name in _TOLD if name in os.environ] if backend == "opencl" else []
    place = os.environ.get("POCL_CACHE_DIR")
    if backend == "opencl" and place and not (os.path.isdir(place) and os.access(place, os.W_OK)):
        given.append("POCL_CACHE_DIR")  # PoCL makes it; where it cannot, it has no device
    said = ", ".join(f"{name}={os.environ[name]!a}" for name in given)
    return f"; the environment says {said}" if said else ""


def _device(backend: str, index: int) -> Device | DeviceError:
    try:
        return _open(backend, index).device
    except TilewrightError as error:  # one that is broken hides none of the others
        return DeviceError(f"{backend}: {error}")


def _count(backend: str) -> int:
    if backend == "cuda":
        from tilewright.runtime.cuda import device_count

        return device_count()
    if backend == "opencl":
        from tilewright.runtime.opencl_driver import devices

        return len(devices())
    return 1
