"""Which contestants of a peer enter the careful measurement, and what a row reports of the peer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tilewright.bench.rows import PeerFigure
from tilewright.checking.deviation import deviation
from tilewright.checking.inputs import Inputs
from tilewright.dispatch.choices import REFERENCE
from tilewright.errors import PeerError
from tilewright.peers import Contestant, Offer, Peer, Setting
from tilewright.peers.base import Array, one_line
from tilewright.plans.bound_run import BoundRun
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.record import Measurement
from tilewright.runtime.base import Blocking, Run, Runtime

MOST_OF_A_PEER = 3  # contestants of one peer in the careful measurement
_NEAR = 1.25  # over the peer's best quick time: contestants above it are left out


class ContestantFailed(Exception):
    """A contestant's run raised an error: its name, and the error."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {one_line(error)}")
        self.name = name


def _watched(contestant: Contestant) -> Run:
    """Wrap its run so that an error names the contestant; the kind of run, which clocks look at, is kept."""
    run = contestant.run
    if isinstance(run, Blocking):
        return replace(run, run=partial(_run, contestant.name, run.run))
    return partial(_run, contestant.name, run)


def _run(name: str, run: Run) -> None:
    try:
        run()
    except Exception as error:  # of the peer's library
        raise ContestantFailed(name, error) from error


@dataclass
class Entered:
    """A peer's contestants in the careful measurement, and the outcomes of the others.

    Attributes:
        peer: the peer's name.
        contestants: those that are measured; all were correct.
        tried: for each of the others, its quick time in us, or why it is not measured.
        errors: largest |y - truth| of each correct contestant, by name.
        reason: why there are none; empty if there are, unless one of them failed later.
        rest: the other correct ones, with their quick times in us.
    """

    peer: str
    contestants: list[Contestant] = field(default_factory=list)
    tried: dict[str, float | str] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    rest: list[tuple[float, Contestant]] = field(default_factory=list)

    @property
    def runs(self) -> dict[str, Run]:
        """What to time, by name."""
        return {contestant.name: _watched(contestant) for contestant in self.contestants}

    def lose(self, failed: ContestantFailed) -> None:
        """Drop a contestant that was correct but failed later."""
        self.contestants = [one for one in self.contestants if one.name != failed.name]
        self.tried[failed.name] = self.reason = f"failed while it was timed: {failed}"

    def call_back(self, measured: Mapping[str, Measurement]) -> bool:
        """Add contestants that were left out, if the measured ones are far slower; return whether any was.

        So a peer's time does not depend on one contestant whose quick time was too good.
        """
        best_us = min((measured[one.name].cold_us for one in self.contestants), default=math.inf)
        called = [one for us, one in self.rest if _NEAR * us < best_us]
        for one in called:
            del self.tried[one.name]
        self.contestants += called
        self.rest = [(us, one) for us, one in self.rest if one not in called]
        return bool(called)

    def figures(self, measured: Mapping[str, Measurement]) -> Iterator[tuple[str, PeerFigure]]:
        """Yield the peer's figure, and that of its fastest GEMM if any contestants are tagged as such."""
        yield self.peer, self._best(self.contestants, measured)
        gemms = [c for c in self.contestants if "gemm" in c.tags]
        if gemms:
            yield f"{self.peer}-gemm", replace(self._best(gemms, measured), tried={})

    def _best(self, among: list[Contestant], measured: Mapping[str, Measurement]) -> PeerFigure:
        if not among:
            return PeerFigure(reason=self.reason or "no contestant was right", tried=self.tried)
        ranked = sorted(among, key=lambda c: measured[c.name].cold_us)
        best, figure = ranked[0], measured[ranked[0].name]
        return PeerFigure(
            cold_us=figure.cold_us, warm_us=figure.warm_us, ci95_us=figure.ci95_us, runs=figure.runs,
            stolen=figure.stolen, detail=best.detail, layout=best.layout,
            workspace_bytes=best.workspace_bytes, pack_us=best.pack_us, convert_us=best.convert_us,
            max_error=self.errors[best.name],
            tried=self.tried | {c.name: round(measured[c.name].cold_us, 3) for c in ranked[1:]},
        )  # fmt: skip


def true_answer(runtime: Runtime, problem: Problem, inputs: Inputs) -> Array:
    """Return y of some inputs by our reference, with which peers' answers are compared."""
    reference = Plan.make(runtime, problem, REFERENCE)
    return BoundRun.of(reference, inputs.given(problem)).once()


def offered(peer: Peer, problem: Problem, inputs: Inputs, truth: Array, setting: Setting) -> Entered:
    """Return a peer's contestants that are correct and may be its fastest; or why it has none."""
    try:
        offer = peer.prepare(problem, inputs, setting)
    except PeerError as error:
        return Entered(peer.name, reason=str(error))
    except Exception as error:  # of the peer's library; the row keeps it
        return Entered(peer.name, reason=f"{peer.name}: {type(error).__name__}: {one_line(error)}")
    return enter(peer.name, offer, problem, truth, setting)


def enter(peer: str, offer: Offer, problem: Problem, truth: Array, setting: Setting) -> Entered:
    """Check every contestant of a peer, time the correct ones roughly, and keep the fastest few.

    If none is correct, the peer's slower ways are tried until one is.
    """
    wrong: dict[str, float | str] = {}
    errors: dict[str, float] = {}
    quick: list[tuple[float, Contestant]] = []

    def check(contestant: Contestant) -> None:
        try:
            contestant.run()
            found = deviation(contestant.output(), truth)
            if reason := found.wrong(problem):
                wrong[contestant.name] = f"wrong: {reason}"
                return
            quick.append((setting.quick_us(contestant.run), contestant))
        except Exception as error:  # of the peer's library
            wrong[contestant.name] = one_line(error)
            return
        errors[contestant.name] = found.most

    for contestant in offer.contestants:
        check(contestant)
    for name, make in offer.slower:
        if quick:
            break
        offer.attempt(name, make)
        if offer.contestants and offer.contestants[-1].name == name:
            check(offer.contestants[-1])
    ranked = sorted(quick, key=lambda entry: entry[0])
    gemm = next((c for _, c in ranked if "gemm" in c.tags), None)
    kept = [c for t, c in ranked[:MOST_OF_A_PEER] if t <= _NEAR * ranked[0][0]]
    kept += [gemm] if gemm is not None and gemm not in kept else []
    tried = offer.skipped | wrong | {c.name: round(t, 3) for t, c in ranked}
    for contestant in kept:
        del tried[contestant.name]
    return Entered(peer, kept, tried, errors, rest=[(t, c) for t, c in ranked if c not in kept])
