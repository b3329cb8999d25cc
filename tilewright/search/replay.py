"""Simulated searches: a strategy run against recorded outcomes instead of a device.

What was measured once can be searched again and again, by any strategy, on any machine. Our own
strategies are kept to the recorded configs: the share that they reach is of the best of those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tilewright.arithmetic import geometric_mean
from tilewright.device import Device
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.record import Record
from tilewright.search import strategies
from tilewright.search.experience import shipped
from tilewright.search.proposals import Proposals, Strategy, batch_size
from tilewright.search.space import space

COUNTS = (0, 8, 100)
_GUESSES = 16  # untuned, a config that does not work is passed over for the next
_MOST_MISSES = 400  # proposals in a row without a recorded one that end a replay


@dataclass(frozen=True)
class Replay:
    """How near a search comes to the best recorded config.

    Attributes:
        problem: the layer.
        strategy: the strategy's name.
        recorded: configs with a recorded outcome.
        best_us: the least recorded time.
        best_config: the config that has it.
        shares: for each count of measurements, best_us / the least time found by then, 0 to 1. At 0
            it is the time of the first right config proposed: what an untuned user gets, unless the model
            prefers one that was not recorded.
        measured: recorded configs that the strategy went through.
        passed_over: proposals that were not recorded.
    """

    problem: str
    strategy: str
    recorded: int
    best_us: float
    best_config: str
    shares: tuple[tuple[int, float], ...]
    measured: int
    passed_over: int

    def share(self, count: int) -> float:
        """Return the share of the best config's speed after ``count`` measurements."""
        return dict(self.shares)[count]


def replay(
    problem: Problem,
    device: Device,
    families: Sequence[Family],
    records: Iterable[Record],
    strategy: str = "model",
    counts: Sequence[int] = COUNTS,
    seed: int = 0,
    make: Callable[..., Strategy] | None = None,
) -> Replay | None:
    """Search the recorded configs of one problem as if they were being measured.

    Of the trials that come with the package, those of the layer itself (``Experience.besides``) are kept
    from the search. Our own strategies look at no other configs than the recorded ones.

    Args:
        problem: the layer.
        device: the device that the records are of.
        families: the families whose configs are searched; they share the trials out as in the tuner.
        records: outcomes; of several for one config the last counts.
        strategy: all, random, model or local.
        counts: budgets to search with, each in a search of its own; the last is the one told of.
        seed: of the strategy.
        make: makes the strategy, from what ``tilewright.search.strategies.make`` takes, which is the default;
            it must propose recorded configs, ``among``: others are passed over.

    Returns:
        The report; None if fewer than two records of the families and the problem are right: whatever the
        search, one is the best.
    """
    names = [family.name for family in families]
    wanted = (r for r in records if r.problem == str(problem) and r.family in names)
    known = {Config.parse(r.config): r for r in wanted}
    right = [config for config, record in known.items() if record.is_right]
    if len(right) < 2:
        return None
    best = min(right, key=lambda c: known[c].cold_us)
    legal = [_recorded(family, problem, device, known) for family in families]
    others = shipped(device.chip).besides(problem, families)
    best_us = known[best].cold_us
    shares, times, passed_over = [], list[float](), 0
    for count in counts:
        searchers = {
            family.name: (make or strategies.make)(strategy, family, problem, device, seed, among, others)
            for family, among in zip(families, legal, strict=True)
        }
        proposals = Proposals(searchers, lambda config: True)
        times, passed_over = _search(proposals, known, count or _GUESSES)
        shares.append((count, _share(best_us, times, count)))
    measured = len(times)
    return Replay(
        str(problem), strategy, len(known), best_us, str(best), tuple(shares), measured, passed_over
    )


def _search(proposals: Proposals, known: dict[Config, Record], trials: int) -> tuple[list[float], int]:
    """Measure at most so many recorded configs; return their times, and how many proposals had no record."""
    times: list[float] = []
    passed_over = misses = 0
    size = batch_size(trials)
    while len(times) < trials and misses < _MOST_MISSES and (proposed := proposals.next(size)):
        for config in proposed:
            if len(times) == trials:
                break
            if config in known:
                times.append(known[config].cold_us)
                proposals.tell(known[config])
                misses = 0
            else:
                passed_over, misses = passed_over + 1, misses + 1
    return times, passed_over


def _recorded(family: Family, problem: Problem, device: Device, known: Iterable[Config]) -> list[Config]:
    """Return the recorded configs of a family that are legal still."""
    legal = space(family, problem, device)
    own = (c for c in known if c.family == family.name and set(c.values) == {p.name for p in legal.params})
    return sorted((c for c in own if legal.legal(c.values)), key=lambda c: c.items)


def mean_shares(replays: Iterable[Replay]) -> dict[int, float]:
    """Return the geometric mean of the shares over problems, for each count; 0 if any share is 0."""
    by_count: dict[int, list[float]] = {}
    for each in replays:
        for count, share in each.shares:
            by_count.setdefault(count, []).append(share)
    return {count: geometric_mean(shares) for count, shares in by_count.items()}


def _share(best_us: float, times: list[float], count: int) -> float:
    """Return the share of the best speed reached with the first ``count`` times."""
    if count == 0:
        first = next((time for time in times if math.isfinite(time)), math.inf)
        return best_us / first
    return best_us / min(times[:count], default=math.inf)
