"""Which streams have a workspace of their own."""

from __future__ import annotations

import itertools
import threading

PER_THREAD = 2  # CUDA's handle of a thread's own default stream: each thread's is another one
DEFAULT = (0, 0)  # the default stream, and any on a CPU
_threads, _own = itertools.count(1), threading.local()


def stream_key(stream: int | None) -> tuple[int, int]:
    """Tell streams apart: by their handles, and each thread's own default stream by its thread as well.

    Threads are counted, since the system gives their numbers again: what an ended thread enqueued may still
    be running when the next one begins.
    """
    if stream != PER_THREAD:
        return stream or 0, 0
    if not hasattr(_own, "thread"):
        _own.thread = next(_threads)
    return PER_THREAD, _own.thread
