"""A kernel family of which nothing is compiled, for tests without a device."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Rule
from tilewright.problem import Problem


class FakeFamily(Family):
    """No rules, and a blueprint that is its config; a subclass has a name and parameters."""

    def rules(self, device: Device) -> tuple[Rule, ...]:
        return ()

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        return Blueprint("gemm.cu", config.items, (), 0)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        return problem.cg * problem.r * problem.s
