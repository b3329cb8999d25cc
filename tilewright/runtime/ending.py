"""Keeps other threads out of the driver when the interpreter ends.

If a driver call of a daemon thread returns after that, the thread cannot take the interpreter's lock again.
Python then ends the thread, and if C++ frames are on its stack, that aborts the whole process. So at exit,
calls that are running get a few seconds to finish, and calls that begin later block for ever, before they
take a lock. Only the thread that ends the process can still compute.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from threading import get_ident

PATIENCE_S = 5.0  # that calls under way get
_inside: set[int] = set()  # threads; a set needs no lock, which a forked child might find held
_ends: int | None = None  # the thread that ends the interpreter
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inside.clear)  # a forked child has none of these threads


class Inside:
    """A context in which this thread may call the driver; nested ones count once.

    Every call of a plan enters one: with cold caches each name that it looks up costs up to 1 us.
    """

    __slots__ = ("_entered",)

    def __enter__(self) -> None:
        """Enter; block for ever if another thread is ending the interpreter."""
        me = get_ident()
        self._entered = 0 if me in _inside else me  # the number of a thread is never 0
        if self._entered:
            _inside.add(me)
            if _ends is not None and _ends != me:
                _inside.discard(me)
                threading.Event().wait()

    def __exit__(self, *raised: object) -> None:
        """Leave the outermost context."""
        if self._entered:
            _inside.discard(self._entered)


def ends() -> bool:
    """Whether this thread is ending the interpreter: it must do all by itself, since others are blocked."""
    return _ends == get_ident()


@atexit.register
def _wait_for_others() -> None:
    """Let no other thread enter, and wait for those inside, for PATIENCE_S at most."""
    global _ends
    _ends = get_ident()
    latest = time.monotonic() + PATIENCE_S
    while _inside - {_ends} and time.monotonic() < latest:
        time.sleep(0.001)
