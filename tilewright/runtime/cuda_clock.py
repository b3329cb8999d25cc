"""How long runs take on a GPU: between two events behind a flush of its caches, and in a recorded graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tilewright.runtime.base import Run, Runtime
from tilewright.runtime.cuda_facts import check
from tilewright.runtime.flusher import Flusher

LaunchingOn = Callable[[int], AbstractContextManager[None]]

LEAST_FLUSH_BYTES = 64 << 20
READS = 3  # with the code 0.3 ms on an H100: longer than the host takes to enqueue a contestant (cuDNN: 0.13)
TRIES = 3  # at timing a run in time: beside compilers that keep all cores busy a host is late in one of 20
GRAPH_LAUNCHES = 5  # of a graph, whose median counts


class CudaClock:
    """Times runs for a CUDA runtime, which calls it with the GPU's context current."""

    def __init__(self, runtime: Runtime, launching_on: LaunchingOn, driver: Any, side: Any) -> None:
        """Make the events.

        Args:
            runtime: whose runs are timed.
            launching_on: has the runtime launch on another stream meanwhile.
            driver: the driver's bindings.
            side: a stream of its own, to record graphs on.
        """
        self._runtime, self._launching_on, self._driver, self._side = runtime, launching_on, driver, side
        self._events = [check(driver.cuEventCreate(0)) for _ in range(2)]
        nbytes = max(4 * runtime.device.l2_bytes, LEAST_FLUSH_BYTES)
        self._flusher = Flusher(runtime, nbytes, READS, code=True)

    def timed(self, run: Run, flush: bool) -> float:
        """Return the time between events around one run, in us, after a flush of data and code.

        Where the flush was over before all was enqueued, the device may have waited for the host: then once
        more; of a host that is late every time the last counts.
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
        """Return the time of a run in us, in a graph of ``count`` runs; where none can be made, in a row."""
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
        """Record runs into an executable graph; None if nothing came of it."""
        driver, runtime = self._driver, self._runtime
        run()  # what is made at the first run must not be recorded
        runtime.synchronize()
        side = int(self._side.handle)
        check(driver.cuStreamBeginCapture(side, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        failed = False
        try:
            with self._launching_on(side):
                _repeat(run, count)
        except Exception:  # whatever a peer does that cannot be recorded: it is timed in a row instead
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
