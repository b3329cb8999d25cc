"""The wgmma family: implicit GEMM on the tensor cores of Hopper, fed by asynchronous copies."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch, Param, Rule, Work
from tilewright.kernels.tile import COMBINE_NAMES, NONE, SUM_THREADS, TWO_PASS, ceil_div, up_to
from tilewright.problem import DTYPES, Problem

ROW_BYTES = 128  # of a staged row: channels of one pixel, or of one filter tap
ALIGNMENT = 1024  # of a staged tile
SHARES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
BYTES = {"f16": 2, "bf16": 2, "i8": 1}
Values = dict[str, int]


@dataclass(frozen=True)
class Sizes:
    """What follows from a problem and a config; the kernel's defines of the same names."""

    deep: int
    bm: int
    px_tiles: int
    k_tiles: int
    steps: int
    share: int
    shared_bytes: int
    blocks: int


def sizes(pr: Problem, cf: Values) -> Sizes:
    """Work out the sizes of a config."""
    deep = ROW_BYTES // BYTES[pr.dtype]
    bm = 64 * cf["wm"] * cf["rows"]
    px_tiles, k_tiles = ceil_div(pr.n * pr.p * pr.q, bm), ceil_div(pr.kg, cf["bn"])
    steps = ceil_div(pr.cg, deep) * pr.r * pr.s
    return Sizes(
        deep=deep, bm=bm, px_tiles=px_tiles, k_tiles=k_tiles, steps=steps, share=ceil_div(steps, cf["sg"]),
        shared_bytes=cf["stages"] * (bm + cf["bn"]) * ROW_BYTES + ALIGNMENT,
        blocks=px_tiles * k_tiles * pr.groups * cf["sg"],
    )  # fmt: skip


class Wgmma(Family):
    """Convolutions in f16, bf16 and i8 on sm_90a."""

    name = "wgmma"
    dtypes = ("f16", "bf16", "i8")

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take nhwc layers whose channels fill 16-byte pieces."""
        if reason := super().refuses(problem, device):
            return reason
        if device.backend != "cuda" or device.arch != "sm_90":
            return "it is made for the tensor cores of sm_90"
        if (problem.layout_in, problem.layout_out) != ("nhwc", "nhwc"):
            return "its pixels are rows of channels: it takes nhwc"
        if problem.cg * BYTES[problem.dtype] % 16:
            return f"{problem.cg} channels of a group do not fill pieces of 16 bytes"
        if problem.r > 16 or problem.s > 16:
            return "the filter has more than 16 rows or columns"
        if problem.epilogue.pool:
            return "it does not pool"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Offer the tunables, outermost choice first."""
        return (
            Param("wm", (1, 2, 3, 4), "warpgroups of a block, over pixels"),
            Param("rows", (1, 2), "times 64 pixels a warpgroup"),
            Param("bn", up_to(problem.kg + 7, (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256)),
                  "output channels of a block"),
            Param("mb", (1, 2, 3, 4), "blocks that a unit holds at once (bounds the registers of a thread)"),
            Param("stages", (3, 4, 5, 6, 8, 10), "buffers of staged input and filter"),
            Param("sg", SHARES, "shares of the sum across the grid"),
            Param("combine", (NONE, TWO_PASS), "how the grid's shares meet", ("none", "two_pass")),
        )  # fmt: skip

    def rules(self) -> tuple[Rule, ...]:
        """State what the hardware and the kernel forbid."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out one launch, two where shares of the sum meet."""
        return _blueprint(problem, config.values)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count what one block and one thread do."""
        return _work(problem, config.values)

    def chain(self, problem: Problem, config: Config) -> int:
        """Products of a step are summed together; steps, then shares, one after the other."""
        return sizes(problem, config.values).share * 4 + config["sg"]


def _registers(cf: Values) -> int:
    return cf["rows"] * cf["bn"] // 2 + cf["rows"] * 8 + 40


def _registers_fit(device: Device, cf: Values) -> bool:
    per_scheduler = cf["wm"] * cf["mb"] * 32
    return _registers(cf) <= 240 and _registers(cf) * per_scheduler <= device.regs_per_unit // 4


RULES = (
    Rule("registers", lambda device, wm, rows, bn, mb: _registers_fit(
        device, dict(wm=wm, rows=rows, bn=bn, mb=mb)), "more registers than a thread or a unit has"),
    Rule("pixels", lambda problem, wm, rows: 64 * wm * (rows - 1) < problem.n * problem.p * problem.q
         and 64 * rows * (wm - 1) < problem.n * problem.p * problem.q, "warpgroups without pixels"),
    Rule("shared", lambda problem, device, wm, rows, bn, mb, stages: mb * (sizes(problem, dict(
        wm=wm, rows=rows, bn=bn, stages=stages, sg=1)).shared_bytes + 1024) <= device.shared_per_unit,
        "more shared memory than a unit has"),
    Rule("stages", lambda problem, stages: stages <= 3 or stages - 2 <= sizes(problem, dict(
        wm=1, rows=1, bn=8, stages=stages, sg=1)).steps, "more buffers than steps"),
    Rule("shares", lambda problem, sg: (sg - 1) * sizes(problem, dict(
        wm=1, rows=1, bn=8, stages=3, sg=sg)).share < sizes(problem, dict(
            wm=1, rows=1, bn=8, stages=3, sg=1)).steps, "shares without steps"),
    Rule("combine", lambda sg, combine: (sg > 1) == (combine == TWO_PASS),
         "shares across the grid need combining"),
)  # fmt: skip


def _blueprint(pr: Problem, cf: Values) -> Blueprint:
    sz = sizes(pr, cf)
    shares = cf["sg"] > 1
    pixels = pr.n * pr.p * pr.q
    launches = [Launch("wgmma", (sz.blocks, 1, 1), (128 * cf["wm"], 1, 1),
                       ("x", "w", "bias", "z", "y", "partial"), shared_bytes=sz.shared_bytes)]  # fmt: skip
    if shares:
        groups, block = (ceil_div(pr.y_elements, SUM_THREADS), 1, 1), (SUM_THREADS, 1, 1)
        launches.append(Launch("sum_shares", groups, block, ("partial", "bias", "z", "y"), chained=True))
    defines = dict(
        WG_N=cf["bn"], WG_EIGHTHS=cf["bn"] // 8, WG_M=cf["wm"], WG_ROWS=cf["rows"], STAGES=cf["stages"],
        SG=cf["sg"], MIN_BLOCKS=cf["mb"], SHARE=sz.share, STEPS=sz.steps, K_TILES=sz.k_tiles,
        PX_TILES=sz.px_tiles, PIXELS=pixels, C=pr.cg, C_ALL=pr.c, K=pr.kg, K_ALL=pr.k, H=pr.h, W=pr.w, P=pr.p,
        Q=pr.q, R=pr.r, S=pr.s, STR_H=pr.stride[0], STR_W=pr.stride[1], DIL_H=pr.dilation[0],
        DIL_W=pr.dilation[1], PAD_T=pr.pad[0], PAD_L=pr.pad[2], SUM_THREADS=SUM_THREADS,
        DTYPE=DTYPES.index(pr.dtype), **pr.epilogue.defines(pr.dtype),
    )  # fmt: skip
    return Blueprint(
        source="wgmma.cu", defines=tuple(defines.items()), launches=tuple(launches),
        packed_bytes=pr.groups * sz.k_tiles * sz.steps * cf["bn"] * ROW_BYTES,
        pack=(("PACK_K", cf["bn"]), ("PACK_C", ceil_div(pr.cg, sz.deep)), ("PACK_SWIZZLED", 1)),
        workspace=(Buffer("partial", 4 * cf["sg"] * pixels * pr.k if shares else 0),), specific=True,
    )  # fmt: skip


def _work(pr: Problem, cf: Values) -> Work:
    sz = sizes(pr, cf)
    threads = 128 * cf["wm"]
    tile = sz.bm * cf["bn"]
    staged = (sz.bm + cf["bn"]) * ROW_BYTES
    # A unit multiplies 64 x 8 x 32 bytes in 4 cycles (dense f16: 1024 multiply-adds a cycle).
    cycles = sz.share * cf["wm"] * cf["rows"] * 4 * cf["bn"] / 8 * 4
    pixels = pr.n * pr.p * pr.q
    return Work(
        blocks=sz.blocks, threads=threads, registers=_registers(cf), resident=cf["mb"],
        shared_bytes=sz.shared_bytes, steps=sz.share, buffers=cf["stages"],
        fma=cycles * 4 * 0.86 / max(1, threads // 128) / 4, shared_loads=0.0, global_loads=0.0,
        staging=sz.share * (staged / threads / 16 * 7 + 30.0), epilogue=tile / threads * 6.0 + 150.0,
        wavefronts=sz.share * staged / 128, load_bytes=float(sz.share * staged),
        store_sectors=tile * (4.0 if cf["sg"] > 1 else 2.0 * BYTES[pr.dtype]) / 32,
        dram_bytes=pr.x_bytes + pr.w_bytes + pr.y_bytes, cluster=1, shares=cf["sg"],
        combine=COMBINE_NAMES[cf["combine"]],
        partial_bytes=4.0 * cf["sg"] * pixels * pr.k if cf["sg"] > 1 else 0.0, tile_bytes=4.0 * tile,
        useful=pixels * pr.kg / (sz.px_tiles * sz.bm * sz.k_tiles * cf["bn"]),
        register_intensity=0.0, block_intensity=2.0 * tile * sz.deep / (staged / BYTES[pr.dtype]),
    )  # fmt: skip
