"""Tiles of the hopper kernel, its threads and registers; whether its blocks are persistent."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.arithmetic import ceil_div, round_up
from tilewright.device import Device
from tilewright.kernels.family import Values
from tilewright.kernels.hopper.finish import OWN, finish
from tilewright.kernels.hopper.image import image_of
from tilewright.kernels.hopper.layout import layout
from tilewright.kernels.hopper.raster import Raster, patch_of, raster_of, tiles_of
from tilewright.kernels.hopper.sum import COLUMNS, copied_parts, products, steps
from tilewright.kernels.hopper.ways import GATHERED, SLID, TURNED, skewed, turns_runs
from tilewright.kernels.limits import RESERVED_SHARED, registers_at_most, registers_handed
from tilewright.kernels.products import E4M3, HALVES, TF32, THREE
from tilewright.kernels.tensor_map import TensorMap
from tilewright.kernels.tile import NONE
from tilewright.kernels.wgmma import ALIGNMENT
from tilewright.problem import Problem

MOST_AHEAD = 4  # most tiles of a persistent block with data in flight
TURNING = 104  # registers of a thread with 64 numbers of the input in flight
DECLARED = 1024  # bytes of shared memory besides the buffers: a flag, with its alignment


@dataclass(frozen=True)
class HopperTiling:
    """Sizes derived from a problem and a config; the kernel has defines of similar names."""

    raster: Raster
    x_parts: int
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
    steps: int
    w_bytes: int
    x_bytes: int
    shared_bytes: int
    tiles: int
    blocks: int
    stays: bool

    def defines(self) -> Values:
        """Return the kernel's defines: the raster, its phases, lines of a patch, numbers of tiles."""
        rows, columns = self.raster.rows, self.raster.columns
        return dict(
            MAPPED=int(self.image is not None), WR=columns.extent, HR=rows.extent,
            PHASES_H=rows.phases, PHASES_W=columns.phases, LINES=self.lines, LINE=self.line,
            STEPS=self.steps, K_TILES=self.k_tiles, PX_TILES=self.px_tiles, P_TILES=self.p_tiles,
            Q_TILES=self.q_tiles, SHARED_BYTES=self.shared_bytes,
        )  # fmt: skip


def tiling_of(pr: Problem, device: Device, cf: Values) -> HopperTiling:
    """Return the sizes of a config."""
    kb, nb = 64 * cf["wm"], cf["bn"] * cf["wn"]
    lines, line = patch_of(pr, cf)
    image = image_of(pr, cf)
    _, p_tiles, q_tiles = tiles_of(pr, cf)
    k_tiles, px_tiles = _k_tiles(pr, cf), _px_tiles(pr, cf)
    tiles = pr.groups * k_tiles * px_tiles
    stay = _stays(pr, device, cf, image, tiles)
    memory = layout(pr, cf, stay)
    return HopperTiling(
        raster=raster_of(pr, cf["x"], cf["bn"]),
        x_parts=copied_parts(pr, image is not None), kb=kb, nb=nb, threads=threads(cf, image),
        k_tiles=k_tiles, px_tiles=px_tiles, p_tiles=p_tiles, q_tiles=q_tiles, lines=lines, line=line,
        image=image, steps=steps(pr, cf["x"], cf["chunks"]),
        w_bytes=memory.w_bytes, x_bytes=memory.x_bytes, shared_bytes=memory.shared_end + ALIGNMENT,
        tiles=tiles, blocks=tiles * cf["sc"] * cf["sg"], stays=stay,
    )  # fmt: skip


def _k_tiles(pr: Problem, cf: Values) -> int:
    """Tiles of channels of a group."""
    return ceil_div(pr.kg, 64 * cf["wm"])


def _px_tiles(pr: Problem, cf: Values) -> int:
    """Tiles of pixels, rounded up to whole clusters that share filters, once their size is chosen."""
    return round_up(prod(tiles_of(pr, cf)), cf.get("cm", 1))


def threads(cf: Values, image: TensorMap | None) -> int:
    """Threads of a block: those that multiply, a warp that issues copies, and three more if threads copy.

    Or if that warp hands registers on, as a warpgroup alone can (SLID).
    """
    return 128 * cf["wm"] * cf["wn"] + (128 if image is None or cf["x"] == SLID else 32)


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers of a thread: of one that sums, or of one that copies or gathers, if more.

    Promoted sums take registers of their own, and so do products with a low part; in tf32, whole or in parts,
    eight pieces of the input are in flight to be rounded. Some of the sums moved between leads have a copy.
    """
    product = products(pr, cf["x"])
    gathered = {TF32: 72 + pr.terms // 2, THREE: 72 + pr.terms * 2 // 3}.get(product, 60 + pr.terms // 2)
    sums = cf["bn"] // 2 * (COLUMNS if cf["x"] == SLID else {E4M3: 2, THREE: 3, HALVES: 3}.get(product, 1))
    by_number = cf["x"] == TURNED and not turns_runs(pr, cf["x"])
    moved = sums * 2 // 5 if skewed(pr, cf["x"]) else 0
    through = TURNING if by_number else 80 if product in (TF32, THREE) else 56  # data in flight
    return max(through, sums + moved + 28, gathered if cf["x"] == GATHERED else 0)


def most_registers(cf: Values, of_block: int, per_unit: int) -> int:
    """Most registers of a thread that sums, in blocks of ``of_block`` threads."""
    if cf["x"] == SLID:
        return registers_handed(cf["wm"] * cf["wn"], cf["mb"], per_unit)
    return registers_at_most(of_block, cf["mb"], per_unit)


def _stays(pr: Problem, device: Device, cf: Values, image: TensorMap | None, tiles: int) -> bool:
    """Whether blocks are persistent: they take tile after tile, and load one while they store another.

    They are if each warp stores its own sums (OWN), the copy engine copies, there is no cluster and no
    split of the sum, there are more tiles than resident blocks, and a unit has room for just ``mb`` of them
    (5 to 16% less time; with room for more it was up to 34% more).
    """
    if cf["cm"] * cf["sc"] * cf["sg"] > 1 or tiles <= device.units * cf["mb"]:
        return False
    if image is None or finish(pr, cf) != OWN:
        return False
    shared = layout(pr, cf, stays=True).shared_end + ALIGNMENT
    return _held(pr, device, cf, threads(cf, image), shared) == cf["mb"]


def _held(pr: Problem, device: Device, cf: Values, of_block: int, shared: int) -> int:
    """Blocks that a unit holds, limited by ``shared`` bytes of shared memory each and by registers."""
    need = registers(pr, cf)
    held = device.shared_per_unit // (shared + DECLARED + RESERVED_SHARED)
    while held > 1 and registers_at_most(of_block, held, device.regs_per_unit) < need:
        held -= 1
    return held


def tiles_ahead(pr: Problem, device: Device, cf: Values) -> int:
    """How many tiles may be prefetched: one, or MOST_AHEAD if there are enough for persistent blocks."""
    if finish(pr, cf | dict(sc=1, combine=NONE)) != OWN:
        return 1
    tiles = pr.groups * _k_tiles(pr, cf) * _px_tiles(pr, cf)
    return MOST_AHEAD if tiles > device.units * cf["mb"] else 1


def k_group(device: Device, tiling: HopperTiling) -> int:
    """Tiles of channels that blocks compute together before they go on: about a square of tiles."""
    if tiling.px_tiles == 1:
        return tiling.k_tiles
    most = max(1, round((device.units * tiling.nb / tiling.kb) ** 0.5))
    return max(g for g in range(1, tiling.k_tiles + 1) if tiling.k_tiles % g == 0 and g <= most)
