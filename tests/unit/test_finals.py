"""Who wins the last comparison, and what is known of the others after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tuning_fakes import BAD, GOOD, PROBLEM, row

from tilewright.errors import RunError
from tilewright.kernels.config import Config
from tilewright.measuring.rounds import Limits
from tilewright.record import Check, Measurement, Outcome, Record, Standing
from tilewright.tuning.finals import compare
from tilewright.tuning.protocol import Final


def tried(i: int, us: float, outcome: Outcome = Outcome.CORRECT) -> Record:
    """Return what is known of a config after its trial."""
    figure, check = (Measurement(us, 1.0, 6), GOOD) if outcome is Outcome.CORRECT else (None, None)
    return Record(
        str(PROBLEM), "d", "row", str(row(i)), outcome, True, check, figure, reason="" if check else "failed"
    )


class Comparing:
    """Stands for the worker: its comparison, and its trials one by one."""

    def __init__(self, rows: Sequence[Final] | None, alone: Sequence[Record] = ()) -> None:
        self._rows, self._alone = rows, {record.config: record for record in alone}
        self.limits: Limits | None = None
        self.full: list[bool] = []

    def final(self, configs: Sequence[Config], limits: Limits) -> list[Final]:
        self.limits = limits
        if self._rows is None:
            raise RunError("one of them wrote where it must not")
        return list(self._rows)

    def run(self, config: Config, full: bool = False) -> Record:
        self.full.append(full)
        return self._alone[str(config)]


def final(i: int, us: float, runs: int, check: Check | None = None) -> Final:
    return Final(str(row(i)), Measurement(us, 1.0, runs), check)


CHOSEN = [tried(i, 10.0 + i) for i in range(4)]


def places(found: Sequence[Record]) -> list[tuple[str, str, str]]:
    return [(r.config.partition("=")[2], r.outcome, r.standing) for r in found]


def test_the_fastest_that_is_right_in_full_wins() -> None:
    """Who was dropped was timed in the early rounds; fewer than six of them say less than the trial."""
    rows = (final(0, 9.0, 40, BAD), final(1, 12.0, 40, GOOD), final(2, 8.0, 6), final(3, 30.0, 2))
    worker: Any = Comparing(rows)
    found = compare(worker, CHOSEN, 2.5, 1.5)
    assert places(found) == [
        ("0", Outcome.WRONG, Standing.FINALIST), ("1", Outcome.CORRECT, Standing.WINNER),
        ("2", Outcome.CORRECT, Standing.FINALIST), ("3", Outcome.CORRECT, Standing.FINALIST),
    ]  # fmt: skip
    assert [(r.check and r.check.ok) for r in found] == [False, True, True, True]
    assert found[0].reason == BAD.reason and [r.cold_us for r in found[1:]] == [12.0, 8.0, 13.0]
    limits = worker.limits
    assert limits.drop and limits.separate and (limits.max_s, limits.patience_s) == (2.5, 1.5)


@pytest.mark.parametrize("last", [Outcome.RUNTIME, Outcome.WRONG])
def test_after_damage_each_is_tried_alone_and_the_fastest_that_is_right_wins(last: Outcome) -> None:
    again = [tried(0, 5.0, last), tried(1, 12.0), tried(2, 8.0), tried(3, 30.0)]
    worker: Any = Comparing(None, again)
    found = compare(worker, CHOSEN, 1.0)
    assert worker.full == [True] * 4
    assert places(found) == [
        ("2", Outcome.CORRECT, Standing.WINNER), ("1", Outcome.CORRECT, Standing.FINALIST),
        ("3", Outcome.CORRECT, Standing.FINALIST), ("0", last, Standing.FINALIST),
    ]  # fmt: skip


def test_where_none_is_right_none_wins() -> None:
    worker: Any = Comparing(None, [tried(i, 1.0, Outcome.WRONG) for i in range(4)])
    assert not any(r.won for r in compare(worker, CHOSEN, 1.0))
