"""A filter as one kernel reads it, which callers keep and give back with each call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Self

from tilewright.errors import ArrayError, a_kind
from tilewright.kernels.config import Config
from tilewright.problem import Problem
from tilewright.runtime.base import Memory


@dataclass(frozen=True, eq=False)
class Packed:
    """A filter as one kernel reads it; made by ``LayerPlan.pack``.

    Attributes:
        memory: the packed filter, on its device.
        problem: the layer that it belongs to.
        config: the kernel that it was packed for; no other can read it.
        device: where it is, e.g. cuda:1.
    """

    memory: Memory
    problem: Problem
    config: Config
    device: str

    def __repr__(self) -> str:
        return f"<filter of {self.memory.nbytes} bytes packed for {self.problem} by {self.config}>"

    def __copy__(self) -> Self:
        return self  # nobody writes to it

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"a packed filter is memory of {self.device} and cannot be pickled; pickle w, and pack it with "
            "plan.pack(w) where it arrives"
        )


def packed_memory(packed_w: object, problem: Problem, config: Config, device: str) -> Memory:
    """Return the memory of what a caller gives as the packed filter of a plan.

    Args:
        packed_w: what was given.
        problem, config, device: of the plan, as ``Packed`` has them.

    Raises:
        ArrayError: it is no packed filter, or that of another plan or device.
    """
    if not isinstance(packed_w, Packed):
        raise ArrayError(f"packed_w: {a_kind(packed_w)} was given; must be what plan.pack(w) returned")
    if (packed_w.problem, packed_w.config) != (problem, config):
        here = f"pack again with this plan, of {problem} by {config}"
        raise ArrayError(f"packed_w: is {packed_w!r}; {here}")
    if packed_w.device != device:
        here = f"the plan runs on {device}; pack again with this plan"
        raise ArrayError(f"packed_w: is on {packed_w.device}, but {here}")
    return packed_w.memory
