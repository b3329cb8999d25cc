"""Threads that work off a queue, as those of ``ThreadPoolExecutor`` do, for whoever tunes.

Python's own start no work once the main thread has ended, though another thread may tune on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
_Work = Callable[[], None]


class Threads:
    """A few threads; each starts when there is first need of it.

    A program does not wait for them at its end, but for the thread that tunes, which waits for them.
    """

    def __init__(self, most: int, name: str) -> None:
        """Prepare ``most`` threads."""
        self._most, self._name = most, name
        self._queue: queue.SimpleQueue[tuple[Future[Any], _Work] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[..., T], *given: Any) -> Future[T]:
        """Queue work; the future has what it returns or raises."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work(*given))
            except BaseException as error:
                future.set_exception(error)

        self._queue.put((future, run))
        if len(self._threads) < self._most:
            thread = threading.Thread(target=self._work_off, name=self._name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return future

    def end(self) -> None:
        """Drop what is queued, and have each thread end once its work is done."""
        with suppress(queue.Empty):
            while True:
                if one := self._queue.get_nowait():
                    one[0].cancel()
        for _ in self._threads:
            self._queue.put(None)

    def join(self) -> None:
        """Wait until all have ended."""
        for thread in self._threads:
            thread.join()

    def _work_off(self) -> None:
        while one := self._queue.get():
            future, run = one
            if future.set_running_or_notify_cancel():
                run()
            del one, future, run  # nothing of it is kept while the next is waited for
