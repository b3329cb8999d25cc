"""What the tuner needs of strategies and of the store, and taking turns among strategies."""

from __future__ import annotations

from collections.abc import Callable
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


class Records(Protocol):
    """The part of the store that the tuner uses."""

    def add(self, record: Record) -> None:
        """Keep an outcome for ever."""
        ...

    def records(self, problem: Problem, device_key: str) -> list[Record]:
        """Return the outcomes of a problem on a device, oldest first."""
        ...


MakeStrategy = Callable[[str, Family, Problem, Device, int], Strategy]


class Proposals:
    """Takes turns among the strategies of the families."""

    def __init__(self, strategies: list[Strategy], wanted: Callable[[Config], bool]) -> None:
        self._strategies, self._wanted = strategies, wanted
        self._seen: set[str] = set()

    def next(self, count: int) -> list[Config]:
        """Return at most ``count`` new configs that are wanted; none when there are no more."""
        found: list[Config] = []
        asking = list(self._strategies)
        while len(found) < count and asking:
            share = -(-(count - len(found)) // len(asking))
            for strategy in list(asking):
                proposed = strategy.propose(min(share, count - len(found)))
                if not proposed:
                    asking.remove(strategy)
                found += [c for c in proposed if str(c) not in self._seen and self._wanted(c)]
                self._seen.update(str(c) for c in proposed)
                if len(found) >= count:
                    break
        return found

    def tell(self, record: Record) -> None:
        """Pass an outcome on to every strategy."""
        for strategy in self._strategies:
            strategy.tell(record)
