"""Lets no other thread be inside a driver when the interpreter ends.

A daemon thread whose driver call returns after that cannot get the interpreter back: it is ended on the
spot, and C++ frames below it make that an abort of the process. So at the end, calls that run get a few
seconds, and calls that begin wait for ever, before they hold a lock; the thread that ends the process still
computes.
"""

from __future__ import annotations

import atexit
import os
import threading
import time

PATIENCE_S = 5.0  # that calls under way get
_inside: set[int] = set()  # threads; a set needs no lock, which a forked child might find held
_ends: int | None = None  # the thread that ends the interpreter
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inside.clear)  # a forked child has none of these threads


class Inside:
    """To be inside, within a ``with``; one inside another counts once."""

    def __enter__(self) -> None:
        """Come in, or wait for ever."""
        me = threading.get_ident()
        self._outermost = me not in _inside
        _inside.add(me)
        if _ends not in (None, me) and self._outermost:
            _inside.discard(me)
            threading.Event().wait()

    def __exit__(self, *raised: object) -> None:
        """Go."""
        if self._outermost:
            _inside.discard(threading.get_ident())


@atexit.register
def _wait_for_others() -> None:
    """Let nobody in any more, and wait for those inside."""
    global _ends
    _ends = threading.get_ident()
    latest = time.monotonic() + PATIENCE_S
    while _inside - {_ends} and time.monotonic() < latest:
        time.sleep(0.001)
