"""A layer's winner for a command: from the store if it has one, else by tuning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.cli.screen import ProgressBar
from tilewright.errors import count
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.record import Record, unfinished
from tilewright.report.table import time_text
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.worker_pool import WorkerPool

if TYPE_CHECKING:
    from tilewright.problem.shapes import Layer
    from tilewright.runtime.base import Runtime
    from tilewright.store import Store
    from tilewright.tuning.events import Event, TuneResult


KNOWN = "known already; --again searches further"
NOISY = "known already, but timed on a busy machine; --again measures and searches again"
UNFINISHED = (
    "known already, but a trial of a search that was stopped was faster in a rough timing; "
    "--again finishes it"
)


@dataclass(frozen=True)
class TuningSession:
    """Tuning as the command line asks for it.

    Attributes:
        wanted: how each layer is searched.
        share: the search's share of a layer's progress.
        children: the processes in which all layers are tuned; to be closed.
    """

    runtime: Runtime
    store: Store
    progress: ProgressBar
    wanted: TuneOptions
    share: float = 1.0
    children: WorkerPool = field(default_factory=WorkerPool)

    def winner(self, problem: Problem, name: str) -> tuple[TuneResult, str]:
        """Tune and store a winner, if there is none; say how the search went, and which winner is stored now.

        Raises:
            RunError: no config was correct; counts the outcomes.
        """
        from tilewright.dispatch.once import tune_once

        result = tune_once(
            problem, self.runtime, self.store, self.wanted, lambda event: self._tell(event, name),
            self.children,
        )  # fmt: skip
        if not result.known:
            return result, self._became(problem, result)
        if result.winner.measurement is not None and result.winner.measurement.noisy:
            return result, NOISY
        return result, UNFINISHED if self._faster_trial(problem, result.winner) else KNOWN

    def _faster_trial(self, problem: Problem, winner: Record) -> bool:
        """Whether an interrupted search has a trial that may be faster than the winner."""
        from tilewright.dispatch.choices import sources_for

        request = self.wanted.of(problem)
        sources = sources_for(request, self.runtime)
        known = self.store.records(problem, self.runtime.device.key)
        allowed = [record for record in known if record.deterministic >= request.deterministic]
        telling = [record for record in allowed if record.compared or record.cold_us < winner.cold_us]
        return unfinished([record for record in telling if sources.has(record)], winner) is not None

    def _became(self, problem: Problem, result: TuneResult) -> str:
        """Say what was tried, and which kernel the store prefers if that is another."""
        from tilewright.dispatch.choices import stored

        said = f"{len(result.records)} tried in {result.seconds:.1f} s"
        if self.wanted.budget and result.seconds > self.wanted.budget.seconds:
            tried_s, compared_s = result.searched_s - result.ready_s, result.seconds - result.searched_s
            said += f": {result.ready_s:.1f} s to start and compute references"
            said += f", {tried_s:.1f} s to compile and try, {compared_s:.1f} s to compare and check finalists"
        said += f" ({result.left if result.untried else result.stopped})" if result.stopped else ""
        if result.winner.config not in {record.config for record in result.records}:
            said += ", the winner is of an earlier search"
        best = stored(Request(problem, self.wanted.deterministic), self.runtime, self.store)
        if best is None or best.measurement is None or best.config == result.winner.config:
            return said
        us = time_text(best.measurement.cold_us)
        return f"{said}; the layer's winner is another search's: {best.family}, {us} us"

    def tune_s(self, layer: Layer) -> float:
        """Make sure that the store has a winner; return the seconds of tuning."""
        return self.winner(layer.problem, layer.name)[0].seconds

    def _tell(self, event: Event, name: str) -> None:
        from tilewright.tuning.events import Comparing, Tried

        if isinstance(event, Tried):
            best = f"best {time_text(event.best_us)} us" if event.best_us else "none correct yet"
            self.progress.now(f"{name}: {event.trials} tried, {best}", event.share * self.share)
        elif isinstance(event, Comparing):
            self.progress.now(f"{name}: comparing {count(len(event.configs), 'finalist')}", self.share)
