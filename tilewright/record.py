"""What is learnt of one candidate: estimate, check, measurement, and the record that keeps them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

NOISY = 0.05  # of a time: an interval of a larger half width is too wide
STOLEN = 0.05  # of a CPU's time: where its host takes more, times are not to be relied on


class Outcome(StrEnum):
    """What became of a config; the values are what stores and files hold."""

    CORRECT = "correct"
    WRONG = "correctness"  # a wrong answer
    TIMEOUT = "timeout"  # too slow, or it hung
    COMPILE = "compile"  # refused by the compiler
    RUNTIME = "runtime"  # it failed or crashed
    CONSTRAINTS = "constraints"  # it breaks a rule of its family

    __repr__ = str.__repr__  # to users it is a text


PASSING = (Outcome.TIMEOUT, Outcome.RUNTIME)  # may have been the machine's: a later process tries again


class Standing(StrEnum):
    """How far a config came in its tuning; the values are what stores hold, as "stage"."""

    TRIAL = "trial"
    FINALIST = "finalist"
    WINNER = "final"  # of the last comparison, and right in full


@dataclass(frozen=True)
class Estimate:
    """What the model says of a config.

    Attributes:
        total_us: the predicted time, cold.
        terms_us: what it is made of, by name ("launch_us", "main_loop_us", ...).
        facts: figures worth showing that are not times (intensities, occupancy, waves, ...).
    """

    total_us: float
    terms_us: dict[str, float]
    facts: dict[str, float]


@dataclass(frozen=True)
class Check:
    """Whether an answer is right, and how far off.

    Attributes:
        ok: every check passed.
        max_error: largest |y - ref|, in units of y.
        bound: the a-priori bound, in units of y, at the element whose error is largest relative to its bound.
        worst: largest error / bound over all elements (<= 1 when right).
        exact: bit-equal to the reference on integer inputs.
        repeatable: two runs gave the same bits.
        reason: what failed, one line; empty if ok.
    """

    ok: bool
    max_error: float
    bound: float
    worst: float
    exact: bool
    repeatable: bool
    reason: str = ""


@dataclass(frozen=True)
class Measurement:
    """A time with its uncertainty.

    Attributes:
        cold_us: median with flushed caches, in us.
        ci95_us: half width of the 95% interval of the median, in us.
        warm_us: time of one run in a long row of runs, in us (None: not taken).
        runs: how many cold runs the median is of.
        stolen: share of the time that the CPU's host gave to others while this was measured.
    """

    cold_us: float
    ci95_us: float
    runs: int
    warm_us: float | None = None
    stolen: float = 0.0

    @property
    def high_us(self) -> float:
        """The upper end of the interval."""
        return self.cold_us + self.ci95_us

    @property
    def noisy(self) -> bool:
        """Whether the time is not to be relied on."""
        return is_noisy(self.cold_us, self.ci95_us, self.stolen)


def is_noisy(cold_us: float, ci95_us: float, stolen: float = 0.0) -> bool:
    """Whether the half width of an interval is over 5% of the time, and over a GPU clock's 0.3 us.

    Or the host took over 5% of the CPU's time meanwhile.
    """
    return ci95_us > max(NOISY * cold_us, 0.3) or stolen > STOLEN


@dataclass(frozen=True)
class Versions:
    """What a record was made with; empty where that was not said.

    Attributes:
        compiler: part of the hash of its kernels.
        driver: of the device.
        others: libraries, clocks and what else a runtime says.
        code: hash of all our own code, the device's facts and the compiler: where it is the same, so is the
            hash of the kernels.
    """

    compiler: str = ""
    driver: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    code: str = ""

    @classmethod
    def of(cls, said: Mapping[str, str]) -> Versions:
        """Sort what ``Runtime.versions`` said, and a record of it."""
        others = {name: text for name, text in said.items() if name not in ("compiler", "driver", "code")}
        return cls(said.get("compiler", ""), said.get("driver", ""), others, said.get("code", ""))

    @property
    def said(self) -> dict[str, str]:
        """All by their names, as a runtime says them."""
        named = {"compiler": self.compiler, "driver": self.driver, "code": self.code}
        return {**self.others, **{name: text for name, text in named.items() if text}}


class Spent(NamedTuple):
    """What a search was given, and used up."""

    seconds: float
    trials: int


@dataclass(frozen=True)
class Search:
    """The search that a record is of.

    Attributes:
        raced: the families that were searched together, but for those that the budget left untried; None
            where that was not written down.
        cut: where its budget ended it: what it had, at least.
    """

    raced: tuple[str, ...] | None = None
    cut: Spent | None = None


@dataclass(frozen=True)
class Record:
    """One outcome of one config on one problem and device, kept for ever.

    Attributes:
        problem: the problem string.
        device: ``Device.key``.
        family: name of the kernel family.
        config: text of the ``Config``.
        outcome: what became of it: "correct", "correctness", "timeout", "compile", "runtime", "constraints".
        deterministic: whether two runs give the same bits.
        check: how right it is; None where it never ran, or ran elsewhere (see ``worst``).
        measurement: how fast; None where it was not timed.
        reason: why it is not "correct", one line.
        registers: most that a thread of any of its kernels takes; 0 where the compiler does not say.
        workspace_bytes: device memory beside the tensors and the packed filter.
        compile_s: seconds that the compiler took.
        standing: how far it came in its tuning; None where it was in none.
        search: the search that it is of.
        versions: what it was made with.
        shared_worst: ``worst`` of a winner that was shared, all that such a file has of its check.
        source: hash of the kernels that ran (``store/sources.py``); empty where nobody says.
    """

    problem: str
    device: str
    family: str
    config: str
    outcome: Outcome
    deterministic: bool
    check: Check | None = None
    measurement: Measurement | None = None
    reason: str = ""
    registers: int = 0
    workspace_bytes: int = 0
    compile_s: float = 0.0
    standing: Standing | None = None
    search: Search = Search()
    versions: Versions = Versions()
    shared_worst: float | None = None
    source: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the config may win."""
        return self.outcome == Outcome.CORRECT and self.measurement is not None

    @property
    def worst(self) -> float | None:
        """The largest error over its bound, here or where a shared winner was checked; None: nobody says."""
        return self.check.worst if self.check else self.shared_worst

    @property
    def won(self) -> bool:
        """Whether it is the winner of a comparison of finalists."""
        return self.standing is Standing.WINNER

    @property
    def compared(self) -> bool:
        """Whether its time is of a comparison of finalists, and no rough one of the search."""
        return self.standing in (Standing.WINNER, Standing.FINALIST)

    @property
    def cold_us(self) -> float:
        """The time of a right config, else infinity."""
        return self.measurement.cold_us if self.measurement and self.is_right else math.inf


def tally(records: Iterable[Record]) -> str:
    """Say what became of configs, the commonest first: "3 compile, 1 timeout"; empty of none."""
    outcomes = Counter(record.outcome for record in records)
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())


def unfinished(history: Sequence[Record], winner: Record) -> Record | None:
    """Return the fastest trial since the last comparison, if its rough time is below the winner's.

    Args:
        history: records of one problem and device, oldest first.
        winner: of an earlier comparison. A search that ends compares its fastest trials with it.
    """
    last = max((place for place, record in enumerate(history, 1) if record.compared), default=0)
    trials = [record for record in history[last:] if record.standing is Standing.TRIAL]
    fastest = min(trials, key=lambda record: record.cold_us, default=None)
    return fastest if fastest and fastest.cold_us < winner.cold_us else None
