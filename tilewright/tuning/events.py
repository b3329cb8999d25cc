"""The events that the tuner reports while it works, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.device import Device
from tilewright.errors import RunError
from tilewright.problem import Problem
from tilewright.record import Record, tally
from tilewright.tuning.budget import Budget

KNOWN = "known already"  # why no search began


@dataclass(frozen=True)
class Started:
    """Tuning begins.

    Attributes:
        problem: the layer.
        device: what it is tuned for.
        strategy: name of the search.
        budget: what ends it.
        resumed: outcomes that were known already.
    """

    problem: Problem
    device: Device
    strategy: str
    budget: Budget
    resumed: int


@dataclass(frozen=True)
class Tried:
    """One config has its outcome.

    Attributes:
        record: the outcome.
        trials: how many this tuning has run.
        best_us: the least time so far, in us; None if nothing was right yet.
        elapsed_s: seconds since it began.
        share: how much of the budget is used, 0 to 1; 0 where it has no end.
    """

    record: Record
    trials: int
    best_us: float | None
    elapsed_s: float
    share: float


@dataclass(frozen=True)
class Comparing:
    """The search is over; these finalists are measured against each other."""

    configs: tuple[str, ...]
    elapsed_s: float


@dataclass(frozen=True, repr=False)
class TuneResult:
    """The result of tuning one problem; also the last event.

    Attributes:
        best: the winner, verified in full; None if no config was right.
        records: the outcomes of this run, oldest first.
        finalists: the re-measured finalists, fastest first.
        seconds: total time, from the start of the workers to the last measurement.
        resumed: number of outcomes taken from the store, not run again.
        stopped: why the search ended, or that the winner was stored and none began. A search that its budget
            ended continues at the next call with a larger budget.
        ready_s: when processes had started and references were computed.
        searched_s: when the search was over; the rest of the seconds went to the finalists.
        untried: families that promised to win, and of which the budget left no time to try a config. If there
            are any, the search continues at the next call with any budget.
    """

    best: Record | None
    records: tuple[Record, ...]
    finalists: tuple[Record, ...]
    seconds: float
    resumed: int
    stopped: str = ""
    ready_s: float = 0.0
    searched_s: float = 0.0
    untried: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """A summary for people: the fields hold every trial."""
        figure = self.best and self.best.measurement
        if not (self.best and figure):
            return f"<no winner: {self.failure}>"
        took = KNOWN if self.known else f"{len(self.records)} tried in {self.seconds:.1f} s"
        if self.best.search.cut:
            took += f"; {self.left}"
        return f"<tuned {self.best.problem}: {self.best.config}, {figure.cold_us:.1f} us; {took}>"

    @property
    def known(self) -> bool:
        """Whether the winner came from the store, and nothing was tried."""
        return self.stopped == KNOWN

    @property
    def left(self) -> str:
        """What a search that its budget ended has left to do."""
        if self.untried:
            return f"the budget ended before {', '.join(self.untried)} had a turn: the next call goes on"
        return "the budget ended the search: a larger one goes on"

    @property
    def winner(self) -> Record:
        """The winner.

        Raises:
            RunError: no config was right; says what became of those that were tried.
        """
        if self.best is None:
            raise RunError(self.failure)
        return self.best

    @property
    def failure(self) -> str:
        """Say how the configs that were tried failed, if none was right."""
        tried = tally(self.records) or "none tried"
        why = next((f": {record.reason}" for record in self.records if record.reason), "")
        what = f"{self.records[0].problem}: " if self.records else ""
        return f"{what}no config was right within the budget ({tried}{why}); give it a larger one"


Event = Started | Tried | Comparing | TuneResult
Progress = Callable[[Event], None]
