"""The strassen and strassen2 families: large matrix products with 7/8 or 49/64 of the multiplications.

A first kernel sums blocks of the input, the gemm family's computes 7 or 49 products of half or a quarter of
the sides, and a last one combines them into the output's blocks. Sums of filter blocks are packed.
Source: V. Strassen, "Gaussian Elimination is not Optimal", Numer. Math. 13, 354-356, 1969.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch, Param, Rule
from tilewright.kernels.gemm.spec import Gemm
from tilewright.kernels.inner import between, program, side_by_side
from tilewright.kernels.limits import no_gpu
from tilewright.kernels.tile import pointwise
from tilewright.kernels.untuned import sizes
from tilewright.kernels.work import Work
from tilewright.problem import MAX_EXTENT, Problem

THREADS = 128  # of the kernels that transform
FEWEST = 1024  # channels and pixels of the product: smaller ones save less than two more launches cost
MOST_BYTES = 2 << 30  # of workspace, and of packed filter
GEMM = Gemm()


class Strassen(Family):
    """Strassen's algorithm, with matrix products by the kernel of the gemm family.

    Attributes:
        depth: levels of the recursion.
    """

    name = "strassen"
    examples = ("n1c1024h32w32k1024r1s1-f32",)
    depth = 1
    plain = False

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support large matrix products, on a GPU."""
        if reason := no_gpu(device) or super().refuses(problem, device):
            return reason
        pr = problem
        if not pointwise(pr) or pr.groups != 1:
            return "it is no single matrix product: 1x1, stride 1, no padding, one group"
        if pr.epilogue.pool:
            return "the outputs of a pool's window lie in different blocks"
        if not pr.n:
            return "the batch is empty"
        if min(pr.c, pr.k, pr.n * pr.h * pr.w) < FEWEST:
            return f"it pays from {FEWEST:,} channels in, channels out and pixels on"
        c, k, pixels = self._block(problem)
        if max(7**self.depth * max(c, k), pixels) > MAX_EXTENT:
            return f"its matrix products would have more than {MAX_EXTENT:,} channels together, or pixels"
        for what, numbers in (("workspace", pixels * (c + k)), ("packed filter", c * k)):
            if (need := 4 * 7**self.depth * numbers) > MOST_BYTES:
                return f"it takes {need / 2**30:.3g} GiB of {what}; at most {MOST_BYTES >> 30} are had"
        return GEMM.refuses(self.inner(problem, device), device)

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The matrix products of blocks, with their input in nchw, which is the fastest to multiply."""
        return side_by_side(7**self.depth, *self._block(problem), "nchw", _as_rows(problem).layout_out)

    def _block(self, problem: Problem) -> tuple[int, int, int]:
        """Return the input channels, output channels and pixels of a block: whole quads."""
        sides = (problem.c, problem.k, problem.n * problem.h * problem.w)
        c, k, pixels = (ceil_div(side, 4 << self.depth) * 4 for side in sides)
        return c, k, pixels

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables of the matrix products."""
        return GEMM.params(self.inner(problem, device), device)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the device and the kernel of the matrix products."""
        return GEMM.rules(device)

    def multiplies(self, problem: Problem) -> float:
        """7/8 at each level."""
        return math.pow(7 / 8, self.depth)

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launches of the sums of the input, the matrix products, and the output's blocks."""
        pr, products = _as_rows(problem), self.inner(problem, device)
        inner = GEMM.blueprint(products, device, config)  # its buffers are ours, so aligned
        run_in = _run(pr, pr.c, pr.layout_in, aligned)
        run_out = _run(pr, pr.k, pr.layout_out, aligned)
        blocks = dict(LEVELS=self.depth, BLOCK_C=products.cg, BLOCK_K=products.kg)
        defines = sizes(pr) | blocks | dict(
            BLOCK_T=products.w, THREADS=THREADS, RUN_IN=run_in, RUN_OUT=run_out,
        )  # fmt: skip
        count_in = ceil_div(products.cg * products.w // run_in, THREADS)
        count_out = ceil_div(products.kg * products.w // run_out, THREADS)
        first = Launch("transform_input", (count_in, 1, 1), (THREADS, 1, 1), ("x", "sums"))
        last = Launch("transform_output", (count_out, 1, 1), (THREADS, 1, 1),
                      ("products", "bias", "z", "y"), chained=True)  # fmt: skip
        return Blueprint(
            source="strassen.cu", defines=tuple(defines.items()),
            launches=(first, *between(inner, "sums"), last), packed_bytes=inner.packed_bytes,
            pack=(*(inner.pack or ()), *blocks.items()), packer="strassen_pack.cu",
            packing="What is packed is sums of its blocks (Strassen): leave it to the pack source.",
            workspace=(Buffer("sums", products.x_bytes), Buffer("products", products.y_bytes),
                       *inner.workspace),
            parts=(program(inner),),
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count the work of the matrix products, and the bytes that the transforms move."""
        products = self.inner(problem, device)
        work = GEMM.work(products, device, config)
        outside = problem.x_bytes + problem.y_bytes + problem.z_bytes * problem.epilogue.add
        moved = products.x_bytes + products.y_bytes + outside
        return replace(work, more_launches=2, more_bytes=float(moved))

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """The chain of the products, half as long but three times for each level; then the sums of blocks.

        The bound grows with the square root of the chain. An output block is a sum of up to four products,
        some of twice its size: for independent numbers of one size their squared errors add up to three
        times that of one product's plain sum.
        """
        products = GEMM.chain(self.inner(problem, device), device, config)
        return int(3**self.depth) * products + 6 * self.depth


def _as_rows(problem: Problem) -> Problem:
    """The problem in nhwc if an image is one pixel: its channels are contiguous in any layout."""
    return problem.with_layout("nhwc") if problem.h * problem.w == 1 else problem


def _run(pr: Problem, channels: int, layout: str, aligned: bool) -> int:
    """Contiguous numbers that a thread takes at once: channels in nhwc, pixels in nchw."""
    return 4 if aligned and (channels if layout == "nhwc" else pr.h * pr.w) % 4 == 0 else 1


class Strassen2(Strassen):
    """Strassen's algorithm with two levels."""

    name = "strassen2"
    depth = 2
