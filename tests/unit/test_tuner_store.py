"""What a search keeps of its outcomes, and how it goes on from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tuner_samples import go, worker
from tuning_fakes import FakeWorker, MemoryStore, RowStrategy, row

from tilewright import errors
from tilewright.errors import StoreError
from tilewright.record import Record

__all__ = ["worker"]  # a fixture


def test_every_outcome_is_stored_at_once_and_resumed(worker: type[FakeWorker]) -> None:
    store = MemoryStore()
    worker.interrupt_at = 30
    with pytest.raises(KeyboardInterrupt):
        go(store=store)
    assert len(store.kept) == 31  # with the one that did not compile
    worker.interrupt_at = -1
    result = go(store=store)
    assert result.resumed == 31
    assert len(result.records) == 69
    assert len(worker.runs) == len(set(worker.runs)) == 99
    assert [r.config for r in RowStrategy.made[-1].told[:31]] == [r.config for r in store.kept[:31]]
    assert result.best and result.best.config == str(row(60))


class FullStore(MemoryStore):
    """A store on a disk that is full for some writes."""

    def __init__(self, full: range) -> None:
        super().__init__()
        self.full, self.writes = full, 0

    def add(self, record: Record) -> None:
        self.writes += 1
        if self.writes - 1 in self.full:
            raise StoreError("store x: disk full")
        super().add(record)


@pytest.mark.filterwarnings("ignore:store x")
@pytest.mark.parametrize(("patience_s", "full"), ((0.0, range(20, 50)), (60.0, range(20, 21))))
def test_a_search_outlives_a_store_that_cannot_be_written_for_a_while(
    patience_s: float, full: range, worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.tuning.outcomes._PATIENCE_S", patience_s)
    store, sound = FullStore(full), MemoryStore()
    assert go(store=store).best == go(store=sound).best
    assert [r.config for r in store.kept] == [r.config for r in sound.kept]  # none lost, in their order
    assert patience_s == 0.0 or store.writes == len(sound.kept) + 1, "it tries again once a while"


def test_what_waits_to_be_stored_is_told_and_stored_when_a_search_is_interrupted(
    worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_warned", set())
    store, worker.interrupt_at = FullStore(range(20, 21)), 30
    said = pytest.warns(RuntimeWarning, match="^store x: disk full; the search goes on, and tries to write")
    with said as warnings, pytest.raises(KeyboardInterrupt):
        go(store=store)
    assert len(warnings) == 1
    assert len(store.kept) == 31  # with the one that did not compile


def test_a_store_that_cannot_be_written_at_all_ends_a_search_at_its_first_trial(
    worker: type[FakeWorker],
) -> None:
    with pytest.raises(StoreError, match="disk full"):
        go(store=FullStore(range(10_000)))
    assert len(worker.runs) <= 1


@pytest.mark.filterwarnings("ignore:store x")
def test_what_could_not_be_stored_to_the_end_is_an_error(worker: type[FakeWorker]) -> None:
    with pytest.raises(StoreError, match="disk full"):
        go(store=FullStore(range(20, 10_000)))
    assert len(worker.runs) > 90


def test_a_finished_search_is_only_compared_again(worker: type[FakeWorker]) -> None:
    store = MemoryStore()
    go(store=store)
    before = list(worker.runs)
    result = go(store=store)
    assert worker.runs == before
    assert (result.resumed, result.records) == (100, ())
    assert result.best and result.best.config == str(row(60))


def test_what_may_fare_better_is_tried_again(worker: type[FakeWorker]) -> None:
    store = MemoryStore()
    worker.outcomes = {2: "runtime", 3: "timeout", 4: "correctness"}
    go("10trials", store=store)
    worker.outcomes = {}
    result = go("4trials", store=store)
    assert (result.resumed, worker.runs[10:]) == (8, [2, 3, 10, 11])


def test_other_sources_are_not_resumed() -> None:
    store = MemoryStore()
    go("10trials", store=store)
    store.kept = [replace(r, source="older") for r in store.kept]
    assert go("10trials", store=store).resumed == 0
