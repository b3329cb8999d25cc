"""The results for one candidate: estimate, check, measurement, and the record that holds them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

NOISY = 0.05  # share of the time: a larger half width of the interval is too wide
STOLEN = 0.05  # share of a CPU's time: if its host takes more, times are unreliable


class Outcome(StrEnum):
    """The outcome of trying a config; stores and files hold these values."""

    CORRECT = "correct"
    WRONG = "correctness"  # a wrong answer
    TIMEOUT = "timeout"  # too slow, or it hung
    COMPILE = "compile"  # refused by the compiler
    RUNTIME = "runtime"  # it failed or crashed
    CONSTRAINTS = "constraints"  # it breaks a rule of its family

    __repr__ = str.__repr__  # to users it is a text


PASSING = (Outcome.TIMEOUT, Outcome.RUNTIME)  # may be the machine's fault: a later process tries again


class Standing(StrEnum):
    """How far a config got in its tuning; stores hold these values as "stage"."""

    TRIAL = "trial"
    FINALIST = "finalist"
    WINNER = "final"  # of the last comparison, and fully verified


@dataclass(frozen=True)
class Estimate:
    """The model's prediction for a config.

    Attributes:
        total_us: the predicted time, cold.
        terms_us: the terms that add up to it, by name ("launch_us", "main_loop_us", ...).
        facts: other figures worth showing, by name (intensities, occupancy, waves, ...).
    """

    total_us: float
    terms_us: dict[str, float]
    facts: dict[str, float]


@dataclass(frozen=True)
class Check:
    """Whether an answer is right, and its error.

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
        warm_us: time of one run in a long sequence of runs, in us (None: not measured).
        runs: number of cold runs.
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
        """Whether the time is unreliable."""
        return is_noisy(self.cold_us, self.ci95_us, self.stolen)


def is_noisy(cold_us: float, ci95_us: float, stolen: float = 0.0) -> bool:
    """Whether a time is unreliable: its interval is too wide, or the host took over 5% of the CPU's time.

    Too wide is a half width of over 5% of the time and over 0.3 us (a GPU clock's resolution).
    """
    return ci95_us > max(NOISY * cold_us, 0.3) or stolen > STOLEN


@dataclass(frozen=True)
class Versions:
    """The software behind a record; empty if unknown.

    Attributes:
        compiler: name and version; part of the hash of the record's kernels.
        driver: version of the device's driver.
        others: libraries, clocks and anything else that a runtime reports.
        code: hash of all our own code, the device's facts and the compiler: if it is equal, so is the hash
            of the kernels.
    """

    compiler: str = ""
    driver: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    code: str = ""

    @classmethod
    def from_dict(cls, texts: Mapping[str, str]) -> Versions:
        """Build it from a dictionary, as ``Runtime.versions`` returns and records hold it."""
        others = {name: text for name, text in texts.items() if name not in ("compiler", "driver", "code")}
        return cls(texts.get("compiler", ""), texts.get("driver", ""), others, texts.get("code", ""))

    def to_dict(self) -> dict[str, str]:
        """Return the dictionary that ``from_dict`` reads."""
        named = {"compiler": self.compiler, "driver": self.driver, "code": self.code}
        return {**self.others, **{name: text for name, text in named.items() if text}}


class Spent(NamedTuple):
    """The budget that a search used up."""

    seconds: float
    trials: int


@dataclass(frozen=True)
class Search:
    """The search that a record belongs to.

    Attributes:
        raced: the families that were searched together, except those that the budget left untried; None if
            unknown.
        cut: if the budget ended the search, that budget, as a lower bound.
        untried: the families that it left untried.
    """

    raced: tuple[str, ...] | None = None
    cut: Spent | None = None
    untried: tuple[str, ...] = ()

    def finished(self, names: Iterable[str]) -> bool:
        """Whether it searched all these families: its budget left none of them untried."""
        return self.raced is None or {*names} <= {*self.raced}

    def asked(self, names: Iterable[str]) -> bool:
        """Whether it was to find the fastest of all these families, as far as its budget went."""
        return self.raced is None or {*names} <= {*self.raced, *self.untried}


@dataclass(frozen=True)
class Record:
    """The outcome of one config on one problem and device, kept for ever.

    Attributes:
        problem: the problem string.
        device: ``Device.key``.
        family: name of the kernel family.
        config: text of the ``Config``.
        outcome: "correct", "correctness", "timeout", "compile", "runtime" or "constraints".
        deterministic: whether two runs give the same bits.
        check: the check of its answer; None if it never ran, or ran elsewhere (see ``worst``).
        measurement: its time; None if it was not timed.
        reason: why it is not "correct", one line.
        registers: most registers of a thread of any of its kernels; 0 if the compiler does not tell.
        workspace_bytes: device memory in addition to the tensors and the packed filter.
        compile_s: seconds that the compiler took.
        standing: how far it got in its tuning; None outside of tuning.
        search: the search that it belongs to.
        versions: the software that it was made with.
        shared_worst: ``worst`` of a winner from a shared file, which holds no more of its check.
        source: hash of the kernels that ran (``store/sources.py``); empty if unknown.
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
        """The largest error / bound, measured here or where a shared winner was checked; None: unknown."""
        return self.check.worst if self.check else self.shared_worst

    @property
    def won(self) -> bool:
        """Whether it is the winner of a comparison of finalists."""
        return self.standing is Standing.WINNER

    @property
    def compared(self) -> bool:
        """Whether its time is from a comparison of finalists, not a rough one from the search."""
        return self.standing in (Standing.WINNER, Standing.FINALIST)

    @property
    def cold_us(self) -> float:
        """The time of a right config, else infinity."""
        return self.measurement.cold_us if self.measurement and self.is_right else math.inf


def tally(records: Iterable[Record]) -> str:
    """Count the outcomes, the most common first: "3 compile, 1 wrong"; empty if there are none."""
    outcomes = Counter(record.outcome for record in records)
    return ", ".join(f"{count} {Outcome(outcome).name.lower()}" for outcome, count in outcomes.most_common())


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
