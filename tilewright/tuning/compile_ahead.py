"""Configs compiled ahead of their trials, in parallel, each compiler in a process of its own."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager, suppress

from tilewright.kernels.config import Config
from tilewright.tuning.protocol import Compiled, Job
from tilewright.tuning.threads import Threads
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
        self._threads = Threads(processes, "compile")

    def start(self) -> None:
        """Start the compilers in the background; errors show when they compile."""
        for _ in self._workers:
            self._threads.submit(self._start)

    def submit(self, configs: Sequence[Config]) -> list[Future[Compiled]]:
        """Queue configs; the futures are in their order."""
        return [self._threads.submit(self._compile, config) for config in configs]

    def close(self) -> None:
        """Drop what is queued, return idle compilers to the pool, and end the others."""
        self.closed = True
        self._threads.end()
        idle = self._all_idle()
        for worker in self._workers:
            worker.retire() if worker in idle else worker.close()
        for worker in idle:
            self._idle.put(worker)  # a thread may wait for it
        self._threads.join()
        for worker in self._workers:
            worker.close()  # those that were just starting

    def _all_idle(self) -> list[Worker]:
        idle: list[Worker] = []
        with suppress(queue.Empty):
            while True:
                idle.append(self._idle.get_nowait())
        return idle

    def _start(self) -> None:
        """Start the compiler that was idle longest; like any request, this needs exclusive use of it."""
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
        """Borrow an idle compiler for exclusive use.

        Raises:
            CancelledError: the pool is closed.
        """
        worker = self._idle.get()
        try:
            if self.closed:
                raise CancelledError
            yield worker
        finally:
            self._idle.put(worker)


class InFlight:
    """Configs that are being compiled, or are compiled and wait for their trial.

    Args:
        ahead: the compilers.
        rank: compiled configs are taken by ascending rank; None: in the order of their submission, however
            long one takes to compile.
        together: none is taken while any compiles, because compilers would disturb the measurement.

    Attributes:
        dropped: those that there was no time to compile.
    """

    def __init__(
        self, ahead: CompileAhead, rank: Callable[[Config], float] | None, together: bool
    ) -> None:
        self._ahead, self._rank, self._together = ahead, rank, together
        self._configs: dict[Future[Compiled], Config] = {}
        self.dropped: list[Config] = []

    def __len__(self) -> int:
        return len(self._configs)

    @property
    def compiling(self) -> int:
        """How many have not compiled yet."""
        return sum(not future.done() for future in self._configs)

    @property
    def first_compiled(self) -> bool:
        """Whether the config that is next in order has compiled."""
        return any(future.done() for future in self._in_order()[:1])

    def submit(self, configs: Sequence[Config]) -> None:
        """Start compiling some more."""
        if configs:
            self._configs |= zip(self._ahead.submit(configs), configs, strict=True)

    def wait(self, seconds: float | None) -> None:
        """Wait until one can be taken (if ``together``, until one more has compiled).

        Args:
            seconds: the most to wait; None: without a limit.
        """
        awaited = list(self._configs) if self._together else self._next()
        compiling = [future for future in awaited if not future.done()]
        if self._together or len(compiling) == len(awaited):
            wait(compiling, seconds, FIRST_COMPLETED)

    def take(self) -> tuple[Config, Compiled] | None:
        """Return a compiled config; None if there is none. Cancelled ones are dropped."""
        for future in [future for future in self._next() if future.done()]:
            config = self._configs.pop(future)
            try:
                return config, future.result()
            except CancelledError:
                self.dropped.append(config)
        return None

    def _next(self) -> list[Future[Compiled]]:
        """The configs of which the first compiled one may be taken."""
        if self._together and self.compiling:
            return []
        return self._in_order() if self._rank else self._in_order()[:1]

    def _in_order(self) -> list[Future[Compiled]]:
        """All configs, in the order in which they should be taken."""
        if rank := self._rank:
            return sorted(self._configs, key=lambda future: rank(self._configs[future]))
        return list(self._configs)
