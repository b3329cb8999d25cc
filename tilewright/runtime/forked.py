"""A forked child has none of a driver's threads and contexts: what it asked of a device would never end."""

from __future__ import annotations

import os

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
