"""Configs compiled ahead of their trials, in parallel, each compiler in a process of its own."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

from tilewright.kernels.config import Config
from tilewright.tuning.protocol import Compiled, Job
from tilewright.tuning.worker import Worker
from tilewright.tuning.worker_pool import WorkerPool


class CompileAhead:
    """A pool of compilers that fill the cache of binaries."""

    def __init__(self, job: Job, processes: int, children: WorkerPool | None = None) -> None:
        """Prepare ``processes`` compilers for ``job.facts``; each starts when first needed."""
        self._workers = [Worker(job, children=children) for _ in range(processes)]
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
        """Drop what is queued, let compilers rest that have nothing to do, and end the others."""
        self.closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        idle = self._all_idle()
        for worker in self._workers:
            worker.retire() if worker in idle else worker.close()
        for worker in idle:
            self._idle.put(worker)  # a thread may wait for it
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.close()  # those that were just starting

    def _all_idle(self) -> list[Worker]:
        idle: list[Worker] = []
        with suppress(queue.Empty):
            while True:
                idle.append(self._idle.get_nowait())
        return idle

    def _start(self) -> None:
        """Start the compiler that was idle longest: like any request, this needs it for itself alone."""
        with self._alone() as worker:
            _ = worker.device

    def _compile(self, config: Config) -> Compiled:
        start = time.perf_counter()
        with self._alone() as worker:
            try:
                done = worker.compile(config)
            except Exception as error:  # a compiler that cannot start: the trial compiles for itself
                done = Compiled(None, str(error), time.perf_counter() - start)
        if self.closed:
            raise CancelledError  # what was killed did not fail
        return done

    @contextmanager
    def _alone(self) -> Iterator[Worker]:
        """Have a compiler that nobody else uses.

        Raises:
            CancelledError: there is nothing more to be done.
        """
        worker = self._idle.get()
        try:
            if self.closed:
                raise CancelledError
            yield worker
        finally:
            self._idle.put(worker)
