"""The benchmark: our kernels and the peers on the same inputs, interleaved, every answer checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tilewright.bench.contest import ContestantFailed, Entered, offered, true_answer
from tilewright.bench.environment import commits, device_of, now
from tilewright.bench.race import raced
from tilewright.bench.rows import BenchRow, OurFigure
from tilewright.checking.deviation import deviation
from tilewright.checking.inputs import Inputs, normal_inputs
from tilewright.checking.verify import Verifier
from tilewright.dispatch.dispatch import layer_plan
from tilewright.errors import TilewrightError
from tilewright.floor import floor_us, peak_tflops
from tilewright.kernels import family_of
from tilewright.measuring.calibrate import outdone
from tilewright.measuring.rounds import Limits, measure
from tilewright.peers import Peer, Setting, release
from tilewright.peers.base import Array
from tilewright.plans.bound_call import BoundCall
from tilewright.plans.bound_run import BoundRun
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.problem.shapes import Layer
from tilewright.record import Check, Measurement
from tilewright.runtime.base import Blocking, Run, Runtime
from tilewright.store import Store
from tilewright.tuning.options import TuneOptions

OURS, CALL = "tilewright", "tilewright, called"
LIMITS = Limits(min_rounds=10, max_rounds=200, max_s=6.0, patience_s=6.0, absolute_us=0.05)


@dataclass(frozen=True)
class Bench:
    """The settings of a benchmark, the same for all layers.

    Attributes:
        runtime: the device.
        peers: the peers to compare with; all are for this kind of device.
        store: where winners are kept.
        tune: tunes a layer before it is measured and returns the seconds taken; None: no tuning.
        wanted: how that searches, and which of our kernels may run; its seed is of the inputs here, too.
        limits: of the careful measurement.
        progress: called with the current step within a layer, and the share of it that is done.
    """

    runtime: Runtime
    peers: Sequence[Peer] = ()
    store: Store | None = None
    tune: Callable[[Layer], float] | None = None
    wanted: TuneOptions = TuneOptions()
    limits: Limits = LIMITS
    progress: Callable[[str, float], None] = lambda text, share: None

    @property
    def setting(self) -> Setting:
        """Where and how peers run."""
        return Setting.of(self.runtime)

    def row(self, layer: Layer) -> BenchRow:
        """Tune, check and measure one layer; the row has a reason for whatever cannot run.

        Raises:
            RunError: the device failed, and this process cannot use it any more.
        """
        problem = layer.problem
        inputs = normal_inputs(problem, self.wanted.seed)
        self.progress(f"{layer.name}: tuning", 0.0)
        tune_s, untuned = self._tune(layer)
        self.progress(f"{layer.name}: peers", 0.6)
        truth = true_answer(self.runtime, problem, inputs)
        setting = self.setting
        offers = {peer.name: offered(peer, problem, inputs, truth, setting) for peer in self.peers}
        self.progress(f"{layer.name}: measuring", 0.8)
        ours, runs = self._ours(problem, inputs, truth)
        figures = self._measured(runs, offers.values())
        while any([entered.call_back(figures) for entered in offers.values()]):
            figures = self._measured(runs, offers.values())
        row = BenchRow(
            name=layer.name, problem=str(problem), floor_us=self._floor_us(problem, ours, figures.get(OURS)),
            ours=replace(
                _timed(ours, figures), tune_s=tune_s, note="; ".join(filter(None, (untuned, ours.note))),
                families=raced(self.wanted.of(problem), self.runtime, self.store),
            ),
            peers=dict(item for entered in offers.values() for item in entered.figures(figures)),
        )  # fmt: skip
        del offers, runs
        release()
        return row

    def _measured(self, ours: Mapping[str, Run], offers: Collection[Entered]) -> dict[str, Measurement]:
        """Time our kernel and the peers interleaved; restart without a contestant that fails."""
        while runs := {**ours, **{name: run for one in offers for name, run in one.runs.items()}}:
            try:
                return measure(runs, self.runtime, self.limits)
            except ContestantFailed as failed:
                for entered in offers:
                    if failed.name in entered.runs:
                        entered.lose(failed)
        return {}

    def _tune(self, layer: Layer) -> tuple[float, str]:
        """Tune; return the seconds it took, and why it failed, if it did; NumPy has nothing to tune."""
        try:
            return (self.tune(layer) if self.tune else 0.0), ""
        except TilewrightError as error:
            return 0.0, f"not tuned: {error}" if self.runtime.device.runs_kernels else ""

    def _floor_us(self, problem: Problem, ours: OurFigure, figure: Measurement | None) -> float:
        """Return the floor, from rates that are at least those that our kernel has just reached."""
        if figure is None:
            return floor_us(problem, self.runtime.device)
        return outdone(self.runtime, problem, figure.cold_us, family_of(ours.family).multiplies(problem))

    def _ours(self, problem: Problem, inputs: Inputs, truth: Array) -> tuple[OurFigure, dict[str, Run]]:
        """Bind and verify the plan that a user would get; return what is to be timed of it."""
        try:
            found = layer_plan(self.wanted.of(problem), self.runtime, self.store)
            plan, given = found.plan, inputs.given(problem)
            check = _check(self.runtime, plan, self.wanted.seed)
            ours = BoundRun.of(plan, given)
            reason = (check.reason if check else "") or deviation(ours.once(), truth).wrong(problem)
            runs: dict[str, Run] = {OURS: ours.run}
            # On cores events time our kernels, but only the clock times peers: then a whole call counts.
            if self.runtime.device.backend == "opencl" and self.runtime.unified:
                runs[CALL] = Blocking(_call(found, given))
        except TilewrightError as error:
            return OurFigure(reason=str(error)), {}
        figure = OurFigure(
            family=plan.config.family, config=str(plan.config), deterministic=plan.deterministic,
            workspace_bytes=plan.workspace_bytes, pack_us=ours.pack_us(), reason=reason,
            note=replace(plan.why, verified=plan.why.verified or check is not None).note(problem),
        )  # fmt: skip
        if check:
            figure = replace(
                figure, max_error=check.max_error, error_bound=check.bound, worst=check.worst,
                deterministic=plan.deterministic and check.repeatable,
            )  # fmt: skip
        return figure, {} if reason else runs

    def protocol(self) -> dict[str, Any]:
        """Return how all rows of a results file are measured, and which kernels they compare."""
        wanted = self.wanted
        return {
            "cold": "median of interleaved rounds, caches (a GPU's of code too) flushed before each run",
            "warm": "one of a long row of runs: a CUDA graph, or a loop on a CPU",
            "inputs": "standard normal", "seed": wanted.seed, "threads": self.setting.threads,
            "tuned": self.tune is not None, "budget": str(wanted.budget or ""),
            "strategy": wanted.strategy, "deterministic": wanted.deterministic,
            "families": list(wanted.families), "peers": [peer.name for peer in self.peers],
            "limits": {k: v for k, v in asdict(self.limits).items() if v != math.inf},
        }  # fmt: skip

    def document(self, rows: Sequence[BenchRow], before: str = "") -> dict[str, Any]:
        """Return the results file of rows (see ``report.results``); ``before``: commits of earlier rows."""
        device, problems = self.runtime.device, [Problem.parse(row.problem) for row in rows]
        peaks = {problem.precision: peak_tflops(device, problem.precision) for problem in problems}
        floors = [floor_us(problem, device) for problem in problems]  # the rates may have risen since
        return {
            "device": {**device_of(self.runtime), "peak_tflops": peaks},
            "date": now(), "commit": commits(before),
            "protocol": self.protocol(),
            "rows": [replace(row, floor_us=us).to_json() for row, us in zip(rows, floors, strict=True)],
        }  # fmt: skip


def _call(plan: LayerPlan, given: Mapping[str, Array]) -> BoundCall:
    """Bind a plan to arrays as a user would."""
    others = {name: array for name, array in given.items() if name != "w"}
    return plan.bind(packed_w=plan.pack(given["w"]), **others)


def _check(runtime: Runtime, plan: Plan, seed: int) -> Check | None:
    """Verify a plan in full, on the inputs that it is then timed with; NumPy has no kernels to verify."""
    if not runtime.device.runs_kernels:
        return None
    verifier = Verifier(runtime, plan.problem, seed)
    return verifier.check(verifier.candidate(plan.config), full=True)


def _timed(figure: OurFigure, measured: Mapping[str, Measurement]) -> OurFigure:
    if OURS not in measured:
        return figure
    kernels, call = measured[OURS], measured.get(CALL)
    return replace(
        figure, cold_us=kernels.cold_us, warm_us=kernels.warm_us, ci95_us=kernels.ci95_us, runs=kernels.runs,
        stolen=kernels.stolen, call_us=call.cold_us if call else None,
        call_ci95_us=call.ci95_us if call else None,
    )  # fmt: skip
