"""What the specs of tiled families share: the problem as a kernel iterates over it, and its tiles."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arithmetic import ceil_div, round_up
from tilewright.problem import Problem

NONE, ATOMIC, TWO_PASS, LAST = range(4)  # how shares of C are combined (split_k.py)
COMBINE_NAMES = ("none", "atomic", "two_pass", "last")

LINE_WORDS = 32  # copies of 16 bytes keep sectors of 32 bytes whole, the copy engine fetches lines of 128


def lines(words: int) -> int:
    """Round up to whole lines of shared memory: what is staged next begins where one does."""
    return round_up(words, LINE_WORDS)


def quad_pitch(channels: int) -> int:
    """Words from one staged pixel to the next, if four channels are copied and read at once.

    Padding by eight words keeps sectors whole and puts the next pixel into other banks; where it would
    not, padding by four does the latter.
    """
    return channels + (8 if (channels + 8) % 16 else 4)


def up_to(limit: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """The values that are at most ``limit``, or the first one."""
    return tuple(v for v in values if v <= limit) or values[:1]


def pointwise(pr: Problem) -> bool:
    """Whether every sum needs only its own input pixel: a 1x1 filter without stride or padding."""
    return (pr.r, pr.s, pr.stride, pr.pad) == (1, 1, (1, 1), (0, 0, 0, 0))


def channels_together(pr: Problem) -> bool:
    """Whether neighbouring channels are neighbours in y and z: in nhwc, or where images are one pixel.

    A padded pool can make four pixels of one.
    """
    return pr.layout_out == "nhwc" or pr.p * pr.q == pr.y_p * pr.y_q == 1


@dataclass(frozen=True)
class View:
    """The problem as the kernel iterates over it: the pixels of a 1x1 layer are one row."""

    n: int
    h: int
    w: int
    p: int
    q: int

    @classmethod
    def of(cls, pr: Problem) -> View:
        """Flatten the image if every output pixel needs only its own input pixel."""
        if not pointwise(pr) or pr.epilogue.pool:
            return cls.unflattened(pr)
        if (pr.layout_in, pr.layout_out) == ("nhwc", "nhwc"):
            return cls(1, 1, pr.n * pr.h * pr.w, 1, pr.n * pr.p * pr.q)
        return cls(pr.n, 1, pr.h * pr.w, 1, pr.p * pr.q)

    @classmethod
    def unflattened(cls, pr: Problem) -> View:
        """The image as it is."""
        return cls(pr.n, pr.h, pr.w, pr.p, pr.q)

    def outputs(self, pr: Problem) -> tuple[int, int]:
        """Rows and columns of y: pooled, or those of the view."""
        return (pr.y_p, pr.y_q) if pr.epilogue.pool else (self.p, self.q)


def rows_under(pr: Problem, outputs: int) -> int:
    """Rows of the image under ``outputs`` consecutive rows of outputs, from the first to the last."""
    return (outputs - 1) * pr.stride[0] + (pr.r - 1) * pr.dilation[0] + 1


def columns_under(pr: Problem, outputs: int) -> int:
    """Columns of the image under ``outputs`` consecutive columns of outputs, from the first to the last."""
    return (outputs - 1) * pr.stride[1] + (pr.s - 1) * pr.dilation[1] + 1


@dataclass(frozen=True, kw_only=True)
class ProductTiling:
    """Tiles of a layer as a matrix product, channels by pixels: for tile.h a single row of pixels, Q.

    Attributes:
        kb, pb: output channels and pixels of a block.
        threads: of a block.
        k_tiles, q_tiles: tiles of a group's channels, and of the pixels that are tiled together.
        tiles: of the whole layer.
        steps: along the sum.
        x_copies: copies of the input by a thread in each step.
        shared_bytes: shared memory of a block.
    """

    kb: int
    pb: int
    threads: int
    k_tiles: int
    q_tiles: int
    tiles: int
    steps: int
    x_copies: int
    shared_bytes: int

    @property
    def tile(self) -> int:
        """Outputs of a block."""
        return self.kb * self.pb


def windows(pr: Problem, combine: int, extent: int) -> int:
    """Outputs along one side of a block's tile of ``extent`` sums: fewer if the block itself pools."""
    pool = pr.epilogue.pool
    if pool is None or combine == TWO_PASS:
        return extent
    return max(0, (extent - pool.size) // pool.stride + 1)


def along(pr: Problem, combine: int, extent: int) -> tuple[int, int]:
    """Sums from one tile of ``extent`` to the next, and the first of all (FORWARD, TILE_START of tile.h)."""
    pool = pr.epilogue.pool
    if pool is None or combine == TWO_PASS:
        return extent, 0
    return windows(pr, combine, extent) * pool.stride, -pool.pad


def tiles_along(pr: Problem, combine: int, sums: int, outputs: int, extent: int) -> int:
    """Tiles of ``extent`` sums along one side of an image with ``sums`` sums and ``outputs`` outputs."""
    if pr.epilogue.pool is None or combine == TWO_PASS:
        return ceil_div(sums, extent)
    return ceil_div(outputs, max(1, windows(pr, combine, extent)))


def image_defines(pr: Problem, view: View) -> dict[str, int]:
    """The defines of tile.h for the images of the sums and of y, and for the epilogue."""
    rows, columns = view.outputs(pr)
    return dict(
        P=view.p, Q=view.q, YP=rows, YQ=columns, Y_FLOATS=pr.y_elements, Z_FLOATS=pr.z_elements,
        Y_NHWC=int(pr.layout_out == "nhwc"), **pr.epilogue.defines(pr.dtype),
    )  # fmt: skip


def layer_defines(
    pr: Problem, view: View, channels: int | None = None, by_group: bool = True
) -> dict[str, int]:
    """The defines of x and the filter: all of a layer except the number of images (N) and the defines of y.

    Args:
        channels: the kernel's count of input channels, C, if it counts words of several (word.py).
        by_group: a kernel walks one group's channels at a time; else it sees those of all groups as one.
    """
    c, k, groups = (pr.cg, pr.kg, pr.groups) if by_group else (pr.c, pr.k, 1)
    return dict(
        C=c if channels is None else channels, H=view.h, W=view.w, K=k, GROUPS_=groups, R=pr.r, S=pr.s,
        STR_H=pr.stride[0], STR_W=pr.stride[1], DIL_H=pr.dilation[0], DIL_W=pr.dilation[1],
        PAD_T=pr.pad[0], PAD_L=pr.pad[2], X_NHWC=int(pr.layout_in == "nhwc"),
    )  # fmt: skip


def k_fastest(pr: Problem) -> int:
    """K_FASTEST of tile.h, so that neighbouring blocks share the larger of filter and input."""
    return int(pr.w_bytes < pr.x_bytes)


def single_tile_defines() -> dict[str, int]:
    """The defines of tile.h for kernels that do not use its tiling: one tile."""
    return dict(K_TILES=1, P_TILES=1, Q_TILES=1, K_FASTEST=0)


def row_threads(copies: int, threads: int) -> int:
    """Threads that share the copies of a staged row (ROW_THREADS): a power of two that divides the block."""
    return min(1 << (copies - 1).bit_length(), threads & -threads)


def row_runs(
    pr: Problem, width: int, step: int, first: int, need: int, aligned: bool, most: int = 4,
    sectors: bool = False,
) -> tuple[int, int, int]:  # fmt: skip
    """How a row of an image is staged: numbers of a copy (a run), before the first needed, and in total.

    Tiles begin at numbers ``first``, ``first + step``, ... of a row of ``width`` numbers, and need
    ``need`` of them. A run is either inside the image or in the padding, and has the same alignment in memory
    as in the staged row; with ``sectors`` so have 8 numbers together, if the row allows it.
    """
    run = next(run for run in (4, 2, 1) if run <= most and width % run == step % run == 0)
    run = 1 if pr.is_integer or not aligned else run
    unit = 8 if sectors and run == 4 and width % 8 == step % 8 == 0 else run
    lead, unit = first % unit, max(4, unit)
    return run, lead, round_up(lead + need, unit)
