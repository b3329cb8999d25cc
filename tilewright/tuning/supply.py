"""Supplies a search with configs, a batch at a time: until its seconds are over, or for so many trials."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

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


class Supply(ABC):
    """The source of a search's configs.

    Args:
        proposals: proposals of strategies, and hints.
        size: the most that are asked for at a time.
        gpu: whether configs are tried while others compile.

    Attributes:
        rank: the order in which ``InFlight`` takes compiled configs.
        most: no more are asked for while so many are in flight.
        unpromising: whether nothing much faster is expected, so that the search should end.
    """

    rank: Callable[[Config], float] | None = None
    most = 1
    unpromising = False

    def __init__(self, proposals: Proposals, size: int, gpu: bool) -> None:
        self._proposals, self._size = proposals, size
        self._portion = max(1, size // (8 if gpu else 2))  # compilers wait for the first: these are few

    @abstractmethod
    def begin(self, flying: InFlight) -> None:
        """Have the first hints compiled."""

    @property
    def looking(self) -> bool:
        """Whether strategies have not looked at their families yet."""
        return not self._proposals.looked

    def look(self) -> list[Config]:
        """Let the next strategy evaluate its first configs; return some to compile meanwhile."""
        return self._proposals.look(0)

    @abstractmethod
    def next(self, tried: int, flying: int) -> list[Config]:
        """Return more configs, after ``tried`` and with ``flying`` in flight; none: see ``ended``."""

    def ended(self, tried: int) -> str:
        """Say why there are no more."""
        return ALL_TRIED

    def _next(self, most: int) -> list[Config]:
        """Return a portion, and at most so many; the next portion is twice as large."""
        batch = self._proposals.next(min(self._portion, most))
        if batch:
            self._portion = min(2 * self._portion, self._size)
        return batch

    @property
    def _first(self) -> int:
        """So many hints are compiled before strategies look."""
        return max(2, self._size // 2)


class TimedSupply(Supply):
    """For a budget of seconds: of the compiled configs the most promising one is tried first.

    On a GPU some of the first configs come while strategies still evaluate their families.
    """

    def __init__(self, proposals: Proposals, size: int, gpu: bool, endless: bool) -> None:
        """``endless``: everything is tried, however little is expected of it."""
        super().__init__(proposals, size, gpu)
        self.rank, self._endless = proposals.best_us, endless
        self.most = size if gpu else 1
        self._preview = min(_PREVIEW, size // 4) if gpu else 0  # for half the compilers
        self._idle = 0  # proposals on end that promised nothing, with a trial between any two
        self._idle_since = 0  # trials before the last of them

    def begin(self, flying: InFlight) -> None:
        """Have the first hints compiled."""
        flying.submit(self._proposals.next_hints(self._first))

    def look(self) -> list[Config]:
        """Let the next strategy evaluate its first configs; return some to compile meanwhile."""
        return self._proposals.look(self._preview)

    def next(self, tried: int, flying: int) -> list[Config]:
        """Return more configs; see ``Supply.next``."""
        batch = self._next(self._size)
        if self._endless or self._proposals.gain() >= ENOUGH:
            self._idle = 0
        elif not self._idle or tried > self._idle_since:  # a trial may have changed its mind
            self._idle, self._idle_since = self._idle + 1, tried
        self.unpromising = self._idle >= ENOUGH_TIMES
        return batch


class CountedSupply(Supply):
    """For a budget of trials: all proposals are tried, in order, before more are asked for. So searches with
    the same budget propose the same configs, however fast they run.
    """

    def __init__(self, proposals: Proposals, size: int, gpu: bool, trials: int) -> None:
        super().__init__(proposals, size, gpu)
        self._trials = trials

    def begin(self, flying: InFlight) -> None:
        """Compile the first hints, and let strategies evaluate: that must not depend on any trial."""
        flying.submit(self._proposals.next_hints(min(self._first, self._trials)))
        while self.looking and len(flying) < self._trials:
            self.look()

    def next(self, tried: int, flying: int) -> list[Config]:
        """Return more configs; see ``Supply.next``."""
        return self._next(self._trials - tried - flying)

    def ended(self, tried: int) -> str:
        """Say why there are no more."""
        return ALL_TRIED if tried < self._trials else TRIALS_DONE


def supply(budget: Budget, proposals: Proposals, size: int, gpu: bool) -> Supply:
    """Return the supply of a budget."""
    if budget.trials is not None:
        return CountedSupply(proposals, size, gpu, budget.trials)
    return TimedSupply(proposals, size, gpu, endless=math.isinf(budget.seconds))
