"""The winograd_rows family: minimal filtering of rows, for few input channels and filters 3 to 7 wide.

A row of 7 taps takes 10 multiply-adds for 4 outputs instead of 28, one of 3 taps 6 for 4 instead of 12.
Source: S. Winograd, "Arithmetic Complexity of Computations", SIAM 1980.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.arithmetic import ceil_div, round_up
from tilewright.device import Device
from tilewright.kernels.bands import Bands, bands_defines, bands_of, bands_param, bands_rules, many_channels
from tilewright.kernels.error_bound import fewest_taps, too_few_at_edges
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule, Values
from tilewright.kernels.limits import MOST_BODY, blocks_param, no_gpu, shared_rule
from tilewright.kernels.split_k import left_bytes, pool_apart
from tilewright.kernels.tile import rows_under, up_to
from tilewright.kernels.whole_sums import whole_sums
from tilewright.kernels.word import PACKED_POINTS
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

POINTS = (6, 8, 10)  # of a row, which give points + 1 - S outputs
TAPS = (3, 4, 5, 6, 7)  # of a row of the filter
SIDES = (2, 3, 4, 5, 6)  # outputs: more have too large an error, fewer do not pay
FEWEST_ROWS = 5  # of the filter, in all channels: enough products to average out the transforms' error
# Products from which on the bound covers the errors of an output's neighbours, by points: of an output that
# sees all columns of the filter, and of one that padding leaves fewer. Simulated (test_winograd_errors.py),
# the worst of 4 to 16 million outputs times the bound: 8 points, all columns, 15 or 16 products 1.0 to 1.5,
# 24 or 25 0.7 to 0.9, fewer columns, 24 products 0.8 to 1.8, 48 0.1 to 1.1; 10 points, all columns, 21 to 25
# products 0.9 to 1.2, 40 to 45 0.7 to 0.8, fewer columns, 60 products 0.8 to 1.2, 120 0.6 to 1.0; 6 points,
# 12 products and more 0.5 to 1.0 (1.3 where 6 rows have 2 columns of 4).
FEWEST_PRODUCTS = {6: (12, 12), 8: (24, 60), 10: (40, 120)}
GROWTH = {6: 100, 8: 100, 10: 400}  # roundings of the transforms, as adds


@dataclass(frozen=True)
class RowsTiling:
    """Sizes derived from a problem and a config; the kernel has defines of the same names."""

    bands: Bands
    side: int
    tiles: int
    rows: int
    x_floats: int
    f_floats: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * (self.x_floats + self.f_floats)


def tiling_of(pr: Problem, cf: Values) -> RowsTiling:
    """Return the tiling of a config."""
    side = cf["points"] + 1 - pr.s
    tiles = ceil_div(pr.q, side)
    bands = bands_of(pr, cf, tiles)
    return RowsTiling(
        bands=bands, side=side, tiles=tiles, rows=rows_under(pr, cf["th"]),
        x_floats=round_up(cf["points"] * cf["ni"] * pr.c * bands.xh * tiles, 4),
        f_floats=cf["points"] * pr.c * pr.r * bands.k_groups * cf["tk"],
    )  # fmt: skip


class WinogradRows(Family):
    """Minimal filtering along rows, for at most 8 input channels, one group, on a GPU."""

    name = "winograd_rows"
    examples = ("n5c4h18w18k16r5s5-f32+bias",)
    exact = False
    plain = False

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support layers of few input channels with horizontal stride 1."""
        if reason := super().refuses(problem, device) or no_gpu(device) or many_channels(problem):
            return reason
        if problem.s not in TAPS or problem.stride[1] != 1 or problem.dilation[1] != 1:
            return "a row of the filter is not 3 to 7 wide, with stride 1 and no dilation along it"
        if problem.c * problem.r < FEWEST_ROWS:
            return f"its filters have fewer than {FEWEST_ROWS} rows in all"
        return None if _points(problem) else _too_few(problem, min(_tiles_of(problem)))

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        return (
            Param("points", _points(problem), "inputs of a tile of a row"),
            Param("tk", up_to(2 * problem.k - 1, (1, 2, 4, 8)), "output channels a thread"),
            Param("th", up_to(problem.p, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20)),
                  "output rows a thread"),
            Param("threads", tuple(range(64, 449, 32)) + (512, 544, 576, 640), "threads of a block"),
            blocks_param(1, 2, 3, 4, 6, 8),
            bands_param(problem),
            Param("ni", up_to(problem.n, (1, 2, 3, 4)), "images worked on at once"),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def multiplies(self, problem: Problem) -> float:
        """As many as points, per row of a tile."""
        points = max(_points(problem))
        return points / (problem.s * (points + 1 - problem.s))

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, and another if there is a pool."""
        pr, cf = problem, config.values
        tiling = tiling_of(pr, cf)
        return whole_sums(
            "winograd_rows", pr, pool_apart(pr), tiling.bands.blocks(device, cf), cf["threads"],
            _defines(pr, device, tiling, cf, aligned), 4 * tiling.f_floats,
            (("PACK_K", tiling.bands.k_groups * cf["tk"]), ("PACK_C", pr.c),
             ("PACK_WINOGRAD", 3), ("PACK_POINTS", cf["points"])), packing=PACKED_POINTS,
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return _work(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """All products of a point in succession, and the growth of their error in the transforms."""
        return problem.c * problem.r * problem.s + GROWTH[config["points"]]


def _tiles_of(pr: Problem) -> tuple[int, ...]:
    """Points of tiles that pay."""
    return tuple(points for points in POINTS if points + 1 - pr.s in SIDES)


def _points(pr: Problem) -> tuple[int, ...]:
    """Those of them with which sums have products enough."""
    return tuple(points for points in _tiles_of(pr) if not _too_few(pr, points))


def _too_few(pr: Problem, points: int) -> str | None:
    """Say why outputs would exceed the bound with so many points."""
    whole, cut = FEWEST_PRODUCTS[points]
    return too_few_at_edges(pr, whole if fewest_taps(pr)[1] == pr.s else cut, down=False)


def _registers(pr: Problem, cf: Values) -> int:
    rows = rows_under(pr, cf["th"])
    return cf["tk"] * cf["th"] * (cf["points"] + 2 - pr.s) + rows + min(cf["tk"], 4) + 24


def _busy(problem: Problem, cf: Values) -> bool:
    """Whether threads have outputs to compute in most of their iterations."""
    tiling = tiling_of(problem, cf)
    wanted = cf["ni"] * tiling.bands.band * tiling.tiles * problem.k
    turns = round_up(tiling.bands.units, cf["threads"])
    return tiling.bands.units <= 64 or 10 * wanted >= 7 * turns * cf["tk"] * cf["th"]


RULES = (
    Rule("body", lambda problem, tk, th: problem.r * tk * th <= MOST_BODY,
         "the loop's body overflows the instruction cache"),
    Rule("sums", lambda problem, tk, th: tk * th >= min(4, problem.k * problem.p),
         "fewer than 4 sums a thread are all loads"),
    *bands_rules(_registers, "points tk th"),
    Rule("busy", _busy, "threads without outputs", needs="points tk th threads bands ni"),
    shared_rule(lambda problem, cf: tiling_of(problem, cf).shared_bytes, "points tk th mb bands ni"),
)  # fmt: skip


def _defines(pr: Problem, device: Device, tiling: RowsTiling, cf: Values, aligned: bool) -> Values:
    return bands_defines(pr, device, tiling.bands, cf, aligned) | dict(
        POINTS=cf["points"], TILES=tiling.tiles, X_FLOATS=tiling.x_floats, SHARED_BYTES=tiling.shared_bytes,
        CHANNEL_UNROLL_BY=max(1, min(pr.c, MOST_BODY // (pr.r * cf["tk"] * cf["th"]))),
        X_WORDS=_words(pr.layout_in, aligned, tiling.side, pr.pad[2], pr.w),
        Y_WORDS=_words(pr.layout_out, aligned, tiling.side, pr.q),
    )  # fmt: skip


def _words(layout: str, aligned: bool, *runs: int) -> int:
    """Numbers of a row that are loaded or stored at once; they divide all ``runs``."""
    return gcd(4, *runs) if layout == "nchw" and aligned else 1


def _work(pr: Problem, device: Device, cf: Values) -> GpuWork:
    tiling = tiling_of(pr, cf)
    bands, blocks = tiling.bands, tiling.bands.blocks(device, cf)
    turns = ceil_div(bands.items, blocks)  # items of a block
    passes, warps = ceil_div(bands.units, cf["threads"]), cf["threads"] // 32
    sums, filters, points = cf["tk"] * cf["th"], pr.c * pr.r, cf["points"]
    nhwc = pr.layout_out == "nhwc"
    words, taps = _words(pr.layout_out, True, tiling.side, pr.q), filters * cf["tk"] / min(cf["tk"], 4)
    vector = min(cf["tk"], 4) if nhwc else words
    inputs = cf["ni"] * pr.c * bands.xh * tiling.tiles
    x_words = _words(pr.layout_in, True, tiling.side, pr.pad[2], pr.w)
    sectors = cf["ni"] * pr.k * bands.band * pr.q / (8.0 if not nhwc or cf["tk"] == vector else vector)
    outputs = sums * tiling.side
    return GpuWork(
        blocks=blocks, threads=cf["threads"], registers=_registers(pr, cf),
        resident=cf["mb"], shared_bytes=tiling.shared_bytes, steps=turns, buffers=1,
        fma=float(turns * passes * points * (filters * sums + outputs)),
        shared_loads=turns * passes * points * (pr.c * tiling.rows + taps),
        staging=turns * ceil_div(inputs, cf["threads"]) * (30.0 + points * (4.5 + 2.0 / x_words)),
        epilogue=turns * passes * (outputs * 6.0 / vector + 20.0),
        wavefronts=turns * warps * (passes * points * (pr.c * tiling.rows + taps)
                                    + ceil_div(inputs, cf["threads"]) * 2.0 * points),
        load_bytes=4.0 * turns * inputs * points / 2, store_sectors=turns * sectors,
        dram_bytes=pr.x_bytes + pr.w_bytes + pr.y_bytes,
        combine=pool_apart(pr), partial_bytes=left_bytes(pr, pool_apart(pr)), tile_bytes=4.0 * sectors * 8,
        useful=pr.z_elements / (bands.items * bands.units * outputs),
        register_intensity=2.0 * pr.s * outputs * pr.r / (tiling.rows + pr.r * cf["tk"]) / points,
        block_intensity=2.0 * filters * pr.s * outputs * bands.units / max(1, tiling.x_floats),
    )  # fmt: skip
