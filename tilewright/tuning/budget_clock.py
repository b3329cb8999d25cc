"""What a search has spent of its budget, and what it keeps back for its end."""

from __future__ import annotations

import math
import time

from tilewright.tuning.budget import Budget

_GRACE_S = 10.0  # at least so long after the budget there is still a search for anything right
TRYING = 1 / 3  # of the budget is for trials at least, however long it took until there was a first


class BudgetClock:
    """The clock of one search.

    Attributes:
        budget: seconds in all, or trials.
        prepare_s: what the references took.
        ready_s: when they were there, and the search could begin to try.
        first_s: when the first trial began.
        trial_s: what the last trial took.
    """

    def __init__(self, budget: Budget, gpu: bool, start: float | None = None) -> None:
        """Start the clock, if it was not started at ``start``."""
        self.budget, self.prepare_s, self.ready_s, self.trial_s = budget, 0.0, 0.0, 0.0
        self.first_s: float | None = None
        self._start = time.monotonic() if start is None else start
        # Least, share of the budget, most: a CPU takes 20 ms for a run and its flush.
        self._compare = (0.0, 0.05, 1.0) if gpu else (0.25, 0.1, 2.5)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @property
    def compare_s(self) -> float:
        """Seconds for measuring the finalists against each other."""
        least, share, most = self._compare
        return max(least, min(share * self.budget.seconds, most))

    @property
    def reserve_s(self) -> float:
        """Seconds kept for the finalists: also for the full check, which makes two more references."""
        checks_s = min(1.2 * self.prepare_s, 0.3 * self.budget.seconds)
        return self.compare_s + max(self.compare_s, checks_s)

    @property
    def search_s(self) -> float:
        """When the search must end so that the finalists can be compared in time.

        Later if its first trial was late: references that use up the budget are not in vain.
        """
        in_time_s = self.budget.seconds - self.reserve_s
        if self.first_s is None:
            return in_time_s
        return max(in_time_s, self.first_s + TRYING * self.budget.seconds)

    @property
    def spare_s(self) -> float:
        """Seconds that are left to search, which the finalists may have."""
        return max(0.0, self.left_s(found=True))

    def prepared(self, prepare_s: float) -> None:
        """The references are there, after so many seconds of work."""
        self.prepare_s, self.ready_s = prepare_s, self.elapsed_s

    def begin_trial(self) -> None:
        """A trial begins."""
        if self.first_s is None:
            self.first_s = self.elapsed_s

    def left_s(self, found: bool, hopeful: bool = False) -> float:
        """Seconds left to search; more of them while nothing is right, so that there is an answer.

        As many again as the budget has where one is ``hopeful``: something much faster is to be expected.
        """
        grace = self.budget.seconds if hopeful else 0.0
        if not found:
            grace = max(_GRACE_S, self.budget.seconds)
        return self.search_s + grace - self.elapsed_s

    def over(self, found: bool, hopeful: bool = False) -> bool:
        """Whether there is no time for another trial that takes as long as the last."""
        return self.left_s(found, hopeful) <= (self.trial_s if found else 0.0)

    def share(self, trials: int) -> float:
        """The share of the budget that is spent."""
        if self.budget.trials is not None:
            return min(1.0, trials / self.budget.trials)
        if math.isinf(self.search_s):
            return 0.0
        return min(1.0, self.elapsed_s / self.search_s) if self.search_s > 0.0 else 1.0
