"""What all runtimes share: their values, and the methods they have in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import ReferenceType

from tilewright.device import Device
from tilewright.kernels.blueprint import Blueprint, Launch

ANY_BYTES = 1 << 128  # where nobody limits the size of one array
Run = Callable[[], None]  # enqueues one run, or does it
Array = Any  # numpy.ndarray on the host; a torch.Tensor or cupy.ndarray on CUDA


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of the device; 0 where the compiler does not say.

    Attributes:
        registers: 32-bit registers of a thread.
        local_bytes: stack frame and spilled registers of a thread, in bytes.
        shared_bytes: static shared memory of a block; dynamic shared memory is in the Launch.
        max_threads: most threads of a block.
    """

    registers: int = 0
    local_bytes: int = 0
    shared_bytes: int = 0
    max_threads: int = 0


@dataclass(frozen=True)
class Built:
    """A compiled Blueprint, not yet on a device.

    Attributes:
        key: of the cache of binaries.
        binary: a cubin; in OpenCL the whole source, which the driver compiles; for NumPy the problem string.
        resources: what each kernel takes, by its name.
        compile_s: seconds that the compiler took; 0 when it came from the cache.
    """

    key: str
    binary: bytes
    resources: dict[str, Resources]
    compile_s: float

    @property
    def registers(self) -> int:
        """Most registers of any of its kernels."""
        return max((r.registers for r in self.resources.values()), default=0)


@dataclass(eq=False)  # not frozen, for speed: one is made for each array of each call
class Memory:
    """Bytes on a device, owned by us or by a caller; never changed.

    Attributes:
        nbytes: size.
        address: where it starts, as the device (or the host, for a CPU) sees it; 0 if not known.
        handle: the backend's own object.
        owner: the bytes themselves on a host (a contiguous array), or what holds them.
    """

    nbytes: int
    address: int
    handle: Any
    owner: Any = None

    @property
    def aligned(self) -> bool:
        """Whether wide loads may be used: it starts at a multiple of 16 bytes."""
        return self.address % 16 == 0


class Bound(list[Memory]):
    """The memories of a launch, in order, for one who launches the same again; never changed."""


@dataclass(eq=False)
class Loaded:
    """Kernels on a device.

    Attributes:
        module: the backend's own object.
        kernels: the backend's kernels, by name.
        prepared: what a backend has made of a Launch at its first run.
        given: what a kernel has as arguments, by its name, if that was ``Bound``: no need to pass it again.
        symbols: where constant memory is, by name: address and bytes.
    """

    module: Any
    kernels: dict[str, Any] = field(default_factory=dict)
    prepared: dict[Launch, Any] = field(default_factory=dict)
    given: dict[str, ReferenceType[Bound] | None] = field(default_factory=dict)
    symbols: dict[str, Any] = field(default_factory=dict)


def _awake() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Blocking:
    """A run that returns when it is done, another library's on a CPU say: the clock times it, not events.

    Attributes:
        run: does one run.
        wake: wakes the library's threads, so that none is asleep when a run starts.
    """

    run: Run
    wake: Callable[[], None] = _awake

    def __call__(self) -> None:
        """Do one run."""
        self.run()


class Runtime(Protocol):
    """One device: compiles, allocates, launches, times. All backends have these methods.

    Attributes:
        device: facts and rates; calibrated rates if there are any in the cache.
        compiler: name and version of the compiler, part of every key.
        unified: whether a caller's NumPy array is used in place.
        array_bytes: most bytes that one array may have.
        note: what a user should know of whatever runs there; empty: nothing.
    """

    device: Device
    compiler: str
    unified: bool
    array_bytes: int
    note: str

    def memory_bytes(self) -> int:
        """All memory of the device."""

    @property
    def stream(self) -> int:
        """Handle of the stream that launches go to when none is given; 0 where there are none."""

    def compile(self, blueprint: Blueprint, spills: bool = False) -> Built:
        """Compile, through the cache of binaries. Needs the compiler only, not the device.

        Raises:
            CompileError: refused by the compiler, or registers spilled to memory that must not (``spills``).
        """

    def load(self, built: Built) -> Loaded:
        """Put compiled kernels on the device."""

    def alloc(self, nbytes: int) -> Memory:
        """Allocate; the contents are undefined.

        Raises:
            OutOfMemory: says how much was asked for.
        """

    def wrap(self, array: Array) -> Memory:
        """Use a contiguous array in place: one of NumPy, on CUDA a tensor or CuPy's. No copy, no waiting.

        On OpenCL devices other than CPUs it is copied there.
        """

    def slice(self, memory: Memory, offset: int, nbytes: int) -> Memory:
        """Return a part of memory; on OpenCL devices other than CPUs offset % 128 must be 0."""

    def upload(self, memory: Memory, array: Array) -> None:
        """Copy a NumPy array to the device and wait."""

    def download(self, memory: Memory, array: Array) -> None:
        """Wait for the device, then copy to a NumPy array."""

    def fill(self, memory: Memory, byte: int) -> None:
        """Set every byte, in order with launches."""

    def zero(self, memory: Memory) -> None:
        """Set new memory to 0, and wait for that. On CUDA for nothing else: a stream may be recording."""

    def launch(
        self, loaded: Loaded, launch: Launch, memories: Sequence[Memory], stream: int | None = None
    ) -> None:
        """Enqueue one launch. ``stream`` is a caller's stream handle (CUDA only).

        Raises:
            RunError: refused by the device.
            DeviceError: in a process forked from the one that opened the device.
        """

    def is_recording(self, stream: int | None) -> bool:
        """Whether what goes to a stream is recorded in a CUDA graph, not run."""

    def finish(self, stream: int) -> None:
        """Wait for what was enqueued on a caller's stream (CUDA); no other is disturbed.

        Raises:
            RunError: something that ran before failed.
        """

    def synchronize(self) -> None:
        """Wait for all that was enqueued.

        Raises:
            RunError: something that ran before failed; on CUDA the process is then of no more use.
        """

    def timed(self, run: Run, flush: bool = True) -> float:
        """Return the time of one run in us, after reading a clean buffer of several times the last cache."""

    def warm(self, run: Run, count: int = 20) -> float:
        """Return the time of one of ``count`` runs in a row in us: one CUDA graph, or a plain loop."""

    def versions(self) -> dict[str, str]:
        """Return driver, compiler, library versions and clocks, to be logged with every result."""
