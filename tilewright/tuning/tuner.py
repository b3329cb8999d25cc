"""Tuning one problem: propose, compile ahead, try, record, and compare the finalists.

Every outcome goes to the store at once, so Ctrl-C, a crash or a reboot loses nothing, and the next
run goes on from there.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from tilewright import kernels
from tilewright.device import parse_selector
from tilewright.errors import DeviceError, ProblemError, StoreError, how_to_get
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.record import Record, Standing
from tilewright.runtime.base import Runtime
from tilewright.runtime.capacity import cores
from tilewright.search.proposals import MakeStrategy, Proposals, batch_size
from tilewright.search.space import usable
from tilewright.store import Store
from tilewright.tuning.budget import Budget
from tilewright.tuning.budget_clock import BudgetClock
from tilewright.tuning.compile_ahead import CompileAhead, InFlight
from tilewright.tuning.events import Progress, Started, Tried, TuneResult
from tilewright.tuning.finals import decide
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.outcomes import Outcomes
from tilewright.tuning.protocol import Compiled, Job, Stage
from tilewright.tuning.worker import Worker
from tilewright.tuning.worker_pool import WorkerPool

GPU_BUDGET = Budget(seconds=17.0)
CPU_BUDGET = Budget(seconds=45.0)
_MOST_COMPILERS = 15
_GPU_RUN_S = 3.0  # whatever runs longer on a GPU hangs; a CPU may compile at the first run
TIME_USED, TRIALS_DONE = "the time was used up", "all trials done"  # the budget has ended the search
_TRIAL_S = 0.4  # of one trial on a CPU
_LATE_S = 2.0  # so long after its references a CPU waits for what promises most to compile
_FORETASTE = 8  # configs of a family that promises most so far, compiled while the others are looked at
# A search that expects less than this share of the best time to be gained, so many times on end, is over.
ENOUGH, ENOUGH_TIMES = 0.001, 3


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
    kind, index = (own.backend, own.index) if own else parse_selector(device)
    named = kernels.pick(kernels.FAMILIES, wanted.families)
    threading.Thread(target=_get_ready, args=(kind,)).start()  # while a child opens the device
    with Worker(Job(str(problem), kind, index, wanted.seed), children=children) as worker:
        run = _Run(problem, worker, wanted, named, store, progress, children)
        try:
            return run.tune(make or _search_make())
        except BaseException:
            with suppress(StoreError):
                run.outcomes.save()
            raise


def _get_ready(backend: str | None) -> None:
    """Import what searches with, and read what other layers taught."""
    from tilewright.search import experience, strategies  # noqa: F401

    experience.read_shipped(backend)


def _search_make() -> MakeStrategy:
    from tilewright.search import strategies as search

    return search.make


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
        if self.device.backend == "numpy":
            raise DeviceError(f"{self.device.name}: nothing to tune on NumPy; {how_to_get('opencl')}")
        self.gpu = self.device.is_gpu
        if self.gpu:
            worker.allow(Stage.RUN, _GPU_RUN_S)
        self.budget = wanted.budget or (GPU_BUDGET if self.gpu else CPU_BUDGET)
        self.spending = BudgetClock(self.budget, self.gpu, start)
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
        self.proposals: Proposals  # from when strategies know what is known
        self.records: list[Record] = []
        self.idle = 0  # proposals on end that promised nothing, with a trial between any two
        self.idle_since = 0  # trials before the last of them
        self.stopped = ""

    def tune(self, make: MakeStrategy) -> TuneResult:
        """Search, compare the finalists, and return the result."""
        side = ThreadPoolExecutor(1)
        self.ahead.start()
        try:
            ready = side.submit(self._prepare)  # while the compilers start and strategies think
            known = self._begin(make)
            self._search(ready, batch_size(self.budget.trials, 2 * cores()))
            ready.result()  # where nothing was left to try
        finally:
            self.ahead.close()
            side.shutdown(wait=False)
        spent, searched_s = self.spending, self.spending.elapsed_s
        if self.stopped in (TIME_USED, TRIALS_DONE):
            given_s = self.budget.seconds if math.isfinite(self.budget.seconds) else searched_s
            self.outcomes.cut(given_s, len(self.records) + known, self.proposals.due)
        finalists = decide(self.worker, self.outcomes, spent, self.say)
        best = next((r for r in finalists if r.won), None)
        result = TuneResult(
            best, tuple(self.records), tuple(finalists), seconds=spent.elapsed_s, resumed=known,
            stopped=self.stopped, ready_s=spent.ready_s, searched_s=searched_s,
        )  # fmt: skip
        self.say(result)
        self.outcomes.save()
        return result

    def _begin(self, make: MakeStrategy) -> int:
        """Make strategies and tell them what is known; return of how many configs that is."""
        strategies = [
            make(self.wanted.strategy, family, self.problem, self.device, self.wanted.seed)
            for family in self.families.values()
        ]
        known = self.outcomes.resume()
        self.say(Started(self.problem, self.device, self.wanted.strategy, self.budget, len(known)))
        hints, untried = self.outcomes.hints(), self.outcomes.untried if known else ()
        self.proposals = Proposals(strategies, self.outcomes.wants, list(self.families), hints, untried)
        for record in known:
            self.proposals.tell(record)
        return len(known)

    def _prepare(self) -> None:
        """Have the references made."""
        start = time.monotonic()
        self.worker.prepare()
        self.spending.prepared(time.monotonic() - start)

    # ------------------------------------------------------------------------------ the search

    def _search(self, ready: Future[None], size: int) -> None:
        """Try configs, at most ``size`` proposed at a time, until the budget or the space is used up.

        A GPU tries what has compiled, whichever it is, while the others compile; a CPU must be quiet to be
        measured. Compilers wait for the first proposals, so these are few, and on a GPU come from the first
        strategies while the others still look. With a budget of trials all that is proposed is tried, in
        order, before more is: another search proposes the same, however fast it is.
        """
        proposals, counted = self.proposals, self.budget.trials is not None
        keen = self.gpu and not counted
        foretaste = min(_FORETASTE, size // 4) if keen else 0  # for half the compilers
        first = None if counted else proposals.best_us
        flying = InFlight(self.ahead, first, together=not self.gpu)
        most = size if keen else 1  # in flight where no more are asked for
        portion = max(1, size // (8 if self.gpu else 2))
        try:
            flying.submit(proposals.first(min(max(2, size // 2), self._room())))
            while counted and self._room(flying) and not proposals.looked:
                proposals.look(0)  # what a strategy sees would hang on which trials come before
            while not self._over and (flying or not self.ahead.closed):
                if ready.done() and (compiled := flying.take()):
                    ready.result()
                    self._try_one(*compiled)
                elif not (proposals.looked or self.ahead.closed):
                    flying.submit(proposals.look(foretaste))
                elif self.ahead.closed or len(flying) >= most:
                    self._await(flying, ready)
                elif batch := self._propose(portion, flying):
                    if self.idle >= ENOUGH_TIMES:
                        self.stopped = f"no config is expected to be {ENOUGH:.1%} faster"
                        return
                    flying.submit(batch)
                    portion = min(2 * portion, size)
                elif flying:
                    self._await(flying, ready)
                else:
                    self.stopped = "all configs tried" if self._room() > 0 else TRIALS_DONE
                    return
            while flying.dropped and not (self.outcomes.found or self._over):  # the trial compiles
                self._try_one(flying.dropped.pop(0), Compiled(None))
            self.stopped = TIME_USED
        finally:
            self.ahead.close()

    def _await(self, flying: InFlight, ready: Future[None]) -> None:
        """Wait until a config can be tried, or the time is over."""
        ready.result()
        if self.gpu:
            left = self._left_s()
            flying.wait(max(left, 0.0) if math.isfinite(left) else None)
        else:
            self._let_compile(flying)

    def _propose(self, size: int, flying: InFlight) -> list[Config]:
        """Ask for more configs, no more than the trials that are left."""
        if self.budget.trials is None:
            batch = self.proposals.next(size)
            hopeless = math.isfinite(self.budget.seconds) and self.proposals.gain() < ENOUGH
            if not hopeless:
                self.idle = 0
            elif not self.idle or len(self.records) > self.idle_since:  # a trial may have changed its mind
                self.idle, self.idle_since = self.idle + 1, len(self.records)
            return batch
        return self.proposals.next(min(size, self._room(flying)))

    def _room(self, flying: Sized = ()) -> int:
        """How many trials are left."""
        if self.budget.trials is None:
            return sys.maxsize
        return self.budget.trials - len(self.records) - len(flying)

    @property
    def _over(self) -> bool:
        """Whether there is no time for another trial; there is for a first one, however long it compiles."""
        return bool(self.records) and self.spending.over(self.outcomes.found, self._hopeful)

    @property
    def _hopeful(self) -> bool:
        """Whether something much faster than the best so far is to be expected."""
        return self.outcomes.found and self.proposals.hopeful(self.outcomes.best_us)

    def _left_s(self, compiled: int = 0) -> float:
        """Seconds left to search, without end before a first trial; with some compiled, to compile more."""
        if not (self.records or compiled):
            return math.inf
        return self.spending.left_s(not self.records or self.outcomes.found, self._hopeful)

    def _try_one(self, config: Config, compiled: Compiled) -> None:
        """Try a config, and tell all what came of it."""
        self.spending.begin_trial()
        start = time.monotonic()
        tried = self._try(config, compiled)
        self.spending.trial_s = time.monotonic() - start
        record = self.outcomes.keep(replace(tried, standing=Standing.TRIAL))
        self.records.append(record)
        self.proposals.tell(record)
        best = self.outcomes.best_us if self.outcomes.found else None
        trials = len(self.records)
        self.say(Tried(record, trials, best, self.spending.elapsed_s, self.spending.share(trials)))

    def _let_compile(self, flying: InFlight) -> None:
        """Wait until all have compiled, or until there is just time to try those that have; then stop.

        A CPU cannot be measured while it compiles. References that take all of a small budget leave just one
        trial, and it is no matter of chance which.
        """
        while flying.compiling:
            done = len(flying) - flying.compiling
            left = self._left_s(compiled=done) - _TRIAL_S * done
            if not (self.records or flying.first_compiled):
                left = max(left, self.spending.ready_s + _LATE_S - self.spending.elapsed_s)
            if left <= 0:
                self.ahead.close()
                return
            flying.wait(min(left, 60.0))

    def _try(self, config: Config, compiled: Compiled) -> Record:
        """Return the outcome of one config."""
        if compiled.outcome:
            return Record(
                problem=str(self.problem), device=self.device.key, family=config.family, config=str(config),
                outcome=compiled.outcome, deterministic=False, reason=compiled.reason,
                compile_s=compiled.compile_s, versions=self.worker.versions,
            )  # fmt: skip
        return replace(self.worker.run(config, self.outcomes.best_us), compile_s=compiled.compile_s)
