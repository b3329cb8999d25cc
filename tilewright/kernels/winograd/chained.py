"""The winograd4 and winograd8 families, and winograd on CPU cores: stride 1, in tiles of 6x6, 8x8 or 4x4
inputs, in three kernels.

With 4x4 a 3x3 filter takes 16 multiply-adds for 4 outputs instead of 36; with 6x6 it takes 36 for 16 instead
of 144, a 5x5 filter 36 for 4 instead of 100; with 8x8 a 5x5 filter takes 64 for 16 instead of 400, a 7x7
filter 64 for 4 instead of 196. On a GPU, a filter of one row or column is transformed only along it: 1x3
takes 6 for 4 outputs instead of 12, 1x7 8 for 2 instead of 14.
Source: A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv:1509.09308, F(4x4, 3x3);
the points are our own (points.h).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.direct.cpu import WORKERS
from tilewright.kernels.direct.spec import Direct
from tilewright.kernels.error_bound import fewest_taps, too_few_at_edges
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch, Param, Rule
from tilewright.kernels.gemm.spec import Gemm
from tilewright.kernels.inner import between, program, side_by_side
from tilewright.kernels.limits import no_gpu
from tilewright.kernels.untuned import sizes
from tilewright.kernels.word import PACKED_POINTS
from tilewright.kernels.work import Work
from tilewright.problem import MAX_EXTENT, Problem

THREADS = 128  # of the transform kernels
FEWEST_CHANNELS = 16
# Where outputs see less than half of the filter's rows or columns, and tiles have 4x4 outputs. Simulated, the
# worst of a million outputs times the bound: 16 channels under one of 3 rows reach 1.5, under one row and two
# columns 1.9 (32 channels 1.3), at a corner of one tap 5.2 (64 2.2, 256 1.5); under 2x2 of 3x3 taps 0.9.
FEWEST_AT_EDGES = 256
# Halving or doubling any of the next four changes the time by at most 3% (two layers, one core of a Zen 4).
RUN_TILES, RUN_K = 8, 64  # outputs that a core transforms at once: tiles, channels
RUN_INPUTS = 128  # tiles of a channel that a core transforms at once, about
RUNS = 8  # runs of channels per core
MOST_COLUMNS = 1 << 14  # of y: a core's stack holds 6 rows of them and 36 of tiles of 2 or 4, up to 1.6 MB
# Share of a CPU's last cache for the transformed inputs and outputs of one slab: a guess. On one core of a
# Zen 4 an eighth took 10% less time for 128 channels of 112x112, and the same for 256 of 28x28.
SLAB_SHARE = 0.5
SLAB_BYTES = 1 << 30  # of a GPU's memory, likewise: half as much costs 0 to 2%, a quarter 0 to 4% (H100)
GEMM, DIRECT = Gemm(), Direct()


@dataclass(frozen=True)
class TileGrid:
    """How a layer is cut into tiles.

    Attributes:
        points: inputs of a tile (equal to the points), down and across: one along a side with one tap.
        outputs: of a tile, down and across; they are spaced like the taps of the filter.
        rows: of tiles, in all images.
        columns: tiles of a row.
    """

    points: tuple[int, int]
    outputs: tuple[int, int]
    rows: int
    columns: int

    @property
    def side(self) -> int:
        """Inputs of a tile along a side with taps."""
        return max(self.points)

    @property
    def elements(self) -> int:
        """Elements of a transformed tile."""
        return self.points[0] * self.points[1]


@lru_cache(maxsize=4096)
def grid_of(pr: Problem, side: int) -> TileGrid:
    """Split a layer into tiles of ``side`` inputs along a side."""
    points = (side if pr.r > 1 else 1), (side if pr.s > 1 else 1)
    outputs = points[0] + 1 - pr.r, points[1] + 1 - pr.s
    return TileGrid(
        points, outputs,
        rows=pr.n * pr.dilation[0] * ceil_div(pr.p, outputs[0] * pr.dilation[0]),
        columns=pr.dilation[1] * ceil_div(pr.q, outputs[1] * pr.dilation[1]),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def products_of(pr: Problem, grid: TileGrid, slab: int, cores: bool) -> Problem:
    """The matrix products of ``slab`` rows of tiles, one per element: a 1x1 convolution over a row of tiles.

    On CPU cores (``cores``), in the layouts for which their kernel is fastest.
    """
    layouts = ("nchw", "nhwc") if cores else (pr.layout_in, pr.layout_out)
    return side_by_side(grid.elements, pr.c, pr.k, slab * grid.columns, *layouts)


def slab_of(pr: Problem, grid: TileGrid, device: Device) -> int:
    """Rows of tiles that go through the three launches at once.

    On a CPU the last cache holds their data, unless the filter is larger; on a GPU this limits the workspace.
    """
    row = 4 * grid.elements * (pr.c + pr.k) * grid.columns
    most = SLAB_BYTES if device.is_gpu else int(SLAB_SHARE * device.l2_bytes)
    passes = row * grid.rows
    slabs = ceil_div(passes, max(row, most))
    if not device.is_gpu and (slabs - 1) * 4 * grid.elements * pr.c * pr.k > 2 * passes:
        slabs = 1  # data go to memory and back, but no slab reads the larger filter again
    return ceil_div(grid.rows, slabs)


def multiplier(device: Device) -> Family:
    """The family whose kernel computes the matrix products."""
    return GEMM if device.is_gpu else DIRECT


class Winograd4(Family):
    """Winograd's minimal filtering with 6x6 tiles and matrix products by the kernel of another family.

    Attributes:
        side: inputs of a tile along a side.
        taps: of a filter along a side; fewer taps give a tile more outputs.
        growth: roundings of the transforms, as adds.
    """

    name = "winograd4"
    examples = ("n1c24h12w13k20r3s3p1-f32+bias",)
    side = 6
    taps: tuple[int, ...] = (3, 5)
    growth = 100
    exact = False
    plain = False

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support filters of stride 1 with enough channels to average out the transforms' error."""
        if reason := super().refuses(problem, device):
            return reason
        sides = {problem.r, problem.s}
        if not sides <= {1, *self.taps} or sides == {1} or problem.stride != (1, 1):
            squares = " or ".join(f"{taps}x{taps}" for taps in self.taps)
            return f"the filter is not {squares}, or a row or column of these, with stride 1"
        if 1 in sides and not device.is_gpu:
            return "on CPU cores tiles are squares: it leaves filters of one row or column to others"
        if problem.dilation != (1, 1) and problem.epilogue.pool:
            return "under a dilated filter the outputs of a tile lie apart: they are no window of a pool"
        if problem.groups != 1 or min(problem.c, problem.k) < FEWEST_CHANNELS:
            return f"it is made for one group of at least {FEWEST_CHANNELS} channels in and out"
        if reason := too_few_at_edges(problem, 1):
            return reason
        grid = grid_of(problem, self.side)
        down, across = fewest_taps(problem)
        cut = 2 * down < problem.r or 2 * across < problem.s
        if cut and 4 in grid.outputs and problem.c < FEWEST_AT_EDGES:
            return "outputs at the edge that see less than half of the filter would have the errors of others"
        if grid.elements * max(problem.c, problem.k) > MAX_EXTENT:
            return f"its matrix products would have more than {MAX_EXTENT:,} channels together"
        pool, (down, across) = problem.epilogue.pool, grid.outputs
        if pool and (pool.size != pool.stride or pool.pad or down % pool.size or across % pool.size):
            return f"the pool's windows do not tile the outputs of a tile of {self.side}x{self.side} inputs"
        if not problem.n:
            return "the batch is empty"
        if not device.is_gpu and problem.q + 10 * (problem.dilation[1] - 1) > MOST_COLUMNS:
            return f"a core keeps rows of at most {MOST_COLUMNS} outputs on its stack"
        return multiplier(device).refuses(self.inner(problem, device), device)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables of the matrix products."""
        return multiplier(device).params(self.inner(problem, device), device)

    def multiplies(self, problem: Problem) -> float:
        """One per element of a tile."""
        grid = grid_of(problem, self.side)
        return grid.elements / (problem.r * problem.s * prod(grid.outputs))

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The matrix products."""
        grid = grid_of(problem, self.side)
        return products_of(problem, grid, slab_of(problem, grid, device), cores=not device.is_gpu)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the device and the kernel of the matrix products."""
        return multiplier(device).rules(device)

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launches of the input transform, the matrix products, and the output transform."""
        grid = grid_of(problem, self.side)
        if device.is_gpu:
            return _blueprint(problem, grid, device, config, aligned)
        return _on_cores(problem, grid, device, config)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count the work of the matrix products, and the bytes that the transforms move.

        On CPU cores what passes between the launches counts twice: the products move it, too, to and from the
        last cache (36 products of 32 channels of 1024 tiles took 3 times as long as their multiply-adds).
        """
        products, grid = self.inner(problem, device), grid_of(problem, self.side)
        work = multiplier(device).work(products, device, config)
        slabs = ceil_div(grid.rows, slab_of(problem, grid, device))
        times = slabs if device.is_gpu else 2 * slabs
        moved = problem.x_bytes + times * (products.x_bytes + products.y_bytes) + problem.y_bytes
        return replace(
            work, blocks=slabs * work.blocks, partial_bytes=slabs * work.partial_bytes,
            more_launches=3 * slabs - 1, more_bytes=float(moved),
            dram_bytes=products.w_bytes + problem.x_bytes,
        )  # fmt: skip

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """The chain of the matrix products, and the growth of its error in the transforms."""
        products = self.inner(problem, device)
        return multiplier(device).chain(products, device, config) + self.growth


class Chained2(Winograd4):
    """The same with 4x4 tiles: the winograd family on CPU cores."""

    name = "winograd"
    side = 4
    taps = (3,)
    growth = 12


class Winograd8(Winograd4):
    """The same with 8x8 tiles, for larger filters on a GPU; 3x3 filters would have twice the error."""

    name = "winograd8"
    examples = ("n1c17h15w14k18r7s7p3-f32+bias",)
    side = 8
    taps = (5, 7)
    growth = 400

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Refuse CPUs, which use 6x6 tiles."""
        return no_gpu(device) or super().refuses(problem, device)


def _blueprint(pr: Problem, grid: TileGrid, device: Device, config: Config, aligned: bool) -> Blueprint:
    slab = slab_of(pr, grid, device)
    products, slabs = products_of(pr, grid, slab, cores=False), ceil_div(grid.rows, slab)
    inner = GEMM.blueprint(products, device, config)  # its buffers are ours, so aligned
    tiles, across = slab * grid.columns, grid.outputs[1]
    count_in, count_out = ceil_div(pr.c * tiles, THREADS), ceil_div(pr.k * tiles, THREADS)
    whole = pr.dilation[1] == 1 and pr.q % across == 0 and pr.epilogue.pool is None
    rows = pr.layout_out == "nchw" and whole and aligned
    defines = _defines(pr, grid, products) | dict(
        THREADS=THREADS, Y_ROWS=int(rows), SLABS=slabs, SLAB_TILES=tiles, BLOCKS_OUT=count_out,
    )  # fmt: skip
    first = Launch("transform_input", (count_in, 1, 1), (THREADS, 1, 1), ("x", "tiles", "drawn"))
    args = ("products", "bias", "z", "y", "drawn")
    last = Launch("transform_output", (count_out, 1, 1), (THREADS, 1, 1), args, chained=True)
    middle = between(inner, "tiles")
    more = (replace(first, chained=True), *middle, last) * (slabs - 1)
    return Blueprint(
        source="winograd4.cu", defines=tuple(defines.items()), launches=(first, *middle, last, *more),
        packed_bytes=inner.packed_bytes, pack=_packing(inner, grid), packing=PACKED_POINTS,
        workspace=(Buffer("tiles", products.x_bytes), Buffer("products", products.y_bytes),
                   Buffer("drawn", 4 * (slabs > 1), zeroed=True), *inner.workspace),
        parts=(program(inner),),
    )  # fmt: skip


def _on_cores(pr: Problem, grid: TileGrid, device: Device, config: Config) -> Blueprint:
    slab = slab_of(pr, grid, device)
    products = products_of(pr, grid, slab, cores=True)
    inner = DIRECT.blueprint(products, device, config)
    workers = WORKERS * device.units
    defines = _defines(pr, grid, products) | dict(
        VECTOR=max(4, min(16, device.lanes)), AVX512=int(device.lanes >= 16), WORKERS=workers,
        SLAB_ROWS=slab, RUN_TILES=RUN_TILES, RUN_K=RUN_K, RUN_C=ceil_div(pr.c, RUNS * device.units),
        RUN_ROWS=min(slab, max(1, RUN_INPUTS // grid.columns)),
    )  # fmt: skip
    first = Launch("transform_input", (workers, 1, 1), (1, 1, 1), ("x", "tiles", "drawn"))
    last = Launch("transform_output", (workers, 1, 1), (1, 1, 1), ("products", "bias", "z", "y", "drawn"))
    return Blueprint(
        source="winograd4_cpu.cu", defines=tuple(defines.items()),
        launches=(first, *between(inner, "tiles"), last) * ceil_div(grid.rows, slab),
        packed_bytes=inner.packed_bytes, pack=_packing(inner, grid), packing=PACKED_POINTS,
        workspace=(Buffer("tiles", products.x_bytes), Buffer("products", products.y_bytes),
                   Buffer("drawn", 12, zeroed=True), *inner.workspace),
        parts=(program(inner),),
    )  # fmt: skip


def _defines(pr: Problem, grid: TileGrid, products: Problem) -> dict[str, int]:
    """The defines of winograd4.h: the layer and its tiles."""
    (points_down, points_across), (down, across) = grid.points, grid.outputs
    largest = max(products.x_bytes, products.y_bytes, pr.x_bytes, pr.z_bytes)
    return sizes(pr) | dict(
        POINTS=grid.side, POINTS_P=points_down, POINTS_Q=points_across, SIDE_P=down, SIDE_Q=across,
        TILES=products.w, TILES_P=grid.rows // pr.n, TILES_Q=grid.columns,
        OFFSET64=offset64(largest // 4),
    )  # fmt: skip


def _packing(inner: Blueprint, grid: TileGrid) -> tuple[tuple[str, int], ...]:
    return (*(inner.pack or ()), ("PACK_WINOGRAD", 2), ("PACK_POINTS", grid.side))
