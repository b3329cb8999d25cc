"""Candidates run in a process of their own: a hang is killed, a crash is data, a device error restarts it.

This is the parent's side, ``Worker``; the child's is ``child.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any

from tilewright import errors
from tilewright.device import Device
from tilewright.errors import OutOfMemory, RunError, TilewrightError
from tilewright.kernels.config import Config
from tilewright.problem import Problem
from tilewright.record import Check, Measurement, Record
from tilewright.store.exchange import record_from_dict
from tilewright.tuning.channel import Channel, Crashed, Hung, Json, Lost, Refused, python_child
from tilewright.tuning.job import Compiled, Final, Job
from tilewright.tuning.measure import Limits
from tilewright.tuning.worker_pool import WorkerPool

# Seconds that each stage of a request may take.
ALLOWANCES_S = {
    "start": 60.0, "open": 120.0, "reference": 120.0, "compile": 60.0, "run": 30.0, "inputs": 60.0,
    "time": 30.0,
}  # fmt: skip
_REFERENCE_FLOPS = 5e7  # of the problem, a second, at the very least: one core does 3e8 where C is 1
_INPUT_BYTES = 5e7  # of the problem, a second, that a host fetches twice and compares at the very least


class Worker:
    """The child process of one job, had when first needed and replaced when spoilt."""

    def __init__(
        self,
        job: Job,
        allowances_s: Mapping[str, float] | None = None,
        command: Sequence[str] | None = None,
        children: WorkerPool | None = None,
    ) -> None:
        """Prepare a worker; nothing starts yet.

        Args:
            job: what it is for.
            allowances_s: seconds for stages, instead of ``ALLOWANCES_S``.
            command: replaces the child, for tests.
            children: whose child it takes where one rests, and where its own will rest; None: none does.
        """
        self.job = job
        self._restarts = 0
        self._allowances_s = {**_allowances_s(Problem.parse(job.problem)), **(allowances_s or {})}
        self._command, self._children = command, children
        self._channel: Channel | None = None
        self._facts: Json = {}

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.retire()

    @property
    def device(self) -> Device:
        """The device's facts, as the child sees them."""
        if not self._facts:
            self._open()
        return Device.of(self._facts["device"])

    @property
    def context(self) -> dict[str, str]:
        """Versions and clocks, as the child sees them."""
        if not self._facts:
            self._open()
        return dict(self._facts["context"])

    def allow(self, stage: str, seconds: float) -> None:
        """Change how long a stage may take before the child counts as hung."""
        self._allowances_s[stage] = seconds

    def run(self, config: Config, best_us: float = math.inf, full: bool = False) -> Record:
        """Run, verify and time one config; whatever happens to it is a Record.

        Args:
            config: the candidate.
            best_us: the time to beat: what is far slower is given up early.
            full: add the checks of NaN, infinity and the inputs.

        Raises:
            RunError: if the child cannot even start.
        """
        request = {"do": "trial", "config": str(config), "best_us": best_us, "full": full}
        try:
            answer = self._ask(request)
        except (Lost, Refused) as error:
            outcome = "timeout" if isinstance(error, Hung) else "runtime"
            return self._failed(config, outcome, str(error))
        record = record_from_dict(answer["record"])
        if answer["spoilt"]:
            self.close()
        return record

    def compile(self, config: Config) -> Compiled:
        """Compile one config into the caches, so that its trial need not."""
        try:
            return Compiled(**self._ask({"do": "compile", "config": str(config)}))
        except Lost as error:
            if error.stage == "run":  # it compiles; the trial will tell the rest
                return Compiled("", str(error))
            return Compiled("timeout" if isinstance(error, Hung) else "compile", str(error))
        except Refused as error:
            return Compiled("", str(error))

    def prepare(self) -> None:
        """Make the inputs and compute the references now, rather than at the first trial.

        Raises:
            RunError: if that fails.
        """
        try:
            self._ask({"do": "prepare"})
        except (Lost, Refused) as error:
            self.close()
            raise RunError(
                f"cannot compute the reference of {self.job.problem}: {error}{_advice(error)}"
            ) from error

    def final(self, configs: Sequence[Config], limits: Limits) -> list[Final]:
        """Measure configs against each other; the fastest that is right in full has a good check.

        Raises:
            RunError: if the child hangs or dies over it, or a config brings the device or the inputs down.
        """
        request = {"do": "final", "configs": [str(c) for c in configs], "limits": asdict(limits)}
        try:
            answer = self._ask(request)
        except (Lost, Refused) as error:
            self.close()  # its device may be of no more use
            raise RunError(f"the last comparison failed: {error}") from error
        return [
            Final(row["config"], Measurement(**row["measurement"]), _check(row["check"])) for row in answer
        ]

    def close(self) -> None:
        """End the child; the next request starts a new one."""
        channel, self._channel = self._channel, None  # at once: two threads may end it
        if channel is not None:
            channel.kill()

    def retire(self) -> None:
        """Let the child rest for another job if it is well and someone keeps it; else end it."""
        channel, children = self._channel, self._children
        if children is None or channel is None or not channel.idle:
            self.close()
            return
        self._channel = None
        try:
            channel.ask({"do": "rest"}, self._allowances_s)
        except (Lost, Refused):
            channel.kill()
        else:
            children.keep(self._pool_key, channel)

    @property
    def _pool_key(self) -> tuple[str, ...]:
        """What another job must have in common with this one to take over its child."""
        job = self.job
        return (str(job.kind), str(job.index), str(job.facts), *(self._command or ()))

    def _failed(self, config: Config, outcome: str, reason: str) -> Record:
        facts = self._facts
        return Record(
            problem=self.job.problem,
            device=self.device.key if facts else "",
            family=config.family,
            config=str(config),
            outcome=outcome,
            deterministic=False,
            reason=reason,
            context=dict(facts.get("context", {})),
        )

    def _ask(self, request: Json) -> Any:
        self._open()
        assert self._channel is not None
        try:
            return self._channel.ask(request, self._allowances_s)
        except Lost:
            self._channel = None
            raise

    def _open(self) -> None:
        """Take a child that rests, or start one, and give it the job, unless that is done."""
        if self._channel is not None and self._channel.alive:
            return
        self._restarts += bool(self._facts)
        resting = self._children.take(self._pool_key) if self._children else None
        self._channel = resting or self._start()
        try:
            self._facts = self._channel.ask({"do": "open", **asdict(self.job)}, self._allowances_s)
        except Refused as error:
            self.close()
            raise _error(error.name)(str(error)) from None
        except Lost as error:
            self._channel = None
            raise RunError(f"the worker for {self.job.problem} cannot start: {error}") from error

    def _start(self) -> Channel:
        command, environment = python_child("tilewright.tuning.child")
        return Channel(self._command or command, environment)


def _allowances_s(problem: Problem) -> dict[str, float]:
    """Return what each stage may take; the reference of a large layer takes its time, its inputs do too."""
    large_s = {"reference": problem.flops / _REFERENCE_FLOPS, "inputs": problem.bytes / _INPUT_BYTES}
    return {stage: max(usual_s, large_s.get(stage, 0.0)) for stage, usual_s in ALLOWANCES_S.items()}


def _advice(error: Lost | Refused) -> str:
    """Say what may help against a reference that cannot be had: it took too long, or too much memory."""
    large = isinstance(error, Hung) or "SIGKILL" in str(error)  # as a system does that has no memory left
    if large or isinstance(error, Refused) and error.name == OutOfMemory.__name__:
        return "; a smaller layer may do, e.g. by --batch"
    if isinstance(error, Crashed):
        return "; if it does so again, a file of the cache may be damaged: `tilewright cache clear`"
    return ""


def _error(name: str) -> type[TilewrightError]:
    """Find one of our error classes by its name."""
    found = getattr(errors, name, RunError)
    return found if isinstance(found, type) and issubclass(found, TilewrightError) else RunError


def _check(data: Json | None) -> Check | None:
    return None if data is None else Check(**data)
