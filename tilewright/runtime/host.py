"""The NumPy runtime: slow but always available. It runs only the reference family and its helpers."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.device import Device, DeviceType, Rates
from tilewright.dtypes import numpy_dtype
from tilewright.errors import CompileError, OutOfMemory, how_to_get
from tilewright.kernels.blueprint import ZERO, Blueprint, Launch
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.source import full_source
from tilewright.kernels.untuned.reference import numpy_pool, numpy_sums
from tilewright.problem import Problem
from tilewright.runtime import cache
from tilewright.runtime.base import ANY_BYTES, Array, Built, Loaded, Memory, Resources, Run, Step
from tilewright.runtime.capacity import host_bytes
from tilewright.runtime.pending import one_by_one

NOTE = f"slow: NumPy only; {how_to_get('opencl')}, or '.[cuda]' for a GPU"


class NumpyRuntime:
    """The last fallback: computes a Blueprint of reference.cu with NumPy in f64. ``note`` says it is slow."""

    array_bytes = ANY_BYTES
    note = NOTE

    def __init__(self) -> None:
        """Open the host."""
        self.compiler = f"numpy {np.__version__}"
        self.unified = True
        self.device = Device(
            name=platform.processor() or platform.machine() or "host", backend="numpy", type=DeviceType.CPU,
            index=0, arch="numpy", units=1, lanes=1, max_threads=1, regs_per_thread=16, regs_per_unit=16,
            threads_per_unit=1, blocks_per_unit=1, shared_per_block=32768, shared_per_unit=32768,
            l2_bytes=32 << 20, clock_ghz=1.0, max_cluster=1, driver=self.compiler,
            rates=Rates(50.0, 5.0, 0.01, source="default"),
        )  # fmt: skip

    def memory_bytes(self) -> int:
        """All memory of the host."""
        return host_bytes()

    @property
    def stream(self) -> int:
        """NumPy has no streams."""
        return 0

    def compile(self, blueprint: Blueprint, spills: bool = False) -> Built:
        """Accept a Blueprint of the reference kernels.

        Raises:
            CompileError: it has any other kernel.
        """
        if blueprint.source != "reference.cu":
            raise CompileError(f"{blueprint.source}: NumPy runs the reference family only; {NOTE}")
        resources = {launch.kernel: Resources() for launch in blueprint.launches}
        key = cache.key_of(full_source(blueprint), (), self.compiler, "numpy")
        return Built(key, blueprint.problem.encode(), resources, 0.0)

    def load(self, built: Built) -> Loaded:
        """Keep the problem to compute."""
        problem = Problem.parse(built.binary.decode())
        return Loaded(problem, dict.fromkeys(built.resources, problem))

    def alloc(self, nbytes: int) -> Memory:
        """Allocate a NumPy array."""
        try:
            flat = np.empty(max(nbytes, 4), np.uint8)
        except MemoryError as error:
            raise OutOfMemory(f"NumPy: no room for {nbytes:,} bytes") from error
        return Memory(flat.nbytes, flat.ctypes.data, flat, flat)

    def wrap(self, array: Array) -> Memory:
        """Use a NumPy array in place."""
        flat = array.reshape(-1).view(np.uint8)
        return Memory(array.nbytes, array.ctypes.data, flat, flat)

    def slice(self, memory: Memory, offset: int, nbytes: int) -> Memory:
        """Return a part of memory."""
        flat = memory.owner[offset : offset + nbytes]
        return Memory(nbytes, memory.address + offset, flat, flat)

    def upload(self, memory: Memory, array: Array) -> None:
        """Copy an array in."""
        memory.owner[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def download(self, memory: Memory, array: Array) -> None:
        """Copy out to a contiguous array."""
        array.reshape(-1).view(np.uint8)[:] = memory.owner[: array.nbytes]

    def fill(self, memory: Memory, byte: int) -> None:
        """Set every byte."""
        memory.owner[:] = byte

    def zero(self, memory: Memory) -> None:
        """Set every byte to 0."""
        self.fill(memory, 0)

    def launch(
        self, loaded: Loaded, launch: Launch, memories: Sequence[Memory], stream: int | None = None
    ) -> None:
        """Compute immediately.

        Raises:
            OutOfMemory: there is no room for the f64 copies of the arrays, that of x with its padding.
        """
        if launch.kernel == ZERO:
            self.fill(memories[0], 0)
            return
        problem = loaded.kernels[launch.kernel]
        try:
            _compute(problem, launch.kernel, memories)
        except MemoryError as error:
            raise OutOfMemory(f"NumPy: no room for f64 copies of the arrays of {problem}: {error}") from error

    def prepared(self, steps: Sequence[Step]) -> Run:
        """Return a function that does launches and waits for them."""
        return one_by_one(self, steps)

    def is_recording(self, stream: int | None) -> bool:
        """Return False."""
        return False

    def finish(self, stream: int) -> None:
        """Nothing is ever pending."""

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def timed(self, run: Callable[[], None], flush: bool = True) -> float:
        """Return the wall-clock time of one run, in us; NumPy times are not flushed."""
        return self.warm(run, 1)

    def warm(self, run: Callable[[], None], count: int = 20) -> float:
        """Return the time per run of ``count`` runs in succession, in us."""
        start = time.perf_counter_ns()
        for _ in range(count):
            run()
        return (time.perf_counter_ns() - start) / 1e3 / count

    def versions(self) -> dict[str, str]:
        """Return NumPy's and Python's versions."""
        numpy, python = np.__version__, platform.python_version()
        return {"numpy": numpy, "python": python, "compiler": self.compiler, "note": NOTE}


def _compute(problem: Problem, kernel: str, memories: Sequence[Memory]) -> None:
    """Do what a kernel of reference.cu does; its outputs are the last memories, except for the scale."""
    pr, dtype, added = problem, numpy_dtype(problem.stored), numpy_dtype(problem.dtype_added)
    if kernel.startswith("pool"):
        sums, sizes = (_typed(memories[i], np.float64, pr.z_shape) for i in (0, int("64" in kernel)))
        y, size = numpy_pool(pr, sums, sizes)
    else:
        x, w = _typed(memories[0], dtype, pr.x_shape), _typed(memories[1], dtype, pr.w_shape)
        bias = _typed(memories[2], added, (pr.k,)) if pr.epilogue.bias else None
        z = _typed(memories[3], added, pr.z_shape) if pr.epilogue.add else None
        y, size = numpy_sums(pr, x, w, bias, z)
    if "64" in kernel:
        _typed(memories[-2], np.float64, y.shape)[...] = y
        _typed(memories[-1], np.float64, size.shape)[...] = size
        return
    if pr.requantised:
        *memories, scale = memories
        y = numpy_requantised(pr, y, _typed(scale, np.float32, (pr.k,)))
    with np.errstate(all="ignore"):
        _typed(memories[-1], numpy_dtype(pr.dtype_out), y.shape)[...] = y


def _typed(memory: Memory, dtype: Any, shape: Sequence[int]) -> Any:
    """Return memory as an array."""
    count = math.prod(shape)
    return memory.owner[: count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
