"""The legal configs of a family on a problem: all of them, a random one, those next to one.

Parameters are chosen in the family's order; a rule is asked as soon as all that it needs is
chosen, so an illegal branch is left at its root.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from tilewright.device import Device
from tilewright.errors import EmptySpace
from tilewright.kernels.family import Config, Family, Param, Rule
from tilewright.problem import Problem


class Space:
    """The space of one family for one problem on one device."""

    def __init__(self, family: Family, problem: Problem, device: Device) -> None:
        self.family = family
        self.params: tuple[Param, ...] = family.params(problem, device)
        self._neighbours: dict[Config, tuple[Config, ...]] = {}
        self._known: dict[str, Any] = {"problem": problem, "device": device}
        self._checks = _checks_by_depth(self.params, family.rules_for(device))

    def every(self) -> Iterator[Config]:
        """Yield every legal config, in a fixed order."""
        for values in self._extend({}, lambda options: options):
            yield Config.make(self.family.name, values)

    def sample(self, rng: random.Random) -> Config:
        """Draw a legal config; the same ``rng`` state gives the same one.

        Raises:
            EmptySpace: there is none.
        """

        def shuffled(options: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(rng.sample(options, len(options)))

        values = next(self._extend({}, shuffled), None)
        if values is None:
            raise EmptySpace(f"no config of {self.family.name} is legal for {self._known['problem']}")
        return Config.make(self.family.name, values)

    def neighbours(self, config: Config) -> tuple[Config, ...]:
        """Return the legal configs one step away: a parameter moved to a nearby value, or two moved
        together: one up and one down, which keeps their product near, or a size and a choice."""
        if config not in self._neighbours:
            moved = [{**config.values, **step} for step in self._steps(config.values)]
            legal = (Config.make(self.family.name, values) for values in moved if self.legal(values))
            self._neighbours[config] = tuple(legal)
        return self._neighbours[config]

    def _steps(self, base: dict[str, int]) -> Iterator[dict[str, int]]:
        moves = [(p, v) for p in self.params for v in _near(p, base[p.name])]
        for param, value in moves:
            yield {param.name: value}
            for other, second in moves:
                opposite = (value > base[param.name]) != (second > base[other.name])
                mixed = bool(param.names) != bool(other.names)
                if param.name < other.name and (mixed or (opposite and not param.names)):
                    yield {param.name: value, other.name: second}

    def legal(self, values: dict[str, int]) -> bool:
        """Whether the values break no rule."""
        known = {**self._known, **values}
        return all(_holds(rule, known) for rules in self._checks for rule in rules)

    def _extend(
        self, chosen: dict[str, int], order: Callable[[tuple[int, ...]], tuple[int, ...]]
    ) -> Iterator[dict[str, int]]:
        depth = len(chosen)
        if depth == len(self.params):
            yield dict(chosen)
            return
        param, rules = self.params[depth], self._checks[depth]
        for value in order(param.values):
            chosen[param.name] = value
            known = {**self._known, **chosen}
            if all(_holds(rule, known) for rule in rules):
                yield from self._extend(chosen, order)
            del chosen[param.name]


def _holds(rule: Rule, known: dict[str, Any]) -> bool:
    return rule.holds(*[known[name] for name in rule.needs])


def _checks_by_depth(params: tuple[Param, ...], rules: tuple[Rule, ...]) -> list[list[Rule]]:
    """For each depth, the rules that can be asked once that parameter is chosen."""
    place = {param.name: depth for depth, param in enumerate(params)}
    checks: list[list[Rule]] = [[] for _ in params]
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
    """Return the space of a family for a problem on a device."""
    return Space(family, problem, device)


def usable(
    families: Iterable[Family], problem: Problem, device: Device
) -> tuple[list[Family], dict[str, str]]:
    """Return the tunable families that have a legal config, and of the others why they have none."""
    found, passed = [], {}
    for family in families:
        if not family.tunable:
            continue
        try:
            reason = family.refuses(problem, device)
            if reason is None:
                sample(family, problem, device, random.Random(0))
        except EmptySpace as error:
            reason = str(error)
        if reason is None:
            found.append(family)
        else:
            passed[family.name] = reason
    return found, passed


def sample(family: Family, problem: Problem, device: Device, rng: random.Random) -> Config:
    """Draw one legal config."""
    return space(family, problem, device).sample(rng)


def every(family: Family, problem: Problem, device: Device) -> Iterator[Config]:
    """Yield every legal config."""
    return space(family, problem, device).every()
