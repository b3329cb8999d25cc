"""Tuning one problem: propose, compile ahead, try, record, and compare the finalists.

Every outcome goes to the store at once, so Ctrl-C, a crash or a reboot loses nothing, and the next
run goes on from there.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tilewright import kernels
from tilewright.checking.stage import Stage
from tilewright.device import parse_selector
from tilewright.errors import DeviceError, ProblemError, StoreError, how_to_get
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.runtime.capacity import cores
from tilewright.search.proposals import MakeStrategy, Proposals, batch_size
from tilewright.search.space import usable
from tilewright.store import Store
from tilewright.tuning.budget import Budget
from tilewright.tuning.budget_clock import BudgetClock
from tilewright.tuning.compile_ahead import CompileAhead
from tilewright.tuning.events import Progress, Started, TuneResult
from tilewright.tuning.finals import decide
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.outcomes import Outcomes
from tilewright.tuning.protocol import Job
from tilewright.tuning.search_loop import TIME_USED, SearchLoop
from tilewright.tuning.supply import TRIALS_DONE
from tilewright.tuning.threads import Threads
from tilewright.tuning.worker import Worker
from tilewright.tuning.worker_pool import WorkerPool

GPU_BUDGET = Budget(seconds=17.0)
CPU_BUDGET = Budget(seconds=45.0)
_MOST_COMPILERS = 15
_GPU_RUN_S = 3.0  # what runs longer hangs, unless the layer is large; a CPU may compile at the first run
_GPU_FLOPS = 2e11  # a second, fewer than any kernel that is worth its time


def tune(
    problem: Problem,
    device: str | Runtime | None,
    wanted: TuneOptions,
    *,
    store: Store | None = None,
    progress: Progress | None = None,
    make: MakeStrategy | None = None,
    children: WorkerPool | None = None,
) -> TuneResult:
    """Find the fastest right config of a problem on a device.

    Args:
        problem: the layer.
        device: a selector such as cpu, cuda, cuda:1, opencl:0, or an open Runtime of the same device (the
            work is done in a process of its own all the same); None: the best there is.
        wanted: how to search; without a budget it has the device's, ``GPU_BUDGET`` or ``CPU_BUDGET``.
        store: where outcomes are kept and resumed from; None: nowhere.
        progress: told each event.
        make: makes the strategy of a family; None: ``tilewright.search.strategies.make``.
        children: processes of earlier layers to go on with, and where this one's are left; None: its own.

    Returns:
        The winner, measured against the runners-up and verified in full, and all outcomes.

    Raises:
        ProblemError: the problem has nothing to compute, or no family takes it.
        ConfigError: there is no family of a name.
        DeviceError: there is no such device, or none that runs kernels.
    """
    if problem.n == 0:
        raise ProblemError(f"{problem}: a batch of 0 images has nothing to tune")
    own = None if device is None or isinstance(device, str) else device.device
    backend, index = (own.backend, own.index) if own else parse_selector(device)
    named = kernels.pick(kernels.FAMILIES, wanted.families)
    threading.Thread(target=_get_ready, args=(backend,)).start()  # while a child opens the device
    with Worker(Job(str(problem), backend, index, wanted.seed), children=children) as worker:
        run = _Run(problem, worker, wanted, named, store, progress, children)
        try:
            return run.tune(make or _strategies_make())
        except BaseException:
            with suppress(StoreError):
                run.outcomes.save()
            raise


def _get_ready(backend: str | None) -> None:
    """Import what searches with, and read what other layers taught."""
    from tilewright.search import experience, strategies  # noqa: F401

    experience.read_shipped(backend)


def _strategies_make() -> MakeStrategy:
    from tilewright.search import strategies  # late: NumPy and all the trials that ship come with it

    return strategies.make


class _Run:
    """The state of tuning one problem."""

    def __init__(
        self, problem: Problem, worker: Worker, wanted: TuneOptions, named: Sequence[Family],
        store: Store | None, progress: Progress | None, children: WorkerPool | None,
    ) -> None:  # fmt: skip
        start = time.monotonic()  # before the worker is
        self.problem, self.worker, self.wanted = problem, worker, wanted
        self.say: Progress = progress or (lambda event: None)
        self.device = worker.device
        if not self.device.runs_kernels:
            raise DeviceError(f"{self.device.name}: nothing to tune on NumPy; {how_to_get('opencl')}")
        self.gpu = self.device.is_gpu
        if self.gpu:
            worker.allow(Stage.RUN, max(_GPU_RUN_S, problem.flops / _GPU_FLOPS))
        self.budget = wanted.budget or (GPU_BUDGET if self.gpu else CPU_BUDGET)
        self.clock = BudgetClock(self.budget, self.gpu, start)
        families, passed = usable(named, problem, self.device)
        if not families:
            why = "; ".join(f"{name}: {reason}" for name, reason in passed.items())
            why = why or f"{', '.join(one.name for one in named)}: cannot be tuned"
            raise ProblemError(f"{problem}: no kernel family takes it on {self.device.name} ({why})")
        self.families = {family.name: family for family in families}
        compiler = worker.versions.compiler
        self.outcomes = Outcomes(problem, self.device, compiler, self.families, wanted.deterministic, store)
        job = replace(worker.job, facts=self.device.facts)
        most = min(self.budget.trials or _MOST_COMPILERS, _MOST_COMPILERS)  # no more than configs to compile
        self.ahead = CompileAhead(job, min(most, max(1, cores() - self.gpu)), children)

    def tune(self, make: MakeStrategy) -> TuneResult:
        """Search, compare the finalists, and return the result."""
        side = Threads(1, "prepare")
        self.ahead.start()
        try:
            ready = side.submit(self._prepare)  # while the compilers start and strategies think
            known, proposals = self._begin(make)
            loop = SearchLoop(self.worker, self.ahead, proposals, self.outcomes, self.clock, self.say)
            stopped = loop.run(ready, batch_size(self.budget.trials, 2 * cores()))
            ready.result()  # where nothing was left to try
        finally:
            self.ahead.close()
            side.end()
        clock, searched_s = self.clock, self.clock.elapsed_s
        untried: tuple[str, ...] = ()
        if stopped in (TIME_USED, TRIALS_DONE):
            timed = stopped == TIME_USED and math.isfinite(self.budget.seconds)
            given_s = self.budget.seconds if timed else searched_s
            untried = self.outcomes.cut(given_s, len(loop.records) + known, proposals.due)
        finalists = decide(self.worker, self.outcomes, clock, self.say)
        best = next((r for r in finalists if r.won), None)
        result = TuneResult(
            best, tuple(loop.records), tuple(finalists), seconds=clock.elapsed_s, resumed=known,
            stopped=stopped, untried=untried, ready_s=clock.ready_s, searched_s=searched_s,
        )  # fmt: skip
        self.say(result)
        self.outcomes.save()
        return result

    def _begin(self, make: MakeStrategy) -> tuple[int, Proposals]:
        """Tell strategies what is known; return of how many configs that is, and what they propose."""
        strategies = {
            name: make(self.wanted.strategy, family, self.problem, self.device, self.wanted.seed)
            for name, family in self.families.items()
        }
        known = self.outcomes.resume()
        self.say(Started(self.problem, self.device, self.wanted.strategy, self.budget, len(known)))
        hints, untried = self.outcomes.hints(), self.outcomes.without_trials if known else ()
        proposals = Proposals(strategies, self.outcomes.wants, hints, untried)
        for record in known:
            proposals.tell(record)
        return len(known), proposals

    def _prepare(self) -> None:
        """Have the references made."""
        start = time.monotonic()
        self.worker.prepare()
        self.clock.prepared(time.monotonic() - start)
