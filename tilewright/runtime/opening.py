"""Devices are opened, once each, and listed. Nothing is imported until opened."""

from __future__ import annotations

import os
import threading

from tilewright.device import Device
from tilewright.errors import DeviceError, RunError, TilewrightError, first_error, how_to_get
from tilewright.runtime import forked
from tilewright.runtime.base import Runtime

KINDS = ("cpu", "cuda", "opencl", "numpy")
# What tells OpenCL's loader and PoCL which drivers and devices there are.
_TOLD = ("OCL_ICD_FILENAMES", "OCL_ICD_VENDORS", "POCL_DEVICES")
_opened: dict[tuple[str, int], Runtime] = {}
_opening = threading.Lock()  # plans are kept by their runtime: of a device there may be one only


def open_runtime(kind: str | None = None, index: int = 0) -> Runtime:
    """Open a device; the same one is given every time.

    Args:
        kind: cpu, cuda, opencl, numpy; None: the best there is (CUDA, OpenCL on the CPU, NumPy).
            cpu is OpenCL where it is installed, else NumPy.
        index: number of the device within its kind.

    Raises:
        DeviceError: there is no such device; says what was looked for and what to install. Or this process
            was forked from one that had opened a device.
        RunError: it is there and cannot be opened; the text has the driver's words.
    """
    if kind != "numpy":
        forked.refuse()
    if kind is None:
        try:
            return _open("cuda", index)
        except DeviceError:
            return open_runtime("cpu", index)
    if kind == "cpu":
        try:
            return _open("cpu", index)
        except DeviceError:
            if index:
                raise
            return _open("numpy", 0)
    return _open(kind, index)


def _open(kind: str, index: int) -> Runtime:
    """Return the runtime of a device; threads that want it first wait for the one that opens it."""
    if (found := _opened.get((kind, index))) is not None:
        return found
    with _opening:
        if (kind, index) not in _opened:
            _opened[kind, index] = _cpu(index) if kind == "cpu" else _anew(kind, index)
        return _opened[kind, index]


def _cpu(index: int) -> Runtime:
    """Return a CPU: OpenCL's device of the same index, whose CPUs come first."""
    found = _opened.get(("opencl", index))
    if found is None or not found.unified:  # of what is no CPU the error says so
        found = _opened["opencl", index] = _anew("cpu", index)
    return found


def _anew(kind: str, index: int) -> Runtime:
    if kind in ("cuda", "cpu", "opencl"):
        found = _driven(kind, index)
        forked.opened()
        return found
    if kind == "numpy" and index == 0:
        from tilewright.runtime.host import NumpyRuntime

        return NumpyRuntime()
    raise DeviceError(f"device {kind}:{index}: must be one of {', '.join(KINDS)}, and there is one numpy")


def _driven(kind: str, index: int) -> Runtime:
    """Open a device that has a driver, whose errors come in our words."""
    try:
        if kind == "cuda":
            from tilewright.runtime.cuda import CudaRuntime

            return CudaRuntime(index)
        from tilewright.runtime.opencl import OpenclRuntime

        return OpenclRuntime(index, cpu=kind == "cpu")
    except TilewrightError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {first_error(str(error))}"
        raise RunError(
            f"{kind}:{index}: cannot be opened ({said}); choose another device, see 'tilewright doctor'"
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
    for kind in ("cuda", "opencl", "numpy"):
        try:
            count = _count(kind)
        except TilewrightError as error:  # OpenCL needs a folder to write to, too
            found.append(DeviceError(f"{kind}: {error}{_told(kind)}"))
            continue
        found += [_device(kind, index) for index in range(count)]
        if not count:
            found.append(DeviceError(f"{kind}: the driver has no device{_told(kind)}"))
    return found


def _told(kind: str) -> str:
    """Return what the environment says that may hide OpenCL's devices, to be added to why there is none."""
    given = [name for name in _TOLD if name in os.environ] if kind == "opencl" else []
    place = os.environ.get("POCL_CACHE_DIR")
    if kind == "opencl" and place and not (os.path.isdir(place) and os.access(place, os.W_OK)):
        given.append("POCL_CACHE_DIR")  # PoCL makes it; where it cannot, it has no device
    said = ", ".join(f"{name}={os.environ[name]!a}" for name in given)
    return f"; the environment says {said}" if said else ""


def _device(kind: str, index: int) -> Device | DeviceError:
    try:
        return _open(kind, index).device
    except TilewrightError as error:  # one that is broken hides none of the others
        return DeviceError(f"{kind}: {error}")


def _count(kind: str) -> int:
    if kind == "cuda":
        from tilewright.runtime.cuda import device_count

        return device_count()
    if kind == "opencl":
        from tilewright.runtime.opencl_driver import devices

        return len(devices())
    return 1
