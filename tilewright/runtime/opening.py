"""Opens devices, once each, and lists them. Nothing is imported until a device is opened."""

from __future__ import annotations

import os
import threading

from tilewright.device import BACKENDS, Device
from tilewright.errors import (
    OR_NUMPY,
    DeviceError,
    OutOfMemory,
    RunError,
    TilewrightError,
    first_error,
    how_to_get,
)
from tilewright.runtime import forked
from tilewright.runtime.base import Runtime

# Settings that tell OpenCL's loader and PoCL which drivers and devices there are.
_TOLD = ("OCL_ICD_FILENAMES", "OCL_ICD_VENDORS", "POCL_DEVICES")
_BEST = ("cuda", "cpu", "numpy")
_opened: dict[tuple[str, int], Runtime] = {}
_opening = threading.Lock()  # plans are kept per runtime: a device may have only one


def open_runtime(backend: str | None = None, index: int = 0) -> Runtime:
    """Open a device; later calls return the same runtime.

    Args:
        backend: one of BACKENDS, or cpu: OpenCL's CPU if it is installed, else NumPy; None: the best
            there is (CUDA, OpenCL on the CPU, NumPy).
        index: number of the device within its backend.

    Raises:
        DeviceError: there is no such device (the error says what was looked for and what to install), or
            this process was forked from one that had opened a device.
        RunError: it exists but cannot be opened; the error quotes the driver.
    """
    if backend != "numpy":
        forked.refuse()
    kinds = _BEST if backend is None else _BEST[1:] if backend == "cpu" else (backend,)
    for kind in kinds[:-1]:
        try:
            return _open(kind, index)
        except DeviceError:
            if kind == "cpu" and index:  # there is one numpy
                raise
    return _open(kinds[-1], index)


def _open(backend: str, index: int) -> Runtime:
    """Return the runtime of a device; while one thread opens it, others wait."""
    if (found := _opened.get((backend, index))) is not None:
        return found
    with _opening:
        if (backend, index) not in _opened:
            _opened[backend, index] = _cpu(index) if backend == "cpu" else _anew(backend, index)
        return _opened[backend, index]


def _cpu(index: int) -> Runtime:
    """Return a CPU: OpenCL's device of the same index, since it lists CPUs first."""
    found = _opened.get(("opencl", index))
    if found is None or not found.unified:  # for a device that is no CPU, the error says so
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
    """Open a device that has a driver, and turn the driver's errors into ours."""
    try:
        if backend == "cuda":
            from tilewright.runtime.cuda import CudaRuntime

            return CudaRuntime(index)
        from tilewright.runtime.opencl import OpenclRuntime

        return OpenclRuntime(index, cpu=backend == "cpu")
    except TilewrightError:
        raise
    except MemoryError as error:
        little = "the host has too little free memory"
        raise OutOfMemory(f"{backend}:{index}: cannot be opened: {little}") from error
    except Exception as error:
        said = f"{type(error).__name__}: {first_error(str(error))}"
        raise RunError(
            f"{backend}:{index}: cannot be opened ({said}); choose another device, see 'tilewright doctor'"
        ) from error


def instead_of_numpy(option: str) -> str:
    """Return how to get a device that runs kernels: by omitting the option, or by installing something."""
    try:
        best = open_runtime().device
    except RunError as error:
        return str(error).partition(OR_NUMPY)[0]
    if best.runs_kernels:
        return f"leave out {option}, {best.name} would do"
    return f"{_why_numpy()}{how_to_get('opencl')}, or '.[cuda]' for a GPU{_told('opencl')}"


def _why_numpy() -> str:
    """Return what is wrong with OpenCL, without the advice: who has installed it needs to know."""
    try:
        _open("cpu", 0)
    except TilewrightError as error:
        return f"{str(error).partition(';')[0]}; "
    return ""


def list_devices() -> list[Device | DeviceError]:
    """Return every device that can be opened; for others, and backends without devices, the reason."""
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
    """Return environment settings that may hide OpenCL's devices, to add to an error that there are none."""
    given = [name for name in _TOLD if name in os.environ] if backend == "opencl" else []
    place = os.environ.get("POCL_CACHE_DIR")
    if backend == "opencl" and place and not (os.path.isdir(place) and os.access(place, os.W_OK)):
        given.append("POCL_CACHE_DIR")  # PoCL makes it; if it cannot, it has no device
    said = ", ".join(f"{name}={os.environ[name]!a}" for name in given)
    return f"; the environment says {said}" if said else ""


def _device(backend: str, index: int) -> Device | DeviceError:
    try:
        return _open(backend, index).device
    except TilewrightError as error:  # a broken one must not hide the others
        return DeviceError(f"{backend}: {error}")


def _count(backend: str) -> int:
    if backend == "cuda":
        from tilewright.runtime.cuda import device_count

        return device_count()
    if backend == "opencl":
        from tilewright.runtime.opencl_driver import devices

        return len(devices())
    return 1
