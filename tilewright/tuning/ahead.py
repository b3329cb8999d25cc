"""Configs compiled ahead of their trials, in parallel, each compiler in a process of its own."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

from tilewright.kernels.family import Config
from tilewright.tuning.job import Compiled, Job
from tilewright.tuning.worker import Worker


class Ahead:
    """A pool of compilers that fill the cache of binaries."""

    def __init__(self, job: Job, processes: int) -> None:
        """Prepare ``processes`` compilers for ``job.facts``; each starts when first needed."""
        self._workers = [Worker(job) for _ in range(processes)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self.closed = False
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="compile")

    def start(self) -> None:
        """Start the compilers now, while whoever asks thinks; what goes wrong shows when they compile."""
        for _ in self._workers:
            self._threads.submit(self._start)

    def submit(self, configs: Sequence[Config]) -> list[Future[Compiled]]:
        """Queue configs; the futures are in their order."""
        return [self._threads.submit(self._compile, config) for config in configs]

    def close(self) -> None:
        """Drop what is queued and end the compilers."""
        self.closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._end()
        self._threads.shutdown(wait=True)
        self._end()  # those that were just starting

    def _end(self) -> None:
        for worker in self._workers:
            worker.close()

    def _start(self) -> None:
        """Start the compiler that was idle longest: like any request, this needs it for itself alone."""
        worker = self._idle.get()
        try:
            _ = worker.context
        finally:
            self._idle.put(worker)

    def _compile(self, config: Config) -> Compiled:
        worker = self._idle.get()
        start = time.perf_counter()
        try:
            done = worker.compile(config)
            if self.closed:
                raise CancelledError  # what was killed did not fail
            return done
        except CancelledError:
            raise
        except Exception as error:  # a compiler that cannot start: the trial compiles for itself
            return Compiled("", str(error), time.perf_counter() - start)
        finally:
            self._idle.put(worker)
