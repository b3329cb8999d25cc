"""The OpenCL runtime: CPUs through PoCL, and any other OpenCL device."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from tilewright.errors import DeviceError, OutOfMemory
from tilewright.kernels.blueprint import CONSTANT, ZERO, Blueprint, Launch
from tilewright.kernels.source import full_source
from tilewright.runtime import cache, forked, rates
from tilewright.runtime.base import Array, Blocking, Bound, Built, Loaded, Memory, Run, Step
from tilewright.runtime.flusher import Flusher
from tilewright.runtime.opencl_driver import devices, import_opencl, make_kernels
from tilewright.runtime.opencl_errors import in_our_words, in_words
from tilewright.runtime.opencl_facts import facts
from tilewright.runtime.opencl_programs import Programs
from tilewright.runtime.opencl_vectors import PRELUDE
from tilewright.runtime.pending import Pending, settle

# On CPUs whose last-level cache is in slices OpenCL reports one of them: flush enough to cover all.
LEAST_FLUSH_BYTES = 128 << 20
_ALIGN = 128


class OpenclRuntime:
    """One OpenCL device and one in-order queue."""

    note = ""

    def __init__(self, index: int = 0, cpu: bool = False) -> None:
        """Open the device ``index``, or with ``cpu`` the first CPU."""
        self.cl = import_opencl()
        found = [d for d in devices() if not cpu or d.type & self.cl.device_type.CPU]
        if index >= len(found):
            kind, name = ("CPU", "cpu") if cpu else ("device", "opencl")
            last = f"the last is {name}:{len(found) - 1}" if found else "there is none"
            raise DeviceError(f"{name}:{index}: no such OpenCL {kind}, {last}; see 'tilewright doctor'")
        self._device = found[index]
        self.unified = bool(self._device.type & self.cl.device_type.CPU)
        self._context = self.cl.Context([self._device])
        profiling = self.cl.command_queue_properties.PROFILING_ENABLE
        self._queue = self.cl.CommandQueue(self._context, properties=profiling)
        self._enqueue = self.cl.enqueue_nd_range_kernel
        self._events: list[Any] = []  # of the run that is being timed
        self.device = rates.calibrated(facts(self._device, index, self.unified))
        self.programs = Programs(self.cl, self._context, self._device, self.device.name)
        self.compiler = self.programs.compiler
        self.array_bytes = int(self._device.max_mem_alloc_size)
        self._pending = Pending()
        self._lock = threading.Lock()  # of what is pending, all was enqueued
        self._in_place = self.cl.mem_flags.READ_WRITE | self.cl.mem_flags.USE_HOST_PTR
        self._flusher = Flusher(self, max(2 * self.device.l2_bytes, LEAST_FLUSH_BYTES))

    def memory_bytes(self) -> int:
        """All memory of the device."""
        return int(self._device.global_mem_size)

    @property
    def stream(self) -> int:
        """Always 0: there is only the runtime's own queue."""
        return 0

    def compile(self, blueprint: Blueprint, spills: bool = False) -> Built:
        """Check that the source builds; the driver's own cache keeps the machine code."""
        source = PRELUDE + full_source(blueprint)
        key = cache.key_of(source, self.programs.options, self.compiler, self.device.arch)
        return cache.compiled(key, lambda: self.programs.build(key, source))

    @in_our_words
    def load(self, built: Built) -> Loaded:
        """Build for the device, unless ``compile`` just did; quick if it is in the driver's cache."""
        return self.programs.load(built)

    def alloc(self, nbytes: int) -> Memory:
        """Allocate; on a CPU in a NumPy array with 128-byte alignment."""
        nbytes = max(nbytes, 4)
        try:
            if self.unified:
                raw = np.empty(nbytes + _ALIGN, np.uint8)
                start = -raw.ctypes.data % _ALIGN
                return self._host(raw[start : start + nbytes])
            buffer = self.cl.Buffer(self._context, self.cl.mem_flags.READ_WRITE, nbytes)
        except (self.cl.Error, MemoryError) as error:
            raise OutOfMemory(f"{self.device.name}: no room for {nbytes:,} bytes") from error
        return Memory(nbytes, 0, buffer)

    def _host(self, array: Array) -> Memory:
        """Use a contiguous array in place; ``look`` has just taken an address in the same way."""
        buffer = self.cl.Buffer(self._context, self._in_place, hostbuf=_writable(array))
        return Memory(array.nbytes, array.__array_interface__["data"][0], buffer, array)

    @in_our_words
    def wrap(self, array: Array) -> Memory:
        """Use a NumPy array in place on a CPU; copy it to other devices."""
        if array.nbytes == 0:
            return self.alloc(4)
        if self.unified:
            return self._host(array if array.flags.c_contiguous else np.ascontiguousarray(array))
        memory = self.alloc(array.nbytes)
        self.upload(memory, array)
        return memory

    @in_our_words
    def slice(self, memory: Memory, offset: int, nbytes: int) -> Memory:
        """Return a part of memory."""
        if nbytes == 0:
            return Memory(0, 0, memory.handle, _bytes_of(memory.owner)[:0] if self.unified else memory)
        if self.unified:
            return self._host(_bytes_of(memory.owner)[offset : offset + nbytes])
        return Memory(nbytes, 0, memory.handle.get_sub_region(offset, nbytes), memory)

    @in_our_words
    def upload(self, memory: Memory, array: Array) -> None:
        """Copy a NumPy array to the device and wait."""
        self.synchronize()
        if self.unified:
            _bytes_of(memory.owner)[: array.nbytes] = _bytes_of(np.ascontiguousarray(array))
        else:
            self.cl.enqueue_copy(self._queue, memory.handle, np.ascontiguousarray(array), is_blocking=True)

    @in_our_words
    def download(self, memory: Memory, array: Array) -> None:
        """Wait for the device, then copy to a contiguous NumPy array."""
        self.synchronize()
        if self.unified:
            _bytes_of(array)[:] = _bytes_of(memory.owner)[: array.nbytes]
        else:
            self.cl.enqueue_copy(self._queue, array, memory.handle, is_blocking=True)

    @in_our_words
    def fill(self, memory: Memory, byte: int) -> None:
        """Set every byte, ordered with launches."""
        if not memory.nbytes:
            return
        pattern = np.full(1, byte, np.uint8)
        with self._lock:
            self._pending.add((memory,))
            event = self.cl.enqueue_fill_buffer(self._queue, memory.handle, pattern, 0, memory.nbytes)
            self._events.append(event)

    def zero(self, memory: Memory) -> None:
        """Set every byte to 0, and wait for all that was enqueued."""
        self.fill(memory, 0)
        self.synchronize()

    def launch(
        self, loaded: Loaded, launch: Launch, memories: Sequence[Memory], stream: int | None = None
    ) -> None:
        """Enqueue one launch."""
        forked.refuse()
        try:
            if launch.kernel == ZERO:
                self.fill(memories[0], 0)
                return
            if launch.kernel == CONSTANT:
                return  # the kernel takes the filter as an argument in constant memory
            kernel, work_items = loaded.kernels[launch.kernel], launch.work_items
            with self._lock:
                last = loaded.given.get(launch.kernel)
                if last is None or last() is not memories:
                    loaded.given[launch.kernel] = None  # what is raised half-way leaves arguments of both
                    kernel.set_args(*[memory.handle for memory in memories])
                    loaded.given[launch.kernel] = ref(memories) if isinstance(memories, Bound) else None
                self._pending.add(memories)
                self._events.append(self._enqueue(self._queue, kernel, work_items, launch.block))
        except self.cl.Error as error:
            raise in_words(self, launch.kernel, error) from error

    def prepared(self, steps: Sequence[Step]) -> Run:
        """Return a function that does launches and waits for them.

        Its kernels are its own, so their arguments are set once. A call is as little Python as possible: with
        cold caches each function that it calls costs some 3 us, and each name that it looks up up to 1 us.
        """
        calls = [(self._again(*step), step) for step in steps if step[1].kernel != CONSTANT]

        def run() -> None:
            forked.refuse()
            event = None
            try:
                for again, _ in calls:
                    event = again()
                if event is not None:
                    event.wait()
            except BaseException as error:
                settle(self)
                if isinstance(error, self.cl.Error):
                    raise in_words(self, " and ".join(step[1].kernel for _, step in calls), error) from error
                raise

        return run

    @in_our_words
    def _again(self, loaded: Loaded, launch: Launch, memories: Sequence[Memory]) -> Callable[[], Any]:
        """Return a function that enqueues one launch, and returns its event."""
        if launch.kernel == ZERO:
            (memory,) = memories
            zero = np.zeros(1, np.uint8)
            return partial(self.cl.enqueue_fill_buffer, self._queue, memory.handle, zero, 0, memory.nbytes)
        kernel = make_kernels(self.cl, loaded.module)[launch.kernel]
        kernel.set_args(*[memory.handle for memory in memories])
        return partial(self._enqueue, self._queue, kernel, launch.work_items, launch.block)

    def is_recording(self, stream: int | None) -> bool:
        """Return False."""
        return False

    def finish(self, stream: int) -> None:
        """Do nothing: callers have no streams."""

    def synchronize(self) -> None:
        """Wait for all that was enqueued; what another thread enqueues meanwhile remains pending."""
        with self._lock:
            done, self._events = self._pending.all(), []
        try:
            self._queue.finish()
        except self.cl.Error as error:
            self._pending.drop(done)
            raise in_words(self, "what was enqueued", error) from error
        self._pending.drop(done)

    @in_our_words
    def timed(self, run: Callable[[], None], flush: bool = True) -> float:
        """Return the time of one run in us.

        Launches enqueued here are timed by device events, from the start of the first to the end of the last.
        They wait for the flush, which keeps the cores awake, so launch overhead is not counted, as on a GPU.
        A ``Blocking`` run of another library is timed by the wall clock, after the flush, from call to
        return; if the library allows it, its threads are woken just before.
        """
        if flush:
            self._flusher.enqueue()
        if isinstance(run, Blocking):
            self.synchronize()
            run.wake()
        self._events.clear()
        start = time.perf_counter_ns()
        run()
        events = tuple(self._events)
        self.synchronize()
        wall_ns = time.perf_counter_ns() - start
        if not events or isinstance(run, Blocking):
            return wall_ns / 1e3
        return float(events[-1].profile.end - events[0].profile.start) / 1e3

    def warm(self, run: Callable[[], None], count: int = 20) -> float:
        """Return the time per run of ``count`` runs in succession, in us."""
        self.synchronize()
        start = time.perf_counter_ns()
        for _ in range(count):
            run()
        self.synchronize()
        return (time.perf_counter_ns() - start) / 1e3 / count

    def versions(self) -> dict[str, str]:
        """Return the versions of the platform, the driver and pyopencl."""
        return {
            "device": self.device.name,
            "platform": self._device.platform.version,
            "driver": self._device.driver_version,
            "compiler": self.compiler,
            "pyopencl": self.cl.VERSION_TEXT,
            "threads": str(self.device.units),
        }


def _bytes_of(array: Array) -> Array:
    """Return the bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)


def _writable(array: Array) -> Any:
    """Return an array as pyopencl requires it: writable, even if it is read-only.

    Nothing writes to it: a read-only array can only be an input, which kernels only read.
    """
    if array.flags.writeable:
        return array
    return (ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data)
