"""Which streams have a workspace of their own."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from typing import Protocol
from weakref import WeakSet

PER_THREAD = 2  # CUDA's handle of a thread's own default stream: each thread's is another one
DEFAULT = (0, 0)  # the default stream, and any on a CPU
StreamKey = tuple[int, int]


class Owner(Protocol):
    """What keeps something for each stream."""

    def let_go(self, key: StreamKey) -> None:
        """Let go of what the own default stream of a thread had, which has ended."""


class _Thread:
    """Is there as long as its thread is.

    Threads are counted, since the system gives their numbers again: what an ended thread enqueued may still
    be running when the next one begins.
    """

    _numbers = itertools.count(1)

    def __init__(self) -> None:
        self._process = os.getpid()
        self.key = PER_THREAD, next(self._numbers)
        self.owners: WeakSet[Owner] = WeakSet()

    def __del__(self) -> None:
        # At the end of a process all goes anyway; a forked child has threads of its parent's end in it.
        if not sys.is_finalizing() and self._process == os.getpid():
            for owner in list(self.owners):
                owner.let_go(self.key)


_own = threading.local()


def stream_key(stream: int | None) -> StreamKey:
    """Tell streams apart: by their handles, and each thread's own default stream by its thread as well."""
    if stream != PER_THREAD:
        return stream or 0, 0
    if not hasattr(_own, "thread"):
        _own.thread = _Thread()
    key: StreamKey = _own.thread.key
    return key


def tell_of_end(owner: Owner, key: StreamKey) -> None:
    """Have an owner told when this thread ends, if the key is of its own default stream."""
    if key[0] == PER_THREAD:
        _own.thread.owners.add(owner)
