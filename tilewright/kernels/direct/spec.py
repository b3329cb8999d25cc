"""The direct family: register and block tiles over K, P, Q; the sum over C can be split at any level.

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
    precisions = (*DTYPES, "f8", "q8")
    examples = tuple(f"n1c40h9w8k24r3s3p1-{dtype}+bias+relu" for dtype in precisions)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support every problem of its dtypes, with any math, on a device with kernels."""
        return super().refuses(problem, device) or no_kernels(device)

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The problem; on a CPU a classifier becomes one row of pixels."""
        return problem if device.is_gpu else cpu_tile.one_row(problem)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        return gpu.params(problem, device) if device.is_gpu else cpu.params(problem, device)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the device and the kernel."""
        return gpu.RULES if device.is_gpu else cpu.RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if a second pass adds up the shares."""
        if device.is_gpu:
            return gpu.blueprint(problem, device, config.values, aligned)
        return cpu.blueprint(problem, device, config.values)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count the work of one block and one thread."""
        cf = config.values
        return gpu_work.work(problem, device, cf) if device.is_gpu else cpu_work.work(problem, device, cf)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Length of the longest chain of adds: one share of C, then the shares one after the other."""
        cf = config.values
        return gpu.chain(problem, cf) if device.is_gpu else cpu.chain(problem, cf)
