"""Trying a config: compile, run, verify, time. This is the child's side."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.checking.stage import Stage
from tilewright.checking.verify import Candidate, TooSlow, Verifier
from tilewright.device import Device
from tilewright.errors import CompileError, ConfigError, OutOfMemory, RunError, TilewrightError, shortened
from tilewright.kernels import FAMILIES, family_of, pick
from tilewright.kernels.blueprint import EXTRAS, NO_KERNELS, UNUSED_BYTES, Blueprint
from tilewright.kernels.config import Config
from tilewright.kernels.untuned import pack
from tilewright.measuring.rounds import Limits, measure, ranking
from tilewright.problem import Problem
from tilewright.record import Check, Outcome, Record, Versions
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Built, Runtime
from tilewright.search.guesses import guesses
from tilewright.tuning.protocol import Compiled, Final, Job, Judged

# A trial's timing is rough: the finalists are measured again.
TRIAL = Limits(max_rounds=40, max_s=0.3, relative=0.02, drop=True, hopeless=2.0, warm_runs=0)
HOPELESS = 20.0  # checked runs that are all this many times slower than the best end a trial
_LEAST_SLOW_US = 20_000.0  # whatever the best, a run shorter than this is worth timing
_OUTCOMES = {ConfigError: Outcome.CONSTRAINTS, CompileError: Outcome.COMPILE, TooSlow: Outcome.TIMEOUT}
_BEFORE_IT_RUNS = (ConfigError, CompileError, OutOfMemory)  # errors that leave the device as it was
_HARMLESS = re.compile(r"OUT_OF_RESOURCES|too many resources", re.IGNORECASE)


class Trials:
    """The candidates of one problem on one device, in this process."""

    def __init__(self, job: Job, stage: Callable[[Stage], None]) -> None:
        """Open the device; with ``job.facts`` only get ready to compile for it."""
        self.problem = Problem.parse(job.problem)
        self._job, self._stage = job, stage
        self._runtime: Runtime | None = None
        self._verifier: Verifier | None = None
        if job.facts is None or job.facts["backend"] != "cuda":
            self._runtime = open_runtime(job.backend, job.index)
            self.device = self._runtime.device
            self.versions = Versions.from_dict(self._runtime.versions())
        else:
            self.device = Device.of(job.facts)
            self.versions = Versions()

    def prepare(self) -> Verifier:
        """Make the inputs and the references, at the first call, and warm up what each trial uses."""
        self._stage(Stage.REFERENCE)
        if self._verifier is None:
            assert self._runtime is not None, "opened to compile only"
            self._verifier = Verifier(self._runtime, self.problem, self._job.seed)
            self._runtime.timed(lambda: None, True)
        return self._verifier

    def run(self, config: Config, best_us: float, full: bool) -> Judged:
        """Make a Record of a config."""
        record = Record(
            problem=str(self.problem), device=self.device.key, family=config.family, config=str(config),
            outcome=Outcome.RUNTIME, deterministic=False, versions=self.versions,
        )  # fmt: skip
        try:
            verifier = self.prepare()
            self._stage(Stage.COMPILE)
            candidate = verifier.candidate(config)
            plan = candidate.plan
            record = replace(
                record, deterministic=plan.deterministic, registers=plan.registers,
                workspace_bytes=plan.workspace_bytes, compile_s=plan.compile_s,
            )  # fmt: skip
            return Judged(self._judge(verifier, record, candidate, best_us, full), verifier.spoilt)
        except Exception as error:
            harmless = isinstance(error, _BEFORE_IT_RUNS) or _HARMLESS.search(str(error))
            spoilt = verifier.spoilt if isinstance(error, TooSlow) else not harmless
            return Judged(replace(record, outcome=_outcome_of(error), reason=_line(error)), spoilt)

    def compile(self, config: Config) -> Compiled:
        """Compile a config and its packing into the cache of binaries."""
        self._stage(Stage.COMPILE)
        start = time.perf_counter()
        try:
            family = family_of(config.family)
            family.check(self.problem, self.device, config)
            blueprint = family.blueprint(self.problem, self.device, config)
            filter_bytes = max(blueprint.packed_bytes, self.problem.w_bytes)
            self._build(blueprint, filter_bytes)
            if blueprint.pack is not None:
                self._build(pack(self.problem, self.device, blueprint), filter_bytes)
        except TilewrightError as error:
            return Compiled(_outcome_of(error), _line(error))
        return Compiled(None, "", time.perf_counter() - start)

    def ranked(self, families: Sequence[str], deterministic: bool) -> list[Config]:
        """Return the model's choices over the families of these names."""
        self._stage(Stage.REFERENCE)
        return guesses(self.problem, self.device, pick(FAMILIES, families), deterministic)

    def final(self, configs: Sequence[Config], limits: Limits) -> list[Final]:
        """Measure configs against each other, then verify in full from the fastest on until one is right.

        Raises:
            RunError: one of them, which may be any, wrote where it must not: no check here is to be trusted.
        """
        verifier = self.prepare()
        candidates = {}
        for config in configs:
            self._stage(Stage.COMPILE)
            candidates[str(config)] = verifier.candidate(config)
            self._stage(Stage.RUN)  # once untimed: the first launch loads the machine code
            candidates[str(config)].call()
        self._stage(Stage.TIME)
        figures = measure({name: c.run for name, c in candidates.items()}, verifier.runtime, limits)
        checks: dict[str, Check] = {}
        for name in ranking(figures):
            checks[name] = verifier.check(candidates[name], True, self._stage)
            if verifier.spoilt:
                raise RunError(f"spoilt by {', '.join(candidates)}: {checks[name].reason}")
            if checks[name].ok:
                break
        return [Final(name, figures[name], checks.get(name)) for name in candidates]

    def _judge(
        self, verifier: Verifier, record: Record, candidate: Candidate, best_us: float, full: bool
    ) -> Record:
        """Verify, then time, a candidate that compiled."""
        check = verifier.check(candidate, full, self._stage, max(HOPELESS * best_us, _LEAST_SLOW_US))
        if not check.ok:
            return replace(record, outcome=Outcome.WRONG, check=check, reason=check.reason)
        self._stage(Stage.TIME)
        deterministic = record.deterministic and check.repeatable
        figure = measure({"it": candidate.run}, verifier.runtime, TRIAL, best_us)["it"]
        return replace(
            record, outcome=Outcome.CORRECT, check=check, measurement=figure, deterministic=deterministic
        )

    def _build(self, blueprint: Blueprint, packed_bytes: int) -> None:
        """Compile, with no device where the compiler needs none."""
        if self._runtime is None:
            from tilewright.runtime.nvrtc import compile_cuda

            for program in blueprint.programs:
                compile_cuda(program, self.device.arch)
            return
        built = [self._runtime.compile(program) for program in blueprint.programs]
        if self._runtime.unified:
            self._stage(Stage.RUN)
            _rehearse(self._runtime, blueprint, built, self.problem, packed_bytes)


PAST = 0x7F  # each byte of a counter that is past its end


def _rehearse(
    runtime: Runtime, blueprint: Blueprint, built: Sequence[Built], problem: Problem, packed_bytes: int
) -> None:
    """Launch one block of each kernel: PoCL makes machine code at the first launch, and keeps it on disk.

    Its code differs with the block's size and, beyond 2^16 threads, with the grid's: then all is run. A block
    that takes its tiles from a counter finds none left.
    """
    counters = {buffer.name for buffer in blueprint.workspace if buffer.zeroed}
    sizes = {b.name: b.nbytes for b in blueprint.workspace}
    sizes |= dict.fromkeys(EXTRAS, UNUSED_BYTES)
    sizes |= {operand.name: operand.nbytes for operand in problem.operands.values()}
    sizes |= dict(w=packed_bytes, packed=packed_bytes)
    loaded = {name: program for program in map(runtime.load, built) for name in program.kernels}
    shown = (
        replace(launch, grid=(1, 1, 1)) if max(launch.work_items) < 1 << 16 else launch
        for launch in blueprint.launches if launch.kernel not in NO_KERNELS
    )  # fmt: skip
    for launch in dict.fromkeys(shown):
        memories = [runtime.alloc(sizes[name]) for name in launch.args]
        for name, memory in zip(launch.args, memories, strict=True):
            if name in counters:
                runtime.fill(memory, PAST)
        runtime.launch(loaded[launch.kernel], launch, memories)
        runtime.synchronize()


def _outcome_of(error: Exception) -> Outcome:
    """Return the outcome of a config that ended in an error: if nothing else is known, it failed to run."""
    return next((found for kind, found in _OUTCOMES.items() if isinstance(error, kind)), Outcome.RUNTIME)


def _line(error: Exception) -> str:
    """Return an error's text as one line, shortened."""
    text = str(error) if isinstance(error, (TilewrightError, TooSlow)) else f"{type(error).__name__}: {error}"
    return shortened(" ".join(text.split()), 500)
