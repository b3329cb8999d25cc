"""Which contestants of a peer enter the careful measurement, and what a row says of the peer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tilewright.bench.rows import PeerFigure
from tilewright.checking.inputs import Inputs
from tilewright.dispatch.choices import REFERENCE
from tilewright.errors import PeerError, count
from tilewright.peers import Contestant, Offer, Peer, Setting
from tilewright.peers.base import Array, one_line
from tilewright.plans.bound_run import BoundRun
from tilewright.plans.execution import Plan
from tilewright.problem import Problem
from tilewright.record import Measurement
from tilewright.runtime.base import Blocking, Run, Runtime

MOST_OF_A_PEER = 3  # contestants of one peer in the careful measurement
_PART = 1 << 18  # elements that are compared at once
_SQUARED = (1e-15, 1e15)  # largest errors whose squares f32 can add up
_NEAR = 1.25  # slower than the peer's best by more than this in a quick timing: not measured with care

# Of the size of one output: the rms error that honest arithmetic stays below, and the largest error of one
# element. In f32: sums in any order, Winograd included, but not products in TF32 (3e-4), bf16 or f16; in f64
# not f32; in f16 and bf16 each step of an epilogue may round, but sums may not be kept in the dtype.
_LIMITS = {"f64": (1e-13, 2e-12), "f32": (5e-5, 1e-3), "f16": (1e-3, 1e-2), "bf16": (8e-3, 8e-2)}
# In tf32 factors may be cut off, not only rounded; accurate is no worse than f32; f8 adds up in some 14 bits.
_LIMITS |= {"tf32": (1.5e-3, 1e-2), "accurate": _LIMITS["f32"], "f8": (2e-3, 2e-2)}


class ContestantFailed(Exception):
    """A contestant's run raised: which one, and what."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {one_line(error)}")
        self.name = name


def _watched(contestant: Contestant) -> Run:
    """Return its run, of the same kind, which clocks tell apart; an error of its own says whose it was."""
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
    """A peer's contestants in the careful measurement, and what is known of the others.

    Attributes:
        peer: the peer's name.
        contestants: those that are measured; all were right.
        tried: for every other one its quick time, in us, or why it is not measured.
        errors: by the name of each that was right its largest |y - truth|.
        reason: why there are none; empty if there are, unless one of them failed later.
    """

    peer: str
    contestants: list[Contestant] = field(default_factory=list)
    tried: dict[str, float | str] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def runs(self) -> dict[str, Run]:
        """What to time, by name."""
        return {contestant.name: _watched(contestant) for contestant in self.contestants}

    def lose(self, failed: ContestantFailed) -> None:
        """Go on without a contestant that failed after it had been right."""
        self.contestants = [one for one in self.contestants if one.name != failed.name]
        self.tried[failed.name] = self.reason = f"failed while it was timed: {failed}"

    def figures(self, measured: Mapping[str, Measurement]) -> Iterator[tuple[str, PeerFigure]]:
        """Yield the peer's figure, and that of its fastest GEMM where it says which those are."""
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
            cold_us=figure.cold_us, warm_us=figure.warm_us, ci95_us=figure.ci95_us, stolen=figure.stolen,
            detail=best.detail, layout=best.layout, workspace_bytes=best.workspace_bytes,
            pack_us=best.pack_us, convert_us=best.convert_us, max_error=self.errors[best.name],
            tried=self.tried | {c.name: round(measured[c.name].cold_us, 3) for c in ranked[1:]},
        )  # fmt: skip


def true_answer(runtime: Runtime, problem: Problem, inputs: Inputs) -> Array:
    """Return y of some inputs, as our reference has it: what peers' answers are compared with."""
    reference = Plan.make(runtime, problem, REFERENCE)
    return BoundRun.of(reference, inputs.given(problem)).once()


def offered(peer: Peer, problem: Problem, inputs: Inputs, truth: Array, setting: Setting) -> Entered:
    """Take a peer's contestants that are right and may be its fastest; or why it has none."""
    try:
        offer = peer.prepare(problem, inputs, setting)
    except PeerError as error:
        return Entered(peer.name, reason=str(error))
    except Exception as error:  # of the peer's library; the row keeps it
        return Entered(peer.name, reason=f"{peer.name}: {type(error).__name__}: {one_line(error)}")
    return enter(peer.name, offer, problem, truth, setting)


def enter(peer: str, offer: Offer, problem: Problem, truth: Array, setting: Setting) -> Entered:
    """Check every contestant of a peer, time the right ones roughly, keep the fastest few.

    Where none is right, the peer's slower ways are tried until one is.
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
    return Entered(peer, kept, tried, errors)


@dataclass(frozen=True)
class Deviation:
    """How an answer differs from the truth, but for elements whose error is not finite: those are lost.

    Where both are the same infinity there is no error.

    Attributes:
        size: elements, lost ones too.
        lost: those whose error is not finite: NaN, or never written.
        differing: those with an error that is not 0.
        most: the largest error, in units of y.
        squares: the sum of the errors' squares.
        misshapen: how the answer's shape is another one; empty if it is not.
    """

    size: int = 0
    lost: int = 0
    differing: int = 0
    most: float = 0.0
    squares: float = 0.0
    misshapen: str = ""

    def __add__(self, other: Deviation) -> Deviation:
        """Take both together."""
        return Deviation(
            self.size + other.size, self.lost + other.lost, self.differing + other.differing,
            max(self.most, other.most), self.squares + other.squares,
        )  # fmt: skip

    def wrong(self, problem: Problem) -> str:
        """Say how an answer is worse than arithmetic in its dtype can be; empty if it is not."""
        if self.misshapen or not self.size:
            return self.misshapen
        if self.lost:
            return f"{count(self.lost, 'element')} not finite or not written"
        if problem.is_integer:
            return f"{self.differing} of {self.size} sums of whole numbers differ" if self.differing else ""
        most_rms, most_of_one = _LIMITS[problem.kind]
        size = _size(problem)
        rms, most = math.sqrt(self.squares / self.size) / size, self.most / size
        if rms > most_rms or most > most_of_one:
            what = f"error {rms:.1e} rms, {most:.1e} at most, of an output's size"
            return f"{what}; {problem.kind} stays below {most_rms:.0e}, {most_of_one:.0e}"
        return ""


def deviation(y: Array, truth: Array) -> Deviation:
    """Compare an answer with the truth, in parts that fit a cache, side by side."""
    if y.shape != truth.shape:
        return Deviation(misshapen=f"of shape {y.shape}, not {truth.shape}")
    y, truth = y.reshape(-1), truth.reshape(-1)
    parts = [slice(start, start + _PART) for start in range(0, y.size, _PART)]
    with ThreadPoolExecutor() as pool:
        return sum(pool.map(lambda part: _of_part(y[part], truth[part]), parts), Deviation())


def _of_part(y: Array, truth: Array) -> Deviation:
    if all(array.dtype.kind in "fV" and array.dtype.itemsize <= 4 for array in (y, truth)):  # V: bf16
        return _in_f32(y, truth) or _in_f64(y, truth)
    return _in_f64(y, truth)


def _in_f32(y: Array, truth: Array) -> Deviation | None:
    """Compare floats of at most 4 bytes; None where an error, or the sum of the squares, needs f64.

    f32 has each of them. The difference of two within a factor of two of each other is exact in f32, that of
    others right to 24 bits: far more than the limits need.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.subtract(y, truth, dtype=np.float32)
    np.abs(error, out=error)
    most = float(error.max())
    if most and not _SQUARED[0] <= most <= _SQUARED[1]:  # NaN too
        return None
    return Deviation(y.size, 0, int(np.count_nonzero(error != 0)), most, float(np.dot(error, error)))


def _in_f64(y: Array, truth: Array) -> Deviation:
    """Compare numbers of any kind."""
    y, truth = y.astype(np.float64), truth.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(y == truth, 0.0, np.abs(y - truth))
    finite = np.isfinite(error)
    kept = error if finite.all() else error[finite]
    return Deviation(
        y.size, y.size - kept.size, int(np.count_nonzero(kept)), float(kept.max(initial=0.0)),
        float(np.dot(kept, kept)),
    )  # fmt: skip


def _size(problem: Problem) -> float:
    """Return the standard deviation of what goes into the activation, or a little more, for normal inputs."""
    e = problem.epilogue
    return abs(e.alpha) * math.sqrt(problem.cg * problem.r * problem.s) + abs(e.beta) + e.bias
