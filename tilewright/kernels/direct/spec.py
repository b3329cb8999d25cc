"""The direct family: register and block tiles over K, P, Q and the sum over C split at any level.

Source of the idea: E. Barton, "C Split Globally", University of Utah, UUCS-22-001, 2022.
"""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.direct import cpu, cpu_tile, cpu_work, gpu, gpu_work
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule
from tilewright.kernels.limits import no_kernels
from tilewright.kernels.work import Work
from tilewright.problem import DTYPES, Problem


class Direct(Family):
    """Direct convolution on CUDA cores and CPU vectors."""

    name = "direct"
    dtypes = (*DTYPES, "f8", "q8")
    examples = tuple(f"n1c40h9w8k24r3s3p1-{dtype}+bias+relu" for dtype in dtypes)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take every problem of its dtypes, whatever its math, on a device with kernels."""
        return super().refuses(problem, device) or no_kernels(device)

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The problem; on a CPU a classifier's as one row of pixels."""
        return problem if device.is_gpu else cpu_tile.one_row(problem)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Offer the tunables, outermost choice first."""
        return gpu.params(problem, device) if device.is_gpu else cpu.params(problem, device)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """State what the device and the kernel forbid."""
        return gpu.RULES if device.is_gpu else cpu.RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out one launch, two when the shares are summed in a second pass."""
        if device.is_gpu:
            return gpu.blueprint(problem, device, config.values, aligned)
        return cpu.blueprint(problem, device, config.values)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count what one block and one thread do."""
        cf = config.values
        return gpu_work.work(problem, device, cf) if device.is_gpu else cpu_work.work(problem, device, cf)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Longest run of adds: one share of C, then the shares one after the other."""
        cf = config.values
        return gpu.chain(problem, cf) if device.is_gpu else cpu.chain(problem, cf)
