"""Timing of runs on a GPU: between two events after a flush of its caches, and in a recorded graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tilewright.runtime.base import Run, Runtime
from tilewright.runtime.cuda_facts import check
from tilewright.runtime.flusher import Flusher

LaunchingOn = Callable[[int], AbstractContextManager[None]]

LEAST_FLUSH_BYTES = 64 << 20
READS = 3  # with the code 0.3 ms on an H100: longer than a host takes to enqueue a rival's run (cuDNN: 0.13)
TRIES = 3  # to enqueue a run in time: if compilers keep all cores busy, a host is late in one of 20
GRAPH_LAUNCHES = 5  # of a graph, of which the median is taken


class CudaClock:
    """Times runs for a CUDA runtime, which calls it with the GPU's context current."""

    def __init__(self, runtime: Runtime, launching_on: LaunchingOn, driver: Any, side: Any) -> None:
        """Make the events.

        Args:
            runtime: whose runs are timed.
            launching_on: makes the runtime launch on another stream within a ``with``.
            driver: the driver's bindings.
            side: a separate stream, for recording graphs.
        """
        self._runtime, self._launching_on, self._driver, self._side = runtime, launching_on, driver, side
        self._events = [check(driver.cuEventCreate(0)) for _ in range(2)]
        nbytes = max(4 * runtime.device.l2_bytes, LEAST_FLUSH_BYTES)
        self._flusher = Flusher(runtime, nbytes, READS, code=True)

    def timed(self, run: Run, flush: bool) -> float:
        """Return the time between events around one run, in us, after a flush of data and code.

        If the flush ended before all was enqueued, the device may have waited for the host: then the run is
        timed again. If the host is late every time, the last time counts.
        """
        driver, stream, (start, end) = self._driver, self._runtime.stream, self._events
        for tries in reversed(range(TRIES)):
            if flush:
                self._flusher.enqueue()
            check(driver.cuEventRecord(start, stream))
            run()
            check(driver.cuEventRecord(end, stream))
            in_time = driver.cuEventQuery(start)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
            check(driver.cuEventSynchronize(end))
            if in_time or not flush or not tries:
                break
        return float(check(driver.cuEventElapsedTime(start, end))) * 1e3

    def warm(self, run: Run, count: int) -> float:
        """Return the time per run in us, in a graph of ``count`` runs, or in a loop if none can be made."""
        graph = self._record(run, count)
        if graph is None:
            run()
            return self.timed(lambda: _repeat(run, count), flush=False) / count
        driver = self._driver

        def launch() -> None:
            check(driver.cuGraphLaunch(graph, self._runtime.stream))

        try:
            for _ in range(2):
                launch()
            times = [self.timed(launch, flush=False) for _ in range(GRAPH_LAUNCHES)]
            return sorted(times)[GRAPH_LAUNCHES // 2] / count
        finally:
            check(driver.cuGraphExecDestroy(graph))

    def _record(self, run: Run, count: int) -> Any:
        """Record runs into an executable graph; None if that fails."""
        driver, runtime = self._driver, self._runtime
        run()  # one-time setup of a first run must not be recorded
        runtime.synchronize()
        side = int(self._side.handle)
        check(driver.cuStreamBeginCapture(side, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        failed = False
        try:
            with self._launching_on(side):
                _repeat(run, count)
        except Exception:  # a rival's run that cannot be recorded is timed in a loop instead
            failed = True
        finally:
            status, graph = driver.cuStreamEndCapture(side)
        runtime.synchronize()
        if int(status):
            return None
        try:
            complete = not failed and int(check(driver.cuGraphGetNodes(graph))[-1]) >= count
            return check(driver.cuGraphInstantiate(graph, 0)) if complete else None
        finally:
            check(driver.cuGraphDestroy(graph))


def _repeat(run: Run, count: int) -> None:
    for _ in range(count):
        run()
