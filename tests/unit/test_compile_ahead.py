"""Compiling ahead: every compiler starts early, and serves one thread at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from tilewright.kernels.family import Config
from tilewright.record import Outcome
from tilewright.tuning import compile_ahead
from tilewright.tuning.compile_ahead import CompileAhead, InFlight
from tilewright.tuning.protocol import Compiled, Job
from tilewright.tuning.worker_pool import WorkerPool


class SlowToStart:
    """Stands for a Worker; the first one starts slowly. Notes who was asked while it was busy."""

    made: list[SlowToStart] = []
    disturbed: list[int] = []

    def __init__(self, job: Job, children: WorkerPool | None = None) -> None:
        self.number, self.started, self.lock = len(self.made), False, threading.Lock()
        self.made.append(self)

    @property
    def device(self) -> None:
        with self._alone():
            time.sleep(0.0 if self.number else 0.2)
            self.started = True

    def compile(self, config: Config) -> Compiled:
        with self._alone():
            return Compiled(None, "")

    def retire(self) -> None:
        """Nothing to end."""

    close = retire

    def _alone(self) -> Any:
        if self.lock.locked():
            self.disturbed.append(self.number)
        return self.lock


def test_nobody_is_asked_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlowToStart, "made", [])
    monkeypatch.setattr(SlowToStart, "disturbed", [])
    monkeypatch.setattr(compile_ahead, "Worker", SlowToStart)
    pool = CompileAhead(Job("n1c2h4w4k3r1s1-f32", "opencl"), 3)
    pool.start()
    futures = pool.submit([Config.parse("reference:v=1")] * 12)
    for future in futures:
        assert future.result(10).outcome is None
    pool.close()
    assert SlowToStart.disturbed == []
    assert all(worker.started for worker in SlowToStart.made)


def test_nothing_is_waited_for_where_one_has_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As references that take longer than it leave it; of those that are taken together the others are."""

    class FirstNeverEnds(SlowToStart):
        over = threading.Event()

        def compile(self, config: Config) -> Compiled:
            if config["v"] == 1:
                self.over.wait(30)
            return Compiled(None, "")

    monkeypatch.setattr(SlowToStart, "made", [])
    monkeypatch.setattr(compile_ahead, "Worker", FirstNeverEnds)
    pool = CompileAhead(Job("n1c2h4w4k3r1s1-f32", "opencl"), 2)
    configs = [Config.parse(f"reference:v={v}") for v in (1, 2)]
    try:
        for together, waits in ((False, False), (True, True)):
            flying = InFlight(pool, lambda config: 0.0, together)
            flying.submit(configs)
            deadline = time.monotonic() + 10
            while flying.compiling > 1 and time.monotonic() < deadline:
                time.sleep(0.01)
            start = time.monotonic()
            flying.wait(0.5)
            assert (time.monotonic() - start > 0.4) == waits
            if not together:
                assert flying.take() == (configs[1], Compiled(None, ""))
                FirstNeverEnds.over.set()
                flying.wait(10)
                assert flying.take() == (configs[0], Compiled(None, ""))
                FirstNeverEnds.over.clear()
    finally:
        FirstNeverEnds.over.set()
        pool.close()


def test_what_is_killed_at_the_end_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it waited for: a compiler may need a minute."""

    class Killed(SlowToStart):
        def compile(self, config: Config) -> Compiled:
            self.busy.set()
            return Compiled(Outcome.COMPILE, "SIGKILL" if self.over.wait(5) else "it was not killed")

        def __init__(self, job: Job, children: WorkerPool | None = None) -> None:
            super().__init__(job, children)
            self.busy, self.over = threading.Event(), threading.Event()

        def close(self) -> None:
            self.over.set()

    monkeypatch.setattr(SlowToStart, "made", made := list[Any]())
    monkeypatch.setattr(compile_ahead, "Worker", Killed)
    pool = CompileAhead(Job("n1c2h4w4k3r1s1-f32", "opencl"), 1)
    futures = pool.submit([Config.parse("reference:v=1")] * 2)
    assert made[0].busy.wait(10)
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 4
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(0)


def far_from_3(config: Config) -> float:
    return abs(config["v"] - 3)


@pytest.mark.parametrize(("first", "taken"), ((far_from_3, [3, 2, 4, 1]), (None, [1, 2, 3, 4])))
def test_what_is_expected_to_be_fastest_is_taken_first(
    first: Callable[[Config], float] | None, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlowToStart, "made", [])
    monkeypatch.setattr(compile_ahead, "Worker", SlowToStart)
    pool = CompileAhead(Job("n1c2h4w4k3r1s1-f32", "opencl"), 2)
    try:
        flying = InFlight(pool, first, together=True)
        flying.submit([Config.parse(f"reference:v={v}") for v in (1, 2, 3, 4)])
        while flying.compiling:
            flying.wait(10)
        found = [flying.take() for _ in range(4)]
        assert [one[0]["v"] for one in found if one] == taken and flying.take() is None
    finally:
        pool.close()
