"""Budgets as text."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from tilewright.arguments.settings import as_budget
from tilewright.errors import BudgetError
from tilewright.record import Spent
from tilewright.tuning.budget import Budget
from tilewright.tuning.budget_clock import BudgetClock


@pytest.mark.parametrize(
    ("text", "seconds", "trials"),
    [
        ("20s", 20.0, None),
        ("0.5s", 0.5, None),
        ("2m", 120.0, None),
        ("1 h", 3600.0, None),
        (" 50trials ", math.inf, 50),
        ("1trial", math.inf, 1),
        ("ALL", math.inf, None),
    ],
)
def test_good(text: str, seconds: float, trials: int | None) -> None:
    assert Budget.parse(text) == Budget(seconds, trials)


@pytest.mark.parametrize(
    "text", ["", "20", "s", "-5s", "nan", "infs", "1e3s", "20 s 5", "9" * 20 + "s", "٣s", "1.s", "all of it"]
)
def test_bad(text: str) -> None:
    with pytest.raises(BudgetError, match=f"^budget '{text}': must be like 20s, 2m, 50trials or all$"):
        Budget.parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0s", "must be more than zero, e.g. 20s or 50trials"),
        ("0.0trials", "must be more than zero, e.g. 20s or 50trials"),
        ("1.5trials", "trials are whole, e.g. 1trials"), ("0.5trials", "trials are whole, e.g. 1trials"),
        ("20.0trials", "trials are whole, e.g. 20trials"),
    ],
)  # fmt: skip
def test_numbers_that_will_not_do_are_told_which_would(text: str, said: str) -> None:
    with pytest.raises(BudgetError, match=f"^budget '{text}': {said}$"):
        Budget.parse(text)


def test_a_search_that_spent_as_much_had_the_budget() -> None:
    for budget, spent in ((Budget(seconds=20.0), Spent(20.0, 7)), (Budget(trials=7), Spent(20.0, 7))):
        assert budget.within(spent) and budget.within(None)
    assert not Budget(seconds=20.1).within(Spent(20.0, 99))
    assert not Budget(trials=8).within(Spent(99.0, 7)) and not Budget().within(Spent(1e9, 10**9))
    third = float(f"{1 / 3:.6g}")  # as it is stored
    assert Budget(1 / 3).within(Spent(third, 1)) and not Budget(0.334).within(Spent(third, 1))


@pytest.mark.parametrize(
    ("spent", "within"), [((5.0, 3), True), ((60.0, 1), True), ((59.0, 2), False), ((0.1, 99), True)]
)
def test_of_two_limits_the_first_that_is_reached_ends_a_search(
    spent: tuple[float, int], within: bool
) -> None:
    assert Budget(60.0, 3).within(Spent(*spent)) == within
    clock = BudgetClock(Budget(60.0, 4), gpu=True, start=time.monotonic() - 29.0)
    assert clock.share(1) == pytest.approx(0.5, abs=0.1) and clock.share(3) == 0.75 and clock.share(9) == 1.0


def test_a_budget_that_is_too_long_is_told_so() -> None:
    with pytest.raises(BudgetError, match="budget '9999999999999m': is too long; for no limit say all"):
        Budget.parse("9999999999999m")


def test_numbers_of_numpy_are_those_of_python() -> None:
    assert repr(Budget(np.float32(0.5), np.int64(7))) == repr(Budget(0.5, 7))  # type: ignore[arg-type]
    assert as_budget(np.int64(2)) == as_budget(np.float32(2.0)) == Budget(seconds=2.0)


@pytest.mark.parametrize("text", ["400h", "277.777778h", "1234567.25s", "0.000001s", "999999999m"])
def test_text_of_any_budget_is_read_again(text: str) -> None:
    """``--resume`` compares it."""
    again = Budget.parse(str(Budget.parse(text)))
    assert again.seconds == pytest.approx(Budget.parse(text).seconds, abs=1e-6)
    assert str(again) == str(Budget.parse(text))


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (Budget(5, 3), "5s or 3trials"), (Budget(1e-9), "1e-09s"), (Budget(4e-6 / 3), "1.33333e-06s"),
        (Budget(1 / 3), "0.333333s"), (Budget(1e300), "1e+300s"),
    ],
)  # fmt: skip
def test_text_of_what_cannot_be_written_is_true(budget: Budget, text: str) -> None:
    assert str(budget) == text


@pytest.mark.parametrize("text", ["20s", "50trials", "all", "0.000001s", "9999999999999s", "0.000123s"])
def test_text_round_trips(text: str) -> None:
    assert str(Budget.parse(text)) == text
