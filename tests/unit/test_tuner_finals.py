"""The comparison at the end of a search: who takes part, and who wins it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tuner_samples import go, takes, worker
from tuning_fakes import GOOD, FakeWorker, MemoryStore, row, time_us

from tilewright.kernels.family import Config
from tilewright.measuring.rounds import Limits
from tilewright.record import Measurement, Standing
from tilewright.tuning.events import Event, Tried
from tilewright.tuning.finals import choose
from tilewright.tuning.protocol import Final

__all__ = ["worker"]  # a fixture


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
