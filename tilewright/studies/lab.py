"""Where a study is run: the device, and what turns a step into something that can be timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright import kernels
from tilewright.bench import Bound
from tilewright.contest import offered
from tilewright.device import parse_selector
from tilewright.dispatch import REFERENCE, UNVERIFIED, dispatch
from tilewright.errors import CompileError, ConfigError, ProblemError, RunError
from tilewright.execution import Plan
from tilewright.kernels.family import Config
from tilewright.kernels.named import find
from tilewright.peers import PEERS, Contestant, Peer, Setting, applicable, usual
from tilewright.problem import Problem
from tilewright.record import Check
from tilewright.runtime import Runtime, open_runtime
from tilewright.store import Store
from tilewright.studies.pinned import ranked
from tilewright.studies.study import Layer, Step
from tilewright.tuning.inputs import normal_inputs
from tilewright.tuning.measure import Limits, Run, measure
from tilewright.tuning.verify import Verifier

MOST_TRIED = 64  # configs of a held space that are compiled before it counts as unusable
QUICK = Limits(min_rounds=6, max_rounds=6, max_s=3.0, warm_runs=0)


@dataclass
class Entry:
    """One step on one layer, right and ready to be timed; a kernel of ours has a ``plan`` and a ``check``."""

    problem: Problem
    runtime: Runtime
    run: Run
    plan: Plan | None = None
    check: Check | None = None
    note: str = ""


@dataclass
class Lab:
    """What all parts of a study share.

    Attributes:
        tune: tunes a layer with some families before it is measured; None: no tuning.
        tries: configs of a held space that are compared, the model's best.
        say: is told what is going on.
    """

    runtime: Runtime
    store: Store
    quick: bool = False
    rounds: int = 24
    threads: int = 1
    tune: Callable[[Problem, tuple[str, ...]], None] | None = None
    tries: int = 8
    say: Callable[[str], None] = lambda text: None
    _verifiers: dict[tuple[int, Problem], Verifier] = field(default_factory=dict)

    @property
    def limits(self) -> Limits:
        """How carefully a figure is measured."""
        if self.quick:
            return QUICK
        return Limits(min_rounds=self.rounds, max_rounds=self.rounds, max_s=120.0, warm_runs=0)

    def forget(self) -> None:
        """Free the inputs and references of a layer."""
        self._verifiers.clear()

    def enter(self, step: Step, layer: Layer) -> Entry:
        """Make a step ready to be timed on a layer, its answer checked.

        Raises:
            TilewrightError: it cannot be run here; says why.
        """
        if step.waits:
            raise ConfigError(step.waits)
        problem = layer.at(self.quick, step.dtype)
        runtime = self._runtime(step)
        if step.peer:
            return self._peer(step, problem, runtime)
        choices = self._choices(step, problem, runtime)
        entries = [self._checked(problem, runtime, config, note) for config, note in choices]
        return entries[0] if len(entries) == 1 else _fastest(entries)

    def kernel_us(self, entry: Entry) -> float:
        """Time an entry by itself, in us."""
        return measure({"it": entry.run}, entry.runtime, self.limits)["it"].cold_us

    def _runtime(self, step: Step) -> Runtime:
        return open_runtime(*parse_selector(step.on)) if step.on else self.runtime

    def _choices(self, step: Step, problem: Problem, runtime: Runtime) -> list[tuple[Config, str]]:
        """Return the configs of a step that are to be compared."""
        if step.config:
            return [(find(step.config, problem), "")]
        pin = step.pin if runtime.device.lanes == 32 or step.cpu_pin is None else step.cpu_pin
        if not pin:
            names = () if step.family == "all" else (step.family,)
            if self.tune and runtime is self.runtime:
                self.tune(problem, names)
            plan = dispatch(problem, runtime, self.store, families=names)
            return [(plan.config, plan.note.partition(UNVERIFIED)[0])]
        held = ranked(kernels.family(step.family), problem, runtime.device, pin, MOST_TRIED)
        return [(config, "") for config in self._compiling(held, runtime, problem)]

    def _compiling(self, configs: list[Config], runtime: Runtime, problem: Problem) -> list[Config]:
        """Return the first few that the compiler takes: a space may hold configs that spill."""
        found: list[Config] = []
        last: CompileError | None = None
        for config in configs:
            try:
                Plan.make(runtime, problem, config)
                found.append(config)
            except CompileError as error:
                last = error
            if len(found) == (1 if self.quick else self.tries):
                break
        if not found:
            raise last or ConfigError(f"no such config is legal for {problem}")
        return found

    def _checked(self, problem: Problem, runtime: Runtime, config: Config, note: str) -> Entry:
        verifier = self._verifier(problem, runtime)
        candidate = verifier.candidate(config)
        check = verifier.check(candidate)
        if not check.ok:
            raise RunError(f"wrong answer: {check.reason}")
        return Entry(problem, runtime, candidate.run, candidate.plan, check, note)

    def _verifier(self, problem: Problem, runtime: Runtime) -> Verifier:
        key = (id(runtime), problem)
        if key not in self._verifiers:
            self._verifiers[key] = Verifier(runtime, problem)
        return self._verifiers[key]

    def _peer(self, step: Step, problem: Problem, runtime: Runtime) -> Entry:
        """Take the fastest contestant of a peer, by a quick timing."""
        name, _, tag = step.peer.partition("-")
        peers = [peer for peer in usual(runtime.device) if name == "best"] or _named(name, runtime)
        inputs = normal_inputs(problem, 0)
        setting = Setting(runtime.device, self.threads, lambda: runtime.stream, runtime.timed)
        truth = Bound(runtime, Plan.make(runtime, problem, REFERENCE), inputs).once()
        reasons, found = [], list[Contestant]()
        for peer in peers:
            entered = offered(peer, problem, inputs, truth, setting)
            found += [c for c in entered.contestants if not tag or tag in c.tags]
            reasons.append(entered.reason)
        if not found:
            why = "; ".join(filter(None, reasons)) or f"{name} has no way of that kind"
            raise ProblemError(f"no time: {why}")
        best = min(found, key=lambda c: setting.quick_us(c.run))
        return Entry(problem, runtime, best.run, note=f"{best.peer}: {best.detail}")


def _named(name: str, runtime: Runtime) -> list[Peer]:
    found = [peer for peer in applicable(runtime.device) if peer.name == name]
    if not found:
        known = any(peer.name == name for peer in PEERS)
        raise ProblemError(f"{name} {'is not for this device' if known else 'is no peer here'}")
    return found


def _fastest(entries: list[Entry]) -> Entry:
    """Time entries of one step roughly and keep the best."""
    runs = {str(number): entry.run for number, entry in enumerate(entries)}
    figures = measure(runs, entries[0].runtime, QUICK)
    return entries[int(min(figures, key=lambda name: figures[name].cold_us))]
