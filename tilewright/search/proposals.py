"""What the tuner asks of strategies, and taking turns among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from tilewright.device import Device
from tilewright.kernels.family import Config, Family
from tilewright.problem import Problem
from tilewright.record import Record


class Strategy(Protocol):
    """Chooses what to try next."""

    def propose(self, count: int) -> list[Config]:
        """Return at most ``count`` configs not proposed before; none when there are no more."""
        ...

    def tell(self, record: Record) -> None:
        """Learn an outcome."""
        ...

    def promise_us(self) -> float:
        """Return the least time that it expects, before any measurement; infinity if it expects nothing."""
        ...

    def gain(self) -> float:
        """Return by which share of the best time what it proposed last may be faster; infinity: anything."""
        ...


class Records(Protocol):
    """The part of the store that the tuner uses."""

    def add(self, record: Record) -> None:
        """Keep an outcome for ever."""
        ...

    def records(self, problem: Problem, device_key: str, source_key: dict[str, str]) -> list[Record]:
        """Return the outcomes of a problem on a device with this source and compiler, oldest first."""
        ...

    def hints(
        self, problem: Problem, device_key: str, deterministic: bool, source_key: dict[str, str]
    ) -> list[Record]:
        """Return likely winners that this source and compiler have not verified: shipped, imported, older."""
        ...


def batch_size(trials: int | None, most: int = 8) -> int:
    """Return how many configs to ask for at a time: of few trials, each learns from the one before."""
    return most if trials is None else max(1, min(most, trials // 12))


MakeStrategy = Callable[[str, Family, Problem, Device, int], Strategy]


FAR = 5.0  # a family whose best is so many times slower is asked only when the others have nothing more
LAGGING = 4  # power of a family's best time, over the best of all, that cuts its share of the proposals


class Proposals:
    """Shares the trials out among the strategies of the families: the slower a family's best, the fewer.

    Until a family is measured, its best is what its strategy expects. The fastest is asked first.
    Some of what won elsewhere, ``first``, is tried before any strategy is asked for anything; the rest in
    turns with what they propose, so that winners of an older source do not use up a small budget.
    """

    def __init__(
        self, strategies: list[Strategy], wanted: Callable[[Config], bool], families: Sequence[str] = (),
        first: Sequence[Config] = (),
    ) -> None:  # fmt: skip
        self._strategies, self._wanted = strategies, wanted
        self._families = list(families) or [""] * len(strategies)
        self._promised: list[float] = []
        self._best: dict[str, float] = {}
        self._seen: set[str] = set()
        self._first = [config for config in first if wanted(config)]
        self._ahead = 0  # by how many what won elsewhere is ahead of proposals

    def next(self, count: int) -> list[Config]:
        """Return at most ``count`` new configs that are wanted; none when there are no more."""
        if count <= 0:
            return []
        found = self.first((count - self._ahead) // 2)
        elsewhere = len(found)
        self._promised = self._promised or [strategy.promise_us() for strategy in self._strategies]
        asking = list(range(len(self._strategies)))
        while len(found) < count and asking:
            best = {i: self._best.get(self._families[i], self._promised[i]) for i in asking}
            asking.sort(key=best.__getitem__)
            weights = {i: _weight(best[i], best[asking[0]]) for i in asking}
            left, total = count - len(found), sum(weights.values())
            for i in [i for i in asking if best[i] <= FAR * best[asking[0]] or best[i] == math.inf]:
                share = max(1, round(left * weights[i] / total))
                proposed = self._strategies[i].propose(min(share, count - len(found)))
                if not proposed:
                    asking.remove(i)
                found += [c for c in proposed if str(c) not in self._seen and self._wanted(c)]
                self._seen.update(str(c) for c in proposed)
                if len(found) >= count:
                    break
        self._ahead -= len(found) - elsewhere
        return found or self.first(count)

    def first(self, count: int) -> list[Config]:
        """Return at most ``count`` configs that won elsewhere."""
        count = max(0, count)
        found, self._first = self._first[:count], self._first[count:]
        self._ahead += len(found)
        self._seen.update(str(config) for config in found)
        return found

    def think(self, enough: Callable[[], bool]) -> None:
        """Have the strategies look at their families, one after the other, until it is enough."""
        for strategy in self._strategies:
            if enough():
                return
            strategy.promise_us()

    def gain(self) -> float:
        """Return the largest gain that any strategy expects of what it proposed last."""
        return max((strategy.gain() for strategy in self._strategies), default=0.0)

    def tell(self, record: Record) -> None:
        """Pass an outcome on to every strategy."""
        if record.measurement:
            known = self._best.get(record.family, record.measurement.cold_us)
            self._best[record.family] = min(known, record.measurement.cold_us)
        for strategy in self._strategies:
            strategy.tell(record)


def _weight(mine_us: float, best_us: float) -> float:
    """Return the share of a family's proposals, of the fastest family's: none is cut that expects nothing."""
    return (best_us / mine_us) ** LAGGING if mine_us < math.inf else 1.0
