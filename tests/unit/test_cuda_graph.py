"""Recording runs into a graph, with a driver that only counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.device import for_architecture
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.cuda_clock import CudaClock

GRAPH, EXECUTABLE = 0xA0, 0xB0


class Driver:
    """Stands for the driver's bindings: what is launched while it records becomes a node."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)

    def __init__(self, status: int = 0) -> None:
        self.status, self.nodes, self.recording, self.destroyed = status, 0, False, 0

    def cuEventCreate(self, flags: int) -> tuple[int, int]:  # noqa: N802
        return 0, 1

    def launch(self) -> None:
        self.nodes += self.recording

    def cuStreamBeginCapture(self, stream: int, mode: int) -> tuple[int]:  # noqa: N802
        self.recording = True
        return (0,)

    def cuStreamEndCapture(self, stream: int) -> tuple[int, int]:  # noqa: N802
        self.recording = False
        return self.status, 0 if self.status else GRAPH

    def cuCtxSynchronize(self) -> tuple[int]:  # noqa: N802
        return (0,)

    def cuGraphGetNodes(self, graph: int) -> tuple[int, list[int], int]:  # noqa: N802
        return 0, [], self.nodes

    def cuGraphInstantiate(self, graph: int, flags: int) -> tuple[int, int]:  # noqa: N802
        return 0, EXECUTABLE

    def cuGraphDestroy(self, graph: int) -> tuple[int]:  # noqa: N802
        assert graph == GRAPH
        self.destroyed += 1
        return (0,)


def record(driver: Driver, run: Any) -> Any:
    runtime: Any = object.__new__(CudaRuntime)
    runtime._driver, runtime._stream, runtime.device = driver, 0, for_architecture("sm_90")
    runtime.context = SimpleNamespace(enter=lambda: None)
    clock = CudaClock(runtime, runtime._launching_on, driver, SimpleNamespace(handle=7))
    found = clock._record(run, 3)
    assert runtime.stream == 0 and not driver.recording
    return found


def test_runs_become_a_graph() -> None:
    driver = Driver()
    assert record(driver, driver.launch) == EXECUTABLE and driver.destroyed == 1


@pytest.mark.parametrize("nodes", [0, 2])
def test_what_cannot_be_recorded_leaves_no_graph(nodes: int) -> None:
    """It runs well once, outside; then it fails after some launches, or launches elsewhere."""
    driver = Driver()

    def fails() -> None:
        if driver.recording and driver.nodes == nodes:
            raise ValueError
        driver.launch()

    assert record(driver, fails) is None and driver.destroyed == 1
    driver = Driver()
    assert record(driver, lambda: None) is None and driver.destroyed == 1


def test_a_recording_that_was_broken_off_has_nothing_to_free() -> None:
    driver = Driver(status=1)
    assert record(driver, driver.launch) is None and driver.destroyed == 0
