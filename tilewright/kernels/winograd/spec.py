"""The winograd family: 3x3 filters of stride 1, with 16 multiply-adds for 4 outputs instead of 36.

On a GPU one kernel does it all (``fused.py``). On CPU cores it is the chain of launches of winograd4, with
tiles of 4x4 inputs (``chained.py``): the filter grows by 16/9, not fourfold, which decides where it is large
and tiles are few.
Source: A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv:1509.09308, F(2x2, 3x3).
"""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.error_bound import too_few_at_edges
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule
from tilewright.kernels.winograd.chained import Chained2
from tilewright.kernels.winograd.fused import Fused
from tilewright.kernels.work import Work
from tilewright.problem import Problem

# Of any output. Simulated, the worst of 4 million outputs times the bound: sums of 8 or 9 products reach 1.2
# to 2.6, of 12 1.1 to 1.4, of 16 0.6 to 0.9.
FEWEST_PRODUCTS = 16
FUSED, CHAINED = Fused(), Chained2()


def _on(device: Device) -> Family:
    return FUSED if device.is_gpu else CHAINED


class Winograd(Family):
    """Winograd's minimal filtering with 4x4 tiles, on CUDA cores and CPU vectors."""

    name = "winograd"
    examples = ("n1c24h9w10k20r3s3p1-f32+bias",)
    plain = False

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support 3x3 filters of stride 1."""
        if reason := super().refuses(problem, device):
            return reason
        if (problem.r, problem.s, problem.stride) != (3, 3, (1, 1)):
            return "the filter is not 3x3 with stride 1"
        return _on(device).refuses(problem, device) or too_few_at_edges(problem, FEWEST_PRODUCTS)

    def multiplies(self, problem: Problem) -> float:
        """16 for 4 outputs."""
        return 16 / (4 * problem.r * problem.s)

    def inner(self, problem: Problem, device: Device) -> Problem:
        """On CPU cores the matrix products."""
        return _on(device).inner(problem, device)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first; on CPU cores those of the matrix products."""
        return _on(device).params(problem, device)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return _on(device).rules(device)

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launches."""
        return _on(device).blueprint(problem, device, config, aligned)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count the work of one block and one thread, or of the products and transforms."""
        return _on(device).work(problem, device, config)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """The longest chain of adds: over one share of C, in the transforms, over the shares."""
        return _on(device).chain(problem, device, config)
