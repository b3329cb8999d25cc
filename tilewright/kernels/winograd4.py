"""The winograd4 family: 3x3 and 5x5, stride 1, by tiles of 6x6 inputs, in three kernels.

A 3x3 filter takes 36 multiply-adds for 16 outputs instead of 144, a 5x5 filter 36 for 4 instead of 100.
Source: A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv:1509.09308, F(4x4, 3x3);
the same points give F(2x2, 5x5).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tilewright.device import Device
from tilewright.kernels.direct import Direct
from tilewright.kernels.direct_cpu import WORKERS
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch, Param, Rule
from tilewright.kernels.gemm import Gemm
from tilewright.kernels.tile import ceil_div
from tilewright.kernels.untuned import sizes
from tilewright.kernels.work import Work
from tilewright.problem import Problem

ELEMENTS = 36  # of a transformed tile
TAPS = (3, 5)  # of a filter along a side, which make 4 and 2 outputs of 6 inputs
THREADS = 128  # of the kernels that transform
FEWEST_CHANNELS = 16
GROWTH = 400  # roundings of the transforms, as adds: their terms are up to 20 times the output
RUN_TILES, RUN_K = 8, 64  # outputs that a core transforms at once: tiles, channels
RUN_INPUTS = 128  # tiles of a channel, about, and for each core so many
RUNS = 8  # runs of channels
MOST_COLUMNS = 1 << 14
SLAB_SHARE = 0.5  # of a CPU's last cache, for the transformed inputs and outputs of one slab
SLAB_BYTES = 1 << 30  # of a GPU's memory, likewise: half as much costs 0 to 2%, a quarter 0 to 4% (H100)
GEMM, DIRECT = Gemm(), Direct()


@lru_cache(maxsize=4096)
def products(pr: Problem, slab: int = 0, cores: bool = False) -> Problem:
    """The 36 matrix products, as a 1x1 convolution of 36 groups over one row of tiles.

    They are those of ``slab`` rows of tiles; on CPU cores in the layouts that their kernel is best at.
    """
    tiles = ceil_div((slab or _rows(pr)) * _columns(pr), 4) * 4
    return Problem(
        n=1, c=ELEMENTS * pr.c, h=1, w=tiles, k=ELEMENTS * pr.k, r=1, s=1, groups=ELEMENTS,
        layout_in="nchw" if cores else pr.layout_in, layout_out="nhwc" if cores else pr.layout_out,
    )  # fmt: skip


class Winograd4(Family):
    """Winograd's minimal filtering with tiles of 6x6, its matrix products by the kernel of another family."""

    name = "winograd4"
    exact = False
    spreads_nonfinite = True

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take 3x3 and 5x5 filters of stride 1 with channels enough to average out the transforms' error."""
        if reason := super().refuses(problem, device):
            return reason
        if not {problem.r, problem.s} <= set(TAPS) or (problem.stride, problem.dilation) != ((1, 1), (1, 1)):
            return "the filter is not 3x3 or 5x5 with stride 1 and no dilation"
        if problem.groups != 1 or min(problem.c, problem.k) < FEWEST_CHANNELS:
            return f"it is made for one group of at least {FEWEST_CHANNELS} channels in and out"
        pool = problem.epilogue.pool
        down, across = _sides(problem)
        if pool and (pool.size != pool.stride or pool.pad or down % pool.size or across % pool.size):
            return "the pool's windows do not tile the outputs of a tile of 6x6 inputs"
        if not problem.n:
            return "the batch is empty"
        if not device.is_gpu and problem.q > MOST_COLUMNS:
            return f"a core keeps rows of at most {MOST_COLUMNS} outputs on its stack"
        half, by = _half(problem, device)
        return by.refuses(half, device)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Offer the tunables of the matrix products."""
        half, by = _half(problem, device)
        return by.params(half, device)

    def multiplies(self, problem: Problem) -> float:
        """36 for each tile of outputs."""
        down, across = _sides(problem)
        return ELEMENTS / (problem.r * problem.s * down * across)

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The matrix products."""
        return _half(problem, device)[0]

    def rules(self) -> tuple[Rule, ...]:
        """State what a GPU and the kernel of the matrix products forbid."""
        return GEMM.rules()

    def rules_for(self, device: Device) -> tuple[Rule, ...]:
        """State what the device and the kernel of the matrix products forbid."""
        return GEMM.rules() if device.is_gpu else DIRECT.rules_for(device)

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out the transform of the input, the matrix products, and the transform of the output."""
        if not device.is_gpu:
            return _on_cores(problem, device, config)
        return _blueprint(problem, device, config, aligned)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count the matrix products, and what the transforms move."""
        half, by = _half(problem, device)
        work = by.work(half, device, config)
        slabs = ceil_div(_rows(problem), _slab(problem, device))
        moved = problem.x_bytes + slabs * (half.x_bytes + half.y_bytes) + problem.y_bytes
        return replace(
            work, blocks=slabs * work.blocks, partial_bytes=slabs * work.partial_bytes,
            more_launches=3 * slabs - 1, more_bytes=float(moved), dram_bytes=half.w_bytes + problem.x_bytes,
        )  # fmt: skip

    def deterministic(self, config: Config) -> bool:
        """As the matrix products are."""
        return _by(config).deterministic(config)

    def chain(self, problem: Problem, config: Config) -> int:
        """The sum of the matrix products, and the growth of its error in the transforms."""
        return _by(config).chain(products(problem), config) + GROWTH


def _half(problem: Problem, device: Device) -> tuple[Problem, Family]:
    """The matrix products, and what computes them."""
    cores = not device.is_gpu
    return products(problem, _slab(problem, device), cores), DIRECT if cores else GEMM


def _sides(pr: Problem) -> tuple[int, int]:
    """Outputs of a tile, down and across."""
    return 7 - pr.r, 7 - pr.s


def _rows(pr: Problem) -> int:
    """Rows of tiles of all images."""
    return pr.n * ceil_div(pr.p, _sides(pr)[0])


def _columns(pr: Problem) -> int:
    """Tiles of a row."""
    return ceil_div(pr.q, _sides(pr)[1])


def _slab(pr: Problem, device: Device) -> int:
    """Rows of tiles that pass through the three launches at once.

    A CPU's last cache holds what passes; a GPU needs no more workspace than that.
    """
    row = 4 * ELEMENTS * (pr.c + pr.k) * _columns(pr)
    most = SLAB_BYTES if device.is_gpu else int(SLAB_SHARE * device.l2_bytes)
    slabs = ceil_div(row * _rows(pr), max(row, most))
    return ceil_div(_rows(pr), slabs)


def _by(config: Config) -> Family:
    return DIRECT if "nk" in config.values else GEMM


def _blueprint(pr: Problem, device: Device, config: Config, aligned: bool) -> Blueprint:
    slab = _slab(pr, device)
    half, slabs = products(pr, slab), ceil_div(_rows(pr), slab)
    inner = GEMM.blueprint(half, device, config)  # its buffers are our own, and aligned
    tiles = slab * _columns(pr)
    count_in, count_out = ceil_div(pr.c * tiles, THREADS), ceil_div(pr.k * tiles, THREADS)
    rows = pr.layout_out == "nchw" and pr.q % _sides(pr)[1] == 0 and aligned and pr.epilogue.pool is None
    defines = sizes(pr) | dict(
        THREADS=THREADS, TILES=half.w, TILES_P=_rows(pr) // pr.n, TILES_Q=_columns(pr), ROWS=int(rows),
        SLABS=slabs, SLAB_TILES=tiles, BLOCKS_OUT=count_out, SIZE_YP=pr.y_p, SIZE_YQ=pr.y_q,
        OFFSET64=int(max(half.x_bytes, half.y_bytes, pr.x_bytes, pr.z_bytes) >= 1 << 33),
    )  # fmt: skip
    first = Launch("transform_input", (count_in, 1, 1), (THREADS, 1, 1), ("x", "tiles", "drawn"))
    last = Launch("transform_output", (count_out, 1, 1), (THREADS, 1, 1),
                  ("products", "bias", "z", "y", "drawn"), chained=True)
    more = (replace(first, chained=True), *_middle(inner), last) * (slabs - 1)
    return Blueprint(
        source="winograd4.cu", defines=tuple(defines.items()), launches=(first, *_middle(inner), last, *more),
        packed_bytes=inner.packed_bytes, pack=(*(inner.pack or ()), ("PACK_WINOGRAD", 4)),
        workspace=(Buffer("tiles", half.x_bytes), Buffer("products", half.y_bytes),
                   Buffer("drawn", 4 * (slabs > 1), zeroed=True), *inner.workspace),
        parts=(replace(inner, launches=(), workspace=()),),
    )  # fmt: skip


def _on_cores(pr: Problem, device: Device, config: Config) -> Blueprint:
    slab = _slab(pr, device)
    half = products(pr, slab, cores=True)
    inner = DIRECT.blueprint(half, device, config)
    workers, tiles_q = WORKERS * device.units, _columns(pr)
    defines = sizes(pr) | dict(
        VECTOR=max(4, min(16, device.lanes)), AVX512=int(device.lanes >= 16), WORKERS=workers, SLAB_ROWS=slab,
        TILES=half.w, TILES_P=_rows(pr) // pr.n, TILES_Q=tiles_q, RUN_TILES=RUN_TILES, RUN_K=RUN_K,
        RUN_C=ceil_div(pr.c, RUNS * device.units), RUN_ROWS=min(slab, max(1, RUN_INPUTS // tiles_q)),
        SIZE_YP=pr.y_p, SIZE_YQ=pr.y_q,
        OFFSET64=int(max(half.x_bytes, half.y_bytes, pr.x_bytes, pr.z_bytes) >= 1 << 33),
    )  # fmt: skip
    first = Launch("transform_input", (workers, 1, 1), (1, 1, 1), ("x", "tiles", "drawn"))
    last = Launch("transform_output", (workers, 1, 1), (1, 1, 1), ("products", "bias", "z", "y", "drawn"))
    return Blueprint(
        source="winograd4_cpu.cu", defines=tuple(defines.items()),
        launches=(first, *_middle(inner), last) * ceil_div(_rows(pr), slab),
        packed_bytes=inner.packed_bytes, pack=(*(inner.pack or ()), ("PACK_WINOGRAD", 4)),
        workspace=(Buffer("tiles", half.x_bytes), Buffer("products", half.y_bytes),
                   Buffer("drawn", 12, zeroed=True), *inner.workspace),
        parts=(replace(inner, launches=(), workspace=()),),
    )  # fmt: skip


def _middle(inner: Blueprint) -> list[Launch]:
    """The launches of the matrix products, between the transforms."""
    names = {"x": "tiles", "y": "products"}
    return [
        replace(one, args=tuple(names.get(name, name) for name in one.args), chained=True)
        for one in inner.launches
    ]
