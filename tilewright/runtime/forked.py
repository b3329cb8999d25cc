"""A forked child has none of a driver's threads and contexts: what it asked of a device would never end."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from tilewright.errors import DeviceError

_opened_in: int | None = None  # the process that opened a device of a driver


def opened() -> None:
    """Remember that this process has opened a device."""
    global _opened_in
    _opened_in = os.getpid()


def refuse() -> None:
    """Refuse to go on in a child of the process that opened a device.

    Raises:
        DeviceError: names the start method that does.
    """
    if _opened_in is not None and _opened_in != os.getpid():
        raise DeviceError(
            "this process was forked from one that had used a device, whose driver does not survive that; "
            "start processes by multiprocessing.get_context('spawn'), or use no device before"
        )


class Refused:
    """What an object of a device is that a forked child unpickles: who uses it is refused.

    To unpickle it is no error: a worker of a pool would end by it, and another one begin, for ever.
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
