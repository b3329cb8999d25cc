"""The NumPy runtime: slow, always there. It runs the reference family and its helpers only."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.device import Device, Rates
from tilewright.dtypes import numpy_dtype
from tilewright.errors import CompileError, OutOfMemory, how_to_get
from tilewright.kernels.blueprint import ZERO, Blueprint, Launch
from tilewright.kernels.requant import numpy_scaled
from tilewright.kernels.source import full_source
from tilewright.kernels.untuned.reference import numpy_pool, numpy_sums
from tilewright.problem import Problem
from tilewright.runtime import cache
from tilewright.runtime.base import ANY_BYTES, Array, Built, Loaded, Memory, Resources
from tilewright.runtime.capacity import host_bytes

CONVERSIONS = ("widen", "requant")  # kernels of adapted.cu
NOTE = f"slow: NumPy only; {how_to_get('opencl')}, or '.[cuda]' for a GPU"


class NumpyRuntime:
    """The last fallback: a Blueprint of reference.cu, done by NumPy in f64. ``note`` says it is slow."""

    array_bytes = ANY_BYTES
    note = NOTE

    def __init__(self) -> None:
        """Open the host."""
        self.compiler = f"numpy {np.__version__}"
        self.unified = True
        self.device = Device(
            name=platform.processor() or platform.machine() or "host", backend="numpy", index=0, arch="numpy",
            units=1, lanes=1, max_threads=1, regs_per_thread=16, regs_per_unit=16, threads_per_unit=1,
            blocks_per_unit=1, shared_per_block=32768, shared_per_unit=32768, l2_bytes=32 << 20,
            clock_ghz=1.0, max_cluster=1, driver=self.compiler,
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
        """Take a Blueprint of the reference kernels.

        Raises:
            CompileError: for any other kernel.
        """
        if blueprint.source not in ("reference.cu", "adapted.cu"):
            raise CompileError(f"{blueprint.source}: NumPy runs the reference family only; {NOTE}")
        source, what = full_source(blueprint), blueprint.problem or json.dumps(dict(blueprint.defines))
        names = {launch.kernel for launch in blueprint.launches} - set(CONVERSIONS)
        if blueprint.source == "adapted.cu":
            names = {CONVERSIONS[dict(blueprint.defines)["REQUANT"]]}
        resources = {name: Resources() for name in names}
        return Built(cache.key_of(source, (), self.compiler, "numpy"), what.encode(), resources, 0.0)

    def load(self, built: Built) -> Loaded:
        """Take what is to be computed: a problem, or how numbers are converted."""
        text = built.binary.decode()
        what = json.loads(text) if text.startswith("{") else Problem.parse(text)
        return Loaded(what, dict.fromkeys(built.resources, what))

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

    def launch(
        self, loaded: Loaded, launch: Launch, memories: Sequence[Memory], stream: int | None = None
    ) -> None:
        """Compute at once."""
        if launch.kernel == ZERO:
            self.fill(memories[0], 0)
            return
        work = _convert if launch.kernel in CONVERSIONS else _compute
        work(loaded.kernels[launch.kernel], launch.kernel, memories)

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def timed(self, run: Callable[[], None], flush: bool = True) -> float:
        """Return the wall-clock time of one run, in us; NumPy times are not flushed."""
        return self.warm(run, 1)

    def warm(self, run: Callable[[], None], count: int = 20) -> float:
        """Return the time of one of ``count`` runs in a row, in us."""
        start = time.perf_counter_ns()
        for _ in range(count):
            run()
        return (time.perf_counter_ns() - start) / 1e3 / count

    def versions(self) -> dict[str, str]:
        """Return NumPy's and Python's versions."""
        numpy, python = np.__version__, platform.python_version()
        return {"numpy": numpy, "python": python, "compiler": self.compiler, "note": NOTE}


def _convert(defines: dict[str, int], kernel: str, memories: Sequence[Memory]) -> None:
    """Do what a kernel of adapted.cu does."""
    if kernel == "requant":
        channels, pixels = defines["CHANNELS"], defines["PIXELS"]
        images = defines["ELEMENTS"] // (channels * pixels)
        shape = (images, pixels, channels) if defines["Y_NHWC"] else (images, channels, pixels)
        sums, scale = _typed(memories[0], np.int32, shape), _typed(memories[1], np.float32, (channels,))
        scaled = numpy_scaled(sums, scale if defines["Y_NHWC"] else scale[:, None])
        _typed(memories[2], np.int8, shape)[...] = scaled
        return
    f8, f16 = numpy_dtype("f8"), np.float16
    for place, count in ((0, defines["ELEMENTS"]), (2, defines["W_ELEMENTS"])):
        _typed(memories[place + 1], f16, (count,))[...] = _typed(memories[place], f8, (count,)).astype(f16)


def _compute(problem: Problem, kernel: str, memories: Sequence[Memory]) -> None:
    """Do what a kernel of reference.cu does; what it writes comes last."""
    pr, dtype, dtype_out = problem, numpy_dtype(problem.dtype), numpy_dtype(problem.dtype_out)
    if kernel.startswith("pool"):
        sums, sizes = (_typed(memories[i], np.float64, pr.z_shape) for i in (0, int("64" in kernel)))
        y, size = numpy_pool(pr, sums, sizes)
    else:
        x, w = _typed(memories[0], dtype, pr.x_shape), _typed(memories[1], dtype, pr.w_shape)
        bias = _typed(memories[2], dtype_out, (pr.k,)) if pr.epilogue.bias else None
        z = _typed(memories[3], dtype_out, pr.z_shape) if pr.epilogue.add else None
        y, size = numpy_sums(pr, x, w, bias, z)
    with np.errstate(all="ignore"):
        if "64" not in kernel:
            _typed(memories[-1], dtype_out, y.shape)[...] = y
            return
    _typed(memories[-2], np.float64, y.shape)[...] = y
    _typed(memories[-1], np.float64, size.shape)[...] = size


def _typed(memory: Memory, dtype: Any, shape: Sequence[int]) -> Any:
    """Return memory as an array."""
    count = math.prod(shape)
    return memory.owner[: count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
