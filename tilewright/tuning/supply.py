"""Supplies a search with configs, a batch at a time: until its seconds are over, or for so many trials."""

from __future__ import annotations

import math

from tilewright.kernels.config import Config
from tilewright.search.proposals import Proposals
from tilewright.tuning.budget import Budget
from tilewright.tuning.compile_ahead import InFlight

_PREVIEW = 8  # configs of a family that promises most so far, compiled while the others are looked at
# A search that expects less than this share of the best time to be gained, so many times on end, is over.
ENOUGH, ENOUGH_TIMES = 0.001, 3
# Why no more is tried.
ALL_TRIED, TRIALS_DONE = "all configs tried", "all trials done"
NO_FASTER = f"no config is expected to be {ENOUGH:.1%} faster"


class Supply:
    """The source of a search's configs.

    For a budget of seconds, of the compiled configs the most promising one is tried first; on a GPU some of
    the first come while strategies still evaluate their families. For a budget of trials, all proposals are
    tried, in order, before more are asked for: so what is proposed depends on the seed and on measured times,
    but not on how fast compilers are.

    Args:
        budget: of the search; if it is "all", everything is tried, however little is expected of it.
        proposals: proposals of strategies, and hints.
        size: the most that are asked for at a time.
        gpu: whether configs are tried while others compile.

    Attributes:
        rank: the order in which ``InFlight`` takes compiled configs.
        most: no more are asked for while so many are in flight.
        unpromising: whether nothing much faster is expected, so that the search should end.
    """

    def __init__(self, budget: Budget, proposals: Proposals, size: int, gpu: bool) -> None:
        self._proposals, self._size, self._trials = proposals, size, budget.trials
        self._portion = max(1, size // (8 if gpu else 2))  # compilers wait for the first: these are few
        timed = budget.trials is None
        self.rank = proposals.best_us if timed else None
        self.most = size if timed and gpu else 1
        self._preview = min(_PREVIEW, size // 4) if timed and gpu else 0  # for half the compilers
        self._endless = not timed or math.isinf(budget.seconds)
        self.unpromising = False
        self._idle = 0  # proposals on end that promised nothing, with a trial between any two
        self._idle_since = 0  # trials before the last of them

    def begin(self, flying: InFlight) -> None:
        """Have the first hints compiled.

        For a budget of trials let strategies evaluate at once: that must not depend on any trial.
        """
        first = max(2, self._size // 2)
        flying.submit(self._proposals.next_hints(min(first, self._trials or first)))
        while self._trials and not self._proposals.looked and len(flying) < self._trials:
            self.look()

    def look(self) -> list[Config]:
        """Let the next strategy evaluate its first configs; return some to compile meanwhile."""
        return self._proposals.look(self._preview)

    def next(self, tried: int, flying: int) -> list[Config]:
        """Return more configs, after ``tried`` and with ``flying`` in flight; none: see ``ended``.

        Each batch may be twice as large as the one before.
        """
        most = self._size if self._trials is None else self._trials - tried - flying
        batch = self._proposals.next(min(self._portion, most))
        if batch:
            self._portion = min(2 * self._portion, self._size)
        if self._endless or self._proposals.gain() >= ENOUGH:
            self._idle = 0
        elif not self._idle or tried > self._idle_since:  # a trial may have changed its mind
            self._idle, self._idle_since = self._idle + 1, tried
        self.unpromising = self._idle >= ENOUGH_TIMES
        return batch

    def ended(self, tried: int) -> str:
        """Say why there are no more."""
        return TRIALS_DONE if self._trials and tried >= self._trials else ALL_TRIED
