"""Memory that a device may still use: kept alive until it is done, however a wait for it ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from tilewright.errors import TilewrightError
from tilewright.runtime.base import Memory, Runtime

_MOST_INTERRUPTS = 10_000  # while one waits for the device: beyond that something else is wrong


class Pending:
    """What was enqueued, by the order of it. Each step is one operation of a dict: no lock is needed.

    A wait first asks for ``all``, and drops that when the device is done. What is raised in between, by a
    signal say, leaves it here: nothing is freed under a kernel that runs.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self._in_use: dict[int, Sequence[Memory]] = {}
        self._numbers = count()

    def add(self, memories: Sequence[Memory]) -> None:
        """Keep what is about to be enqueued."""
        self._in_use[next(self._numbers)] = memories

    def all(self) -> list[int]:
        """Return the numbers of what is kept now."""
        return list(self._in_use)

    def drop(self, numbers: list[int]) -> None:
        """Let go of what the device is done with."""
        for number in numbers:
            self._in_use.pop(number, None)


def settle(runtime: Runtime) -> None:
    """Wait for the device when a call was interrupted; another interrupt meanwhile does not end the wait.

    To be called where the error that came first is raised again: arrays of the host are the caller's then.
    """
    for _ in range(_MOST_INTERRUPTS):
        try:
            runtime.synchronize()
            return
        except TilewrightError:
            return  # the device is broken: nothing runs there that could be waited for
        except BaseException:  # another interrupt, of whatever kind
            continue
