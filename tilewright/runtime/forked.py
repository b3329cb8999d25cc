"""Refuses devices in a forked child, which lacks the driver's threads and contexts: calls would hang."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from tilewright.errors import DeviceError

_opened_in: int | None = None  # the process that opened a device with a driver


def opened() -> None:
    """Record that this process has opened a device."""
    global _opened_in
    _opened_in = os.getpid()


def refuse() -> None:
    """Refuse to continue in a forked child of the process that opened a device.

    Raises:
        DeviceError: names the start method that works.
    """
    if _opened_in is not None and _opened_in != os.getpid():
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
