"""Memory between canaries: what is written outside a buffer is seen afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tilewright.arithmetic import round_up
from tilewright.errors import count
from tilewright.runtime.base import Memory, Runtime

GUARD_BYTES = 1 << 16  # on each side; a stray row or tile of outputs lands inside it
CANARY = 0xA5  # as a float -2.9e-16: adding to it changes it, which adding to a NaN would not
# As a float NaN: an element never written, or read before it was, is seen; around inputs one past an end is,
# even if it is multiplied by 0.
POISON = 0xFF
_STEP = 128  # slices of memory start at multiples of this


@dataclass(frozen=True, eq=False)
class _GuardedAllocation:
    """One allocation: guard, what the user sees, guard."""

    name: str
    allocation: Memory
    inside: Memory
    start: int  # of what is inside, in bytes from that of the allocation
    guard: int  # the byte on both sides


class Fence:
    """Allocates guarded memory on a runtime and remembers it."""

    def __init__(self, runtime: Runtime) -> None:
        """Guard allocations of ``runtime``."""
        self._runtime = runtime
        self._allocations: list[_GuardedAllocation] = []

    @property
    def guarded(self) -> Runtime:
        """The same runtime, but each allocation is poisoned inside and has canaries on both sides."""
        return cast(Runtime, _Guarded(self._runtime, self))

    def alloc(
        self, nbytes: int, name: str = "a workspace buffer", shift: int = 0, guard: int = CANARY
    ) -> Memory:
        """Allocate ``nbytes`` of poison between guards, ``shift`` bytes off where it would be aligned."""
        start = GUARD_BYTES + shift
        allocation = self._runtime.alloc(round_up(start + nbytes, _STEP) + GUARD_BYTES)
        inside = self._runtime.slice(allocation, start, nbytes)
        self._runtime.fill(allocation, guard)
        self._runtime.fill(inside, POISON)
        self._runtime.synchronize()  # before who has it sets it to 0, in no order with what is enqueued here
        self._allocations.append(_GuardedAllocation(name, allocation, inside, start, guard))
        return inside

    def damage(self) -> str:
        """Say which guards were touched and mend them; empty if none were."""
        found = [text for guarded in self._allocations for text in self._damage(guarded)]
        return "; ".join(found)

    def _damage(self, guarded: _GuardedAllocation) -> list[str]:
        import numpy as np

        stop, first = divmod(guarded.start + guarded.inside.nbytes, _STEP)
        stop *= _STEP
        found = []
        for where, offset, size, skip in (
            ("before the start", 0, guarded.start, 0),
            ("past the end", stop, guarded.allocation.nbytes - stop, first),
        ):
            part = self._runtime.slice(guarded.allocation, offset, size)
            data = np.empty(size, np.uint8)
            self._runtime.download(part, data)
            wrong = np.flatnonzero(data[skip:] != guarded.guard)
            if wrong.size:
                found.append(f"wrote {count(wrong.size, 'byte')} {where} of {guarded.name}")
                data[skip:] = guarded.guard
                self._runtime.upload(part, data)
        return found


class _Guarded:
    """A runtime whose memory comes from a fence; everything else is the runtime's own."""

    def __init__(self, runtime: Runtime, fence: Fence) -> None:
        self._runtime = runtime
        self._fence = fence

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def alloc(self, nbytes: int) -> Memory:
        """Allocate between canaries."""
        return self._fence.alloc(nbytes)
