"""The tuner's loop, with a fake worker and a family that is a row of numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tuner_samples import go, takes, worker
from tuning_fakes import PROBLEM, FakeWorker, MemoryStore, Row, RowStrategy, row

from tilewright import kernels
from tilewright.device import Device, for_architecture
from tilewright.errors import ConfigError, DeviceError, ProblemError
from tilewright.kernels.family import Config, Rule
from tilewright.problem import Problem
from tilewright.record import Record
from tilewright.tuning import tuner
from tilewright.tuning.budget import Budget
from tilewright.tuning.events import Comparing, Event, Started, Tried
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.tuner import tune

__all__ = ["worker"]  # a fixture


def test_all_finds_the_best() -> None:
    result = go()
    assert result.best and result.best.config == str(row(60))
    assert len(result.records) == 100
    assert result.best.check and result.best.check.ok
    assert result.best.measurement and result.best.measurement.runs == 50  # the re-measured figure
    assert result.finalists[0] == result.best
    assert result.seconds < 30


def test_a_result_is_shown_in_a_line(worker: type[FakeWorker]) -> None:
    assert repr(go("5trials")).startswith(f"<tuned {PROBLEM}: row:i=4, 96.5 us; 5 tried in ")
    worker.outcomes = {i: "runtime" for i in range(100)}
    assert repr(go()).startswith(f"<no winner: {PROBLEM}: no config was right")


def test_trials_are_counted_exactly(worker: type[FakeWorker]) -> None:
    result = go("50trials")
    assert len(result.records) == 50
    assert worker.runs == [i for i in range(50) if i != 13]
    assert [r.config for r in result.records if r.outcome == "compile"] == [str(row(13))]


def test_seconds_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10_000))
    monkeypatch.setattr(tuner.time, "monotonic", lambda: next(ticks) * 0.1)
    result = go("20s")
    assert 0 < len(result.records) < 100
    assert result.best


def test_a_search_that_promises_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = [0.2, 0.0, 0.0, 0.01, *[0.0] * 30]
    monkeypatch.setattr(RowStrategy, "gains", list(nothing))
    stopped = go("600s")
    assert "faster" in stopped.stopped and 0 < len(stopped.records) < 100
    ends = (("all", "all configs tried", 100), ("40trials", "all trials done", 40))
    for budget, why, trials in (*ends, ("900trials", "all configs tried", 100)):
        monkeypatch.setattr(RowStrategy, "gains", list(nothing))
        result = go(budget)
        assert result.stopped == why and len(result.records) == trials


def test_a_winner_says_what_ended_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    assert go("40trials", store=store).winner.search.cut is not None
    result = go("5trials", store=store)
    cut = (pytest.approx(result.searched_s, abs=0.1), 45)
    assert result.winner.search.cut == cut, "with those of the first"
    assert "the budget ended the search" in repr(result)
    untried = replace(result, untried=("gemm", "winograd"))
    assert "the budget ended before gemm, winograd had a turn: the next call goes on" in repr(untried)
    assert go("100trials", store=store).winner.search.cut is None, "all were tried"
    ticks = iter(range(10_000))
    monkeypatch.setattr(tuner.time, "monotonic", lambda: next(ticks) * 0.1)
    result = go("20s")
    assert result.winner.search.cut == (20.0, len(result.records))
    monkeypatch.setattr(RowStrategy, "gains", [0.2, *[0.0] * 30])
    assert go("600s").winner.search.cut is None and "ended" not in repr(go())


@pytest.mark.parametrize(("trials", "cut_s"), [(5, pytest.approx(0.0, abs=2.0)), (10**6, 20.0)])
def test_of_two_limits_what_was_spent_is_told(
    trials: int, cut_s: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that its trials ended had fewer seconds than it was given."""
    if trials > 100:
        ticks = iter(range(10_000))
        monkeypatch.setattr(tuner.time, "monotonic", lambda: next(ticks) * 0.1)
    budget = Budget(20.0, trials)
    result = tune(PROBLEM, "cuda", TuneOptions(budget, "all"), make=RowStrategy)
    cut = result.winner.search.cut
    assert cut == (cut_s, len(result.records)) and budget.within(cut)
    assert len(result.records) == trials or Budget(20.0).within(cut)


def test_the_budget_counts_the_full_check(monkeypatch: pytest.MonkeyPatch, worker: type[FakeWorker]) -> None:
    """References that take long leave less of it to the search: the full check makes two more."""
    takes(worker, monkeypatch, prepare=3.0, run=0.5, final=2.0 + 3.0)
    result = go("20s")
    assert result.best and 18.0 < result.seconds <= 20.0
    assert result.stopped == "the time was used up"


def test_the_same_seed_tries_the_same(worker: type[FakeWorker]) -> None:
    first = [r.config for r in go("20trials", "random", seed=3).records]
    assert [r.config for r in go("20trials", "random", seed=3).records] == first
    assert [r.config for r in go("20trials", "random", seed=4).records] != first


def test_deterministic_only(worker: type[FakeWorker]) -> None:
    result = go(deterministic=True)
    assert all(i % 7 for i in worker.runs)
    assert result.best and result.best.deterministic


def test_events() -> None:
    events: list[Event] = []
    result = go("20trials", progress=events.append)
    assert isinstance(events[0], Started)
    assert (events[0].problem, events[0].budget, events[0].resumed) == (PROBLEM, Budget(trials=20), 0)
    tried = [e for e in events if isinstance(e, Tried)]
    assert [e.trials for e in tried] == list(range(1, 21))
    assert tried[-1].share == 1.0
    assert tried[0].best_us == 100.0
    assert isinstance(events[-2], Comparing)
    assert events[-1] == result


def test_bad_requests() -> None:
    with pytest.raises(ProblemError, match="0 images"):
        tune(Problem.parse("n0c2h4w4k3r1s1-f32"), "cuda", TuneOptions())
    with pytest.raises(DeviceError):
        tune(PROBLEM, "gpu7", TuneOptions())


def test_numpy_cannot_be_tuned(worker: type[FakeWorker]) -> None:
    worker.device = replace(for_architecture("sm_90"), backend="numpy")
    with pytest.raises(DeviceError, match="nothing to tune"):
        go()


def test_no_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Row, "refuses", lambda self, problem, device: "too odd")
    with pytest.raises(ProblemError, match="row: too odd"):
        go()


def test_a_family_without_a_legal_config_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(Row):
        name = "empty"

        def rules(self, device: Device) -> tuple[Rule, ...]:
            return (Rule("never", lambda i: i < 0, "nothing is right"),)

    monkeypatch.setattr(kernels, "FAMILIES", (Empty(), Row()))
    assert go("5trials").best
    monkeypatch.setattr(kernels, "FAMILIES", (Empty(),))
    with pytest.raises(ProblemError, match="no kernel family takes it.*empty: no config of empty is legal"):
        go()


def test_only_the_named_families_are_searched(
    monkeypatch: pytest.MonkeyPatch, worker: type[FakeWorker]
) -> None:
    class Other(Row):
        name = "other"

        def refuses(self, problem: Problem, device: Device) -> str | None:
            return "too odd"

    monkeypatch.setattr(kernels, "FAMILIES", (Row(), Other()))
    store = MemoryStore()
    assert go("5trials", families=("row",), store=store).best
    assert {r.search.raced for r in store.kept} == {("row",)}
    with pytest.raises(ProblemError, match="other: too odd"):
        go(families=("other",))
    with pytest.raises(ConfigError, match="family 'rwo': known are row, other"):
        go(families=("rwo",))


def test_a_family_that_the_budget_left_untried_has_not_raced(
    monkeypatch: pytest.MonkeyPatch, worker: type[FakeWorker]
) -> None:
    """But for one that is so slow that the others come first; and the next search begins with it."""
    promises = {"row": 10.0, "column": 20.0, "spiral": 30.0, "snail": 1e6}

    class Promising(RowStrategy):
        def __init__(self, name: str, family: Row, problem: Problem, device: Device, seed: int = 0) -> None:
            super().__init__(name, family, problem, device, seed)
            self.family = family.name

        def propose(self, count: int) -> list[Config]:
            return [Config(self.family, config.items) for config in super().propose(count)]

        def promise_us(self, known_us: float = math.inf) -> float:
            return promises[self.family]

    class Worker(worker):  # type: ignore[valid-type, misc]
        def run(self, config: Config, best_us: float = 0.0, full: bool = False) -> Record:
            record: Record = super().run(config, best_us, full)
            return replace(record, family=config.family)

    monkeypatch.setattr(tuner, "Worker", Worker)
    kinds = [type(name.title(), (Row,), {"name": name}) for name in promises]
    monkeypatch.setattr(kernels, "FAMILIES", tuple(kind() for kind in kinds))
    store = MemoryStore()

    def search(budget: str, *families: str) -> tuple[list[str], Any]:
        wanted = TuneOptions(Budget.parse(budget), families=families)
        result = tune(PROBLEM, "cuda", wanted, store=store, make=Promising)
        return [record.family for record in result.records], result.winner.search.raced

    assert search("2trials", "column") == (["column"] * 2, ("column",))
    assert search("1trials") == (["row"], ("row", "column", "snail"))
    assert search("2trials") == (["spiral"] * 2, tuple(promises))
    assert search("all", "row", "snail")[1] == ("row", "snail")


def test_unknown_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="strategy 'magic'"):
        tune(PROBLEM, "cuda", TuneOptions(Budget(trials=5), "magic"))
