"""The setting of a study: its device, and the code that makes a step ready to be timed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tilewright.arguments.named import find
from tilewright.bench.contest import Entered, offered, true_answer
from tilewright.checking.inputs import Inputs, normal_inputs
from tilewright.checking.verify import Verifier
from tilewright.device import Device, parse_selector
from tilewright.dispatch.dispatch import layer_plan
from tilewright.errors import CompileError, ConfigError, ProblemError, RunError, TilewrightError
from tilewright.kernels import family_of
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.measuring.rounds import Limits, measure
from tilewright.peers import PEERS, Peer, Setting, applicable, usual
from tilewright.plans.plan import Plan
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.record import Check
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Run, Runtime
from tilewright.runtime.capacity import cores
from tilewright.search.ranking import rank
from tilewright.search.space import Pins
from tilewright.store import Store
from tilewright.studies.study import Breakdown, Counters, Step, StudyLayer, present

T = TypeVar("T")
COMPARED = 4  # configs of a pinned space that are timed against each other, the model's best
MOST_TRIED = 64  # most configs of a pinned space that are compiled before it counts as unusable
QUICK = Limits(min_rounds=6, max_rounds=6, max_s=3.0, warm_runs=0)
FULL = Limits(min_rounds=24, max_rounds=24, max_s=120.0, warm_runs=0)  # as many as the source of ``csg`` took


@dataclass
class Entry:
    """One step on one layer, verified and ready to be timed; our kernels have a ``plan`` and a ``check``."""

    problem: Problem
    runtime: Runtime
    run: Run
    plan: Plan | None = None
    check: Check | None = None
    note: str = ""


@dataclass(eq=False)
class Lab:
    """What all parts of a study share.

    Attributes:
        tune: tunes a layer with some families before it is measured; None: no tuning.
        budget: of that, as text; empty: no tuning.
        say: is called with the current step, as text.
    """

    runtime: Runtime
    store: Store
    quick: bool = False
    tune: Callable[[Problem, tuple[str, ...]], None] | None = None
    budget: str = ""
    say: Callable[[str], None] = lambda text: None
    _made: dict[tuple[Any, ...], Any] = field(default_factory=dict)  # for a layer: large, or slow to make

    @property
    def limits(self) -> Limits:
        """The limits of each measurement."""
        return QUICK if self.quick else FULL

    def forget(self) -> None:
        """Free the inputs, references and peers of a layer."""
        self._made.clear()

    def _once(self, make: Callable[..., T], *given: Any) -> T:
        """Return what ``make`` makes of some values; the same until ``forget``."""
        if (make, *given) not in self._made:
            self._made[make, *given] = make(*given)
        made: T = self._made[make, *given]
        return made

    def enter(self, step: Step, layer: StudyLayer) -> Entry:
        """Make a step ready to be timed on a layer, and check its answer.

        Raises:
            TilewrightError: it cannot run here; says why.
        """
        problem = layer.at(self.quick, step.dtype)
        runtime = self._runtime(step)
        if step.peer:
            return self._peer(step, problem, runtime)
        choices = self._choices(step, problem, runtime)
        entries, last = list[Entry](), RunError("nothing was tried")
        for config, note in choices:
            try:
                entries.append(self._checked(problem, runtime, config, note))
            except RunError as error:  # the other configs may be correct
                if (Verifier, runtime, problem) not in self._made:
                    raise  # the failure spoilt the verifier's inputs
                last = error
        if not entries:
            raise last
        return entries[0] if len(entries) == 1 else _fastest(entries)

    def inputs(self, problem: Problem) -> Inputs:
        """Return the inputs of a layer."""
        return self._once(normal_inputs, problem, 0)

    def each(
        self, part: Breakdown | Counters, figures: Callable[[Entry], dict[str, T]]
    ) -> dict[tuple[str, str], dict[str, T] | str]:
        """Return the figures of every step of a part on every layer, by their names; or why it has none."""
        found: dict[tuple[str, str], dict[str, T] | str] = {}
        for layer in present(part.layers, self.quick):
            for step in part.steps:
                self.say(f"{part.title}: {layer.name}, {step.name}")
                try:
                    found[layer.name, step.name] = figures(self.enter(step, layer))
                except TilewrightError as error:
                    found[layer.name, step.name] = str(error)
            self.forget()
        return found

    def _runtime(self, step: Step) -> Runtime:
        return open_runtime(*parse_selector(step.on)) if step.on else self.runtime

    def _choices(self, step: Step, problem: Problem, runtime: Runtime) -> list[tuple[Config, str]]:
        """Return the configs of a step to compare, each with a note."""
        if step.config:
            return [(find(step.config, problem), "")]
        pin = step.pin if runtime.device.is_gpu or step.cpu_pin is None else step.cpu_pin
        if not pin:
            names = () if step.family == "all" else (step.family,)
            if self.tune and runtime is self.runtime:
                self.tune(problem, names)
            plan = layer_plan(Request(problem, families=names), runtime, self.store).plan
            return [(plan.config, plan.note if plan.why.verified else plan.why.basis.value)]
        found = pinned(family_of(step.family), problem, runtime.device, pin)
        return [(config, "") for config in self._compiling(found, runtime, problem)]

    def _compiling(self, configs: list[Config], runtime: Runtime, problem: Problem) -> list[Config]:
        """Return the first few that compile: some configs of a space may spill registers."""
        wanted = 1 if self.quick else COMPARED
        found: list[Config] = []
        reasons: list[str] = []
        for start in range(0, len(configs), 2 * wanted):
            batch = configs[start : start + 2 * wanted]
            for config, reason in zip(batch, _refusals(batch, runtime, problem), strict=True):
                found += [] if reason else [config]
                reasons += [reason] if reason else []
            if len(found) >= wanted:
                break
        if not found:
            raise CompileError(reasons[-1] if reasons else f"no such config is legal for {problem}")
        return found[:wanted]

    def _checked(self, problem: Problem, runtime: Runtime, config: Config, note: str) -> Entry:
        verifier = self._once(Verifier, runtime, problem)
        candidate = verifier.candidate(config)
        check = verifier.check(candidate)
        if verifier.spoilt:
            del self._made[Verifier, runtime, problem]
        if not check.ok:
            raise RunError(f"wrong answer: {check.reason}")
        return Entry(problem, runtime, candidate.run, candidate.plan, check, note)

    def _peer(self, step: Step, problem: Problem, runtime: Runtime) -> Entry:
        """Return the fastest contestant of a peer, by a quick timing."""
        name, _, tag = step.peer.partition("-")
        peers = list(usual(runtime.device)) if name == "best" else _named(name, runtime)
        entered = [self._once(self._offered, peer, problem, runtime) for peer in peers]
        found = [c for one in entered for c in one.contestants if not tag or tag in c.tags]
        if not found:
            why = "; ".join(one.reason for one in entered if one.reason)
            raise ProblemError(why or f"{step.peer} has no way to compute it")
        setting = Setting.of(runtime)
        best = min(found, key=lambda c: setting.quick_us(c.run))
        return Entry(problem, runtime, best.run, note=f"{best.peer}: {best.detail}")

    def _offered(self, peer: Peer, problem: Problem, runtime: Runtime) -> Entered:
        """Return a peer's contestants for a layer."""
        inputs = self.inputs(problem)
        truth = self._once(true_answer, runtime, problem, inputs)
        return offered(peer, problem, inputs, truth, Setting.of(runtime))


def pinned(family: Family, problem: Problem, device: Device, pins: Pins) -> list[Config]:
    """Return a family's configs with some parameters pinned, in the model's order.

    Raises:
        ConfigError: the family does not support the layer, has no such parameter or value, or no such config
            is legal.
    """
    if reason := family.refuses(problem, device):
        raise ConfigError(f"{family.name}: {reason}")
    return [config for config, _ in rank(problem, device, family, MOST_TRIED, pins=pins)]


def _refusals(configs: list[Config], runtime: Runtime, problem: Problem) -> list[str]:
    """Compile configs, in parallel if the compiler can; return why each was rejected, empty if it was not."""

    def refusal(config: Config) -> str:
        blueprint = family_of(config.family).blueprint(problem, runtime.device, config)
        try:
            for program in blueprint.programs:
                runtime.compile(program)
        except CompileError as error:
            return str(error)
        return ""

    if not runtime.device.is_cuda:
        return [refusal(config) for config in configs]
    pool = ThreadPoolExecutor(cores())
    try:
        return list(pool.map(refusal, configs))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # on Ctrl-C, do not wait for queued work


def _named(name: str, runtime: Runtime) -> list[Peer]:
    found = [peer for peer in applicable(runtime.device) if peer.name == name]
    if not found:
        known = any(peer.name == name for peer in PEERS)
        raise ProblemError(f"{name} {'is not for this device' if known else 'is no peer here'}")
    return found


def _fastest(entries: list[Entry]) -> Entry:
    """Time the entries of one step roughly, and return the best."""
    runs = {str(number): entry.run for number, entry in enumerate(entries)}
    figures = measure(runs, entries[0].runtime, QUICK)
    return entries[int(min(figures, key=lambda name: figures[name].cold_us))]
