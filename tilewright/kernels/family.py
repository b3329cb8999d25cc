"""What a kernel family is: parameters, named legality rules, and a blueprint of its launches.

A family is data and pure functions of a Problem, a Device and a Config. It touches no backend. Specs also
import Config (config.py), Blueprint and its parts (blueprint.py) from here.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tilewright.device import Device
from tilewright.errors import ConfigError
from tilewright.kernels.blueprint import CONSTANT, ZERO, Blueprint, Buffer, Launch
from tilewright.kernels.config import Config
from tilewright.kernels.tile import ATOMIC
from tilewright.kernels.work import Work
from tilewright.problem import Problem

__all__ = [
    "CONSTANT", "MOST_LAYER_PIXELS", "ZERO", "Blueprint", "Buffer", "Config", "Family", "Launch", "Param",
    "Rule", "Values", "legal_config", "too_many",
]  # fmt: skip

Values = dict[str, int]  # parameters of a config, by name
MOST_LAYER_PIXELS = 1 << 30  # whose numbers, plus one tile, are below 2^31


@dataclass(frozen=True)
class Param:
    """A tunable: its name, the values it may take, and what it means.

    ``names`` gives the meaning of each value where it stands for a choice.
    """

    name: str
    values: tuple[int, ...]
    doc: str
    names: tuple[str, ...] = ()


class Rule:
    """One named legality rule.

    The names of ``holds``'s arguments say what it is called with: a parameter, ``problem`` or ``device``. A
    rule of many parameters lists their names in ``needs`` and takes them as one dict, ``cf``.
    """

    def __init__(self, name: str, holds: Callable[..., bool], reason: str, needs: str = "") -> None:
        self.name, self.holds, self.reason = name, holds, reason
        self._of_cf = tuple(needs.split())

    @cached_property
    def _takes(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.holds).parameters)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Names of all that the rule depends on."""
        return (*(name for name in self._takes if name != "cf"), *self._of_cf)

    def allows(self, known: Mapping[str, Any]) -> bool:
        """Whether it holds; ``known`` has all that it ``needs``, by name."""
        if not self._of_cf:
            return self.holds(*[known[name] for name in self._takes])
        cf = {name: known[name] for name in self._of_cf}
        return self.holds(*[cf if name == "cf" else known[name] for name in self._takes])


def too_many(problem: Problem) -> str | None:
    """Refuse a layer whose pixel index, plus one tile, overflows 32 bits."""
    pixels = problem.n * max(problem.h * problem.w, problem.p * problem.q)
    return f"it has more than {MOST_LAYER_PIXELS:,} pixels" if pixels > MOST_LAYER_PIXELS else None


class Family(ABC):
    """Base of every kernel family. A subclass is one spec ``x.py``; its blueprints name the kernel files."""

    name: str = ""
    tunable: bool = True  # it has a ``work``, so that the model can rank its configs and a search tune it
    races: bool = True  # tried if no family is named; the others are tried only by name
    precisions: tuple[str, ...] = ("f32",)  # that it computes (``Problem.precision``)
    exact: bool = True  # answers on small integers are exact, bit by bit
    # Sums the formula's own products. Minimal filtering and Strassen's algorithm do not: rounding errors, NaN
    # and infinities of an input may reach outputs that do not depend on it.
    plain: bool = True
    # Problem strings: a small layer of each dtype that it supports, and of tf32 and accurate if it multiplies
    # them. The tests of all families compile and run them, GPU kernels emulated on the CPU.
    examples: tuple[str, ...] = ()

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Say why the family does not support the problem on the device; None if it does.

        A subclass calls this first, then checks its own conditions.
        """
        asked = problem.dtype if self.widens else problem.precision
        if asked not in self.precisions:
            return f"it computes {', '.join(self.precisions)}, not {asked}"
        return too_many(problem)

    @property
    def widens(self) -> bool:
        """Whether it computes in f32 what only tensor cores multiply: tf32, accurate, f8."""
        return "f32" in self.precisions and "tf32" not in self.precisions

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The problem that the rules check: a different one if another family's kernel computes it."""
        return problem

    def computed(self, problem: Problem) -> Problem:
        """Return a problem that its kernels compute in the same way: the strict one, where it widens."""
        return replace(problem, math="strict") if self.widens else problem

    @abstractmethod
    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """The tunables and their values for this problem, in the order in which they are chosen."""

    @abstractmethod
    def rules(self, device: Device) -> tuple[Rule, ...]:
        """The legality rules on this kind of device, each with its hardware reason."""

    @abstractmethod
    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out the launches of a legal config.

        ``aligned=False`` gives a variant for tensors whose base pointers are not 16-byte aligned. It reads
        the same packed filter and may need more workspace. Rules are not checked again for it: those of
        shared memory must cover both.
        """

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count the work of a legal config, for the model; every ``tunable`` family has this."""
        raise NotImplementedError(f"{self.name}: only families that are not tunable do without")

    def multiplies(self, problem: Problem) -> float:
        """Multiplications that it does for each one of the formula."""
        return 1.0

    def remarks(self, problem: Problem, config: Config) -> dict[str, str]:
        """What ``explain`` says in addition about a config's workspace, by name."""
        return {}

    def deterministic(self, config: Config) -> bool:
        """Whether two runs give the same bits: atomic adds have no fixed order, everything else has."""
        return config.values.get("combine") != ATOMIC

    @abstractmethod
    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Length of the longest sequential chain of f32 adds of one output, for the error bound."""

    def check(self, problem: Problem, device: Device, config: Config) -> None:
        """Raise ConfigError if the family refuses the problem, or with the first broken rule."""
        if reason := self.refuses(problem, device):
            raise ConfigError(f"config {config}: {self.name} does not take {problem}: {reason}")
        params = {p.name: p for p in self.params(problem, device)}
        for name in config.values:
            if name not in params:
                raise ConfigError(f"config {config}: {name} is no parameter; known are {', '.join(params)}")
        if missing := [name for name in params if name not in config.values]:
            hint = "a config has them all, as 'tilewright explain' and 'configs' print it"
            raise ConfigError(f"config {config}: {', '.join(missing)} must be given, too; {hint}")
        for name, value in config.items:
            if value not in params[name].values:
                allowed = ", ".join(map(str, params[name].values))
                must = "one of " * (len(params[name].values) > 1) + allowed
                raise ConfigError(f"config {config}: {name}={value} must be {must}")
        inner = self.inner(problem, device)
        known: dict[str, Any] = {**config.values, "problem": inner, "device": device}
        for rule in self.rules(device):
            if not rule.allows(known):
                raise ConfigError(f"config {config} breaks rule '{rule.name}': {rule.reason}")


def legal_config(text: str, families: Iterable[Family], problem: Problem, device: Device) -> Config | None:
    """Read a config from a store or file; None if it cannot be read, or breaks a rule on this device."""
    with suppress(ConfigError):
        config = Config.parse(text)
        for family in families:
            if family.name == config.family:
                family.check(problem, device, config)
                return config
    return None
