"""The clock of a search: what it keeps back, when it is over, how much is spent."""

from __future__ import annotations

import math

import pytest

from tilewright.tuning import budget_clock
from tilewright.tuning.budget import Budget
from tilewright.tuning.budget_clock import BudgetClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(budget_clock.time, "monotonic", lambda: now[0])
    return now


def test_seconds_are_kept_for_the_finalists(clock: list[float]) -> None:
    spent = BudgetClock(Budget(seconds=20.0), gpu=True)
    assert (spent.compare_s, spent.reserve_s, spent.search_s) == (1.0, 2.0, 18.0)
    assert BudgetClock(Budget(seconds=8.0), gpu=True).reserve_s == pytest.approx(0.8)
    spent.prepare_s = 3.0  # the full check makes references twice
    assert spent.reserve_s == pytest.approx(1.0 + 3.6)
    spent.prepare_s = 60.0
    assert spent.reserve_s == pytest.approx(1.0 + 6.0)  # but no more than a share of the budget
    assert BudgetClock(Budget(seconds=20.0), gpu=False).compare_s == 2.0


def test_a_clock_may_have_been_started_before(clock: list[float]) -> None:
    """The start of the worker counts, too."""
    spent = BudgetClock(Budget(seconds=20.0), gpu=True, start=97.0)
    assert (spent.elapsed_s, spent.left_s(found=True)) == (3.0, 15.0)
    assert BudgetClock(Budget(seconds=20.0), gpu=True).elapsed_s == 0.0


def test_a_cpu_has_time_to_compare_whatever_the_budget(clock: list[float]) -> None:
    assert BudgetClock(Budget(seconds=0.1), gpu=False).compare_s == 0.25
    assert BudgetClock(Budget(seconds=0.1), gpu=True).compare_s == pytest.approx(0.005)


def test_it_is_over_when_the_next_trial_would_be_late(clock: list[float]) -> None:
    spent = BudgetClock(Budget(seconds=10.0), gpu=True)
    spent.trial_s = 2.0
    clock[0] += 5.5
    assert spent.left_s(found=True) == spent.spare_s == pytest.approx(3.5) and not spent.over(found=True)
    clock[0] += 2.0
    assert spent.over(found=True) and spent.share(3) == pytest.approx(7.5 / 9.0)
    clock[0] += 9.0
    assert spent.spare_s == 0.0 and spent.share(3) == 1.0
    assert not spent.over(found=False)  # nothing is right yet: as long again
    clock[0] += 3.0
    assert spent.over(found=False)


@pytest.mark.parametrize("seconds", (0.1, 0.3, 0.5, 0.6))
def test_a_budget_that_leaves_no_time_to_search_is_spent(seconds: float, clock: list[float]) -> None:
    """On a CPU half a second is kept for the finalists."""
    spent = BudgetClock(Budget(seconds=seconds), gpu=False)
    clock[0] += 0.2
    assert spent.share(trials=1) == 1.0


def test_a_third_is_for_trials_however_late_the_first(clock: list[float]) -> None:
    spent = BudgetClock(Budget(seconds=3.0), gpu=True)
    clock[0] += 4.0
    spent.begin_trial()
    clock[0] += 0.4
    spent.begin_trial()
    assert spent.left_s(found=True) == pytest.approx(0.6) and not spent.over(found=True)
    clock[0] += 0.7
    assert spent.over(found=True)
    in_time = BudgetClock(Budget(seconds=3.0), gpu=True)
    in_time.begin_trial()
    assert in_time.search_s == pytest.approx(3.0 - in_time.reserve_s)


def test_references_that_took_long_are_not_counted_twice(clock: list[float]) -> None:
    """Where nothing is right there is as much time after them as after quick ones."""
    spent = BudgetClock(Budget(seconds=15.0), gpu=True)
    clock[0] += 60.0
    spent.prepared(60.0)
    spent.begin_trial()
    assert spent.left_s(found=False) == pytest.approx(15.0 / 3 + 15.0)


def test_what_promises_much_is_waited_for_once_more(clock: list[float]) -> None:
    spent = BudgetClock(Budget(seconds=10.0), gpu=True)
    clock[0] += 12.0
    assert spent.over(found=True) and not spent.over(found=True, hopeful=True)
    assert spent.left_s(found=True, hopeful=True) == pytest.approx(9.0 + 10.0 - 12.0)
    clock[0] += 7.0
    assert spent.over(found=True, hopeful=True)


def test_of_trials_the_share_is_counted(clock: list[float]) -> None:
    spent = BudgetClock(Budget(trials=40), gpu=True)
    clock[0] += 1e6
    assert spent.share(10) == 0.25 and not spent.over(found=True)
    assert BudgetClock(Budget(seconds=math.inf), gpu=True).share(10) == 0.0
