"""A tune with a fake worker, for the tests of the tuner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tuning_fakes import PROBLEM, FakeAhead, FakeWorker, MemoryStore, Row, RowStrategy

from tilewright import kernels
from tilewright.tuning import tuner
from tilewright.tuning.budget import Budget
from tilewright.tuning.events import Progress, TuneResult
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.tuner import tune


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeWorker]]:
    kind = type("Worker", (FakeWorker,), {"runs": [], "outcomes": {}, "fail_full": set(), "open_workers": 0})
    monkeypatch.setattr(tuner, "Worker", kind)
    monkeypatch.setattr(tuner, "CompileAhead", FakeAhead)
    monkeypatch.setattr(kernels, "FAMILIES", (Row(),))
    monkeypatch.setattr(RowStrategy, "made", [])
    monkeypatch.setattr(RowStrategy, "gains", [])
    yield kind
    assert kind.open_workers == 0


def go(
    budget: str = "all",
    strategy: str = "all",
    store: MemoryStore | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> TuneResult:
    wanted = TuneOptions(Budget.parse(budget), strategy, **settings)
    return tune(PROBLEM, "cuda", wanted, store=store, progress=progress, make=RowStrategy)


def takes(worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Let the clock go on with what a worker does alone, by so many seconds a call."""
    clock = [0.0]
    monkeypatch.setattr(tuner.time, "monotonic", lambda: clock[0])

    def slow(method: Any, seconds: float) -> Any:
        def wrapped(self: FakeWorker, *args: Any, **options: Any) -> Any:
            clock[0] += seconds
            return method(self, *args, **options)

        return wrapped

    for name, each in seconds.items():
        monkeypatch.setattr(worker, name, slow(getattr(FakeWorker, name), each))
