"""Inputs on the device, between NaN, with the f64 reference of their answer.

The reference is computed there too, so that large layers can be checked completely; on a CPU by NumPy's
matrix products, which are ten times as fast there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.checking.fence import POISON, Fence
from tilewright.checking.host_reference import host_reference
from tilewright.checking.inputs import Inputs
from tilewright.checking.launcher import Launcher
from tilewright.dtypes import numpy_dtype
from tilewright.kernels.blueprint import EXTRAS, UNUSED_BYTES
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.untuned.reference import reference_f64
from tilewright.problem import Problem
from tilewright.runtime.base import Memory, Runtime


@dataclass(frozen=True, eq=False)
class DeviceInputs:
    """Inputs on the device with their reference.

    Attributes:
        host: the same inputs on the host.
        inputs: by the names of the problem's operands, y left out.
        ref: the reference, f64 in y's shape.
        size: the size that an ``ErrorBound`` multiplies, f64 in y's shape; None if it was not asked for.
    """

    host: Inputs
    inputs: Mapping[str, Memory]
    ref: Memory
    size: Memory | None

    def changed(self, runtime: Runtime) -> str:
        """Name the first input that is no longer what was put there; empty if all are."""
        import numpy as np

        for name, memory in self.inputs.items():
            host = getattr(self.host, name)
            now = np.empty(host.nbytes, np.uint8)
            runtime.download(memory, now)
            if not np.array_equal(now, host.reshape(-1).view(np.uint8)):
                return name
        return ""


def upload(
    launcher: Launcher, problem: Problem, host: Inputs, fence: Fence, sized: bool = False
) -> DeviceInputs:
    """Put inputs between NaN on the device and compute their reference there.

    ``sized``: also compute its size, which only a bound needs.
    """
    runtime = launcher.runtime
    arrays = host.given(problem)
    inputs = {name: fence.alloc(array.nbytes, name, guard=POISON) for name, array in arrays.items()}
    for name, memory in inputs.items():
        runtime.upload(memory, arrays[name])
    if runtime.unified:
        ref, size = _by_numpy(launcher, problem, host, sized)
    else:
        ref, size = _by_kernel(launcher, problem, host, inputs)
    return DeviceInputs(host, inputs, ref, size if sized else None)


def _by_numpy(
    launcher: Launcher, problem: Problem, host: Inputs, sized: bool
) -> tuple[Memory, Memory | None]:
    """Return the reference and its size, computed on the host."""
    sums, sizes = host_reference(problem, host, sized)
    y = numpy_requantised(problem, sums, host.scale) if problem.requantised else sums
    return launcher.put(y), launcher.put(sizes) if sized else None


def _by_kernel(
    launcher: Launcher, problem: Problem, host: Inputs, inputs: Mapping[str, Memory]
) -> tuple[Memory, Memory]:
    """Return the reference and its size, computed by the device."""
    runtime = launcher.runtime
    ref, size = (runtime.alloc(8 * problem.y_elements) for _ in range(2))
    unused = dict.fromkeys(EXTRAS, runtime.alloc(UNUSED_BYTES))
    known = {**unused, **inputs, **_widened(launcher, problem, host)}
    launcher.launch(reference_f64(problem.portable, runtime.device), {**known, "ref": ref, "size": size})
    runtime.synchronize()  # what only the kernel read may go as soon as this returns
    if problem.requantised:
        _requantise(runtime, problem, ref, host)
    return ref, size


def _widened(launcher: Launcher, problem: Problem, host: Inputs) -> dict[str, Memory]:
    """Return x and w in the reference's dtype, if that is another one."""
    plain = problem.portable.dtype
    if plain == problem.stored:
        return {}
    return {name: launcher.put(getattr(host, name).astype(numpy_dtype(plain))) for name in ("x", "w")}


def _requantise(runtime: Runtime, problem: Problem, ref: Memory, host: Inputs) -> None:
    """Requantise the reference's sums to i8."""
    import numpy as np

    sums = np.empty(problem.y_shape, np.float64)
    runtime.download(ref, sums)
    runtime.upload(ref, numpy_requantised(problem, sums, host.scale))
