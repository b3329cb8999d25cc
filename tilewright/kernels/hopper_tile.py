"""Sizes of the hopper kernel: the raster that pixels lie in, tiles, buffers, registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from tilewright.kernels.nhwc import each, tap_chunks
from tilewright.kernels.tile import TWO_PASS, View, ceil_div
from tilewright.problem import DTYPE_BYTES, Problem

AS_IS, COPIED, GATHERED = range(3)
WAYS = ("as it is", "copied to nhwc by a first kernel", "gathered number by number")
MOST_GATHERED = 160  # numbers of all taps and channels: their loads are unrolled
APART, SWIZZLED = range(2)
PLAIN, TF32, THREE, E4M3 = range(4)  # the kernel's PRODUCTS, as mma has them
# Products that tensor cores add up, before the rest is added in f32: of f8, kernels/bound.py says; one of
# accurate, 8 numbers deep: as mma has it, and as FEWEST_ACCURATE was simulated.
PROMOTED = {E4M3: 4, THREE: 1}
PIECES = ("pieces of 16 bytes apart", "swizzled rows of 128 bytes")
ALIGNMENT = 1024  # bytes to align the buffers
Values = dict[str, int]


@dataclass(frozen=True)
class Line:
    """Places along one side of the image, as outputs and the input share them.

    Output p under tap r reads place p + r * dilation // stride of phase r * dilation % stride.
    ``extent`` places lie between two rows (or images): a place past the last one is one of the next row,
    where both are outside of the image.
    """

    extent: int
    phases: int
    reach: int

    @classmethod
    def of(cls, size: int, outputs: int, taps: int, stride: int, dilation: int, pad: int) -> Line:
        """Lay out one side: ``size`` inputs, so many outputs and taps, ``pad`` before the first input."""
        moves = [(t * dilation % stride, t * dilation // stride) for t in range(taps)]

        def outside(extent: int) -> bool:
            return all(
                place * stride + phase - pad >= size and (place - extent) * stride + phase - pad < 0
                for phase, move in moves
                for place in range(extent, outputs + move)
            )

        reach = moves[-1][1]
        extent = next(e for e in range(outputs, outputs + reach + 1) if outside(e))
        return cls(extent, max(phase for phase, _ in moves) + 1, reach)


@dataclass(frozen=True)
class Sizes:
    """What follows from a problem and a config; the kernel's defines of like names."""

    view: View
    rows: Line
    columns: Line
    kb: int
    nb: int
    threads: int
    k_tiles: int
    px_tiles: int
    patch: int
    csteps: int
    steps: int
    w_bytes: int
    x_bytes: int
    tile_bytes: int
    shared_bytes: int
    blocks: int

    @property
    def places(self) -> int:
        """Places of a patch, of all phases."""
        return self.rows.phases * self.columns.phases * self.patch


@lru_cache(maxsize=64)
def lines(pr: Problem, way: int = 0) -> tuple[View, Line, Line]:
    """Lay out the raster of a problem; what is gathered lies as the outputs do."""
    view = View.of(pr)
    if way == GATHERED:
        return view, Line(view.p, 1, 0), Line(view.q, 1, 0)
    rows = Line.of(view.h, view.p, pr.r, pr.stride[0], pr.dilation[0], pr.pad[0])
    columns = Line.of(view.w, view.q, pr.s, pr.stride[1], pr.dilation[1], pr.pad[2])
    return view, rows, columns


def products(pr: Problem) -> int:
    """What is multiplied: the numbers as they are, rounded to tf32, split into two of tf32, or e4m3."""
    return {"tf32": TF32, "accurate": THREE}.get(pr.math, E4M3 if pr.dtype == "f8" else PLAIN)


def parts_of(pr: Problem) -> int:
    """Tiles that a step has of each operand: the high parts of numbers, and the low ones."""
    return 2 if products(pr) == THREE else 1


def promotions(pr: Problem, cf: Values) -> int:
    """How often the sums of a step are promoted."""
    kind = products(pr)
    return ceil_div(cf["chunks"] // 2, PROMOTED[kind]) if kind in PROMOTED else 0


def raster(pr: Problem, way: int = 0) -> int:
    """Places from the first output to the last."""
    view, rows, columns = lines(pr, way)
    return max(1, ((view.n - 1) * rows.extent + view.p - 1) * columns.extent + view.q)


def ways(pr: Problem) -> tuple[int, ...]:
    """How the input can be read: whole pieces of channels as they are, else copied; few channels gathered."""
    nhwc = pr.layout_in == "nhwc" or pr.h * pr.w == 1
    first = AS_IS if nhwc and pr.cg % each(pr) == 0 else COPIED
    return (first, GATHERED) if pr.cg * pr.r * pr.s <= MOST_GATHERED else (first,)


def chunks_of(pr: Problem, way: int) -> int:
    """Pieces of 16 bytes of the sum under one tap; of all of it where it is gathered, in steps of two."""
    return ceil_div(pr.cg * pr.r * pr.s, 2 * each(pr)) * 2 if way == GATHERED else tap_chunks(pr)


def taps(pr: Problem, way: int) -> int:
    """Steps that one patch serves."""
    return 1 if way == GATHERED else pr.r * pr.s


def pooled_rows(pr: Problem, nb: int, way: int) -> int:
    """Rows of pooled outputs in a tile of ``nb`` places that begins with a row of the sum."""
    view, _, columns = lines(pr, way)
    rows = (nb - view.q) // columns.extent + 1 if nb >= view.q else 0
    pool = pr.epilogue.pool
    assert pool is not None
    return (rows - pool.size) // pool.stride + 1 if rows >= pool.size else 0


def _tiles(pr: Problem, cf: Values, nb: int) -> int:
    """Tiles of pixels: of the raster; where the kernel itself pools, of whole windows of each image."""
    if pr.epilogue.pool is None or cf.get("combine", TWO_PASS) == TWO_PASS:
        return ceil_div(raster(pr, cf["x"]), nb)
    return pr.n * ceil_div(pr.y_p, max(1, pooled_rows(pr, nb, cf["x"])))


def sizes(pr: Problem, cf: Values) -> Sizes:
    """Work out the sizes of a config."""
    view, rows, columns = lines(pr, cf["x"])
    teams = cf["wm"] * cf["wn"]
    kb, nb = 64 * cf["wm"], cf["bn"] * cf["wn"]
    patch = ceil_div(nb + rows.reach * columns.extent + columns.reach, 8) * 8
    places = rows.phases * columns.phases * patch
    px_tiles = ceil_div(_tiles(pr, cf, nb), cf["cm"]) * cf["cm"]
    k_tiles, csteps = ceil_div(pr.kg, kb), ceil_div(chunks_of(pr, cf["x"]), cf["chunks"])
    w_bytes = parts_of(pr) * 16 * kb * cf["chunks"]
    x_bytes = parts_of(pr) * (places * 128 if cf["pieces"] == SWIZZLED else (places * 16 + 16) * cf["chunks"])
    nhwc = pr.layout_out == "nhwc"
    kt = min(kb, ceil_div(pr.kg, 8) * 8)
    slow, pitch = (nb, kt + 4) if nhwc else (kt, nb + (40 - nb % 32) % 32)
    tile_bytes = 4 * slow * pitch
    meeting = 4 * cf["sc"] * ceil_div(slow, cf["sc"]) * pitch if cf["sc"] > 1 else 0
    buffers = max(tile_bytes, cf["stages"] * w_bytes + cf["xs"] * x_bytes)
    barriers = 16 * (cf["stages"] + cf["xs"]) + 16
    return Sizes(
        view=view, rows=rows, columns=columns, kb=kb, nb=nb, threads=128 * (teams + 1), k_tiles=k_tiles,
        px_tiles=px_tiles, patch=patch, csteps=csteps, steps=csteps * taps(pr, cf["x"]), w_bytes=w_bytes,
        x_bytes=x_bytes, tile_bytes=tile_bytes,
        shared_bytes=buffers + 4 * places + ceil_div(nb, 4) * 16 + meeting + barriers + ALIGNMENT,
        blocks=pr.groups * k_tiles * px_tiles * cf["sc"] * cf["sg"],
    )  # fmt: skip


def most_patches(pr: Problem, cf: Values) -> int:
    """Patches that a share of the sum has, at most: a share may begin and end inside the taps of one."""
    of_patch, shares = taps(pr, cf["x"]), cf["sc"] * cf["sg"]
    steps = ceil_div(chunks_of(pr, cf["x"]), cf["chunks"]) * of_patch
    ends = [share * steps // shares for share in range(shares + 1)]
    return max((end - 1) // of_patch - start // of_patch + 1 for start, end in pairwise(ends))


def registers(pr: Problem, cf: Values) -> int:
    """Registers of a thread: sums and the loop around them; beside these, what is copied or gathered.

    What is promoted has sums of its own, and so have products with a low part; in tf32 and accurate eight
    pieces of the input are on their way to be rounded.
    """
    kind, terms = products(pr), pr.cg * pr.r * pr.s
    gathered = {TF32: 72 + terms // 2, THREE: 72 + terms * 2 // 3}.get(kind, 60 + terms // 2)
    sums = cf["bn"] // 2 * {E4M3: 2, THREE: 3}.get(kind, 1)
    return max(80 if kind in (TF32, THREE) else 56, sums + 28, gathered if cf["x"] == GATHERED else 0)


def registers_at_most(cf: Values, per_unit: int) -> int:
    """What the compiler may give a thread, so that a unit holds ``mb`` blocks."""
    threads = 128 * (cf["wm"] * cf["wn"] + 1)
    return min(255, per_unit // (threads * cf["mb"]) // 8 * 8)


def run(pr: Problem, cf: Values) -> int:
    """Neighbours in y that a thread finishes at once."""
    if pr.layout_out != "nhwc":
        return 1
    return 16 // (4 if cf["combine"] == TWO_PASS else DTYPE_BYTES[pr.dtype_out])


def k_group(pr: Problem, sz: Sizes) -> int:
    """Tiles of channels that blocks take together before they go on: about a square of tiles."""
    if sz.px_tiles == 1:
        return sz.k_tiles
    most = max(1, round((132 * sz.nb / sz.kb) ** 0.5))
    return max(g for g in range(1, sz.k_tiles + 1) if sz.k_tiles % g == 0 and g <= max(most, 1))
