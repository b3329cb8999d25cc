"""A family with some parameters held: its space is the part of the family's that has these values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.device import Device
from tilewright.errors import ConfigError
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule
from tilewright.kernels.work import Work
from tilewright.problem import Problem
from tilewright.tuning.search import rank

Allowed = int | tuple[int, ...]


class Pinned(Family):
    """Another family, of which some parameters may take certain values only."""

    def __init__(self, family: Family, pin: Mapping[str, Allowed]) -> None:
        self.of, self.name = family, family.name
        self.pin = {name: (v,) if isinstance(v, int) else v for name, v in pin.items()}

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Refuse what the family does."""
        return self.of.refuses(problem, device)

    def inner(self, problem: Problem, device: Device) -> Problem:
        """As the family."""
        return self.of.inner(problem, device)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Offer the family's parameters; those that are held come first, so that rules see them early."""
        params = self.of.params(problem, device)
        for name in sorted(self.pin.keys() - {param.name for param in params}):
            raise ConfigError(f"{self.name} has no parameter {name!r} on {device.name}")
        return tuple(self._held(p) for p in sorted(params, key=lambda param: param.name not in self.pin))

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """As the family."""
        return self.of.rules(device)

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """As the family."""
        return self.of.blueprint(problem, device, config, aligned)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """As the family."""
        return self.of.work(problem, device, config)

    def _held(self, param: Param) -> Param:
        if param.name not in self.pin:
            return param
        kept = [i for i, value in enumerate(param.values) if value in self.pin[param.name]]
        if not kept:
            wanted, known = (", ".join(map(str, v)) for v in (self.pin[param.name], param.values))
            raise ConfigError(f"{self.name}: {param.name} may not be {wanted} here, but {known}")
        names = tuple(param.names[i] for i in kept) if param.names else ()
        return replace(param, values=tuple(param.values[i] for i in kept), names=names)


def ranked(
    family: Family, problem: Problem, device: Device, pin: Mapping[str, Allowed], count: int
) -> list[Config]:
    """Return the model's best configs with some parameters held.

    Raises:
        ConfigError: the family refuses the layer, has no such parameter or value, or no such config is legal.
    """
    if reason := family.refuses(problem, device):
        raise ConfigError(f"{family.name}: {reason}")
    held = Pinned(family, pin) if pin else family
    return [config for config, _ in rank(problem, device, held, count)]
