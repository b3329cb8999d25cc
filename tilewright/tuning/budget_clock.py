"""What a search has spent of its budget, and what it reserves for its end."""

from __future__ import annotations

import math
import time

from tilewright.tuning.budget import Budget

_GRACE_S = 10.0  # at least so long after the budget there is still a search for anything right
TRYING = 1 / 3  # of the budget is for trials at least, however long it took until there was a first


class BudgetClock:
    """The clock of one search.

    Attributes:
        budget: seconds in total, or trials.
        prepare_s: time to compute the references.
        ready_s: when they were ready, and trials could begin.
        first_s: when the first trial began.
        trial_s: time of the last trial.
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
        """Seconds reserved for the finalists, and for the full check, which computes two more references."""
        checks_s = min(1.2 * self.prepare_s, 0.3 * self.budget.seconds)
        return self.compare_s + max(self.compare_s, checks_s)

    @property
    def search_s(self) -> float:
        """When the search must end so that the finalists can be compared in time.

        Later if its first trial was late, so that references that use up the budget are not wasted.
        """
        in_time_s = self.budget.seconds - self.reserve_s
        if self.first_s is None:
            return in_time_s
        return max(in_time_s, self.first_s + TRYING * self.budget.seconds)

    @property
    def spare_s(self) -> float:
        """Seconds left of the search, which the finalists may use."""
        return max(0.0, self.left_s(found=True))

    def prepared(self, prepare_s: float) -> None:
        """Note that the references are ready, after so many seconds of work."""
        self.prepare_s, self.ready_s = prepare_s, self.elapsed_s

    def begin_trial(self) -> None:
        """Note that a trial begins."""
        if self.first_s is None:
            self.first_s = self.elapsed_s

    def left_s(self, found: bool, hopeful: bool = False) -> float:
        """Seconds left to search; more while nothing is ``found``, so that there is an answer.

        If ``hopeful``, that is if something much faster is expected, up to the whole budget again.
        """
        grace = self.budget.seconds if hopeful else 0.0
        if not found:
            grace = max(_GRACE_S, self.budget.seconds)
        return self.search_s + grace - self.elapsed_s

    def over(self, found: bool, hopeful: bool = False) -> bool:
        """Whether there is no time for another trial that takes as long as the last."""
        return self.left_s(found, hopeful) <= (self.trial_s if found else 0.0)

    def share(self, trials: int) -> float:
        """The share of the budget that is spent, of two limits of the one that is nearer."""
        tried = trials / self.budget.trials if self.budget.trials is not None else 0.0
        if math.isinf(self.search_s):
            return min(1.0, tried)
        return min(1.0, max(tried, self.elapsed_s / self.search_s)) if self.search_s > 0.0 else 1.0
