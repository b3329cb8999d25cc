"""The measuring protocol, with a clock that is told what to say."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tilewright.measuring import rounds
from tilewright.measuring.rounds import Limits, interval_rank, measure, median_interval, precise, summary
from tilewright.record import Measurement


class FakeClock:
    """Times the contestant that calls ``say`` with the value it says, and keeps a log."""

    def __init__(self) -> None:
        self.log: list[tuple[str, bool]] = []
        self.warm_counts: list[int] = []
        self.seconds = 0.0
        self.unified = False  # a GPU
        self._said = ("", 0.0)

    def contestant(self, name: str, times: Iterator[float]) -> Callable[[], None]:
        def run() -> None:
            self._said = (name, next(times))

        return run

    def timed(self, run: Callable[[], None], flush: bool) -> float:
        run()
        name, us = self._said
        self.log.append((name, flush))
        self.seconds += us * 1e-6
        return us

    def warm(self, run: Callable[[], None], count: int) -> float:
        run()
        self.warm_counts.append(count)
        return self._said[1] / 2

    def now(self) -> float:
        return self.seconds


def steady(value: float) -> Iterator[float]:
    return itertools.repeat(value)


def noisy(value: float, spread: float, seed: int = 0) -> Iterator[float]:
    rng = random.Random(seed)
    while True:
        yield value + rng.uniform(-spread, spread)


@pytest.mark.parametrize(
    ("count", "rank"), [(1, 0), (5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (50, 18), (100, 40)]
)
def test_interval_rank_is_the_textbook_table(count: int, rank: int) -> None:
    assert interval_rank(count) == rank


def test_interval_covers_the_median() -> None:
    rng = random.Random(1)
    hits = 0
    for _ in range(400):
        _, low, high = median_interval([rng.expovariate(1.0) for _ in range(15)])
        hits += low <= math.log(2) <= high
    assert hits >= 0.93 * 400


def test_median_of_even_and_odd_samples() -> None:
    for values in ([3.0, 1.0, 2.0], [4.0, 1.0, 3.0, 2.0]):
        assert median_interval(values)[0] == statistics.median(values)


def test_too_few_samples_have_no_interval() -> None:
    assert median_interval([1.0, 2.0])[1:] == (0.0, math.inf)
    assert summary([1.0, 3.0]).ci95_us == 2.0  # finite, so that it can be stored


def test_steady_contestant_stops_at_the_minimum() -> None:
    clock = FakeClock()
    got = measure({"a": clock.contestant("a", steady(100.0))}, clock)
    assert (got["a"].cold_us, got["a"].ci95_us, got["a"].runs) == (100.0, 0.0, 6)
    assert got["a"].warm_us == 50.0
    assert all(flush for _, flush in clock.log)


def test_nobody_is_dropped_and_nothing_stops_before_the_fewest_rounds() -> None:
    clock = FakeClock()
    runs = {"a": clock.contestant("a", steady(100.0)), "b": clock.contestant("b", steady(200.0))}
    got = measure(runs, clock, Limits(min_rounds=9, drop=True))
    assert (got["a"].runs, got["b"].runs) == (9, 9)


def test_noise_is_measured_until_the_interval_is_small() -> None:
    clock = FakeClock()
    got = measure({"a": clock.contestant("a", noisy(100.0, 5.0))}, clock)["a"]
    assert 6 < got.runs < 200
    assert got.ci95_us <= 0.01 * got.cold_us
    assert abs(got.cold_us - 100) < 3


def test_one_noisy_contestant_keeps_all_of_them_running() -> None:
    """Until it is known well enough; after the cap, while there is patience."""
    for limits in (Limits(), Limits(max_s=1e-3, patience_s=1.0)):
        clock = FakeClock()
        runs = {"a": steady(100.0), "b": itertools.chain([90.0, 110.0] * 10, steady(100.0))}
        contestants = {name: clock.contestant(name, times) for name, times in runs.items()}
        got = measure(contestants, clock, limits, now=clock.now)
        assert not got["b"].noisy and got["a"].runs == got["b"].runs > 20, limits


def test_small_absolute_width_is_enough() -> None:
    assert precise(summary([4.0, 4.1, 4.2, 4.0, 4.1, 4.2]), Limits())
    assert not precise(summary([40, 41, 42, 40, 41, 42.0]), Limits())


def test_caps_on_rounds_and_seconds() -> None:
    clock = FakeClock()
    limits = Limits(max_rounds=9, warm_runs=0)
    got = measure({"a": clock.contestant("a", noisy(100, 90))}, clock, limits, now=clock.now)
    assert got["a"].runs == 9
    assert got["a"].warm_us is None
    limits = Limits(max_s=1.0, warm_runs=0)
    got = measure({"a": clock.contestant("a", noisy(4e5, 3e5))}, clock, limits, now=clock.now)
    assert got["a"].runs <= 6


def test_before_the_fewest_rounds_it_may_take_three_times_as_long() -> None:
    """Each run takes so many seconds; the cap is half a one."""
    for second, runs in ((0.19, 6), (0.29, 6), (0.31, 5), (0.49, 4), (0.6, 3)):
        clock = FakeClock()
        limits = Limits(max_s=0.5, warm_runs=0, relative=0.0, absolute_us=0.0)
        got = measure({"a": clock.contestant("a", steady(1e6 * second))}, clock, limits, now=clock.now)
        assert got["a"].runs == runs, second


def test_who_was_dropped_comes_after_all_who_stayed() -> None:
    """The machine may have slowed down since."""
    runs = {"slow": (30, 103.0), "dropped": (6, 99.0), "fast": (30, 102.0), "early": (2, 98.0)}
    figures = {name: Measurement(us, 0.1, count) for name, (count, us) in runs.items()}
    assert rounds.ranking(figures) == ["fast", "slow", "early", "dropped"]
    assert rounds.ranking({}) == []


def test_few_runs_go_on_to_an_interval() -> None:
    clock = FakeClock()
    got = measure({"a": clock.contestant("a", noisy(4e4, 1e2))}, clock, Limits(max_s=0.1), now=clock.now)["a"]
    assert got.runs == 6 and not got.noisy  # not one run, its half width the time itself


def test_noisy_figures_are_given_more_time() -> None:
    def runs(patience_s: float, spread: float) -> int:
        clock = FakeClock()
        limits = Limits(max_s=0.5, patience_s=patience_s, warm_runs=0, relative=0.0, absolute_us=0.0)
        run = {"a": clock.contestant("a", noisy(3e4, spread))}
        return measure(run, clock, limits, now=clock.now)["a"].runs

    assert runs(2.0, 2e4) > 1.5 * runs(0.0, 2e4)
    assert runs(2.0, 1e2) == runs(0.0, 1e2)  # precise as it is


def test_rounds_are_interleaved_and_shuffled() -> None:
    clock = FakeClock()
    names = ["a", "b", "c"]
    measure({n: clock.contestant(n, steady(5.0)) for n in names}, clock)
    rounds = [tuple(n for n, _ in clock.log[i : i + 3]) for i in range(0, len(clock.log), 3)]
    assert all(sorted(r) == names for r in rounds)
    assert len(set(rounds)) > 1


def test_losers_are_dropped_but_reported() -> None:
    clock = FakeClock()
    runs = {
        "fast": clock.contestant("fast", noisy(100, 8, 1)),
        "slow": clock.contestant("slow", noisy(200, 8, 2)),
    }
    got = measure(runs, clock, Limits(drop=True))
    assert got["slow"].runs == 6 < got["fast"].runs
    kept = measure(runs, clock, Limits())
    assert kept["slow"].runs == kept["fast"].runs


def test_hopeless_after_three_runs() -> None:
    clock = FakeClock()
    got = measure({"a": clock.contestant("a", steady(900.0))}, clock, Limits(hopeless=4), best_us=100.0)
    assert got["a"].runs == 3


@pytest.mark.parametrize("late_runs", (1, 2))
def test_two_late_runs_are_not_hopeless(late_runs: int) -> None:
    clock = FakeClock()
    late = clock.contestant("a", itertools.chain([900.0] * late_runs, steady(90.0)))
    got = measure({"a": late}, clock, Limits(hopeless=4), best_us=100.0)
    assert got["a"].runs > 2 and got["a"].cold_us == 90.0


def test_a_late_run_does_not_spoil_the_time_of_what_is_hopeless() -> None:
    clock = FakeClock()
    late = clock.contestant("a", itertools.chain([9000.0], steady(500.0)))
    got = measure({"a": late}, clock, Limits(hopeless=4), best_us=100.0)
    assert got["a"].runs == 3 and got["a"].cold_us == 500.0


def test_known_best_drops_a_candidate() -> None:
    clock = FakeClock()
    run = {"a": clock.contestant("a", noisy(120, 9))}
    assert measure(run, clock, Limits(drop=True), best_us=100.0)["a"].runs == 6


def test_separate_goes_on_until_one_is_left() -> None:
    def measured(separate: bool) -> dict[str, Measurement]:
        clock = FakeClock()
        times = {"a": noisy(100.0, 1.0, 1), "b": noisy(100.6, 1.0, 2)}
        runs = {name: clock.contestant(name, each) for name, each in times.items()}
        return measure(runs, clock, Limits(drop=True, max_rounds=400, separate=separate))

    loose, tight = measured(False), measured(True)
    assert 400 > tight["b"].runs > 3 * loose["b"].runs
    assert tight["a"].cold_us + tight["a"].ci95_us < tight["b"].cold_us + tight["b"].ci95_us


def test_slow_kernels_get_a_short_warm_row() -> None:
    clock = FakeClock()
    late = itertools.chain([40_000.0], steady(4000.0))  # a late run says nothing of the others
    times = {"a": steady(10_000.0), "b": steady(9.0), "c": late}
    measure({name: clock.contestant(name, each) for name, each in times.items()}, clock)
    assert clock.warm_counts == [2, 50, 5]


def test_without_contestants_there_is_nothing_to_measure() -> None:
    assert measure({}, FakeClock()) == {}


def stat(user: int, idle: int, steal: int) -> str:
    more = user - 100
    busy = f"{user} {7 + more} {30 + 2 * more} {idle} 50 {more // 2} {10 + more // 2}"
    return f"cpu  {busy} {steal} 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"


@pytest.mark.parametrize(
    ("unified", "after", "stolen"),
    [
        (True, stat(116, 9000, 120), 0.2), (True, stat(200, 9000, 100), 0.0),
        (True, stat(100, 9000, 100), 0.0), (True, "intr 0\n", 0.0), (True, "cpu 1 2 3\n", 0.0),
        (False, stat(116, 9000, 120), 0.0),
    ],
)  # fmt: skip
def test_time_that_the_host_of_a_cpu_took_is_noise(
    unified: bool, after: str, stolen: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "stat"
    place.write_text(stat(100, 500, 100))
    monkeypatch.setattr(rounds, "PROC_STAT", place)
    clock = FakeClock()
    clock.unified = unified
    times = clock.contestant("a", steady(100.0))

    def run() -> None:
        place.write_text(after)
        times()

    figure = measure({"a": run}, clock)["a"]
    assert figure.stolen == pytest.approx(stolen)
    assert figure.noisy == (stolen > 0)


def test_where_the_system_does_not_say_nothing_was_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rounds, "PROC_STAT", tmp_path / "none")
    clock = FakeClock()
    clock.unified = True
    assert measure({"a": clock.contestant("a", steady(100.0))}, clock)["a"].stolen == 0.0
