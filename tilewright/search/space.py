"""The legal configs of a family on a problem: all of them, a random one, those next to one.

Parameters are chosen in the family's order; a rule is checked as soon as all that it needs is
chosen, so an illegal branch is pruned at its root.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import Any

from tilewright.device import Device
from tilewright.errors import ConfigError, EmptySpace
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family, Param, Rule
from tilewright.problem import Problem

Pins = Mapping[str, int | tuple[int, ...]]  # parameters that may take certain values only
REMEMBERED = 60_000  # answers of all rules of a space, 10 MB of them: as many as ranking the largest asks for
NEIGHBOURS = 32  # configs whose neighbours are remembered: a search asks anew for those of its best


class Space:
    """The space of one family for one problem on one device; or the part of it where parameters are pinned.

    It memoises its rules, which a search checks many times: each search makes a space of its own, so that the
    memo is freed with it.

    Attributes:
        family, problem, device: whose space it is.
        params: the family's parameters, with the values that they may take here.

    Raises:
        ConfigError: the family has no such parameter, or none of the values that it is pinned to.
    """

    def __init__(self, family: Family, problem: Problem, device: Device, pins: Pins | None = None) -> None:
        self.family, self.problem, self.device = family, problem, device
        self.params: tuple[Param, ...] = _narrowed(family.params(problem, device), pins or {}, family, device)
        by_name = sorted(self.params, key=lambda param: param.name)
        self._items = [(p.name, {value: (p.name, value) for value in p.values}) for p in by_name]
        self._neighbours: dict[Config, tuple[Config, ...]] = {}
        self._known: dict[str, Any] = {"problem": family.inner(problem, device), "device": device}
        room = _Room()
        asked = [_MemoisedRule(rule, self._known, room) for rule in family.rules(device)]
        self._checks = _checks_by_depth(self.params, asked)
        self._about = {p.name: [a for a in asked if p.name in a.needs] for p in self.params}
        self._about_both = {
            (one.name, other.name): [a for a in self._about[one.name] if other.name in a.needs]
            for one in self.params for other in self.params
        }  # fmt: skip

    def every(self) -> Iterator[Config]:
        """Yield every legal config, in a fixed order."""
        for values in self._extend(iter):
            yield self._config(values)

    def sample(self, rng: random.Random) -> Config:
        """Draw a legal config; the same ``rng`` state gives the same one.

        Raises:
            EmptySpace: there is none.
        """

        def shuffled(options: tuple[int, ...]) -> Iterator[int]:
            left = list(options)
            while left:  # most often the first will do
                yield left.pop(int(rng.random() * len(left)))

        values = next(self._extend(shuffled), None)
        if values is None:
            raise EmptySpace(f"no config of {self.family.name} is legal for {self._known['problem']}")
        return self._config(values)

    def _config(self, values: Mapping[str, int]) -> Config:
        """Build a config as ``Config.make`` does, of tuples that configs share: half the time and memory."""
        return Config(self.family.name, tuple([parts[values[name]] for name, parts in self._items]))

    def neighbours(self, config: Config) -> tuple[Config, ...]:
        """Return the legal configs one step away: a parameter moved to a nearby value, or two moved
        together: one up and one down, which keeps their product near, or a size and a choice."""
        if (known := self._neighbours.get(config)) is not None:
            return known
        base = config.values
        found = tuple(self._config({**base, **step}) for step in self._steps(base))
        if len(self._neighbours) >= NEIGHBOURS:
            self._neighbours.clear()
        self._neighbours[config] = found
        return found

    def _steps(self, base: dict[str, int]) -> Iterator[dict[str, int]]:
        """Yield the steps after which a legal config stays legal: only rules that depend on a step are asked.

        Of two parameters moved together, what depends on one alone was asked when that one was moved.
        """
        known = {**self._known, **base}
        moves = [(param, value) for param in self.params for value in _near(param, base[param.name])]
        alone = [_broken(self._about[param.name], {**known, param.name: value}) for param, value in moves]
        for (param, value), broken in zip(moves, alone, strict=True):
            if broken is None:
                yield {param.name: value}
            for (other, second), others in zip(moves, alone, strict=True):
                opposite = (value > base[param.name]) != (second > base[other.name])
                mixed = bool(param.names) != bool(other.names)
                if param.name < other.name and (mixed or (opposite and not param.names)):
                    both = self._about_both[param.name, other.name]
                    if any(one is not None and one not in both for one in (broken, others)):
                        continue
                    step = {param.name: value, other.name: second}
                    whole = broken is None and others is None
                    asked = both if whole else self._about[param.name] + self._about[other.name]
                    if _broken(asked, {**known, **step}) is None:
                        yield step

    def has(self, config: Config) -> bool:
        """Whether a config from elsewhere is one of the space."""
        values, of_param = config.values, {param.name: param.values for param in self.params}
        named = config.family == self.family.name and values.keys() == of_param.keys()
        return named and all(values[name] in of_param[name] for name in values) and self.legal(values)

    def legal(self, values: dict[str, int]) -> bool:
        """Whether the values break no rule."""
        known = {**self._known, **values}
        return all(_broken(rules, known) is None for rules in self._checks)

    def _extend(self, order: Callable[[tuple[int, ...]], Iterator[int]]) -> Iterator[dict[str, Any]]:
        """Yield legal values of all parameters, each in the order given; the same dict, changed meanwhile."""
        known, last = dict(self._known), len(self.params) - 1
        left = [order(param.values) for param in self.params[:1]]  # down to the parameter being chosen
        if not left:
            yield known
        while left:
            depth = len(left) - 1
            name, rules = self.params[depth].name, self._checks[depth]
            for value in left[-1]:
                known[name] = value
                if _broken(rules, known) is None:
                    if depth < last:
                        left.append(order(self.params[depth + 1].values))
                        break
                    yield known
            else:
                left.pop()


def _narrowed(params: tuple[Param, ...], pins: Pins, family: Family, device: Device) -> tuple[Param, ...]:
    """Restrict parameters to their pins; pinned ones come first, so that rules prune early."""
    for name in sorted(pins.keys() - {param.name for param in params}):
        raise ConfigError(f"{family.name} has no parameter {name!r} on {device.name}")
    first = sorted(params, key=lambda param: param.name not in pins)
    return tuple(_only(p, pins[p.name], family) if p.name in pins else p for p in first)


def _only(param: Param, allowed: int | tuple[int, ...], family: Family) -> Param:
    """Restrict a parameter to the allowed ones of its values."""
    wanted = (allowed,) if isinstance(allowed, int) else allowed
    kept = [i for i, value in enumerate(param.values) if value in wanted]
    if not kept:
        asked, known = (", ".join(map(str, values)) for values in (wanted, param.values))
        raise ConfigError(f"{family.name}: {param.name} may not be {asked} here, but {known}")
    names = tuple(param.names[i] for i in kept) if param.names else ()
    return replace(param, values=tuple(param.values[i] for i in kept), names=names)


class _Room:
    """Room for answers of all rules of one space; when there is none left, all are forgotten."""

    def __init__(self) -> None:
        self._of_rules: list[dict[Any, bool]] = []
        self._left = REMEMBERED

    def of_rule(self) -> dict[Any, bool]:
        """Return the answers of one rule, none yet."""
        self._of_rules.append({})
        return self._of_rules[-1]

    def one_more(self) -> None:
        """Make room for an answer."""
        if self._left <= 0:  # below: threads that look at one space may count at once
            self._left = REMEMBERED
            for said in self._of_rules:
                said.clear()
        self._left -= 1


class _MemoisedRule:
    """A memoised rule of one space. ``fixed`` names what does not change: the problem and the device.

    ``said`` has its answers, by what it ``picks`` of the known values: who asks often looks there first.
    """

    def __init__(self, rule: Rule, fixed: Iterable[str], room: _Room) -> None:
        self.needs, self._allows = rule.needs, rule.allows
        names = [name for name in rule.needs if name not in fixed]
        self.picks: Callable[[dict[str, Any]], Any] = itemgetter(*names) if names else lambda known: None
        self._room, self.said = room, room.of_rule()

    def answer(self, known: dict[str, Any]) -> bool:
        """Whether the rule holds, worked out and kept."""
        found = self._allows(known)
        self._room.one_more()
        self.said[self.picks(known)] = found
        return found


def _broken(rules: Iterable[_MemoisedRule], known: dict[str, Any]) -> _MemoisedRule | None:
    """Return the first of the rules that does not hold; None if all do."""
    for asked in rules:
        said = asked.said.get(asked.picks(known))
        if not (asked.answer(known) if said is None else said):
            return asked
    return None


def _checks_by_depth(params: tuple[Param, ...], rules: list[_MemoisedRule]) -> list[list[_MemoisedRule]]:
    """For each depth, the rules that can be checked once that parameter is chosen."""
    place = {param.name: depth for depth, param in enumerate(params)}
    checks: list[list[_MemoisedRule]] = [[] for _ in params]
    for rule in rules:
        checks[max((place.get(name, 0) for name in rule.needs), default=0)].append(rule)
    return checks


def _near(param: Param, value: int) -> tuple[int, ...]:
    at = param.values.index(value)
    if param.names:
        return tuple(v for v in param.values if v != value)
    return param.values[max(0, at - 1) : at] + param.values[at + 1 : at + 2]


@lru_cache(maxsize=64)
def space(family: Family, problem: Problem, device: Device) -> Space:
    """Return the cached space of a family for a problem on a device, to use few of its configs."""
    return Space(family, problem, device)


def usable(
    families: Iterable[Family], problem: Problem, device: Device
) -> tuple[list[Family], dict[str, str]]:
    """Return the tunable families that have a legal config, and for the others the reason why not."""
    found, passed = [], {}
    for family in families:
        if not family.tunable:
            continue
        try:
            reason = family.refuses(problem, device) or _too_loose(family, problem)
            if reason is None:
                sample(family, problem, device, random.Random(0))
        except EmptySpace as error:
            reason = str(error)
        if reason is None:
            found.append(family)
        else:
            passed[family.name] = reason
    return found, passed


def _too_loose(family: Family, problem: Problem) -> str | None:
    """Say why a family is not accurate enough for ``-accurate``; None if it is."""
    if problem.math == "accurate" and not family.exact:
        return "its sums are less accurate than strict f32's"
    return None


def legal_config(text: str, families: Iterable[Family], problem: Problem, device: Device) -> Config | None:
    """Read a config from a store or file; None if it cannot be read, or breaks a rule on this device."""
    with suppress(ConfigError):
        config = Config.parse(text)
        for family in families:
            if family.name == config.family:
                family.check(problem, device, config)
                return config
    return None


def sample(family: Family, problem: Problem, device: Device, rng: random.Random) -> Config:
    """Draw one legal config."""
    return space(family, problem, device).sample(rng)
