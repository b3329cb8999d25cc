"""What the tuner asks of strategies, and how families share the trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from tilewright.device import Device
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.record import Record


class Strategy(Protocol):
    """Chooses what to try next. One that is derived from it predicts nothing and learns nothing by itself."""

    def propose(self, count: int) -> list[Config]:
        """Return at most ``count`` configs not proposed before; none when there are no more."""
        ...

    def tell(self, record: Record) -> None:
        """Learn an outcome."""
        return

    def peek_us(self) -> float:
        """Return roughly what it will promise, quickly; infinity if it expects nothing."""
        return math.inf

    def promise_us(self, known_us: float = math.inf) -> float:
        """Return the least time that it expects, before any measurement; infinity if it expects nothing.

        ``known_us`` is what another promised: who is far from it need not look closely.
        """
        return math.inf

    def preview(self, count: int) -> list[Config]:
        """Return the best configs behind ``promise_us``, at most ``count``."""
        return []

    def gain(self) -> float:
        """Return how much faster its last proposals may be, as a share of the best; infinity: unknown."""
        return math.inf


def batch_size(trials: int | None, most: int = 8) -> int:
    """Return how many configs to ask for at a time: few if there are few trials, so that later ones learn."""
    return most if trials is None else max(1, min(most, trials // 12))


MakeStrategy = Callable[[str, Family, Problem, Device, int], Strategy]


FAR = 5.0  # a family whose best is so many times slower is asked only when the others have nothing more
UNPROVEN = 0.8  # of the best time: a search waits for a family that promises less but had nothing right yet
PATIENCE = 30  # most trials of others before the first of a family
LAGGING = 4  # a family's share of the proposals falls with this power of its best time over the best of all


class _Racer:
    """A family that competes for trials: its strategy, and its best time so far.

    Attributes:
        looked: whether its strategy has evaluated its first configs.
        given, tried: whether any of its configs was proposed, was tried.
        spent: whether it had nothing more to propose.
        waiting: configs that were proposed and not tried yet.
        owed: its part of proposals that were too few to share, or less than 0 if it had more than its part.
    """

    def __init__(self, strategy: Strategy, family: str, owed: float) -> None:
        self.strategy, self.family, self.owed = strategy, family, owed
        self.looked = self.given = self.tried = self.spent = False
        self.waiting: set[str] = set()
        self._measured_us = math.inf

    def look(self, known_us: float) -> None:
        """Have the strategy look at the family; another has promised ``known_us``."""
        self.looked = True
        self._expected_us = self.strategy.promise_us(known_us)

    @cached_property
    def _expected_us(self) -> float:
        return self.strategy.promise_us()

    @property
    def measured(self) -> bool:
        """Whether any of its configs was right."""
        return self._measured_us < math.inf

    @property
    def best_us(self) -> float:
        """The best measured time; before there is one, the time that its strategy expected at first."""
        return self._measured_us if self.measured else self._expected_us

    @property
    def hopeless(self) -> bool:
        """Whether it has no config left that might be right."""
        return self.spent and not self.waiting

    def tell(self, record: Record) -> None:
        """Learn an outcome, of any family."""
        self.waiting.discard(record.config)
        if record.family == self.family:
            self.tried = True
            self._measured_us = min(self._measured_us, record.cold_us)
        self.strategy.tell(record)


class Proposals:
    """Distributes the trials among the strategies of the families: the slower a family's best, the fewer.

    Until a family is measured, its best is what its strategy expects. The fastest is asked first. Some of the
    ``hints``, winners from elsewhere, are tried before any strategy is asked; the others alternate with
    proposals, so that winners of an older source do not use up a small budget. Families that an earlier
    search left ``untried`` are asked before the others.

    Attributes:
        due: the families that must be tried before a search is complete: all but those that have nothing to
            propose, or are FAR behind.
    """

    def __init__(
        self, strategies: Mapping[str, Strategy], wanted: Callable[[Config], bool],
        hints: Sequence[Config] = (), untried: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Propose nothing yet; ``strategies`` are by the names of their families."""
        self._racers = [_Racer(one, family, float(family in untried)) for family, one in strategies.items()]
        self._promised_us = math.inf  # by any that has
        self._wanted = wanted
        self._seen: set[str] = set()
        self._hints = [config for config in hints if wanted(config)]
        self._ahead = 0  # by how many hints are ahead of proposals
        self._untried, self.due = set(untried), set(strategies)
        self._told = 0  # outcomes

    def next(self, count: int) -> list[Config]:
        """Return at most ``count`` new configs that are wanted; none when there are no more."""
        if count <= 0:
            return []
        hints = self.next_hints((count - self._ahead) // 2)
        proposed = self._ask(count - len(hints))
        self._ahead -= len(proposed)
        return hints + proposed or self.next_hints(count)

    def _ask(self, count: int) -> list[Config]:
        """Ask the strategies, round by round, until they have proposed ``count`` configs or have no more."""
        found: list[Config] = []
        before = [racer for racer in self._racers if racer.family in self._untried and not racer.given]
        asking = sorted(self._racers, key=lambda racer: (racer not in before, racer.best_us))
        while len(found) < count and asking:
            turns = _shares(asking, count - len(found))
            self.due -= {racer.family for racer in asking} - {racer.family for racer, _ in turns}
            for racer, share in turns:
                if not share:
                    continue
                proposed = racer.strategy.propose(share)
                racer.spent = not proposed
                if not proposed:
                    asking.remove(racer)
                    if not racer.given:
                        self.due -= {racer.family}
                found += self._new(racer, proposed)
        return found

    def next_hints(self, count: int) -> list[Config]:
        """Return at most ``count`` hints that were not proposed since."""
        count = max(0, count)
        left = [config for config in self._hints if str(config) not in self._seen]
        found, self._hints = left[:count], left[count:]
        self._ahead += len(found)
        self._seen.update(str(config) for config in found)
        return found

    @property
    def looked(self) -> bool:
        """Whether all strategies have evaluated their first configs."""
        return all(racer.looked for racer in self._racers)

    def look(self, count: int) -> list[Config]:
        """Let the next strategy evaluate its first configs; return some, the fewer the less it promises.

        The most promising families come first: others need not look closely then.

        Args:
            count: how many at most, of one that promises as much as any before.
        """
        racer = next(racer for racer in self._by_promise if not racer.looked)
        racer.look(self._promised_us)
        self._promised_us = min(self._promised_us, racer.best_us)
        if racer.best_us == math.inf:
            return []
        share = round(count * (self._promised_us / racer.best_us) ** LAGGING)
        return self._new(racer, racer.strategy.preview(share)) if share else []

    @cached_property
    def _by_promise(self) -> list[_Racer]:
        """Families as they promise at a peek; of those that expect nothing those for few layers first."""
        return sorted(reversed(self._racers), key=lambda racer: racer.strategy.peek_us())

    def _new(self, racer: _Racer, proposed: Sequence[Config]) -> list[Config]:
        """Return what is new, and wanted."""
        new = [c for c in proposed if str(c) not in self._seen and self._wanted(c)]
        racer.given |= bool(new)
        racer.waiting.update(map(str, new))
        self._seen.update(str(c) for c in proposed)
        return new

    def hopeful(self, best_us: float) -> bool:
        """Return whether a family without a right config yet may be much faster than ``best_us``."""
        unproven = (racer for racer in self._racers if not (racer.measured or racer.hopeless))
        return not self.looked or any(racer.best_us < UNPROVEN * best_us for racer in unproven)

    def best_us(self, config: Config) -> float:
        """Return the best time of a config's family, measured or expected; 0 if it is to be tried at once.

        That is: hints until their family's strategy has looked, configs of strategies that expect nothing,
        and the first of a family that an earlier search left untried, or that has waited for PATIENCE trials.
        """
        racers = (racer for racer in self._racers if racer.family == config.family)
        return max((racer.best_us for racer in racers if self._waits(racer)), default=0.0)

    def _waits(self, racer: _Racer) -> bool:
        """Whether a family's configs are tried after those of faster ones."""
        turn = racer.family in self._untried or self._told >= PATIENCE
        first = turn and not racer.tried and racer.family in self.due
        return not first and racer.looked and racer.best_us < math.inf

    def gain(self) -> float:
        """Return the largest gain that any strategy expects of what it proposed last."""
        return max((racer.strategy.gain() for racer in self._racers), default=0.0)

    def tell(self, record: Record) -> None:
        """Pass an outcome on to every strategy."""
        self._told += 1
        for racer in self._racers:
            racer.tell(record)


def _shares(asking: Sequence[_Racer], count: int) -> list[tuple[_Racer, int]]:
    """Distribute ``count`` proposals, the fastest family first; one FAR behind waits for the others to end.

    A family that expects nothing keeps its full share: it may be the fastest. What a family gets too little
    of it is owed the next time: else of one proposal at a time all would be the fastest's.
    """
    best_us = min(racer.best_us for racer in asking)
    near = [racer for racer in asking if racer.best_us <= FAR * best_us or racer.best_us == math.inf]
    weights = _weights(near, best_us)
    shares = dict.fromkeys(near, 0)
    for _ in range(count):
        for racer, weight in zip(near, weights, strict=True):
            racer.owed += weight / sum(weights)
        next_one = max(near, key=lambda racer: racer.owed)
        next_one.owed -= 1.0
        shares[next_one] += 1
    return list(shares.items())


def _weights(near: Sequence[_Racer], best_us: float) -> list[float]:
    """Return the families' weights; one that has had no proposal gets enough for one in about PATIENCE.

    That is a part of all weights, not of the best one's: of many families that are as fast, each has little.
    """
    weights = [(best_us / r.best_us) ** LAGGING if r.best_us < math.inf else 1.0 for r in near]
    least = sum(weights) / PATIENCE
    return [w if racer.given else max(w, least) for racer, w in zip(near, weights, strict=True)]
