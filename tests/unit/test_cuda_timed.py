"""Timing a run on a GPU whose host may be late, with a driver that only keeps account."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.device import for_architecture
from tilewright.runtime.cuda_clock import TRIES, CudaClock

START, END = 1, 2
NOT_READY = 600


class Driver:
    """Stands for the driver's bindings: each run takes the next of ``times_us``, late or not as said."""

    CUresult = SimpleNamespace(CUDA_ERROR_NOT_READY=NOT_READY)

    def __init__(self, runs: list[tuple[float, bool]]) -> None:
        self.runs, self.at, self.flushes, self.made = runs, -1, 0, 0

    def enqueue(self) -> None:
        self.flushes += 1

    def run(self) -> None:
        self.at += 1

    def cuEventCreate(self, flags: int) -> tuple[int, int]:  # noqa: N802
        self.made += 1
        return 0, self.made

    def cuEventRecord(self, event: int, stream: int) -> tuple[int]:  # noqa: N802
        return (0,)

    def cuEventQuery(self, event: int) -> tuple[int]:  # noqa: N802
        assert event == START
        return (0 if self.runs[self.at][1] else NOT_READY,)

    def cuEventSynchronize(self, event: int) -> tuple[int]:  # noqa: N802
        assert event == END
        return (0,)

    def cuEventElapsedTime(self, start: int, end: int) -> tuple[int, float]:  # noqa: N802
        return 0, self.runs[self.at][0] / 1e3


@pytest.mark.parametrize(
    "runs, wanted",
    [
        ([(5.0, False)], 5.0),
        ([(400.0, True), (5.0, False)], 5.0),
        ([(4.0, True), (5.0, False)], 5.0),  # what came in time counts
        ([(400.0, True), (7.0, True), (90.0, True)], 90.0),
    ],
)
def test_what_the_host_was_late_for_is_timed_again(runs: list[tuple[float, bool]], wanted: float) -> None:
    driver = Driver(runs)
    assert clock(driver).timed(driver.run, flush=True) == pytest.approx(wanted)
    assert driver.at + 1 == len(runs) <= TRIES and driver.flushes == len(runs)


def test_without_a_flush_nothing_is_to_be_enqueued_behind() -> None:
    driver = Driver([(5.0, True)])
    assert clock(driver).timed(driver.run, flush=False) == pytest.approx(5.0)
    assert (driver.at, driver.flushes) == (0, 0)


def clock(driver: Driver) -> Any:
    runtime: Any = SimpleNamespace(stream=0, device=for_architecture("sm_90"))
    made: Any = CudaClock(runtime, nullcontext, driver, None)
    made._flusher = driver
    return made
