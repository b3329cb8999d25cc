"""The loop of a search: propose, compile ahead, try, and tell, until the budget or the space is used up."""

from __future__ import annotations

import math
import time
from concurrent.futures import Future
from dataclasses import replace

from tilewright.kernels.config import Config
from tilewright.record import Record, Standing
from tilewright.search.proposals import Proposals
from tilewright.tuning.budget_clock import BudgetClock
from tilewright.tuning.compile_ahead import CompileAhead, InFlight
from tilewright.tuning.events import Progress, Tried
from tilewright.tuning.outcomes import Outcomes
from tilewright.tuning.protocol import Compiled
from tilewright.tuning.supply import NO_FASTER, Supply
from tilewright.tuning.worker import Worker

TIME_USED = "the time was used up"
_TRIAL_S = 0.4  # of one trial on a CPU
_LATE_S = 2.0  # so long after its references a CPU waits for what promises most to compile


class SearchLoop:
    """One search.

    Args:
        worker: tries configs.
        ahead: compiles them; it is closed at the end.
        proposals: what to try.
        outcomes: collects the results.
        clock: tells when the budget is spent.
        say: called with each trial.

    Attributes:
        records: the outcome of each trial, in order.
    """

    def __init__(
        self, worker: Worker, ahead: CompileAhead, proposals: Proposals, outcomes: Outcomes,
        clock: BudgetClock, say: Progress,
    ) -> None:  # fmt: skip
        self._worker, self._ahead, self._proposals = worker, ahead, proposals
        self._outcomes, self._clock, self._say = outcomes, clock, say
        self._gpu = worker.device.is_gpu
        self.records: list[Record] = []

    def run(self, ready: Future[None], size: int) -> str:
        """Try configs, at most ``size`` proposed at a time, and return why no more were tried.

        A GPU tries what has compiled while the others compile; a CPU must be quiet to be measured.
        """
        more = Supply(self._clock.budget, self._proposals, size, self._gpu)
        flying = InFlight(self._ahead, more.rank, together=not self._gpu)
        try:
            more.begin(flying)
            while not self._over and (flying or not self._ahead.closed):
                if ready.done() and (compiled := flying.take()):
                    ready.result()
                    self._try_one(*compiled)
                elif not self._proposals.looked and not self._ahead.closed:
                    flying.submit(more.look())
                elif self._ahead.closed or len(flying) >= more.most:
                    self._await(flying, ready)
                elif batch := more.next(len(self.records), len(flying)):
                    if more.unpromising:
                        return NO_FASTER
                    flying.submit(batch)
                elif flying:
                    self._await(flying, ready)
                else:
                    return more.ended(len(self.records))
            while flying.dropped and not (self._outcomes.found or self._over):  # the trial compiles
                self._try_one(flying.dropped.pop(0), Compiled(None))
            return TIME_USED
        finally:
            self._ahead.close()

    def _await(self, flying: InFlight, ready: Future[None]) -> None:
        """Wait until a config can be tried, or the time is over."""
        ready.result()
        if self._gpu:
            left = self._left_s()
            flying.wait(max(left, 0.0) if math.isfinite(left) else None)
        else:
            self._let_compile(flying)

    @property
    def _over(self) -> bool:
        """Whether there is no time for another trial; for a first one there always is."""
        return bool(self.records) and self._clock.over(self._outcomes.found, self._hopeful)

    @property
    def _hopeful(self) -> bool:
        """Whether something much faster than the best so far is expected."""
        return self._outcomes.found and self._proposals.hopeful(self._outcomes.best_us)

    def _left_s(self, compiled: int = 0) -> float:
        """Seconds left to search; unlimited before a first trial, unless some configs have ``compiled``."""
        if not (self.records or compiled):
            return math.inf
        return self._clock.left_s(not self.records or self._outcomes.found, self._hopeful)

    def _try_one(self, config: Config, compiled: Compiled) -> None:
        """Try a config, and report its outcome to store, strategies and listener."""
        self._clock.begin_trial()
        start = time.monotonic()
        tried = self._try(config, compiled)
        self._clock.trial_s = time.monotonic() - start
        record = self._outcomes.keep(replace(tried, standing=Standing.TRIAL))
        self.records.append(record)
        self._proposals.tell(record)
        best = self._outcomes.best_us if self._outcomes.found else None
        trials = len(self.records)
        self._say(Tried(record, trials, best, self._clock.elapsed_s, self._clock.share(trials)))

    def _let_compile(self, flying: InFlight) -> None:
        """Wait until all have compiled, or until there is just time to try those that have; then stop.

        A CPU cannot be measured while it compiles. If references use up a small budget, there is one trial,
        of the config that is first in order.
        """
        while flying.compiling:
            done = len(flying) - flying.compiling
            left = self._left_s(compiled=done) - _TRIAL_S * done
            if not (self.records or flying.first_compiled):
                left = max(left, self._clock.ready_s + _LATE_S - self._clock.elapsed_s)
            if left <= 0:
                self._ahead.close()
                return
            flying.wait(min(left, 60.0))

    def _try(self, config: Config, compiled: Compiled) -> Record:
        """Return the outcome of one config."""
        if compiled.outcome:
            record = self._worker.failed(config, compiled.outcome, compiled.reason)
        else:
            record = self._worker.run(config, self._outcomes.best_us)
        return replace(record, compile_s=compiled.compile_s)
