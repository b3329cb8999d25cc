"""The legal configs of a family on a problem: all of them, a random one, those next to one.

Parameters are chosen in the family's order; a rule is checked as soon as all that it needs is
chosen, so an illegal branch is pruned at its root.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
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
REMEMBERED = 60_000  # answers of all rules of a space, about 10 MB: enough to rank the largest space
NEIGHBOURS = 32  # configs whose neighbours are remembered: a search asks repeatedly for those of its best


class Space:
    """The space of one family for one problem on one device; or the part of it where parameters are pinned.

    It remembers the answers of its rules, which a search checks many times. Each search makes its own space,
    so that they are freed with it.

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
        self._fixed: dict[str, Any] = {"problem": family.inner(problem, device), "device": device}
        count = _AnswerCount()
        rules = [_MemoisedRule(rule, self._fixed, count) for rule in family.rules(device)]
        self._checks = _checks_by_depth(self.params, rules)
        places = {param.name: 1 << place for place, param in enumerate(self.params)}
        self._places = {rule: sum(places.get(name, 0) for name in set(rule.needs)) for rule in rules}
        self._rules_of = {p.name: [rule for rule in rules if p.name in rule.needs] for p in self.params}
        self._rules_of_both = {
            (one.name, other.name): [rule for rule in self._rules_of[one.name] if other.name in rule.needs]
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
            raise EmptySpace(f"no config of {self.family.name} is legal for {self.problem}")
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
        """Yield the changes that keep a legal config legal, checking only rules that depend on what changes.

        Where two parameters change together, rules about one of them were checked when it changed alone.
        """
        known = {**self._fixed, **base}
        moves = [(param, value) for param in self.params for value in _near(param, base[param.name])]
        alone = [_broken(self._rules_of[param.name], {**known, param.name: value}) for param, value in moves]
        for (param, value), broken in zip(moves, alone, strict=True):
            if broken is None:
                yield {param.name: value}
            for (other, second), others in zip(moves, alone, strict=True):
                opposite = (value > base[param.name]) != (second > base[other.name])
                mixed = bool(param.names) != bool(other.names)
                if param.name < other.name and (mixed or (opposite and not param.names)):
                    both = self._rules_of_both[param.name, other.name]
                    if any(one is not None and one not in both for one in (broken, others)):
                        continue
                    step = {param.name: value, other.name: second}
                    whole = broken is None and others is None
                    rules = both if whole else self._rules_of[param.name] + self._rules_of[other.name]
                    if _broken(rules, {**known, **step}) is None:
                        yield step

    def has(self, config: Config) -> bool:
        """Whether a config from elsewhere is one of the space."""
        values, of_param = config.values, {param.name: param.values for param in self.params}
        named = config.family == self.family.name and values.keys() == of_param.keys()
        return named and all(values[name] in of_param[name] for name in values) and self.legal(values)

    def legal(self, values: dict[str, int]) -> bool:
        """Whether the values break no rule."""
        known = {**self._fixed, **values}
        return all(_broken(rules, known) is None for rules in self._checks)

    def _extend(self, order: Callable[[tuple[int, ...]], Iterator[int]]) -> Iterator[dict[str, Any]]:
        """Yield legal values of all parameters, each parameter's in the order given.

        It is the same dict each time, with other values. Where no value of a parameter will do, the next one
        to change is the last that the broken rules need: none between matters.
        """
        known, last = dict(self._fixed), len(self.params) - 1
        left = [order(param.values) for param in self.params[:1]]  # down to the parameter being chosen
        blamed = [0] * len(left)  # for each the places, as bits, of those whose values forbid its own
        if not left:
            yield known
        while left:
            depth = len(left) - 1
            name, rules = self.params[depth].name, self._checks[depth]
            for value in left[-1]:
                known[name] = value
                if (broken := _broken(rules, known)) is not None:
                    blamed[-1] |= self._places[broken]
                elif depth < last:
                    left.append(order(self.params[depth + 1].values))
                    blamed.append(0)
                    break
                else:
                    yield known
                    blamed = [(1 << place) - 1 for place in range(len(left))]  # all that led here may go on
            else:
                to_blame = blamed[-1] & ~(1 << depth)
                to_change = to_blame.bit_length()
                del left[to_change:], blamed[to_change:]
                if blamed:
                    blamed[-1] |= to_blame


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


class _AnswerCount:
    """Limits the answers that all rules of one space remember; at the limit, all are forgotten."""

    def __init__(self) -> None:
        self._of_rules: list[dict[Any, bool]] = []
        self._left = REMEMBERED

    def new_answers(self) -> dict[Any, bool]:
        """Return the empty memo of one more rule."""
        self._of_rules.append({})
        return self._of_rules[-1]

    def count_one(self) -> None:
        """Count an answer that is about to be remembered."""
        if self._left <= 0:  # below 0 if threads that share a space count at the same time
            self._left = REMEMBERED
            for answers in self._of_rules:
                answers.clear()
        self._left -= 1


class _MemoisedRule:
    """A rule of one space with its answers.

    Attributes:
        needs: names of all that the rule depends on.
        key_of: returns the key of the known values in ``answers``: those that the rule needs, except for the
            ``fixed`` ones, the problem and the device.
        answers: whether the rule holds, by key. Looking them up is the caller's task, for speed.
    """

    def __init__(self, rule: Rule, fixed: Iterable[str], count: _AnswerCount) -> None:
        self.needs, self._allows = rule.needs, rule.allows
        names = [name for name in rule.needs if name not in fixed]
        self.key_of: Callable[[dict[str, Any]], Any] = itemgetter(*names) if names else lambda known: None
        self._count, self.answers = count, count.new_answers()

    def answer(self, known: dict[str, Any]) -> bool:
        """Work out whether the rule holds, and remember it."""
        found = self._allows(known)
        self._count.count_one()
        self.answers[self.key_of(known)] = found
        return found


def _broken(rules: Iterable[_MemoisedRule], known: dict[str, Any]) -> _MemoisedRule | None:
    """Return the first of the rules that does not hold; None if all do."""
    for rule in rules:
        answer = rule.answers.get(rule.key_of(known))
        if not (rule.answer(known) if answer is None else answer):
            return rule
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
    """Return a space that is cached: for callers that look at only a few of its configs."""
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


def sample(family: Family, problem: Problem, device: Device, rng: random.Random) -> Config:
    """Draw one legal config."""
    return space(family, problem, device).sample(rng)
