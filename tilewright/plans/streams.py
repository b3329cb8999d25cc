"""Keys of streams, each of which has a workspace of its own; owners are told when a thread's stream ends."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from typing import Protocol
from weakref import WeakSet

PER_THREAD = 2  # CUDA's handle of the per-thread default stream: one number for a stream in each thread
DEFAULT = (0, 0)  # the default stream, and any without CUDA
StreamKey = tuple[int, int]


class Owner(Protocol):
    """An object that keeps resources for each stream."""

    def let_go(self, key: StreamKey) -> None:
        """Free the resources of the own default stream of a thread that has ended."""


class _Thread:
    """Lives as long as its thread.

    Threads are counted, since the system reuses their numbers: work that an ended thread enqueued may still
    be running when the next one starts.
    """

    _numbers = itertools.count(1)

    def __init__(self) -> None:
        self._process = os.getpid()
        self.key = PER_THREAD, next(self._numbers)
        self.owners: WeakSet[Owner] = WeakSet()

    def __del__(self) -> None:
        # Not at the end of a process, which frees everything, nor for its parent's threads in a forked child.
        if not sys.is_finalizing() and self._process == os.getpid():
            for owner in list(self.owners):
                owner.let_go(self.key)


_own = threading.local()


def stream_key(stream: int | None) -> StreamKey:
    """Return the key of a stream: its handle, and for a thread's own default stream the thread too."""
    if stream != PER_THREAD:
        return stream or 0, 0
    if not hasattr(_own, "thread"):
        _own.thread = _Thread()
    key: StreamKey = _own.thread.key
    return key


def tell_of_end(owner: Owner, key: StreamKey) -> None:
    """Notify an owner when this thread ends, if the key is of its own default stream."""
    if key[0] == PER_THREAD:
        _own.thread.owners.add(owner)
