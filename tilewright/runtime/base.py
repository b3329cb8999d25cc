"""The interface of all runtimes, and the values that they exchange."""

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
    """The resources that one kernel uses; 0 if the compiler does not report them.

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
        key: in the cache of binaries.
        binary: a cubin; in OpenCL the whole source, which the driver compiles; for NumPy the problem string.
        resources: of each kernel, by its name.
        compile_s: seconds that the compiler took; 0 if it came from the cache.
    """

    key: str
    binary: bytes
    resources: dict[str, Resources]
    compile_s: float

    @property
    def registers(self) -> int:
        """The most registers that any of its kernels uses."""
        return max((r.registers for r in self.resources.values()), default=0)


@dataclass(eq=False)  # not frozen, for speed: one is made for each array of each call
class Memory:
    """Bytes on a device, owned by us or by a caller; immutable, though their contents are not.

    Attributes:
        nbytes: size.
        address: its address on the device (on the host, for a CPU); 0 if not known.
        handle: the backend's own object.
        owner: a contiguous array of the bytes on a host, or the object that keeps them alive.
    """

    nbytes: int
    address: int
    handle: Any
    owner: Any = None

    @property
    def aligned(self) -> bool:
        """Whether its address is a multiple of 16 bytes, so that wide loads may be used."""
        return self.address % 16 == 0


class Bound(list[Memory]):
    """The memories of a launch, in order, for callers that repeat the launch; never changed."""


@dataclass(eq=False)
class Loaded:
    """Kernels on a device.

    Attributes:
        module: the backend's own object.
        kernels: the backend's kernels, by name.
        prepared: what the backend prepared for a Launch at its first run.
        given: the arguments last set for each kernel, by its name, if they were ``Bound``.
        symbols: address and size of constant memory, by name.
    """

    module: Any
    kernels: dict[str, Any] = field(default_factory=dict)
    prepared: dict[Launch, Any] = field(default_factory=dict)
    given: dict[str, ReferenceType[Bound] | None] = field(default_factory=dict)
    symbols: dict[str, Any] = field(default_factory=dict)


Step = tuple[Loaded, Launch, Bound]  # a launch with its memories


def _awake() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Blocking:
    """A run that returns when it is done, such as another library's on a CPU: timed by the clock, not events.

    Attributes:
        run: does one run.
        wake: wakes the library's threads, so that none sleeps when a run starts.
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
        compiler: name and version of the compiler; part of every key.
        unified: whether a caller's NumPy array is used in place.
        array_bytes: most bytes that one array may have.
        note: what a user should know about this device; may be empty.
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
        """Handle of the stream that launches go to if none is given; 0 on backends without streams."""

    def compile(self, blueprint: Blueprint, spills: bool = False) -> Built:
        """Compile through the cache of binaries. Needs only the compiler, not the device.

        Raises:
            CompileError: refused by the compiler, or registers were spilled to memory without ``spills``.
        """

    def load(self, built: Built) -> Loaded:
        """Load compiled kernels onto the device."""

    def alloc(self, nbytes: int) -> Memory:
        """Allocate; the contents are undefined.

        Raises:
            OutOfMemory: says how much was asked for.
        """

    def wrap(self, array: Array) -> Memory:
        """Use a contiguous NumPy array, on CUDA a PyTorch or CuPy array, in place, without a copy or waiting.

        OpenCL devices other than CPUs copy it.
        """

    def slice(self, memory: Memory, offset: int, nbytes: int) -> Memory:
        """Return a part of memory; on OpenCL devices other than CPUs ``offset`` must be a multiple of 128."""

    def upload(self, memory: Memory, array: Array) -> None:
        """Copy a NumPy array to the device and wait."""

    def download(self, memory: Memory, array: Array) -> None:
        """Wait for the device, then copy to a NumPy array."""

    def fill(self, memory: Memory, byte: int) -> None:
        """Set every byte, ordered with launches."""

    def zero(self, memory: Memory) -> None:
        """Set new memory to 0 and wait for that; on CUDA for nothing else: a stream may be recording."""

    def launch(
        self, loaded: Loaded, launch: Launch, memories: Sequence[Memory], stream: int | None = None
    ) -> None:
        """Enqueue one launch. ``stream`` is a caller's stream handle (CUDA only).

        Raises:
            RunError: refused by the device.
            DeviceError: in a process forked from the one that opened the device.
        """

    def prepared(self, steps: Sequence[Step]) -> Run:
        """Return a function that does launches and waits for them, on a CPU at less cost than one by one.

        It also waits if it fails or is interrupted; whoever has memories in common takes turns. Errors: as of
        ``launch`` and ``synchronize``.
        """

    def is_recording(self, stream: int | None) -> bool:
        """Whether a stream is being captured into a CUDA graph."""

    def finish(self, stream: int) -> None:
        """Wait for what was enqueued on a caller's stream (CUDA), and for no other stream.

        Raises:
            RunError: something that ran before failed.
        """

    def synchronize(self) -> None:
        """Wait for all that was enqueued.

        Raises:
            RunError: something that ran before failed; on CUDA the process can then not use the device again.
        """

    def timed(self, run: Run, flush: bool = True) -> float:
        """Return the time of one run in us; ``flush``: after reading a buffer larger than the last cache."""

    def warm(self, run: Run, count: int = 20) -> float:
        """Return the time per run in us of ``count`` runs in succession, as one CUDA graph or in a loop."""

    def versions(self) -> dict[str, str]:
        """Return driver, compiler, library versions and clocks, to be logged with every result."""
