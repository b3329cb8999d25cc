"""All that a runtime needs to build and run one config: programs, launches, buffers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.hashed import hashed_once
from tilewright.kernels.tensor_map import TensorMap

ZERO, CONSTANT = NO_KERNELS = ("zero", "constant")  # launches that a runtime carries out by itself
EXTRAS = ("bias", "z")  # operands that kernels are given whether the problem has them or not
UNUSED_BYTES = 64  # of what is bound and never touched
FOLLOWS = ("FOLLOWS", 1)  # define of a kernel behind another one of its plan (CHAIN_BEGIN)


@dataclass(frozen=True)
class Buffer:
    """A workspace buffer of a Plan. ``zeroed``: it must hold zeros before the very first launch; the kernels
    leave zeros in it again. One of 0 bytes is bound and never accessed."""

    name: str
    nbytes: int
    zeroed: bool = False


@hashed_once
@dataclass(frozen=True)
class Launch:
    """One launch: the kernel's name, its geometry, and the buffers bound to its arguments.

    Buffer names: x, w (packed), bias, z, scale, y, or a name in ``Blueprint.workspace``; a bias or z that the
    problem does not have is bound to an unused buffer. Two names are no kernels: a launch of ``zero`` fills
    its one buffer argument with zero bytes (a memset), one of ``constant`` copies it into constant memory. A
    ``chained`` launch may start while the kernel before it still runs (programmatic dependent launch): its
    kernel waits (CHAIN_WAIT). On callers' streams the first one is chained, too. With ``tensor_map`` the
    first argument is not an address but the tensor map of the data there (CUDA; elsewhere the address).
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[str, ...]
    shared_bytes: int = 0
    cluster: int = 1
    chained: bool = False
    tensor_map: TensorMap | None = None

    @cached_property
    def work_items(self) -> tuple[int, ...]:
        """Threads of all blocks along each axis, as OpenCL counts."""
        return tuple(count * size for count, size in zip(self.grid, self.block, strict=True))


@dataclass(frozen=True)
class Blueprint:
    """All that a runtime needs to build and run one Config: source, defines, launches, buffers.

    Every define is a name and an integer: no text that a user typed reaches the compiler. ``pack`` is the
    geometry of the packed filter, written by the ``pack`` kernel of ``packer``; None means that the filter is
    used as given (kcrs). ``packing`` describes that order in lines of text, for the header of an exported
    kernel; empty if only the packer's source defines it. ``parts`` are further programs whose kernels
    ``launches`` names: each is compiled separately, from its own source and defines. ``specific``: compile
    for sm_90a; the binary does not run on later GPUs. ``problem``: for the reference kernels the layer that
    they compute, for NumPy, which compiles nothing.
    """

    source: str
    defines: tuple[tuple[str, int], ...]
    launches: tuple[Launch, ...]
    packed_bytes: int
    pack: tuple[tuple[str, int], ...] | None = None
    workspace: tuple[Buffer, ...] = ()
    max_registers: int = 0
    parts: tuple[Blueprint, ...] = ()
    specific: bool = False
    packer: str = "pack.cu"
    packing: str = ""
    problem: str = ""

    @property
    def programs(self) -> tuple[Blueprint, ...]:
        """All that is to be compiled."""
        return (self, *self.parts)

    def target(self, arch: str) -> str:
        """Return the compiler's name of an architecture, with its specific instructions if they are used."""
        return f"{arch}a" if self.specific else arch
