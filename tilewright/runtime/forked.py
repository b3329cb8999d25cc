"""Refuses devices in a forked child, which lacks the driver's threads and contexts: calls would hang.

Only forks by Python (``os.fork``, multiprocessing) are noticed, not those by a library's own C code.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from tilewright.errors import DeviceError

_opened = False  # whether this process, or one that it was forked from, has opened a device with a driver
_refuses = False  # whether this is such a child: asked in each call, so it is no system call


def opened() -> None:
    """Record that this process has opened a device."""
    global _opened
    _opened = True


def _begins() -> None:
    """Begin in a forked child."""
    global _refuses
    _refuses = _opened


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begins)


def refuse() -> None:
    """Refuse to continue in a forked child of the process that opened a device.

    Raises:
        DeviceError: names the start method that works.
    """
    if _refuses:
        raise DeviceError(
            "this process was forked from one that had used a device, whose driver does not survive that; "
            "start processes by multiprocessing.get_context('spawn'), or use no device before"
        )


class Refused:
    """Stands for a device's object that a forked child has unpickled: using it is refused.

    Unpickling itself is no error: it would end a pool's worker, and the pool would start another, for ever.
    """

    def __init__(self, error: DeviceError) -> None:
        self._error = error

    def __call__(self, *given: Any, **named: Any) -> NoReturn:
        """Refuse to run.

        Raises:
            DeviceError: always.
        """
        raise self._error

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error
