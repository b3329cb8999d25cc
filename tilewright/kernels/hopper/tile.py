"""Sizes of the hopper kernel: the raster that pixels lie in, tiles, buffers, registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from tilewright.device.architectures import ARCHITECTURES, REGS_PER_UNIT
from tilewright.kernels.family import Values
from tilewright.kernels.hopper.sum import (
    COPIED,
    GATHERED,
    held,
    numbers,
    parts_of,
    products,
    steps,
)
from tilewright.kernels.products import E4M3, HALVES, TF32, THREE
from tilewright.kernels.tensor_map import TensorMap
from tilewright.kernels.tile import LAST, TWO_PASS, View, ceil_div
from tilewright.problem import DTYPE_BYTES, Problem

APART, SWIZZLED = range(2)
PIECES = ("pieces of 16 bytes apart", "swizzled rows")
TALL = ("a run of the raster", "a rectangle: a row of the raster to each warpgroup")
ROWS = (2, 4, 8)  # pieces of a row that the tensor cores and the copy engine know how to swizzle
BY_TILE, OWN, MET = range(3)  # who finishes sums: all threads, those who have them, the blocks of a cluster
MOST_AHEAD = 4  # tiles of a block that stays, whose data are on their way
OWN_ROWS = 32  # pixels that warps store at once while buffers are filled
FEW_MET = 12  # pixels of a warpgroup for each block of its cluster: 1.5 times four sums a thread (measured)
IMAGED = ("x", "wn", "bn", "chunks", "pieces", "tall")  # parameters that say what the copy engine is told
ALIGNMENT = 1024  # bytes to align the buffers
_LARGEST = ARCHITECTURES["sm_90"]
UNITS, SHARED_OF_UNIT, REGISTERS_OF_UNIT = _LARGEST.units, _LARGEST.shared_per_unit_kb << 10, REGS_PER_UNIT


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
    parts: int
    kb: int
    nb: int
    threads: int
    k_tiles: int
    px_tiles: int
    p_tiles: int
    q_tiles: int
    lines: int
    line: int
    image: TensorMap | None
    x_stages: int
    steps: int
    w_bytes: int
    x_bytes: int
    tile_bytes: int
    shared_bytes: int
    blocks: int
    stays: bool

    @property
    def x_parts(self) -> int:
        """Parts that numbers of the copied input are split into: before the copy engine copies patches."""
        return self.parts if self.image is not None else 1

    @property
    def places(self) -> int:
        """Places of a patch, of all phases."""
        return self.rows.phases * self.columns.phases * self.lines * self.line


@lru_cache(maxsize=64)
def lines(pr: Problem, way: int = 0) -> tuple[View, Line, Line]:
    """Lay out the raster of a problem; what is gathered lies as the outputs do."""
    view = View.of(pr)
    if way == GATHERED:
        return view, Line(view.p, 1, 0), Line(view.q, 1, 0)
    rows = Line.of(view.h, view.p, pr.r, pr.stride[0], pr.dilation[0], pr.pad[0])
    columns = Line.of(view.w, view.q, pr.s, pr.stride[1], pr.dilation[1], pr.pad[2])
    return view, rows, columns


def raster(pr: Problem, way: int = 0) -> int:
    """Places from the first output to the last."""
    view, rows, columns = lines(pr, way)
    return max(1, ((view.n - 1) * rows.extent + view.p - 1) * columns.extent + view.q)


def outputs_of(pr: Problem, cf: Values) -> tuple[int, int]:
    """Rows and columns of y that a tile has which lies within an image; where the kernel pools, of windows.

    One that is a run of the raster has whole rows, and begins with one.
    """
    view, _, columns = lines(pr, cf["x"])
    nb = cf["bn"] * cf["wn"]
    tall, pool = cf["tall"], pr.epilogue.pool
    tile_rows = cf["wn"] if tall else (nb - view.q) // columns.extent + 1 if nb >= view.q else 0
    tile_columns = cf["bn"] if tall else view.q
    if pool is None or cf.get("combine", TWO_PASS) == TWO_PASS:
        return tile_rows, tile_columns

    def windows(extent: int) -> int:
        return (extent - pool.size) // pool.stride + 1 if extent >= pool.size else 0

    return windows(tile_rows), windows(tile_columns)


def _tiles(pr: Problem, cf: Values) -> tuple[int, int, int]:
    """Tiles of pixels: of images, rows and columns; of runs of the raster one number for all."""
    pools = pr.epilogue.pool is not None and cf.get("combine", TWO_PASS) != TWO_PASS
    view = lines(pr, cf["x"])[0]
    if not (cf["tall"] or pools):
        return 1, 1, ceil_div(raster(pr, cf["x"]), cf["bn"] * cf["wn"])
    rows, columns = outputs_of(pr, cf)
    p, q = (pr.y_p, pr.y_q) if pools else (view.p, view.q)
    return view.n, ceil_div(p, max(1, rows)), ceil_div(q, max(1, columns))


def patch_of(pr: Problem, cf: Values) -> tuple[int, int]:
    """Lines of the raster, and places of each, that the taps of a tile read, of one phase."""
    _, rows, columns = lines(pr, cf["x"])
    if cf["tall"]:
        return cf["wn"] + rows.reach, ceil_div(cf["bn"] + columns.reach, 8) * 8
    return 1, ceil_div(cf["bn"] * cf["wn"] + rows.reach * columns.extent + columns.reach, 8) * 8


def joint(pr: Problem, image: TensorMap | None) -> bool:
    """Whether patches come and go with the filters that read them, so that a batch may have several."""
    return image is not None and pr.r * pr.s == 1


def image_of(pr: Problem, cf: Values) -> TensorMap | None:
    """The input for the copy engine, a line of a patch at a time; None where threads copy it."""
    return _image(pr, *(cf[name] for name in IMAGED))


@lru_cache(maxsize=8192)
def _image(pr: Problem, *values: int) -> TensorMap | None:
    """Work out what ``image_of`` returns, from the values of ``IMAGED``.

    None (threads copy instead of the copy engine) where pieces are not swizzled; where a box would read past
    the last channels of a group into the next group's, or from high parts into low ones; and where the
    threads split numbers themselves because no kernel before has done so.
    """
    cf = dict(zip(IMAGED, values, strict=True))
    kind, parts = products(pr, cf["x"]), parts_of(pr)
    if cf["pieces"] != SWIZZLED or cf["x"] == GATHERED or (kind == THREE and cf["x"] != COPIED):
        return None
    if pr.groups * parts > 1 and held(pr, cf) % cf["chunks"]:
        return None
    view, rows, columns = lines(pr, cf["x"])
    of_piece = numbers(pr, cf["x"])
    (up_h, up_w), (pad_t, pad_l) = pr.stride, (pr.pad[0], pr.pad[2])
    last = ((columns.extent - 1) * up_w - pad_l, (rows.extent - 1) * up_h - pad_t)
    found = TensorMap(
        size=16 // of_piece, channels=pr.groups * parts * held(pr, cf) * of_piece,
        columns=view.w, rows=view.h, images=view.n, lower=(-pad_l, -pad_t),
        upper=(last[0] - view.w + 1, last[1] - view.h + 1), stride=(up_w, up_h),
        box_channels=cf["chunks"] * of_piece, box_pixels=patch_of(pr, cf)[1],
        rounds=kind == TF32,
    )  # fmt: skip
    return found if found.legal else None


def sizes(pr: Problem, cf: Values) -> Sizes:
    """Work out the sizes of a config."""
    view, rows, columns = lines(pr, cf["x"])
    kb, nb = 64 * cf["wm"], cf["bn"] * cf["wn"]
    patch_lines, line = patch_of(pr, cf)
    places = rows.phases * columns.phases * patch_lines * line
    image = image_of(pr, cf)
    together = joint(pr, image)
    x_stages = cf["stages"] * cf["batch"] if together else cf["xs"]
    images, p_tiles, q_tiles = _tiles(pr, cf)
    px_tiles = ceil_div(images * p_tiles * q_tiles, cf["cm"]) * cf["cm"]
    k_tiles = ceil_div(pr.kg, kb)
    w_bytes = parts_of(pr) * 16 * kb * cf["chunks"]
    apart = 16 if cf["pieces"] != SWIZZLED else 0  # more, so that pieces of one place lie in different banks
    x_bytes = parts_of(pr) * (places * 16 + apart) * cf["chunks"]
    nhwc = pr.layout_out == "nhwc"
    kt = min(kb, ceil_div(pr.kg, 8) * 8)
    slow, pitch = (nb, kt + 4) if nhwc else (kt, nb + (40 - nb % 32) % 32)
    own_rows, own_pitch = ceil_div(cf["bn"], 16) * 16, 2 * kb + 16  # of outputs of 2 bytes (finish)
    tile_bytes = max(4 * slow * pitch, cf["wn"] * own_rows * own_pitch)
    met = cf["sc"] * max(4 * ceil_div(slow, cf["sc"]) * pitch, 8 * ceil_div(nb // 2, cf["sc"]) * kb)
    buffers = max(tile_bytes, cf["stages"] * cf["batch"] * w_bytes + x_stages * x_bytes)
    barriers = 16 * (cf["stages"] + (0 if together else x_stages)) + 16
    table = ceil_div(nb, 4) * 16
    tables = (0 if image else 4 * places) + table
    shared = buffers + tables + (met if cf["sc"] > 1 else 0) + barriers + ALIGNMENT
    if DTYPE_BYTES[pr.dtype_out] == 2:
        own_bytes = cf["wn"] * min(own_rows, OWN_ROWS) * own_pitch
    else:
        own_bytes = 16 * cf["wm"] * nb  # a table of pixels for each warp
    more = own_bytes - table
    stay = stays(pr, cf, pr.groups * k_tiles * px_tiles, shared + more)
    return Sizes(
        view=view, rows=rows, columns=columns, parts=parts_of(pr), kb=kb, nb=nb,
        threads=threads(cf, image), k_tiles=k_tiles, px_tiles=px_tiles, p_tiles=p_tiles, q_tiles=q_tiles,
        lines=patch_lines, line=line, image=image, x_stages=x_stages,
        steps=steps(pr, cf["x"], cf["chunks"]), w_bytes=w_bytes, x_bytes=x_bytes, tile_bytes=tile_bytes,
        shared_bytes=shared + more if stay else shared,
        blocks=pr.groups * k_tiles * px_tiles * cf["sc"] * cf["sg"], stays=stay,
    )  # fmt: skip


def threads(cf: Values, image: TensorMap | None) -> int:
    """Threads of a block: beside those that multiply a warp that sends, and three that copy if threads do."""
    return 128 * cf["wm"] * cf["wn"] + (128 if image is None else 32)


def registers(pr: Problem, cf: Values) -> int:
    """Registers of a thread: sums and the loop around them; beside these, what is copied or gathered.

    What is promoted has sums of its own, and so have products with a low part; in tf32, whole or in parts,
    eight pieces of the input are on their way to be rounded.
    """
    kind, terms = products(pr, cf["x"]), pr.cg * pr.r * pr.s
    gathered = {TF32: 72 + terms // 2, THREE: 72 + terms * 2 // 3}.get(kind, 60 + terms // 2)
    sums = cf["bn"] // 2 * {E4M3: 2, THREE: 3, HALVES: 3}.get(kind, 1)
    return max(80 if kind in (TF32, THREE) else 56, sums + 28, gathered if cf["x"] == GATHERED else 0)


def registers_at_most(of_block: int, blocks: int, per_unit: int) -> int:
    """What the compiler may give each of so many threads, so that a unit holds so many blocks.

    A unit's four schedulers have a quarter of its registers each, and whole warps.
    """
    warps = ceil_div(of_block // 32 * blocks, 4)
    return min(255, per_unit // 4 // (warps * 32) // 8 * 8)


def run(pr: Problem, cf: Values) -> int:
    """Neighbours in y that a thread finishes at once: of nhwc 16 bytes, or what all pixels are aligned to."""
    if pr.layout_out != "nhwc":
        return 1
    most = 16 // (4 if cf["combine"] == TWO_PASS else DTYPE_BYTES[pr.dtype_out])
    return gcd(pr.kg, most)


def finish(pr: Problem, cf: Values, aligned: bool = True) -> int:
    """Say who finishes sums and stores them.

    - OWN: each warp stores its own sums. For nhwc without a pool, with whole and aligned rows, and without a
      residual, which would be read 2 bytes at a time.
    - MET: each block of a cluster finishes some of the cluster's pixels, where these are few for a thread.
    - BY_TILE: everything else. All threads store, from a tile of sums in shared memory.
    """
    here = cf["combine"] != TWO_PASS
    if pr.layout_out != "nhwc" or cf["combine"] == LAST or (here and pr.epilogue.pool):
        return BY_TILE
    if cf["sc"] > 1:
        return MET if cf["bn"] <= FEW_MET * cf["sc"] else BY_TILE
    return OWN if aligned and pr.kg % 8 == 0 and not (here and pr.epilogue.add) else BY_TILE


def stays(pr: Problem, cf: Values, tiles: int, shared: int) -> bool:
    """Say whether blocks are persistent: they take tile after tile, and load one while they store another.

    They are where each warp stores its own sums (OWN), the copy engine copies, there is no cluster and no
    split of the sum, there are more tiles than resident blocks, and a unit has room for just ``mb`` of them
    (5 to 16% less time; with room for more it was up to 34% more).
    """
    if cf["cm"] * cf["sc"] * cf["sg"] > 1 or tiles <= UNITS * cf["mb"]:
        return False
    image = image_of(pr, cf)
    if image is None or finish(pr, cf) != OWN:
        return False
    return _places(pr, cf, threads(cf, image), shared) == cf["mb"]


def tiles_ahead(pr: Problem, cf: Values) -> int:
    """How many tiles may be prefetched: one, or MOST_AHEAD where there are enough for persistent blocks."""
    if pr.layout_out != "nhwc" or pr.kg % 8 or pr.epilogue.add:
        return 1
    images, p_tiles, q_tiles = _tiles(pr, cf)
    tiles = pr.groups * ceil_div(pr.kg, 64 * cf["wm"]) * images * p_tiles * q_tiles
    return MOST_AHEAD if tiles > UNITS * cf["mb"] else 1


def _places(pr: Problem, cf: Values, of_block: int, shared: int) -> int:
    """Blocks that a unit holds, by so many bytes of shared memory and the registers that they may need."""
    need = registers(pr, cf)
    held = SHARED_OF_UNIT // (shared + 2048)
    while held > 1 and registers_at_most(of_block, held, REGISTERS_OF_UNIT) < need:
        held -= 1
    return held


def k_group(pr: Problem, sz: Sizes) -> int:
    """Tiles of channels that blocks take together before they go on: about a square of tiles."""
    if sz.px_tiles == 1:
        return sz.k_tiles
    most = max(1, round((UNITS * sz.nb / sz.kb) ** 0.5))
    return max(g for g in range(1, sz.k_tiles + 1) if sz.k_tiles % g == 0 and g <= max(most, 1))
