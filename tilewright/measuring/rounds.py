"""The measuring protocol: interleaved rounds, flushed caches, medians with intervals.

One protocol for our kernels and for every peer. A *contestant* is a function that enqueues one run. Before
each run the caches are flushed: data caches by reading, since dirty lines would take bandwidth from the run;
a GPU's instruction caches by running other code, since inside a network they hold the code of other layers.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from tilewright.record import Measurement
from tilewright.runtime.base import Run

PROC_STAT = Path("/proc/stat")
_WARM_US = 20_000.0  # how long one warm row of runs may take
_HOPELESS_RUNS = 3  # with a median that one late run does not spoil: of two it is their mean
FEWEST = 6  # fewest samples whose range is a 95% interval of the median: 1 - 2 / 2^6


class Clock(Protocol):
    """The part of a runtime that measures; ``unified``: on this host's cores."""

    unified: bool

    def timed(self, run: Run, flush: bool) -> float:
        """Return the time of one run in us, after a flush of the caches."""
        ...

    def warm(self, run: Run, count: int) -> float:
        """Return the time of one of ``count`` runs in a row, in us."""
        ...


@dataclass(frozen=True)
class Limits:
    """When to stop measuring.

    Attributes:
        min_rounds: rounds before anyone is dropped or anything stops.
        max_rounds: cap on rounds.
        max_s: cap on seconds, checked once a round; three times as many before ``min_rounds`` are done.
        patience_s: additional seconds while any contestant's figure is noisy.
        relative: a half width below this share of the median is small enough.
        absolute_us: a half width below this is small enough, in us.
        drop: stop timing a contestant whose interval lies wholly above the best's.
        separate: go on, up to the caps, until only one contestant is left.
        hopeless: after three runs, stop timing a contestant all of whose runs are this many times slower than
            the best. One run may be slow because the host was late to enqueue it.
        warm_runs: most runs in succession for the warm figure; 0: it is not measured.
    """

    min_rounds: int = FEWEST
    max_rounds: int = 200
    max_s: float = 2.0
    patience_s: float = 0.0
    relative: float = 0.01
    absolute_us: float = 0.3
    drop: bool = False
    separate: bool = False
    hopeless: float = math.inf
    warm_runs: int = 50


@lru_cache(maxsize=1024)
def interval_rank(count: int) -> int:
    """Return r such that the r-th smallest and r-th largest of ``count`` hold the median 95% of the time.

    Distribution-free: the number of samples below the median is binomial(count, 1/2). Returns 0
    where no such r exists (fewer than 6 samples).
    """
    tail, rank = 0.0, 0
    log_half = count * math.log(0.5)
    for below in range(count // 2):
        chance = math.lgamma(count + 1) - math.lgamma(below + 1) - math.lgamma(count - below + 1)
        tail += math.exp(chance + log_half)
        if 2 * tail > 0.05:
            break
        rank = below + 1
    return rank


def median_interval(times_us: list[float]) -> tuple[float, float, float]:
    """Return (median, low, high) of a sample; the interval is 95%, or 0 to infinity when too few."""
    ordered = sorted(times_us)
    count, middle = len(ordered), len(ordered) // 2
    median = ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    rank = interval_rank(count)
    if rank == 0:
        return median, 0.0, math.inf
    return median, ordered[rank - 1], ordered[-rank]


def summary(times_us: list[float], warm_us: float | None = None) -> Measurement:
    """Turn samples into a Measurement.

    With fewer than 6 samples there is no 95% interval: the half width is then the time itself.
    """
    median, low, high = median_interval(times_us)
    half = (high - low) / 2 if math.isfinite(high) else median
    return Measurement(cold_us=median, ci95_us=half, runs=len(times_us), warm_us=warm_us)


def measure(
    contestants: Mapping[str, Run],
    clock: Clock,
    limits: Limits | None = None,
    best_us: float = math.inf,
    now: Callable[[], float] = time.monotonic,
) -> dict[str, Measurement]:
    """Time contestants against each other, in rounds.

    Args:
        contestants: name to a function that enqueues one run.
        clock: what times a run; a Runtime is one.
        limits: when to stop.
        best_us: the time to beat, known from before; with ``drop`` a contestant whose interval lies
            wholly above it is dropped.
        now: seconds, for the cap.

    Returns:
        A measurement for each contestant, the dropped ones included.
    """
    if not contestants:
        return {}
    limits = limits or Limits()
    before = ticks() if clock.unified else (0, 0)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    alive = list(contestants)
    order = random.Random(0)
    end = now() + limits.max_s
    for done in range(1, limits.max_rounds + 1):
        for name in order.sample(alive, len(alive)):
            times[name].append(clock.timed(contestants[name], True))
        alive = _still_in(times, alive, done, limits, best_us)
        late_s = now() - end
        if late_s >= 0 and not _goes_on(times, alive, done, late_s, limits):
            break
        if _settled(times, alive, done, limits):
            break
    found = {n: summary(times[n], _warm(contestants[n], clock, times[n], limits)) for n in contestants}
    after = ticks() if clock.unified else before
    stolen, busy = (now - then for now, then in zip(after, before, strict=True))
    return {n: replace(figure, stolen=stolen / busy if busy > 0 else 0.0) for n, figure in found.items()}


def ticks() -> tuple[int, int]:
    """Return the time that a virtual machine's host took away, and the time that the machine was not idle.

    In ticks of all cores since boot; zeros if the system does not tell (no Linux).
    """
    with suppress(OSError, ValueError):
        name, *words = PROC_STAT.read_text(encoding="ascii").partition("\n")[0].split()[:9]
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, words)
        return steal, user + nice + system + irq + softirq + steal
    return 0, 0


def ranking(figures: Mapping[str, Measurement]) -> list[str]:
    """Order contestants, fastest first; whoever was dropped comes after all who stayed to the end.

    A dropped one's median is of the early rounds only, and the machine may have slowed down since.
    """
    most = max((figure.runs for figure in figures.values()), default=0)
    return sorted(figures, key=lambda name: (figures[name].runs < most, figures[name].cold_us))


def _still_in(
    times: Mapping[str, list[float]], alive: list[str], done: int, limits: Limits, best_us: float
) -> list[str]:
    """Drop contestants that cannot win."""
    stats = {name: median_interval(times[name]) for name in alive}
    fastest = min(best_us, *(median for median, _, _ in stats.values()))
    slowest = limits.hopeless * fastest
    kept = [name for name in alive if done < _HOPELESS_RUNS or min(times[name]) <= slowest]
    if limits.drop and done >= limits.min_rounds:
        ceiling = min(best_us, *(high for _, _, high in stats.values()))
        kept = [name for name in kept if stats[name][1] <= ceiling]
    return kept


def _goes_on(
    times: Mapping[str, list[float]], alive: list[str], done: int, late_s: float, limits: Limits
) -> bool:
    """Say whether too little is known to stop, though it is ``late_s`` after the cap."""
    if done < limits.min_rounds:
        return late_s < 2 * limits.max_s
    return late_s < limits.patience_s and any(summary(times[name]).noisy for name in alive)


def _settled(times: Mapping[str, list[float]], alive: list[str], done: int, limits: Limits) -> bool:
    """Say whether every contestant left is known well enough."""
    if not alive:
        return True
    if done < limits.min_rounds or (limits.separate and len(alive) > 1):
        return False
    return all(precise(summary(times[name]), limits) for name in alive)


def precise(figure: Measurement, limits: Limits) -> bool:
    """Say whether a measurement's interval is small enough to stop."""
    return figure.ci95_us <= max(limits.relative * figure.cold_us, limits.absolute_us)


def _warm(run: Run, clock: Clock, times_us: list[float], limits: Limits) -> float | None:
    """Take the warm figure: a row of runs, short for slow kernels."""
    if limits.warm_runs == 0:
        return None
    count = max(1, min(limits.warm_runs, int(_WARM_US / max(min(times_us), 1e-3))))
    return clock.warm(run, count)
