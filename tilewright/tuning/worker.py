"""Candidates run in a process of their own: a hang is killed, a crash is data, a device error restarts it.

This is the parent's side, ``Worker``; the child's is ``child.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tilewright import errors
from tilewright.checking.stage import Stage
from tilewright.device import Device
from tilewright.errors import OutOfMemory, RunError, TilewrightError
from tilewright.kernels.config import Config
from tilewright.measuring.rounds import Limits
from tilewright.problem import Problem
from tilewright.record import Outcome, Record, Versions
from tilewright.runtime.pools import trim_pools
from tilewright.tuning.channel import (
    Channel,
    ChildError,
    ChildLost,
    Crashed,
    Hung,
    child_environment,
    python_child,
)
from tilewright.tuning.protocol import (
    Compare,
    Compile,
    Compiled,
    Final,
    Job,
    Judged,
    Opened,
    Prepare,
    Rank,
    Rest,
    Try,
    WorkerRequest,
    encode,
)
from tilewright.tuning.worker_pool import WorkerPool

# Seconds that each stage of a request may take.
ALLOWANCES_S: dict[str, float] = {
    Stage.START: 60.0, Stage.OPEN: 120.0, Stage.REFERENCE: 120.0, Stage.COMPILE: 60.0, Stage.RUN: 30.0,
    Stage.INPUTS: 60.0, Stage.TIME: 30.0,
}  # fmt: skip
_REFERENCE_FLOPS = 5e7  # of the problem, a second, at the very least: one core does 3e8 where C is 1
_RUN_FLOPS = 1e9  # of the problem, a second, by any kernel that is worth its time
_INPUT_BYTES = 5e7  # of the problem, a second, that a host fetches twice and compares at the very least


class Worker:
    """The child process of one job, started when first needed and replaced when spoilt.

    Attributes:
        job: its problem and device.
        restarts: how often a lost or spoilt child was replaced.
    """

    def __init__(
        self,
        job: Job,
        allowances_s: Mapping[str, float] | None = None,
        command: Sequence[str] | None = None,
        children: WorkerPool | None = None,
    ) -> None:
        """Prepare a worker; nothing starts yet.

        Args:
            job: its problem and device.
            allowances_s: seconds for stages, instead of ``ALLOWANCES_S``.
            command: replaces the child, for tests.
            children: a pool that it takes its child from, and returns it to; None: no pool.
        """
        self.job = job
        self.restarts = 0
        self._allowances_s = {**_allowances_s(Problem.parse(job.problem)), **(allowances_s or {})}
        self._command, self._children = command, children
        self._channel: Channel | None = None
        self._key: tuple[str, ...] = ()  # of the child in the pool
        self._opened: Opened | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.retire()

    @property
    def device(self) -> Device:
        """The device's facts, as the child sees them."""
        return self._known().device

    @property
    def versions(self) -> Versions:
        """Versions and clocks, as the child sees them."""
        return self._known().versions

    def allow(self, stage: Stage, seconds: float) -> None:
        """Change how long a stage may take before the child counts as hung."""
        self._allowances_s[stage] = seconds

    def run(self, config: Config, best_us: float = math.inf, full: bool = False) -> Record:
        """Run, verify and time one config; a failure is a Record too.

        Args:
            config: the candidate.
            best_us: the time to beat: a config that is far slower is given up early.
            full: add the checks of NaN, infinity and the inputs.

        Raises:
            RunError: if the child cannot even start.
        """
        try:
            judged = Judged.from_dict(self._ask(Try(str(config), best_us, full)))
        except (ChildLost, ChildError) as error:
            outcome = Outcome.TIMEOUT if isinstance(error, Hung) else Outcome.RUNTIME
            return self.failed(config, outcome, str(error))
        if judged.spoilt:
            self.close()
        return judged.record

    def compile(self, config: Config) -> Compiled:
        """Compile one config into the caches, so that its trial need not."""
        try:
            return Compiled.from_dict(self._ask(Compile(str(config))))
        except ChildLost as error:
            if error.stage == Stage.RUN:  # it compiles; the trial will tell the rest
                return Compiled(None, str(error))
            return Compiled(Outcome.TIMEOUT if isinstance(error, Hung) else Outcome.COMPILE, str(error))
        except ChildError as error:
            return Compiled(None, str(error))

    def ranked(self, families: Sequence[str], deterministic: bool) -> list[Config]:
        """Return the model's choices over the families of these names.

        Raises:
            RunError: the child hangs or dies over it.
        """
        try:
            return list(map(Config.parse, self._ask(Rank(list(families), deterministic))))
        except (ChildLost, ChildError) as error:
            raise RunError(f"cannot rank the configs of {self.job.problem}: {error}") from error

    def prepare(self) -> None:
        """Make the inputs and compute the references now, rather than at the first trial.

        Raises:
            RunError: if that fails.
        """
        try:
            self._ask(Prepare())
        except (ChildLost, ChildError) as error:
            self.close()
            raise RunError(
                f"cannot compute the reference of {self.job.problem}: {error}{_advice(error)}"
            ) from error

    def final(self, configs: Sequence[Config], limits: Limits) -> list[Final]:
        """Measure configs against each other; the fastest that is right in full has a good check.

        Raises:
            RunError: if the child hangs or dies over it, or a config brings the device or the inputs down.
        """
        try:
            asked = Compare(list(map(str, configs)), asdict(limits))
            return list(map(Final.from_dict, self._ask(asked)))
        except (ChildLost, ChildError) as error:
            self.close()  # its device may be of no more use
            raise RunError(f"the last comparison failed: {error}") from error

    def close(self) -> None:
        """End the child; the next request starts a new one."""
        channel, self._channel = self._channel, None  # at once: two threads may end it
        if channel is not None:
            channel.kill()

    def retire(self) -> None:
        """Return the child to the pool if there is one and it is idle; else end it."""
        channel, children = self._channel, self._children
        if children is None or channel is None or not channel.idle:
            self.close()
            return
        self._channel = None
        try:
            channel.ask(encode(Rest()), self._allowances_s)
        except (ChildLost, ChildError):
            channel.kill()
        except BaseException:  # Ctrl-C
            channel.kill()
            raise
        else:
            children.keep(self._key, channel)

    @property
    def _pool_key(self) -> tuple[str, ...]:
        """The key of jobs that can share a child that starts now: it keeps its environment."""
        job, settings = self.job, sorted(child_environment().items())
        return (str(job.backend), str(job.index), str(job.facts), *(self._command or ()), str(settings))

    def failed(self, config: Config, outcome: Outcome, reason: str) -> Record:
        """Return the record of a config that gave no answer."""
        known = self._opened
        return Record(
            problem=self.job.problem, device=known.device.key if known else "", family=config.family,
            config=str(config), outcome=outcome, deterministic=False, reason=reason,
            versions=known.versions if known else Versions(),
        )  # fmt: skip

    def _known(self) -> Opened:
        if self._opened is None:
            self._open()
        assert self._opened
        return self._opened

    def _ask(self, request: WorkerRequest) -> Any:
        self._open()
        assert self._channel is not None
        try:
            return self._channel.ask(encode(request), self._allowances_s)
        except ChildLost:
            self._channel = None
            raise

    def _open(self) -> None:
        """Take a child from the pool, or start one, and send it the job, unless that is done.

        A child that crashes meanwhile, as may happen if the system is short of memory, is replaced once.
        """
        if self._channel is not None and self._channel.alive:
            return
        self.restarts += self._opened is not None
        for last in (False, True):
            self._key = self._pool_key  # before it starts: the environment may change meanwhile
            resting = self._children.take(self._key) if self._children else None
            self._channel = resting or self._start()
            try:
                self._opened = Opened.from_dict(self._channel.ask(encode(self.job), self._allowances_s))
                return
            except ChildError as error:
                self.close()
                raise _error(error.name)(str(error)) from None
            except ChildLost as error:
                closed, self._channel = self._channel is None, None
                if closed or last or not isinstance(error, Crashed):
                    raise RunError(f"the worker for {self.job.problem} cannot start: {error}") from error

    def _start(self) -> Channel:
        if self.job.backend == "cuda":
            trim_pools()  # the child needs memory, and gets none that is kept for this process
        command, environment = python_child()
        try:
            return Channel(self._command or command, environment)
        except OSError as error:
            raise RunError(f"the worker for {self.job.problem} cannot start: {error}") from error


def _allowances_s(problem: Problem) -> dict[str, float]:
    """Return the seconds that each stage may take: more for large layers."""
    large_s: dict[str, float] = {
        Stage.REFERENCE: problem.flops / _REFERENCE_FLOPS, Stage.INPUTS: problem.bytes / _INPUT_BYTES,
        Stage.RUN: problem.flops / _RUN_FLOPS,
    }  # fmt: skip
    return {stage: max(usual_s, large_s.get(stage, 0.0)) for stage, usual_s in ALLOWANCES_S.items()}


def _advice(error: ChildLost | ChildError) -> str:
    """Suggest what may help if the reference cannot be computed: it took too long, or too much memory."""
    large = isinstance(error, Hung) or "SIGKILL" in str(error)  # as a system does that has no memory left
    if large or isinstance(error, ChildError) and error.name == OutOfMemory.__name__:
        return "; a smaller layer may do, e.g. by --batch"
    if isinstance(error, Crashed):
        return "; if it does so again, a file of the cache may be damaged: `tilewright cache clear`"
    return ""


def _error(name: str) -> type[TilewrightError]:
    """Find one of our error classes by its name."""
    found = getattr(errors, name, RunError)
    return found if isinstance(found, type) and issubclass(found, TilewrightError) else RunError
