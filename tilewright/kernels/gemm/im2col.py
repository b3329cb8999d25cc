"""The im2col family: any convolution as a matrix product of the filter and columns, the input of each output.

A first kernel writes the columns to a workspace of n * c * r * s * p * q * 4 bytes (each row of n * p * q
floats rounded up to whole quads); the second is the gemm family's. The cost is the workspace:
r * s / stride^2 times the input, written once and read back.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch
from tilewright.kernels.gemm.product import column_product, is_product
from tilewright.kernels.gemm.spec import Gemm, blueprint, refused
from tilewright.kernels.inner import program
from tilewright.kernels.untuned import sizes
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

MOST_BYTES = 2 << 30  # of the columns
THREADS = 256
TURNED = 16  # fewest channels of an nhwc input for which transposing in shared memory pays
TURNING_BYTES = 4 * 32 * 33  # of shared memory: 32 by 32 floats, rows padded to 33 against bank conflicts
WRITING = 4  # time of the first kernel relative to a plain copy (benchmarks/h100/trials.jsonl.gz)
ENOUGH = 2048 * 132  # threads that fill any device


def column_bytes(problem: Problem) -> int:
    """Bytes of the columns: n * c * r * s * p * q * 4, rows rounded up to 16 bytes."""
    return 4 * column_product(problem).column_floats


class Im2col(Gemm):
    """Convolution by im2col and the kernel of the gemm family; tunables and rules are the product's."""

    name = "im2col"
    examples = ("n1c24h9w11k20r3s3p1u2-f32+bias",)
    product = staticmethod(column_product)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support layers that are not already a matrix product, if the columns are not too large."""
        if reason := Family.refuses(self, problem, device):
            return reason
        if is_product(problem):
            return "the layer is a matrix product as it is: the gemm family takes it"
        if column_bytes(problem) > MOST_BYTES:
            return f"the columns take {column_bytes(problem) / 2**30:.1f} GiB, more than {MOST_BYTES >> 30}"
        return refused(problem, device)

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The problem: its columns are written tap by tap."""
        return problem

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch of im2col, then those of the product."""
        inner = blueprint(problem, self.product(problem), device, config.values, aligned)
        place = [one.kernel for one in inner.launches].index("gemm")
        before = inner.launches[:place]  # fills y with zeros, to which shares are added
        first = replace(_launch(problem), chained=bool(before))
        behind = tuple(replace(one, chained=True) for one in inner.launches[place:])
        return Blueprint(
            source="im2col.cu", defines=tuple(_defines(problem).items()), launches=(*before, first, *behind),
            packed_bytes=inner.packed_bytes, pack=inner.pack, packing=inner.packing,
            workspace=(Buffer("columns", column_bytes(problem)), *inner.workspace),
            parts=(program(inner),),
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of the product, and the bytes that im2col moves."""
        work = super().work(problem, device, config)
        moved = float(problem.x_bytes + WRITING * column_bytes(problem))
        dram = float(problem.x_bytes + problem.w_bytes + problem.y_bytes)
        return replace(work, more_launches=1, more_bytes=moved, dram_bytes=dram)

    def remarks(self, problem: Problem, config: Config) -> dict[str, str]:
        """Report the size of the columns."""
        pr, (up, across) = problem, problem.stride
        sizes = (pr.n, pr.c, pr.r, pr.s, pr.p, pr.q, 4)
        columns = prod(sizes)
        taken = f"{pr.n} * {pr.c} * {pr.h} * {pr.w} * 4 = {pr.x_bytes:,}"
        return {
            "columns": f"n * c * r * s * p * q * 4 = {' * '.join(map(str, sizes))} = {columns:,} bytes",
            "input": f"n * c * h * w * 4 = {taken} bytes",
            "columns_beside_input": f"{columns / pr.x_bytes:.3g}; away from the edges r * s / stride^2 = "
            f"{pr.r} * {pr.s} / ({up} * {across}) = {pr.r * pr.s / (up * across):.3g}",
        }


def _channels(pr: Problem) -> int:
    """Channels per thread of im2col (nchw): several if there are enough threads."""
    quads = column_product(pr).pitch // 4
    return next(n for n in (8, 4, 2, 1) if n == 1 or quads * pr.c // n >= ENOUGH)


def _parts(pr: Problem) -> int:
    """Parts that a filter's taps are split into, one per thread: several if there are too few threads."""
    threads = column_product(pr).pitch // 4 * pr.c
    return next((n for n in (1, pr.r) if threads * n >= ENOUGH), pr.r * pr.s)


def _turned(pr: Problem) -> bool:
    return pr.layout_in == "nhwc" and pr.c >= TURNED


def _launch(pr: Problem) -> Launch:
    pitch = column_product(pr).pitch
    if _turned(pr):
        blocks = ceil_div(pitch, 32) * pr.r * pr.s * ceil_div(pr.c, 32)
        shared = TURNING_BYTES
    else:
        blocks = ceil_div(pitch // 4 * _parts(pr) * ceil_div(pr.c, _channels(pr)), THREADS)
        shared = 0
    return Launch("im2col", (blocks, 1, 1), (THREADS, 1, 1), ("x", "columns"), shared_bytes=shared)


def _defines(pr: Problem) -> dict[str, int]:
    return sizes(pr) | dict(
        THREADS=THREADS, TURNED=int(_turned(pr)), PITCH=column_product(pr).pitch, CHANNELS=_channels(pr),
        PARTS=_parts(pr), SHARED_BYTES=TURNING_BYTES, OFFSET64=offset64(column_bytes(pr), pr.x_bytes // 4),
    )  # fmt: skip
