"""What a worker makes of one config after another, on NumPy with runs that are late or wrong when told to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from verify_samples import CONFIG, PROBLEM, Host

from tilewright.errors import RunError
from tilewright.kernels.untuned.reference import Reference
from tilewright.measuring.rounds import Limits
from tilewright.tuning import trial
from tilewright.tuning.protocol import Job
from tilewright.tuning.trial import Trials

LATE_S = 1.2 * trial._LEAST_SLOW_US / 1e6
HOUR_US = 3.6e9  # against that nothing here is slow


@dataclass
class Planted:
    """What each run does beside its work, for as long as it is set."""

    late: tuple[int, ...] = ()  # of two runs, one after the other, which
    fault: Callable[[Any, Any], None] | None = None  # y, x

    def __call__(self, run: int, y: Any, x: Any) -> None:
        time.sleep(LATE_S if run % 2 in self.late else 0.0)
        if self.fault:
            self.fault(y, x)


def write_x(y: Any, x: Any) -> None:
    x[0] += 1


def write_y(y: Any, x: Any) -> None:
    y[0] = 1e6


@pytest.fixture
def planted() -> Planted:
    return Planted()


@pytest.fixture
def trials(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> Trials:
    monkeypatch.setattr(trial, "open_runtime", lambda kind, index: Host(planted))
    return Trials(Job(str(PROBLEM), "numpy"), lambda stage: None)


def test_after_one_that_is_too_slow_the_next_is_judged_by_itself(trials: Trials, planted: Planted) -> None:
    planted.late = (0, 1)
    slow, spoilt = trials.run(CONFIG, 1.0, full=False)
    assert (slow.outcome, spoilt, slow.check, slow.measurement) == ("timeout", False, None, None)
    assert slow.reason.startswith("a run took ") and "too long after 20000 us" in slow.reason

    planted.late = ()
    right, spoilt = trials.run(CONFIG, HOUR_US, full=False)
    assert (right.outcome, spoilt, right.reason) == ("correct", False, "")
    assert right.check and right.check.ok and right.measurement

    planted.fault = write_y
    wrong, spoilt = trials.run(CONFIG, HOUR_US, full=False)
    assert (wrong.outcome, spoilt) == ("correctness", False)
    assert wrong.check and not wrong.check.ok and "too long" not in wrong.reason


@pytest.mark.parametrize("says", [True, False])
def test_two_runs_that_agree_do_not_make_a_config_deterministic(
    trials: Trials, monkeypatch: pytest.MonkeyPatch, says: bool
) -> None:
    """Where the order of additions is left to chance, the next two may differ."""
    monkeypatch.setattr(Reference, "deterministic", lambda self, config: says)
    found = trials.run(CONFIG, HOUR_US, full=False)[0]
    assert found.check and found.check.repeatable and found.deterministic == says


def test_finalists_are_checked_in_full(trials: Trials, planted: Planted) -> None:
    def spread(y: Any, x: Any) -> None:
        y[:] += y.dtype.type(0) * x.sum()

    limits = Limits(max_rounds=1, warm_runs=0)
    (right,) = trials.final([CONFIG], limits)
    planted.fault = spread
    (wrong,) = trials.final([CONFIG], limits)
    assert right.check and right.check.ok and right.measurement.runs == 1
    assert wrong.check and not wrong.check.ok and "NaN and infinity in x" in wrong.check.reason
    planted.fault = write_x
    with pytest.raises(RunError, match=f"spoilt by {CONFIG}"):
        trials.final([CONFIG], limits)


@pytest.mark.parametrize("which", [0, 1])
def test_a_host_that_is_late_once_is_not_held_against_a_config(
    trials: Trials, planted: Planted, which: int
) -> None:
    planted.late = (which,)
    found, spoilt = trials.run(CONFIG, 1.0, full=False)
    assert (found.outcome, spoilt) == ("correct", False)


def test_one_that_is_too_slow_and_writes_where_it_must_not_leaves_a_device_not_to_be_trusted(
    trials: Trials, planted: Planted
) -> None:
    planted.late, planted.fault = (0, 1), write_x
    slow, spoilt = trials.run(CONFIG, 1.0, full=False)
    assert (slow.outcome, spoilt) == ("timeout", True)
