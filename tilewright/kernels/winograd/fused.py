"""The winograd family on a GPU: both transforms and the products in one kernel."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arithmetic import ceil_div, offset64, round_up
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.limits import (
    MOST_COPIES,
    ROUGHLY,
    blocks_param,
    no_gpu,
    registers_rule,
    resident_rule,
    shared_rule,
)
from tilewright.kernels.split_k import (
    ATOMIC_EPILOGUE,
    COMBINE_NONE,
    combine_param,
    combining,
    operands,
    reduction_buffers,
    share_defines,
)
from tilewright.kernels.staging import Staging, staged_quads
from tilewright.kernels.tile import (
    ATOMIC,
    NONE,
    TWO_PASS,
    View,
    image_defines,
    k_fastest,
    layer_defines,
    lines,
    row_runs,
    up_to,
)
from tilewright.kernels.word import PACKED_POINTS
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

ELEMENTS = 16  # of a transformed tile
SHARES = (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 16)


@dataclass(frozen=True)
class WinogradTiling:
    """Sizes derived from a problem and a config; the kernel has defines of the same names."""

    kb: int
    tiles: int
    threads: int
    k_tiles: int
    p_tiles: int
    q_tiles: int
    steps: int
    xh: int
    x: Staging
    f_floats: int
    shared_bytes: int

    @property
    def blocks(self) -> int:
        """Blocks of one image, one group and one share of C."""
        return self.k_tiles * self.p_tiles * self.q_tiles


def tiling_of(pr: Problem, cf: Values, aligned: bool = True) -> WinogradTiling:
    """Return the tiling of a config."""
    kb, tiles = cf["v"] * cf["tk"] * cf["bk"], cf["tt"] * cf["bt"]
    wt, threads = max(1, tiles // cf["ht"]), cf["bk"] * cf["bt"] * cf["eg"]
    x = _staging(pr, cf, wt, threads, aligned)
    f_floats = lines(cf["cs"] * ELEMENTS * kb)
    loop = cf["stages"] * (x.size + f_floats) + cf["cs"] * (ELEMENTS * tiles + 4)
    store = ELEMENTS * cf["v"] * cf["bk"] * (tiles + 1)
    return WinogradTiling(
        kb=kb, tiles=tiles, threads=threads, k_tiles=ceil_div(pr.kg, kb),
        p_tiles=ceil_div(pr.p, 2 * cf["ht"]), q_tiles=ceil_div(pr.q, 2 * wt),
        steps=ceil_div(pr.cg, cf["cs"] * cf["sg"]), xh=2 * cf["ht"] + 2, x=x, f_floats=f_floats,
        shared_bytes=4 * max(loop, store),
    )  # fmt: skip


def _staging(pr: Problem, cf: Values, wt: int, threads: int, aligned: bool) -> Staging:
    """Return how the input under a block's tiles is staged, with ``wt`` tiles in a row."""
    xh, need, cs = 2 * cf["ht"] + 2, 2 * wt + 2, cf["cs"]
    if cf["cv"] == 4:
        return staged_quads(cs, xh, need, threads)
    run, lead, xw = row_runs(pr, pr.w, 2 * wt, -pr.pad[2], need, aligned, most=2)
    items = xh * xw * cs // run
    copies = ceil_div(items, threads)
    if pr.layout_in == "nhwc" or copies > MOST_COPIES or pr.c * pr.h * pr.w >= 1 << 31:
        run, lead, copies, xw = 1, 0, 0, round_up(need, 4)
        items = xh * xw * cs
    size = max(copies * threads * run, cs * xh * xw)
    return Staging((xh * xw, xw, 1), xw, lines(size), copies, items, run, lead)


class Fused(Family):
    """The kernel of the winograd family on CUDA cores."""

    name = "winograd"

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Refuse what only this kernel does not take; ``Winograd`` has refused the rest."""
        return no_gpu(device) or (None if problem.dilation == (1, 1) else "the filter is dilated")

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        quads = problem.layout_in == "nhwc" and problem.cg % 4 == 0
        return (
            Param("v", (1, 2, 4), "output channels of one vector load of the filter"),
            Param("tk", (1, 2), "vectors of output channels a thread"),
            Param("tt", (4, 8, 12, 16), "tiles of 2x2 outputs a thread"),
            Param("eg", (4, 8, 16), "teams of threads that share out the 16 elements"),
            Param("bk", (2, 4, 8, 16), "threads of a team over K"),
            Param("bt", (1, 2, 4, 8), "threads of a team over tiles"),
            blocks_param(1, 2, 3, 4),
            Param("ht", up_to(ceil_div(problem.p, 2), (1, 2, 3, 4, 6, 8, 16)), "rows of tiles of a block"),
            Param("cs", (2, 4, 8, 16), "channels staged per step"),
            Param("cv", (1, 4) if quads else (1,), "channels copied at once (nhwc)"),
            Param("stages", (1, 2, 3), "buffers of the staging pipeline"),
            Param("sg", SHARES, "shares of C across the grid"),
            combine_param(NONE, ATOMIC, TWO_PASS),
        )

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if a second pass adds up the shares."""
        pr, cf = problem, config.values if aligned else {**config.values, "cv": 1}
        tiling = tiling_of(pr, cf, aligned)
        blocks = tiling.blocks * pr.n * pr.groups * cf["sg"]
        c_padded = tiling.steps * cf["cs"] * cf["sg"]
        combine = cf["combine"]
        args = (*operands(combine), "arrived")
        main = Launch("winograd", (blocks, 1, 1), (tiling.threads, 1, 1), args, tiling.shared_bytes)
        return Blueprint(
            source="winograd.cu", defines=tuple(_defines(pr, cf, tiling, c_padded).items()),
            launches=combining(main, pr, device, combine),
            packed_bytes=4 * pr.groups * tiling.k_tiles * c_padded * ELEMENTS * tiling.kb,
            pack=(("PACK_K", tiling.kb), ("PACK_C", c_padded), ("PACK_WINOGRAD", 1)), packing=PACKED_POINTS,
            workspace=reduction_buffers(pr, cf, 0, blocks // cf["sg"]),
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return _work(problem, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """The sum over one share of C, the adds of the transforms, then the shares one after the other."""
        cf = config.values
        return tiling_of(problem, cf).steps * cf["cs"] + 12 + cf["sg"]


def _pools(pr: Problem) -> bool:
    pool = pr.epilogue.pool
    return pool is None or (pool.size, pool.stride, pool.pad) == (2, 2, 0)


def _registers(cf: Values) -> int:
    accumulators = ELEMENTS // cf["eg"] * cf["v"] * cf["tk"] * cf["tt"]
    return accumulators + cf["tt"] + cf["v"] * cf["tk"] + 36


def _most_shared(problem: Problem, cf: Values) -> int:
    cf = cf | dict(sg=1)  # for any number of shares of C
    variants = (tiling_of(problem, cf), tiling_of(problem, cf | dict(cv=1), aligned=False))
    return max(tiling.shared_bytes for tiling in variants)


RULES = (
    Rule("k_reach", lambda problem, v, tk, bk: v * tk * bk <= max(4, 2 * problem.kg - 1),
         "threads along K without outputs"),
    Rule("accumulators", lambda v, tk, tt, eg: ELEMENTS // eg * v * tk * tt <= 128,
         "accumulators must fit the register file of one lane"),
    Rule("threads", lambda device, eg, bk, bt: 64 <= eg * bk * bt <= min(512, device.max_threads),
         "a block has 64 to 512 threads"),
    Rule("whole_warps", lambda eg, bk, bt: eg * bk * bt % 32 == 0, "a block is made of whole warps"),
    resident_rule(lambda device, eg, bk, bt, mb: eg * bk * bt * mb <= device.threads_per_unit),
    registers_rule(lambda problem, cf: _registers(cf), lambda cf: cf["eg"] * cf["bk"] * cf["bt"],
                   "v tk tt eg bk bt mb", spare=ROUGHLY),
    Rule("rows", lambda tt, bt, ht: tt * bt % ht == 0, "the tiles of a block form whole rows"),
    Rule("columns", lambda problem, tt, bt, ht: tt * bt // ht <= max(4, problem.q),
         "columns of tiles without outputs"),
    Rule("f_vector", lambda v, tk, bk: v * tk * bk % 4 == 0, "the filter is staged 16 bytes at a time"),
    Rule("channels", lambda problem, cs: cs <= max(4, 2 * problem.cg), "more channels staged than there are"),
    Rule("channel_vector", lambda cs, cv: cs % cv == 0, "channels are copied four at once"),
    Rule("x_copies", lambda problem, cf: cf["cv"] == 1 or tiling_of(
        problem, cf | dict(stages=1, sg=1)).x.copies <= MOST_COPIES,
        "a thread keeps the addresses of at most 16 copies in registers", needs="v tk tt eg bk bt ht cs cv"),
    shared_rule(_most_shared, "v tk tt eg bk bt mb ht cs cv stages"),
    Rule("pieces", lambda problem, cs, sg: cs * (sg - 1) < problem.cg, "shares of C without channels"),
    COMBINE_NONE,
    Rule("pool_tile", lambda problem, combine: combine == TWO_PASS or _pools(problem),
         "a tile of 2x2 outputs holds one window of 2x2, and no other"),
    ATOMIC_EPILOGUE,
)  # fmt: skip


def _defines(pr: Problem, cf: Values, tiling: WinogradTiling, c_padded: int) -> dict[str, int]:
    body, view = ELEMENTS // cf["eg"] * cf["v"] * cf["tk"] * cf["tt"], View.unflattened(pr)
    packed = c_padded * ELEMENTS * tiling.kb * tiling.k_tiles * pr.groups
    largest = max(pr.x_bytes, pr.y_bytes, pr.z_bytes * cf["sg"], 4 * packed)
    return dict(
        VECTOR=cf["v"], TK=cf["tk"], TT=cf["tt"], EG=cf["eg"], BK=cf["bk"], BT=cf["bt"], HT=cf["ht"],
        CS=cf["cs"], CV=cf["cv"], STAGES=cf["stages"],
        **share_defines(cf["combine"], sg=cf["sg"]), MIN_BLOCKS=cf["mb"],
        **layer_defines(pr, view), **image_defines(pr, view), X_SHARED=1, F_SHARED=1,
        K_TILES=tiling.k_tiles, P_TILES=tiling.p_tiles, Q_TILES=tiling.q_tiles, STEPS=tiling.steps,
        C_PADDED=c_padded,
        F_FLOATS=tiling.f_floats, **tiling.x.defines(), K_FASTEST=k_fastest(pr),
        CHANNEL_UNROLL_BY=max(1, min(cf["cs"], 512 // body)), SHARED_BYTES=tiling.shared_bytes,
        OFFSET64=offset64(largest // 4),
    )  # fmt: skip


def _work(pr: Problem, cf: Values) -> GpuWork:
    tiling = tiling_of(pr, cf)
    each, channels = ELEMENTS // cf["eg"], cf["cs"] * tiling.steps
    tile = 4 * tiling.tiles * tiling.kb
    blocks = tiling.blocks * pr.n * pr.groups * cf["sg"]
    vk = cf["v"] * cf["tk"]
    x_step, f_step = cf["cs"] * tiling.xh * tiling.x.xw, cf["cs"] * ELEMENTS * tiling.kb
    transform = cf["cs"] * tiling.tiles / tiling.threads * 80.0
    staged = tiling.x.items / tiling.threads * (5.0 if tiling.x.copies else 22.0)
    staged += f_step / tiling.threads / 4 * 1.5
    warps = tiling.threads // 32
    loads = channels * each * (max(1.0, cf["bk"] * vk / 32) + max(1.0, cf["bt"] * cf["tt"] / 32))
    return GpuWork(
        blocks=blocks, threads=tiling.threads, registers=_registers(cf), resident=cf["mb"],
        shared_bytes=tiling.shared_bytes,
        steps=tiling.steps, buffers=cf["stages"], fma=channels * each * vk * cf["tt"],
        shared_loads=channels * each * (vk + cf["tt"]),
        staging=(transform + staged) * tiling.steps,
        epilogue=each * vk * cf["tt"] * 2.0 + tiling.tiles * tiling.kb / tiling.threads * 90.0,
        wavefronts=warps * loads + tiling.steps * (4.0 * tiling.x.items + f_step) / 32
        + channels * tiling.tiles,
        load_bytes=4.0 * tiling.steps * (x_step + f_step),
        store_sectors=tile / (min(8.0, cf["v"] * cf["bk"]) if pr.layout_out == "nhwc" else 4.0),
        dram_bytes=pr.x_bytes + pr.w_bytes * ELEMENTS / 9 + pr.y_bytes, shares=cf["sg"],
        combine=cf["combine"], partial_bytes=0.0 if cf["combine"] == NONE else 4.0 * tile * blocks,
        tile_bytes=4.0 * tile, useful=pr.z_elements / (tile * blocks / cf["sg"]),
        register_intensity=2.0 * vk * cf["tt"] / (vk + cf["tt"]),
        block_intensity=2.0 * 9 * tile * cf["cs"] / (x_step + f_step),
    )  # fmt: skip
