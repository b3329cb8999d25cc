"""Keeps memory alive that a device may still use, even if a wait for the device is interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from tilewright.errors import TilewrightError
from tilewright.runtime.base import Memory, Run, Runtime, Step

_MOST_INTERRUPTS = 10_000  # during one wait for the device; after more, something else must be wrong


class Pending:
    """Enqueued memory, numbered in order. Each step is a single dict operation, so no lock is needed.

    A wait first takes ``all``, and drops them once the device is done. If something is raised in between, by
    a signal for example, they stay here: nothing is freed that a running kernel uses.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._in_use: dict[int, Sequence[Memory]] = {}
        self._numbers = count()

    def add(self, memories: Sequence[Memory]) -> None:
        """Keep what is about to be enqueued."""
        self._in_use[next(self._numbers)] = memories

    def all(self) -> list[int]:
        """Return the numbers of all memory kept now."""
        return list(self._in_use)

    def drop(self, numbers: list[int]) -> None:
        """Release memory that the device no longer uses."""
        for number in numbers:
            self._in_use.pop(number, None)


def one_by_one(runtime: Runtime, steps: Sequence[Step]) -> Run:
    """Return a function that does launches and waits for them, also if it fails or is interrupted."""

    def run() -> None:
        try:
            for step in steps:
                runtime.launch(*step)
            runtime.synchronize()
        except BaseException:
            settle(runtime)
            raise

    return run


def settle(runtime: Runtime) -> None:
    """Wait for the device after a call was interrupted; further interrupts do not end the wait.

    Call this before the first error is raised again: the caller may then reuse the arrays of the host.
    """
    for _ in range(_MOST_INTERRUPTS):
        try:
            runtime.synchronize()
            return
        except TilewrightError:
            return  # the device is broken: nothing runs there any more
        except BaseException:  # another interrupt, of any kind
            continue
