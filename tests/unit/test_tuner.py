"""The tuner's loop, with a fake worker and a family that is a row of numbers."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from tuning_fakes import GOOD, PROBLEM, FakeAhead, FakeWorker, MemoryStore, Row, RowStrategy, row, time_us

from tilewright import errors, kernels
from tilewright.device import Device, DeviceType, for_architecture
from tilewright.errors import ConfigError, DeviceError, ProblemError, StoreError
from tilewright.kernels.family import Config, Family, Rule
from tilewright.measuring.rounds import Limits
from tilewright.problem import Problem
from tilewright.record import Measurement, Record, Standing
from tilewright.search.proposals import Proposals
from tilewright.tuning import search_loop, tuner
from tilewright.tuning.budget import Budget
from tilewright.tuning.events import Comparing, Event, Progress, Started, Tried, TuneResult
from tilewright.tuning.finals import choose
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.protocol import Compiled, Final
from tilewright.tuning.supply import Supply
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


def test_only_the_winner_is_called_final() -> None:
    store = MemoryStore()
    result = go(store=store)
    stages = [r.standing for r in store.kept]
    assert stages.count("final") == 1
    assert stages.count("finalist") == len(result.finalists) - 1 > 0
    assert stages.count("trial") == 100


@pytest.mark.parametrize(("runs", "us"), [(5, 40.0), (6, 77.0)])
def test_a_comparison_cut_short_takes_no_known_figure_away(
    runs: int, us: float, worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def final(self: FakeWorker, configs: list[Config], limits: object) -> list[Final]:
        return [Final(str(config), Measurement(77.0, 77.0, runs), GOOD) for config in configs]

    monkeypatch.setattr(worker, "final", final)
    best = go().best
    assert best and best.measurement and best.cold_us == pytest.approx(us, abs=2.0)


@pytest.mark.parametrize(("budget", "patience_s"), [("600s", 3.0), ("1s", 0.4)])
def test_finalists_that_are_noisy_have_the_seconds_that_are_left(
    budget: str, patience_s: float, worker: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three at most, and no more than the search had: of 1 s, 0.1 are for the end, and a trial took 0.5."""
    given: list[float] = []

    def final(self: FakeWorker, configs: list[Config], limits: Limits) -> list[Final]:
        given.append(limits.patience_s)
        return FakeWorker.final(self, configs, limits)

    monkeypatch.setattr(worker, "final", final)
    takes(worker, monkeypatch, run=0.5)
    assert go(budget).best and given == [pytest.approx(patience_s)]


def test_a_winner_that_fails_the_full_check_is_no_winner(worker: type[FakeWorker]) -> None:
    worker.fail_full = {60, 59}
    result = go()
    assert result.best and result.best.config in (str(row(58)), str(row(61)))  # both take 42 us
    failed = [r for r in result.finalists if r.outcome == "correctness"]
    assert {r.config for r in failed} == {str(row(i)) for i in (59, 60)}
    assert failed[0].reason == "wrong in full"


def test_if_all_finalists_fail_the_next_are_compared(worker: type[FakeWorker]) -> None:
    worker.fail_full = set(range(55, 65))
    result = go()
    assert result.best and result.best.config == str(row(54))


def test_finalists_one_by_one_when_the_comparison_dies(worker: type[FakeWorker]) -> None:
    worker.final_dies = True
    worker.fail_full = {60}
    result = go()
    assert result.best and result.best.config in (str(row(59)), str(row(61)))


def test_nothing_right_gives_no_winner(worker: type[FakeWorker]) -> None:
    worker.outcomes = dict.fromkeys(range(100), "runtime")
    result = go()
    assert result.best is None
    assert result.finalists == ()
    assert len(result.records) == 100


def test_deterministic_only(worker: type[FakeWorker]) -> None:
    result = go(deterministic=True)
    assert all(i % 7 for i in worker.runs)
    assert result.best and result.best.deterministic


def test_a_time_that_may_not_win_is_not_the_one_to_beat(worker: type[FakeWorker]) -> None:
    """A store may know a fast config that is not deterministic: with that alone nothing is found yet."""
    store = MemoryStore()
    go(store=store)
    store.kept = [r for r in store.kept if not r.deterministic]
    events: list[Event] = []
    go("3trials", store=store, deterministic=True, progress=events.append)
    tried = [e for e in events if isinstance(e, Tried)]
    assert len(store.kept) > 3 == len(tried)
    assert [e.best_us for e in tried] == [min(e.record.cold_us for e in tried[: n + 1]) for n in range(3)]


def test_deterministic_finalists_from_a_mixed_store() -> None:
    store = MemoryStore()
    go(store=store)
    finalists = go("1trials", store=store, deterministic=True).finalists
    assert finalists and all(r.deterministic for r in finalists)


def test_finalists_are_few_and_near_the_best() -> None:
    store = MemoryStore()
    go(store=store)
    chosen = choose([r for r in store.kept if r.standing is Standing.TRIAL])
    assert [r.config for r in chosen][0] == str(row(60))
    assert 1 < len(chosen) <= 5
    assert all(r.measurement and r.measurement.cold_us <= 1.15 * time_us(60) for r in chosen)


def test_earlier_winners_take_part_and_their_old_times_rule_out_nobody() -> None:
    """One was timed on a quiet machine: it is measured beside those that are fastest now."""
    store = MemoryStore()
    go("20trials", store=store)
    lucky = next(r for r in store.kept if r.config == str(row(1)))
    timed = replace(lucky, measurement=Measurement(5.0, 0.1, 50, 5.0), standing=Standing.WINNER)
    store.kept.append(timed)
    result = go("15trials", store=store)
    assert {str(row(1)), str(row(19)), str(row(34))} <= {r.config for r in result.finalists}
    assert len(result.finalists) == 5
    assert result.best and result.best.config == str(row(34))


def test_what_is_fastest_now_leaves_a_place_to_the_fastest_of_before() -> None:
    """It may never have won: its search was interrupted."""
    store = MemoryStore()
    go("20trials", store=store)
    times = enumerate((50.0, 100.0, 101.0, 102.0, 103.0, 104.0, 105.0))
    some = [replace(store.kept[i], measurement=Measurement(us, 0.1, 50, us)) for i, us in times]
    chosen = choose(some, tried={r.config for r in some[1:]})
    assert [r.config for r in chosen] == [r.config for r in some[:5]]


def test_the_fastest_of_before_take_turns_with_those_of_a_short_search() -> None:
    """Its few trials may all be poor, and the fastest of before was lucky."""
    store = MemoryStore()
    go("20trials", store=store)
    times = enumerate((100.0, 101.0, 102.0, 103.0, 50.0, 51.0, 52.0, 53.0))
    some = [replace(store.kept[i], measurement=Measurement(us, 0.1, 50, us)) for i, us in times]
    chosen = choose(some, tried={r.config for r in some[:4]})
    assert [r.cold_us for r in chosen] == [50.0, 100.0, 101.0, 51.0, 102.0]


def test_what_is_over_15_percent_slower_is_no_finalist() -> None:
    store = MemoryStore()
    go("20trials", store=store)
    times = enumerate((100.0, 114.9, 115.1))
    some = [replace(store.kept[i], measurement=Measurement(us, 0.1, 50, us)) for i, us in times]
    assert choose(some, tried={r.config for r in some}) == some[:2]


def test_the_best_of_two_other_families_are_finalists_unless_far_behind() -> None:
    """A machine's speed drifts between the trials of one family and those of another."""
    store = MemoryStore()
    go("20trials", store=store)
    measured = ((100.0, "a"), (150.0, "b"), (139.0, "c"), (140.1, "d"), (130.0, "e"), (101.0, "a"),
                (120.0, "f"), (125.0, "f"), *((102.0 + i, "a") for i in range(4)))  # fmt: skip
    some = [replace(store.kept[i], measurement=Measurement(us, 0.1, 50, us), family=family)
            for i, (us, family) in enumerate(measured)]  # fmt: skip
    chosen = choose(some, tried={r.config for r in some})
    assert [(r.cold_us, r.family) for r in chosen[:5]] == [
        (100.0, "a"), (101.0, "a"), (102.0, "a"), (103.0, "a"), (104.0, "a")]  # fmt: skip
    assert [(r.cold_us, r.family) for r in chosen[5:]] == [(120.0, "f"), (130.0, "e")]
    far = [r for r in some if r.family in "abd"]
    assert {r.family for r in choose(far, tried={r.config for r in far})} == {"a"}


def test_of_many_earlier_winners_two_take_part() -> None:
    store = MemoryStore()
    go("20trials", store=store)
    now, *before = (replace(store.kept[i], measurement=Measurement(us, 0.1, 50, us))
                    for i, us in enumerate((50.0, 60.0, 90.0, 91.0, 92.0)))  # fmt: skip
    winners = [replace(r, standing=Standing.WINNER) for r in before[1:]]
    chosen = choose([*winners, before[0], now], tried={now.config})
    assert [r.config for r in chosen] == [r.config for r in (*winners[:2], before[0], now)]


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
