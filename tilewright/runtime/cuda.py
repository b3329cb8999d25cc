"""The CUDA runtime, on cuda.core and the driver's bindings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.device.architectures import CHAINED
from tilewright.errors import DeviceError, OutOfMemory, RunError
from tilewright.kernels.blueprint import CONSTANT, ZERO, Blueprint, Launch
from tilewright.runtime import rates
from tilewright.runtime.base import ANY_BYTES, Array, Built, Loaded, Memory, Run, Step
from tilewright.runtime.cuda_clock import CudaClock
from tilewright.runtime.cuda_context import Context, Owned, beside_captures, in_context
from tilewright.runtime.cuda_facts import check, clocks, facts
from tilewright.runtime.nvrtc import compile_cuda, compiler, import_core
from tilewright.runtime.pending import one_by_one
from tilewright.runtime.pools import trim_pools
from tilewright.runtime.tensor_map import MappedKernel

CONSTANT_FILTER = "constant_filter"  # its name in dialect.h
CHAINS_IN_GRAPHS = 12030  # version of the driver's API
KEPT_STREAMS = 64  # objects of callers' streams: there are programs that make streams without end
_STATIC_SHARED = 40 << 10  # the limit without asking is 48 KB with what kernels declare themselves


def device_count() -> int:
    """Return the number of CUDA devices.

    Raises:
        DeviceError: no driver, no cuda.core, or no device.
    """
    import_core()
    try:
        from cuda.bindings import driver

        check(driver.cuInit(0))
        count = int(check(driver.cuDeviceGetCount()))
    except Exception as error:  # the loader has errors of its own
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        text = text.split(". ")[0].rstrip(".")  # the first sentence; the others say what is said here
        todo = "install NVIDIA's display driver, or choose the device cpu"
        raise DeviceError(f"no CUDA driver: {text}; {todo}") from error
    if not count:
        raise DeviceError("no CUDA device: the driver is there, but it sees no GPU")
    return count


class CudaRuntime:
    """One CUDA device. Launches go to the legacy default stream unless another is given.

    All methods may be called on any thread, with any context current.
    """

    unified = False
    array_bytes = ANY_BYTES
    note = ""

    def __init__(self, index: int = 0) -> None:
        """Open the device's primary context."""
        count = device_count()
        if index >= count:
            raise DeviceError(f"cuda:{index}: no such device, the last is cuda:{count - 1}")
        from cuda.bindings import driver

        self._driver, self._core = driver, import_core()
        self._gpu = self._core.Device(index)
        self.context = Context(driver, self._gpu)
        self.compiler = compiler()
        self._stream_of = lru_cache(KEPT_STREAMS)(self._wrap_stream)
        self._stream = 0
        self.device = rates.calibrated(facts(driver, self._gpu, index))
        # Whether a launch may overlap the one before it: since Hopper, a driver that records that in graphs,
        # and a late cuda.core.
        knows = hasattr(self._core.LaunchConfig, "programmatic_stream_serialization")
        records = int(check(driver.cuDriverGetVersion())) >= CHAINS_IN_GRAPHS
        self._chains = knows and records and self.device.capability >= CHAINED
        self._quiet, self._clock = self._queues()

    @in_context
    def _queues(self) -> tuple[Any, CudaClock]:
        """Make a stream for setting memory to 0, and a clock with a stream for recording graphs."""
        side = self._gpu.create_stream()
        return self._gpu.create_stream(), CudaClock(self, self._launching_on, self._driver, side)

    @in_context
    def memory_bytes(self) -> int:
        """All memory of the GPU."""
        return int(check(self._driver.cuMemGetInfo())[1])

    @property
    def stream(self) -> int:
        """Handle of the default stream for launches; another one while ``warm`` records a graph."""
        return self._stream

    @contextmanager
    def _launching_on(self, stream: int) -> Iterator[None]:
        """Within a ``with``, use this stream for launches that name none."""
        before, self._stream = self._stream, stream
        try:
            yield
        finally:
            self._stream = before

    def compile(self, blueprint: Blueprint, spills: bool = False) -> Built:
        """Compile through the cache of binaries."""
        return compile_cuda(blueprint, self.device.arch, spills)

    @in_context
    def load(self, built: Built) -> Loaded:
        """Load a cubin and allow its kernels all the shared memory that a Launch may request."""
        try:
            with beside_captures(self._driver):
                module = self._core.ObjectCode.from_cubin(built.binary)
                return Loaded(module, {name: module.get_kernel(name) for name in built.resources})
        except Exception as error:
            raise RunError(f"{self.device.name}: cannot load a kernel: {error}") from error

    @in_context
    def alloc(self, nbytes: int) -> Memory:
        """Allocate; freed when nothing refers to the Memory any more."""
        for pools_too in (False, True):
            if pools_too:
                trim_pools()
            with beside_captures(self._driver):
                result = self._driver.cuMemAlloc(max(nbytes, 4))
            if result[0] != self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                address = int(check(result))
                return Memory(max(nbytes, 4), address, address, Owned(self._driver, self.context, address))
        free, total = check(self._driver.cuMemGetInfo())
        raise OutOfMemory(
            f"{self.device.name}: no room for {nbytes:,} bytes; {free:,} of {total:,} are free"
        )

    def wrap(self, array: Array) -> Memory:
        """Use a tensor or a CuPy array in place, without a copy or waiting."""
        address = array.data_ptr() if hasattr(array, "data_ptr") else array.data.ptr
        return Memory(array.nbytes, address, address, array)

    def slice(self, memory: Memory, offset: int, nbytes: int) -> Memory:
        """Return a part of memory."""
        return Memory(nbytes, memory.address + offset, memory.address + offset, memory)

    @in_context
    def upload(self, memory: Memory, array: Array) -> None:
        """Copy a NumPy array to the device and wait."""
        host = np.ascontiguousarray(array)
        if host.nbytes:
            check(self._driver.cuMemcpyHtoD(memory.address, host.ctypes.data, host.nbytes))
            self.synchronize()

    @in_context
    def download(self, memory: Memory, array: Array) -> None:
        """Wait for the device, then copy to a contiguous NumPy array."""
        self.synchronize()
        if array.nbytes:
            check(self._driver.cuMemcpyDtoH(array.ctypes.data, memory.address, array.nbytes))

    @in_context
    def fill(self, memory: Memory, byte: int) -> None:
        """Set every byte, ordered with launches."""
        self._fill(memory, byte, self._stream)

    @in_context
    def zero(self, memory: Memory) -> None:
        """Set new memory to 0 on a separate stream, and wait for only that.

        It neither waits for the context nor uses the legacy stream: neither may be while a stream records.
        """
        quiet = int(self._quiet.handle)
        with beside_captures(self._driver):
            self._fill(memory, 0, quiet)
            check(self._driver.cuStreamSynchronize(quiet))

    def _fill(self, memory: Memory, byte: int, stream: int) -> None:
        if memory.nbytes:
            check(self._driver.cuMemsetD8Async(memory.address, byte, memory.nbytes, stream))

    def _fill_constant(self, loaded: Loaded, packed: Memory, stream: int) -> None:
        """Copy the packed filter into the program's constant memory."""
        if (place := loaded.symbols.get(CONSTANT_FILTER)) is None:
            library = self._driver.CUlibrary(int(loaded.module.handle))
            with beside_captures(self._driver):
                place = check(self._driver.cuLibraryGetGlobal(library, CONSTANT_FILTER.encode()))
            loaded.symbols[CONSTANT_FILTER] = place
        address, nbytes = place
        check(self._driver.cuMemcpyDtoDAsync(address, packed.address, min(nbytes, packed.nbytes), stream))

    @in_context
    def launch(
        self, loaded: Loaded, launch: Launch, memories: Sequence[Memory], stream: int | None = None
    ) -> None:
        """Enqueue one launch on a stream handle."""
        handle = self._stream if stream is None else stream
        if launch.kernel == ZERO:
            self._fill(memories[0], 0, handle)
            return
        if launch.kernel == CONSTANT:
            self._fill_constant(loaded, memories[0], handle)
            return
        try:
            prepared = loaded.prepared.get(launch) or self._prepare(loaded, launch)
            if launch.tensor_map is not None:
                prepared.enqueue([m.address for m in memories], handle)
                return
            kernel, config = prepared
            self._core.launch(self._stream_of(handle), config, kernel, *[m.address for m in memories])
        except Exception as error:
            raise RunError(f"{self.device.name}: {launch.kernel}: {error}") from error

    def _prepare(self, loaded: Loaded, launch: Launch) -> Any:
        """Make what all runs of a launch share: kernel and configuration; with an image, a MappedKernel."""
        kernel = loaded.kernels[launch.kernel]
        if launch.shared_bytes > _STATIC_SHARED:
            name = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            device = check(self._driver.cuDeviceGet(self.device.index))
            check(self._driver.cuKernelSetAttribute(name, launch.shared_bytes, kernel.handle, device))
        chained = launch.chained and self._chains
        if launch.tensor_map is None:
            prepared: Any = kernel, self._configured(launch, chained)
        else:
            prepared = MappedKernel(self._driver, int(kernel.handle), launch, chained)
        loaded.prepared[launch] = prepared
        return prepared

    def _configured(self, launch: Launch, chained: bool) -> Any:
        """Return cuda.core's configuration of a launch; its grid counts clusters if there are any."""
        grid, extra = launch.grid, dict[str, Any]()
        if launch.cluster > 1:
            grid = (launch.grid[0] // launch.cluster, *launch.grid[1:])
            extra["cluster"] = (launch.cluster, 1, 1)
        if chained:
            extra["programmatic_stream_serialization"] = True
        return self._core.LaunchConfig(grid=grid, block=launch.block, shmem_size=launch.shared_bytes, **extra)

    def _wrap_stream(self, handle: int) -> Any:
        return self._core.Stream.from_handle(handle) if handle else self._gpu.default_stream

    def prepared(self, steps: Sequence[Step]) -> Run:
        """Return a function that does launches and waits for them."""
        return one_by_one(self, steps)

    @in_context
    def is_recording(self, stream: int | None) -> bool:
        """Whether a stream is being recorded into a graph."""
        status = check(self._driver.cuStreamIsCapturing(self._stream if stream is None else stream))
        return bool(status != self._driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)

    @in_context
    def finish(self, stream: int) -> None:
        """Wait for what was enqueued on a stream, while others may be recording."""
        with beside_captures(self._driver):
            check(self._driver.cuStreamSynchronize(stream))

    @in_context
    def synchronize(self) -> None:
        """Wait for all that was enqueued on the device."""
        check(self._driver.cuCtxSynchronize())

    @in_context
    def timed(self, run: Run, flush: bool = True) -> float:
        """Return the time between events around one run, in us, after a flush of data and code."""
        return self._clock.timed(run, flush)

    @in_context
    def warm(self, run: Run, count: int = 20) -> float:
        """Return the time per run in us, in a graph of ``count`` runs.

        ``run`` must launch on what ``stream`` returns at that moment; if it does not, or cannot be recorded,
        the runs are timed in a loop instead.
        """
        return self._clock.warm(run, count)

    def versions(self) -> dict[str, str]:
        """Return the versions of driver, compiler and cuda.core, and the current clocks from nvidia-smi."""
        version = int(check(self._driver.cuDriverGetVersion()))
        found = {
            "device": self.device.name,
            "driver": self.device.driver,
            "cuda_driver_api": f"{version // 1000}.{version % 1000 // 10}",
            "compiler": self.compiler,
            "cuda_core": str(getattr(self._core, "__version__", "unknown")),
        }
        return found | clocks(self._gpu)
