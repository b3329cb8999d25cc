"""What a search tries first, and compiles ahead; what it waits for, and what ends it."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from tuner_samples import go, takes, worker
from tuning_fakes import PROBLEM, FakeAhead, FakeWorker, MemoryStore, Row, RowStrategy, row

from tilewright import kernels
from tilewright.device import DeviceType
from tilewright.kernels.family import Config, Family
from tilewright.record import Standing
from tilewright.search.proposals import Proposals
from tilewright.tuning import search_loop, tuner
from tilewright.tuning.budget import Budget
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.protocol import Compiled
from tilewright.tuning.supply import Supply
from tilewright.tuning.tuner import tune

__all__ = ["worker"]  # a fixture


def test_references_that_use_up_the_budget_are_not_in_vain(
    monkeypatch: pytest.MonkeyPatch, worker: type[FakeWorker]
) -> None:
    takes(worker, monkeypatch, prepare=60.0, run=0.5)
    result = go("5s")
    assert result.best and result.records
    assert result.ready_s == 60.0 <= result.searched_s <= result.seconds < 65.0


def test_a_cpu_whose_references_use_up_the_budget_tries_what_promises_most(
    monkeypatch: pytest.MonkeyPatch, worker: type[FakeWorker]
) -> None:
    """Though another has compiled before it; but not for long."""

    class FirstIsLate(FakeAhead):
        late = Future[Compiled]()

        def submit(self, configs: list[Config]) -> list[object]:
            return [self.late, *super().submit(configs)[1:]]

        def close(self) -> None:
            super().close()
            self.late.cancel()

    monkeypatch.setattr(tuner, "CompileAhead", FirstIsLate)
    monkeypatch.setattr(worker, "device", replace(FakeWorker.device, type=DeviceType.CPU))
    takes(worker, monkeypatch, prepare=60.0, run=0.5)
    threading.Timer(0.3, lambda: FirstIsLate.late.set_result(Compiled(None, "", 0.3))).start()
    assert Config.parse(go("1s").records[0].config)["i"] == 0
    FirstIsLate.late = Future()
    monkeypatch.setattr(search_loop, "_LATE_S", 0.0)
    assert Config.parse(go("1s").records[0].config)["i"] == 1


@pytest.mark.parametrize("outcome", ["compile", "correctness"])
def test_a_cpu_without_anything_right_tries_what_had_no_time_to_compile(
    outcome: str, monkeypatch: pytest.MonkeyPatch, worker: type[FakeWorker]
) -> None:
    """The trial compiles it, for as long as there is a search for anything right."""

    class OthersNeverEnd(FakeAhead):
        futures: list[Future[Compiled]] = []

        def submit(self, configs: list[Config]) -> list[object]:
            futures = [Future[Compiled]() for _ in configs]
            futures[0].set_result(Compiled("compile", "spilled") if outcome == "compile" else Compiled(None))
            self.futures += futures
            return list(futures)

        def close(self) -> None:
            super().close()
            for future in self.futures:
                future.cancel()

    monkeypatch.setattr(tuner, "CompileAhead", OthersNeverEnd)
    monkeypatch.setattr(worker, "device", replace(FakeWorker.device, type=DeviceType.CPU))
    monkeypatch.setattr(worker, "outcomes", {0: "correctness"})
    monkeypatch.setattr(tuner, "cores", lambda: 2)
    takes(worker, monkeypatch, prepare=60.0, run=0.5)
    result = go("1s")
    assert [str(record.outcome) for record in result.records] == [outcome, "correct"] and result.best


@pytest.mark.parametrize("type_", list(DeviceType))
def test_a_first_trial_is_waited_for_however_long_it_compiles(
    type_: DeviceType, monkeypatch: pytest.MonkeyPatch, worker: type[FakeWorker]
) -> None:
    """Also where an earlier search has found something right. A third of the budget is for the others."""
    clock, now = [0.0], time.monotonic
    monkeypatch.setattr(tuner.time, "monotonic", lambda: clock[0] + now())

    class SlowAhead(FakeAhead):
        futures: list[Future[Compiled]] = []

        def submit(self, configs: list[Config]) -> list[object]:
            """Compile the first in a minute, the others never."""
            futures = [Future[Compiled]() for _ in configs]

            def compiled() -> None:
                clock[0] += 60.0
                if futures[0].set_running_or_notify_cancel():
                    futures[0].set_result(Compiled(None, "", 60.0))

            if not self.futures:
                threading.Timer(0.05, compiled).start()
            self.futures = self.futures + futures
            return list(futures)

        def close(self) -> None:
            self.closed = True
            for future in self.futures:
                future.cancel()

    monkeypatch.setattr(tuner, "CompileAhead", SlowAhead)
    monkeypatch.setattr(worker, "device", replace(FakeWorker.device, type=type_))
    store = MemoryStore()
    for known in (0, 1):
        result = go("0.6s", store=store)
        assert (result.resumed, len(result.records), result.stopped) == (known, 1, "the time was used up")
        assert result.best and (type_ == DeviceType.CPU or 60.2 <= result.searched_s < 60.9)


def test_what_won_elsewhere_or_for_layers_alike_is_tried_first(worker: type[FakeWorker]) -> None:
    done = MemoryStore()
    go("30trials", store=done)
    won = replace(done.kept[5], standing=Standing.WINNER)
    elsewhere = [replace(won, config=text) for text in (str(row(60)), "gone:i=1", str(row(61)))]
    for store in (MemoryStore(elsewhere), MemoryStore(elsewhere[:2], elsewhere), MemoryStore([], elsewhere)):
        worker.runs.clear()
        go("10trials", store=store)
        assert worker.runs[:2] == [60, 61]
        assert len(set(worker.runs)) == len(worker.runs)


def test_of_what_won_elsewhere_a_dozen_is_tried(worker: type[FakeWorker]) -> None:
    """A store may have hundreds of configs that were tried with an older kernel."""
    (done,) = go("1trials").records
    worker.runs.clear()
    go("40trials", store=MemoryStore([replace(done, config=str(row(i))) for i in range(60, 90)]))
    assert len(set(worker.runs) & set(range(60, 90))) == 12


@pytest.fixture
def tried(worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many configs had run, each time that the strategy was asked."""
    counts, propose = list[int](), RowStrategy.propose

    def asked(self: RowStrategy, count: int) -> list[Config]:
        counts.append(len(worker.runs))
        return propose(self, count)

    monkeypatch.setattr(RowStrategy, "propose", asked)
    return counts


def test_what_won_elsewhere_is_tried_before_a_strategy_thinks(
    worker: type[FakeWorker], tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = MemoryStore()
    go("30trials", store=done)
    worker.runs.clear(), tried.clear()
    go("30trials", store=MemoryStore([replace(done.kept[5], config=str(row(i))) for i in (60, 61)]))
    assert worker.runs[:2] == [60, 61] and tried[0] == 2
    assert len(worker.runs) == 29 == len(set(worker.runs))  # one does not compile
    worker.runs.clear(), tried.clear()
    go("1trials", store=MemoryStore([replace(done.kept[5], config=str(row(i))) for i in (60, 61)]))
    assert worker.runs == [60] and not tried

    worker.runs.clear(), tried.clear()
    monkeypatch.setattr(RowStrategy, "gains", [])
    go("600s", store=MemoryStore([replace(done.kept[5], config=str(row(i))) for i in (60, 61)]))
    assert worker.runs[:2] == [60, 61] and tried[0] == 2


def test_with_a_budget_of_trials_strategies_look_before_any_trial(
    worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they are told changes what they see: another search, slower or faster, sees the same."""
    done, tried = MemoryStore(), []

    class Looks(RowStrategy):
        def promise_us(self, known_us: float = math.inf) -> float:
            time.sleep(0.05)  # meanwhile what won elsewhere has compiled
            tried.append(len(worker.runs))
            return 10.0

    monkeypatch.setattr(kernels, "FAMILIES", (Row(), type("Other", (Row,), {"name": "other"})()))
    go("30trials", store=done)
    worker.runs.clear()
    store = MemoryStore([replace(done.kept[5], config=str(row(i))) for i in (60, 61)])
    tune(PROBLEM, "cuda", TuneOptions(Budget.parse("30trials")), store=store, make=Looks)
    assert tried == [0, 0] and worker.runs[:2] == [60, 61]


@pytest.mark.parametrize(
    ("budget", "cores", "ahead"),
    (("600s", 16, [*range(8)]), ("600s", 64, [*range(8)]), ("600s", 4, [0, 1]), ("30trials", 16, [])),
)
def test_a_gpu_compiles_what_one_family_promises_while_others_are_looked_at(
    budget: str, cores: int, ahead: list[int], worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few where there are few compilers, which others will want; with a budget of trials the same is tried
    however long that takes."""
    seen: list[str] = []  # the families looked at, and the configs that were compiled

    class Other(Row):
        name = "other"

    class Noted(FakeAhead):
        def submit(self, configs: list[Config]) -> list[object]:
            seen.extend(str(config) for config in configs)
            return super().submit(configs)

    class Promises(RowStrategy):
        def __init__(self, name: str, family: Family, *how: Any) -> None:
            super().__init__(name, family, *how)
            self.name = family.name

        def promise_us(self, known_us: float = math.inf) -> float:
            seen.append(self.name)
            return 10.0 if self.name == "row" else 20.0

    monkeypatch.setattr(tuner, "cores", lambda: cores)
    monkeypatch.setattr(tuner, "CompileAhead", Noted)
    monkeypatch.setattr(kernels, "FAMILIES", (Other(), Row()))
    tune(PROBLEM, "cuda", TuneOptions(Budget.parse(budget)), make=Promises)
    assert seen[: len(ahead) + 2] == ["row", *(str(row(i)) for i in ahead), "other"]


class Fast(Row):
    name = "fast"


class FastPromises(RowStrategy):
    """The strategy of either family: one promises a fourth of the other's time."""

    def __init__(self, name: str, family: Family, *how: Any) -> None:
        super().__init__(name, family, *how)
        self.name = family.name

    def propose(self, count: int) -> list[Config]:
        return [Config(self.name, config.items) for config in super().propose(count)]

    def promise_us(self, known_us: float = math.inf) -> float:
        return 10.0 if self.name == "fast" else 40.0


def test_a_family_that_promises_much_has_a_right_trial_before_a_search_ends(
    worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first configs spill registers, and the time is used up by then."""

    class Spilling(FakeAhead):
        @staticmethod
        def _done(future: Future[Compiled], config: Config) -> Future[Compiled]:
            spills = config.family == "fast" and config["i"] < 12
            future.set_result(Compiled("compile", "spilled", 0.2) if spills else Compiled(None, "", 0.1))
            return future

    takes(worker, monkeypatch, run=0.12)
    monkeypatch.setattr(tuner, "cores", lambda: 16)
    monkeypatch.setattr(tuner, "CompileAhead", Spilling)
    for families, found in (((Fast(), Row()), True), ((Row(),), False)):
        monkeypatch.setattr(kernels, "FAMILIES", families)
        records = tune(PROBLEM, "cuda", TuneOptions(Budget.parse("1s")), make=FastPromises).records
        right = [record.family for record in records if record.measurement]
        assert ("fast" in right) == found and right.count("fast") <= 1


def test_a_cpu_goes_on_compiling_until_something_is_right(
    worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is used up, and of a batch one has compiled before the others."""

    class Staggered(FakeAhead):
        def submit(self, configs: list[Config]) -> list[object]:
            futures = super().submit(configs[:1])
            for config in configs[1:]:
                futures.append(Future())
                threading.Timer(0.05, self._done, (futures[-1], config)).start()
            return futures

    monkeypatch.setattr(tuner, "CompileAhead", Staggered)
    monkeypatch.setattr(tuner, "cores", lambda: 2)
    monkeypatch.setattr(worker, "device", replace(FakeWorker.device, type=DeviceType.CPU))
    worker.outcomes = {i: "correctness" for i in range(6)}
    takes(worker, monkeypatch, run=0.5)
    result = go("1s")
    assert result.best and result.best.config == str(row(6)) and len(result.records) >= 7


def test_what_an_earlier_search_measured_is_not_waited_for(
    worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A family that promises much, of which it had configs right, all of them slow, is no hope."""

    class Promises(FastPromises):
        def __init__(self, name: str, family: Family, *how: Any) -> None:
            super().__init__(name, family, *how)
            self._rest = iter(range(100) if self.name == "row" else range(6))

    monkeypatch.setattr(kernels, "FAMILIES", (Fast(), Row()))
    store, wanted = MemoryStore(), TuneOptions(Budget.parse("20trials"))
    first = tune(PROBLEM, "cuda", wanted, store=store, make=Promises)
    assert {record.family for record in first.records} == {"fast", "row"}
    takes(worker, monkeypatch, run=0.12)
    again = tune(PROBLEM, "cuda", TuneOptions(Budget.parse("1s")), store=store, make=Promises)
    assert again.resumed == 20 and again.records and again.searched_s < 1.0


class LateAhead(FakeAhead):
    """Compiles what has been submitted after a while: the first last, all of it at the same moment."""

    def submit(self, configs: list[Config]) -> list[object]:
        futures = [Future[Compiled]() for _ in configs]

        def compiled() -> None:
            for future, config in zip(reversed(futures), reversed(configs), strict=True):
                self._done(future, config)

        threading.Timer(0.3, compiled).start()
        return list(futures)


def test_a_gpu_has_more_compiled_while_what_won_elsewhere_compiles(
    worker: type[FakeWorker], tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = go("30trials").records[5]
    worker.runs.clear(), tried.clear()
    monkeypatch.setattr(tuner, "CompileAhead", LateAhead)
    go("60s", store=MemoryStore([replace(done, config=str(row(i))) for i in (60, 61)]))
    assert tried[0] == 0 and {60, 61} <= set(worker.runs[:8])


def test_a_gpu_tries_what_has_compiled_and_a_cpu_what_is_alone(
    worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one compiles for a minute, a GPU tries those that follow; a CPU waits, as trials in order do."""

    class FirstIsSlow(FakeAhead):
        late: Future[Compiled] | None = None

        def submit(self, configs: list[Config]) -> list[object]:
            futures: list[object] = super().submit(configs)
            if type(self).late is None:
                type(self).late = futures[0] = Future[Compiled]()
                threading.Timer(0.5, lambda: futures[0].set_result(Compiled(None, "", 60.0))).start()
            return futures

    monkeypatch.setattr(tuner, "CompileAhead", FirstIsSlow)
    go("600s")
    assert worker.runs[0] != 0 and 0 in worker.runs and len(worker.runs) == 99
    for type_, budget in ((DeviceType.CPU, "600s"), (DeviceType.GPU, "100trials")):
        worker.runs.clear()
        FirstIsSlow.late = None
        monkeypatch.setattr(worker, "device", replace(FakeWorker.device, type=type_))
        go(budget)
        assert worker.runs[:3] == [0, 1, 2] and len(worker.runs) == 99


def test_trials_are_proposed_after_as_many_others_however_long_any_compiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the same budget of trials proposes the same again, on a busy machine too."""

    class Late(FakeAhead):
        def submit(self, configs: list[Config]) -> list[object]:
            futures = [Future[Compiled]() for _ in configs]
            for i, (future, config) in enumerate(zip(futures, configs, strict=True)):
                threading.Timer(0.02 * (i % 2), self._done, (future, config)).start()
            return list(futures)

    propose, asked = RowStrategy.propose, list[tuple[int, int]]()

    def noted(self: RowStrategy, count: int) -> list[Config]:
        asked.append((len(self.told), count))
        return propose(self, count)

    monkeypatch.setattr(RowStrategy, "propose", noted)
    at_once = [r.config for r in go("60trials").records], list(asked)
    asked.clear()
    monkeypatch.setattr(tuner, "CompileAhead", Late)
    assert ([r.config for r in go("60trials").records], asked) == at_once


def test_what_promises_nothing_counts_once_a_trial(
    worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proposals of configs that compile for a while are made one upon the other: that is no reason to end."""
    monkeypatch.setattr(tuner, "cores", lambda: 16)
    monkeypatch.setattr(tuner, "CompileAhead", LateAhead)
    monkeypatch.setattr(RowStrategy, "gains", [0.0] * 50)
    result = go("600s")
    assert "faster" in result.stopped and len(result.records) >= 2


def test_the_third_proposal_on_end_that_promises_nothing_ends_a_search() -> None:
    """0.1% is not nothing."""
    RowStrategy.gains += [0.0009, 0.0, 0.001, 0.0009, 0.0, 0.0]
    proposals = Proposals({"row": RowStrategy("all", Row(), PROBLEM, FakeWorker.device)}, lambda config: True)
    more = Supply(Budget(600.0), proposals, size=8, gpu=False)
    ends = [bool(more.next(tried, 0)) and more.unpromising for tried in range(6)]
    assert ends == [False] * 5 + [True]
