"""Whether a problem's arrays, with the copies to check it, fit into memory."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.device.architectures import most_memory_bytes
from tilewright.errors import ProblemError
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.runtime.capacity import host_bytes, require_arrays

_F64 = 8


def require_room(problem: Problem, runtime: Runtime | None = None) -> None:
    """Refuse a problem whose arrays, as they are checked, exceed the memory of the host or the device.

    A check has two sets of inputs, two outputs and three f64 arrays of the output's size. Without a
    runtime only what every device needs is checked: the inputs on the host.

    Raises:
        ProblemError: says how much the arrays take and how much there is.
    """
    inputs = problem.bytes - problem.y_bytes
    checked = 2 * problem.bytes + 3 * _F64 * problem.y_elements
    unified = runtime is not None and runtime.unified
    _compare(problem, 2 * inputs + checked * unified, "this machine", host_bytes())
    if runtime is not None and not unified:
        _compare(problem, checked, runtime.device.name, runtime.memory_bytes())
    if runtime is not None:
        require_arrays(problem, runtime)


def require_room_on(problem: Problem, device: Device) -> None:
    """Refuse a problem whose arrays exceed the memory of any GPU of an architecture, with no GPU present.

    Raises:
        ProblemError: says how much the arrays take and how much there is.
    """
    largest = f"the largest GPU of {device.arch}"
    _compare(problem, problem.bytes, largest, most_memory_bytes(device.capability), "together")


def _compare(
    problem: Problem, wanted: int, where: str, there: int, counted: str = "with the copies to check it"
) -> None:
    if wanted > there:
        sizes = zip("xwy", (problem.x_bytes, problem.w_bytes, problem.y_bytes), strict=True)
        arrays = ", ".join(f"{name} {_text(nbytes)}" for name, nbytes in sizes)
        raise ProblemError(
            f"{problem}: too large: {arrays}, {counted} {_text(wanted)}; "
            f"{where} has {_text(there)} of memory; make the layer or its batch smaller"
        )


def _text(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):,.1f} GiB" if nbytes >= 1 << 27 else f"{nbytes / (1 << 20):,.1f} MiB"
