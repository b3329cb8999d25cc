"""The direct family: register and block tiles over K, P, Q and the sum over C split at any level.

Source of the idea: E. Barton, "C Split Globally", University of Utah, UUCS-22-001, 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch, Param, Rule, Work
from tilewright.problem import Problem

NONE, ATOMIC, TWO_PASS, LAST = range(4)
SUM_THREADS = 256


def ceil_div(a: int, b: int) -> int:
    """Smallest integer not below a / b."""
    return -(-a // b)


@dataclass(frozen=True)
class View:
    """The problem as the kernel walks it: pixels of a 1x1 layer lie in one row."""

    n: int
    h: int
    w: int
    p: int
    q: int

    @classmethod
    def of(cls, pr: Problem) -> View:
        """Flatten the image where every output pixel needs just its own input pixel."""
        plain = (pr.r, pr.s, pr.stride, pr.pad) == (1, 1, (1, 1), (0, 0, 0, 0))
        if not plain:
            return cls(pr.n, pr.h, pr.w, pr.p, pr.q)
        if (pr.layout_in, pr.layout_out) == ("nhwc", "nhwc"):
            return cls(1, 1, pr.n * pr.h * pr.w, 1, pr.n * pr.p * pr.q)
        return cls(pr.n, 1, pr.h * pr.w, 1, pr.p * pr.q)


@dataclass(frozen=True)
class Geometry:
    """Sizes that follow from a problem and a config; the kernel's defines of the same names."""

    view: View
    kb: int
    hb: int
    wb: int
    team: int
    threads: int
    k_tiles: int
    p_tiles: int
    q_tiles: int
    steps: int
    xh: int
    xw: int
    f_floats: int
    row: int
    rows: int

    @property
    def tiles(self) -> int:
        """Output tiles of one image and one group."""
        return self.k_tiles * self.p_tiles * self.q_tiles


def geometry(pr: Problem, cf: dict[str, int]) -> Geometry:
    """Work out the tile sizes of a config."""
    view = View.of(pr)
    kb, hb, wb = cf["v"] * cf["tk"] * cf["bk"], cf["th"] * cf["bh"], cf["tw"] * cf["bw"]
    team = cf["bk"] * cf["bh"] * cf["bw"]
    return Geometry(
        view=view, kb=kb, hb=hb, wb=wb, team=team, threads=team * cf["sw"] * cf["sb"],
        k_tiles=ceil_div(pr.kg, kb), p_tiles=ceil_div(view.p, hb), q_tiles=ceil_div(view.q, wb),
        steps=ceil_div(pr.cg, cf["cs"] * cf["sc"] * cf["sg"]),
        xh=(hb - 1) * pr.stride[0] + (pr.r - 1) * pr.dilation[0] + 1,
        xw=(wb - 1) * pr.stride[1] + (pr.s - 1) * pr.dilation[1] + 1,
        f_floats=cf["cs"] * pr.r * pr.s * kb if cf["f"] else 0,
        row=(cf["tw"] - 1) * pr.stride[1] + (pr.s - 1) * pr.dilation[1] + 1,
        rows=(cf["th"] - 1) * pr.stride[0] + (pr.r - 1) * pr.dilation[0] + 1,
    )  # fmt: skip


@dataclass(frozen=True)
class Staging:
    """How a block stages its input tile (see stage.h): strides, extent, copies of a thread."""

    strides: tuple[int, int, int]
    xw: int
    floats: int
    vector: bool
    copies: int
    items: int


MOST_COPIES = 16


def staging(pr: Problem, cf: dict[str, int], geo: Geometry, aligned: bool = True) -> Staging:
    """Lay out the staged input tile."""
    if not cf["x"]:
        return Staging((0, 0, 0), geo.xw, 0, False, 0, 0)
    xw = geo.xw if cf["cv"] == 4 else ceil_div(geo.xw, 4) * 4
    pixels, small = geo.xh * xw, pr.c * geo.view.h * geo.view.w < 1 << 31
    if cf["cv"] == 4:
        items = pixels * cf["cs"] // 4
        copies = ceil_div(items, geo.threads)
        return Staging((1, xw * (cf["cs"] + 4), cf["cs"] + 4), xw, pixels * (cf["cs"] + 4), True,
                       copies if small else 0, items)  # fmt: skip
    plain = pr.r * pr.s == 1 and geo.view.h == 1 and pr.stride == (1, 1) and not any(pr.pad)
    nchw = pr.layout_in == "nchw"
    vector = plain and nchw and geo.view.w % 4 == 0 and geo.wb % 4 == 0 and aligned and small
    items = pixels * cf["cs"] // (4 if vector else 1)
    copies = ceil_div(items, geo.threads)
    if nchw and small and (vector or copies <= MOST_COPIES):
        floats = copies * geo.threads * (4 if vector else 1)
        return Staging((pixels, xw, 1), xw, ceil_div(floats, 4) * 4, vector, copies, items)
    plane = pixels if nchw else pixels + (4 - pixels) % 32  # 8 channels x 4 pixels meet 32 banks
    return Staging((plane, xw, 1), xw, ceil_div(cf["cs"] * plane + 4, 4) * 4, False, 0, items)


def registers(cf: dict[str, int], row: int) -> int:
    """Estimate of the registers a thread needs: accumulators, input rows, taps, addresses."""
    tile = cf["v"] * cf["tk"] * cf["th"] * cf["tw"]
    return tile + cf["th"] * ceil_div(row, 4) * 4 * cf.get("cv", 1) + cf["v"] * min(2, cf["tk"]) + 28


def shared_bytes(pr: Problem, cf: dict[str, int], geo: Geometry) -> int:
    """Shared memory of a block: the staged tiles, reused by the output tile."""
    staged = (staging(pr, cf, geo).floats + geo.f_floats) * cf["stages"]
    slow, fast = (geo.hb * geo.wb, geo.kb) if pr.layout_out == "nhwc" else (geo.kb, geo.hb * geo.wb)
    out = slow * (fast + cf["pad"]) * cf["sb"] if out_shared(cf) else 0
    return 4 * max(staged, out, 4)


def out_shared(cf: dict[str, int]) -> bool:
    """Whether the output tile passes through shared memory."""
    return bool(cf["out"] or cf["sb"] > 1 or cf["sc"] > 1)


def _fits_shared(problem: Problem, device: Device, cf: dict[str, int]) -> bool:
    block = shared_bytes(problem, cf, geometry(problem, cf)) + 64
    return block <= device.shared_per_block and cf["mb"] * (block + 1024) <= device.shared_per_unit


def _divisors(limit: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """The values up to the first that reaches ``limit``."""
    kept = tuple(v for v in values if v <= limit)
    return kept or values[:1]


class Direct(Family):
    """Direct convolution on CUDA cores and CPU vectors."""

    name = "direct"

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take every strict f32 problem on a device with kernels."""
        if device.backend not in ("cuda", "opencl"):
            return f"the {device.backend} backend runs no kernels"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Offer the tunables, outermost choice first."""
        return _cpu_params(problem) if device.lanes != 32 else _gpu_params(problem, device)

    def rules(self) -> tuple[Rule, ...]:
        """State what the hardware and the kernel forbid."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out one launch, two when the shares are summed in a second pass."""
        return _blueprint(problem, device, config, aligned)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count what one block and one thread do."""
        return _work(problem, device, config.values)

    def deterministic(self, config: Config) -> bool:
        """Atomic adds come in any order; everything else sums in a fixed order."""
        return config["combine"] != ATOMIC

    def chain(self, problem: Problem, config: Config) -> int:
        """Longest run of adds: one share of C, then the shares one after the other."""
        cf = config.values
        geo = geometry(problem, cf)
        inside = ceil_div(cf["cs"], cf["sw"] * cf["sb"]) * geo.steps * problem.r * problem.s
        return inside + cf["sw"].bit_length() + cf["sb"] * cf["sc"] + cf["sg"] + 1


def _gpu_params(pr: Problem, device: Device) -> tuple[Param, ...]:
    view = View.of(pr)
    powers = (1, 2, 4, 8, 16, 32)
    clusters = tuple(c for c in (1, 2, 4, 8) if c <= device.max_cluster)
    return (
        Param("v", (1, 2, 4), "output channels of one vector load of the filter"),
        Param("tk", _divisors(pr.kg, (1, 2, 4, 8)), "vectors of output channels a thread"),
        Param("tw", _divisors(view.q, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16)), "output columns a thread"),
        Param("th", _divisors(view.p, (1, 2, 3, 4, 6, 7, 8)), "output rows a thread"),
        Param("bk", powers, "threads of a block over K"),
        Param("bw", (1, 2, 3, 4, 5, 6, 7, 8, 16, 32), "threads of a block over Q"),
        Param("bh", (1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 16, 17), "threads of a block over P"),
        Param("sw", (1, 2, 4, 8), "shares of C inside a warp, summed by shuffles"),
        Param("sb", (1, 2, 4, 8), "shares of C inside a block, summed in shared memory"),
        Param("cs", (1, 2, 3, 4, 8, 16, 32), "channels staged per step"),
        Param("cv", (1, 4) if pr.layout_in == "nhwc" and pr.cg % 4 == 0 else (1,), "channels read at once (nhwc)"),
        Param("x", (0, 1), "input from global memory or staged in shared memory", ("global", "shared")),
        Param("f", (0, 1), "filter from global memory or staged in shared memory", ("global", "shared")),
        Param("stages", (1, 2, 3), "buffers of the staging pipeline"),
        Param("mb", (1, 2, 3, 4, 6, 8), "blocks that a unit holds at once (bounds the registers of a thread)"),
        Param("sc", clusters, "shares of C across a cluster, summed in distributed shared memory"),
        Param("sg", (1, 2, 3, 4, 6, 8, 12, 16, 32, 64), "shares of C across the grid"),
        Param("combine", (NONE, ATOMIC, TWO_PASS, LAST), "how the grid's shares meet",
              ("none", "atomic", "two_pass", "last")),
        Param("out", (0, 1), "output stored from registers or through shared memory", ("direct", "shared")),
        Param("pad", (0, 1), "padding of the output tile's rows in shared memory, floats"),
        Param("wfast", (0, 1), "neighbouring lanes lie along K or along W", ("k", "w")),
    )  # fmt: skip


def _cpu_params(pr: Problem) -> tuple[Param, ...]:
    view = View.of(pr)
    one = (1,)
    return (
        Param("v", (8, 16), "output channels of a vector"),
        Param("tk", _divisors(ceil_div(pr.kg, 8), (1, 2, 3, 4)), "vectors of output channels a work-item"),
        Param("tw", _divisors(view.q, (1, 2, 4, 6, 7, 8, 12, 14, 16)), "output columns a work-item"),
        Param("th", _divisors(view.p, (1, 2, 4, 7)), "output rows a work-item"),
        *(Param(n, one, "one work-item a group") for n in ("bk", "bw", "bh", "sw", "sb", "mb")),
        Param("cs", (1, 3, 4, 8, 16, 32, 64, 128), "channels staged per step"),
        Param("cv", one, "channels read at once"),
        Param("x", (0, 1), "input in place or copied to a padded tile", ("global", "shared")),
        Param("f", (0,), "filter in place", ("global",)),
        Param("stages", one, "no pipeline on a CPU"),
        Param("sc", one, "no clusters on a CPU"),
        Param("sg", (1, 2, 4, 8), "shares of C across the grid"),
        Param("combine", (NONE, ATOMIC, TWO_PASS, LAST), "how the grid's shares meet",
              ("none", "atomic", "two_pass", "last")),
        Param("out", (0,), "output stored from registers", ("direct",)),
        Param("pad", (0,), "no shared output tile"),
        Param("wfast", (0,), "one lane"),
    )  # fmt: skip


RULES = (
    Rule("k_reach", lambda problem, v, tk: v * tk < 2 * problem.kg + 2, "a thread's channels reach past K twice over"),
    Rule("registers_tile", lambda device, v, tk, th, tw: v * tk * th * tw <= (128 if device.lanes == 32 else 512),
         "accumulators must fit the register file of one lane"),
    Rule("k_threads", lambda problem, v, tk, bk: v * tk * (bk - 1) < problem.kg or (v * tk == 1 and bk == 32), "threads along K without outputs"),
    Rule("w_threads", lambda problem, tw, bw: tw * (bw - 1) < View.of(problem).q, "threads along Q without outputs"),
    Rule("h_threads", lambda problem, th, bh: th * (bh - 1) < View.of(problem).p, "threads along P without outputs"),
    Rule("block", lambda device, bk, bw, bh, sw, sb: bk * bw * bh * sw * sb <= min(512, device.max_threads),
         "more threads than a block may have"),
    Rule("whole_warps", lambda device, bk, bw, bh, sw, sb: device.lanes != 32 or bk * bw * bh * sw * sb % 32 == 0,
         "a block is made of whole warps"),
    Rule("warp_share", lambda bk, bw, bh, sw: sw == 1 or bk * bw * bh % (32 // sw) == 0,
         "lanes that split C must tile the warp"),
    Rule("registers", lambda problem, device, v, tk, th, tw, bk, bw, bh, sw, sb, cv, mb: _registers_fit(
        problem, device, dict(v=v, tk=tk, th=th, tw=tw, cv=cv), bk * bw * bh * sw * sb * mb),
        "more registers than a thread or a unit has: the compiler would spill"),
    Rule("resident", lambda device, bk, bw, bh, sw, sb, mb: bk * bw * bh * sw * sb * mb <= device.threads_per_unit,
         "more threads than a unit holds at once"),
    Rule("shares", lambda cs, sw, sb: cs % (sw * sb) == 0, "each share inside a block takes the same channels"),
    Rule("channels", lambda problem, cs: cs <= max(4, 2 * problem.cg), "more channels staged than there are"),
    Rule("pieces", lambda problem, cs, sc, sg: cs * (sc * sg - 1) < problem.cg, "shares of C without channels"),
    Rule("channel_vector", lambda cs, sw, sb, cv, x: cv == 1 or (x == 1 and cs % (4 * sw * sb) == 0),
         "channels are read four at once only from a staged tile, four to each share"),
    Rule("x_copies", lambda problem, v, tk, th, tw, bk, bw, bh, sw, sb, cs, cv, x: x == 0 or cv == 1 or staging(
        problem, dict(v=v, tk=tk, th=th, tw=tw, bk=bk, bw=bw, bh=bh, sw=sw, sb=sb, cs=cs, cv=cv, x=x, f=0, sc=1, sg=1),
        geometry(problem, dict(v=v, tk=tk, th=th, tw=tw, bk=bk, bw=bw, bh=bh, sw=sw, sb=sb, cs=cs, f=0, sc=1, sg=1))
    ).copies <= MOST_COPIES, "a thread keeps the addresses of at most 16 copies in registers"),
    Rule("f_vector", lambda v, tk, bk, f: f == 0 or v * tk * bk % 4 == 0, "the filter is staged 16 bytes at a time"),
    Rule("pipeline", lambda x, f, stages: stages == 1 or x + f > 0, "nothing is staged, so nothing can be buffered"),
    Rule("combine_none", lambda sg, combine: (sg == 1) == (combine == NONE), "shares across the grid need combining"),
    Rule("atomic_epilogue", lambda problem, combine: combine != ATOMIC or not problem.epilogue,
         "with atomics no thread sees the whole sum, which an epilogue needs"),
    Rule("out_forced", lambda sb, sc, out: out == 1 or (sb == 1 and sc == 1),
         "shares of a block or cluster meet in shared memory"),
    Rule("out_pad", lambda out, pad: out == 1 or pad == 0, "only the shared output tile is padded"),
    Rule("shared", lambda problem, device, v, tk, th, tw, bk, bw, bh, sw, sb, cs, cv, x, f, stages, mb, sc, sg, out, pad:
         _fits_shared(problem, device, dict(v=v, tk=tk, th=th, tw=tw, bk=bk, bw=bw, bh=bh, sw=sw, sb=sb, cs=cs,
                                            cv=cv, x=x, f=f, stages=stages, mb=mb, sc=sc, sg=sg, out=out, pad=pad)),
         "more shared memory than a block may have"),
)  # fmt: skip


def _registers_fit(pr: Problem, device: Device, cf: dict[str, int], threads: int) -> bool:
    if device.lanes != 32:
        return True
    row = (cf["tw"] - 1) * pr.stride[1] + (pr.s - 1) * pr.dilation[1] + 1
    need = registers(cf, row)
    return need <= device.regs_per_thread - 15 and need * threads <= device.regs_per_unit


def _blueprint(pr: Problem, device: Device, config: Config, aligned: bool) -> Blueprint:
    cf = config.values if aligned else {**config.values, "cv": 1}
    geo = geometry(pr, cf)
    tile = geo.kb * geo.hb * geo.wb
    y_floats = pr.y_bytes // 4
    blocks = geo.tiles * geo.view.n * pr.groups * cf["sc"] * cf["sg"]
    shared = shared_bytes(pr, cf, geo)
    c_padded = geo.steps * cf["cs"] * cf["sc"] * cf["sg"]
    launches, workspace = _launches(pr, cf, geo, blocks, shared, tile, y_floats)
    return Blueprint(
        source="direct.cu",
        defines=tuple(_defines(pr, device, cf, geo, c_padded, shared, aligned).items()),
        launches=launches,
        packed_bytes=4 * pr.groups * geo.k_tiles * c_padded * pr.r * pr.s * geo.kb,
        pack=(("PACK_K", geo.kb), ("PACK_C", c_padded)),
        workspace=workspace,
    )


def _launches(
    pr: Problem, cf: dict[str, int], geo: Geometry, blocks: int, shared: int, tile: int, y_floats: int
) -> tuple[tuple[Launch, ...], tuple[Buffer, ...]]:
    combine = cf["combine"]
    all_tiles = blocks // (cf["sc"] * cf["sg"])
    target = "partial" if combine == TWO_PASS else "y"
    partial = {TWO_PASS: cf["sg"] * y_floats, LAST: all_tiles * cf["sg"] * tile}.get(combine, 1)
    main = Launch(
        "direct", (blocks, 1, 1), (geo.threads, 1, 1), ("x", "w", "bias", target, "partial", "arrived"),
        shared_bytes=shared, cluster=cf["sc"],
    )  # fmt: skip
    workspace = (
        Buffer("partial", 4 * partial),
        Buffer("arrived", 4 * (all_tiles * cf["sc"] if combine == LAST else 1), zeroed=True),
    )
    if combine == ATOMIC:
        return (Launch("zero", (1, 1, 1), (1, 1, 1), ("y",)), main), workspace
    if combine == TWO_PASS:
        groups = ceil_div(y_floats, SUM_THREADS)
        second = Launch("sum_shares", (groups, 1, 1), (SUM_THREADS, 1, 1), ("partial", "bias", "y"))
        return (main, second), workspace
    return (main,), workspace


def _defines(
    pr: Problem, device: Device, cf: dict[str, int], geo: Geometry, c_padded: int, shared: int, aligned: bool
) -> dict[str, int]:
    view = geo.view
    x_nhwc, y_nhwc = pr.layout_in == "nhwc", pr.layout_out == "nhwc"
    xs = staging(pr, cf, geo, aligned)
    y_vector = y_nhwc and pr.kg % cf["v"] == 0 and (aligned or cf["v"] == 1) and cf["combine"] != ATOMIC
    y_rows = not y_nhwc and aligned and cf["tw"] % 4 == 0 and view.q % 4 == 0 and cf["combine"] != ATOMIC
    largest = max(pr.x_bytes, pr.y_bytes * max(1, cf["sg"]), 4 * c_padded * pr.r * pr.s * geo.kb * geo.k_tiles)
    body = pr.r * pr.s * cf["v"] * cf["tk"] * cf["th"] * cf["tw"]
    return dict(
        VECTOR=cf["v"], TK=cf["tk"], TH=cf["th"], TW=cf["tw"], BK=cf["bk"], BH=cf["bh"], BW=cf["bw"],
        SW=cf["sw"], SB=cf["sb"], SC=cf["sc"], SG=cf["sg"], CS=cf["cs"], STAGES=cf["stages"],
        X_SHARED=cf["x"], F_SHARED=cf["f"], COMBINE=cf["combine"], OUT=cf["out"], OUT_PAD=cf["pad"],
        W_FASTEST=cf["wfast"], CLUSTER=cf["sc"],
        C=pr.cg, H=view.h, W=view.w, K=pr.kg, R=pr.r, S=pr.s, P=view.p, Q=view.q, GROUPS_=pr.groups,
        STR_H=pr.stride[0], STR_W=pr.stride[1], DIL_H=pr.dilation[0], DIL_W=pr.dilation[1],
        PAD_T=pr.pad[0], PAD_L=pr.pad[2], X_NHWC=int(x_nhwc), Y_NHWC=int(y_nhwc),
        BIAS=int("bias" in pr.epilogue), RELU=int("relu" in pr.epilogue),
        K_TILES=geo.k_tiles, P_TILES=geo.p_tiles, Q_TILES=geo.q_tiles, STEPS=geo.steps, C_PADDED=c_padded,
        TX_C=xs.strides[0], TX_H=xs.strides[1], TX_W=xs.strides[2], XW=xs.xw, X_FLOATS=xs.floats, CV=cf["cv"],
        F_FLOATS=geo.f_floats, X_VECTOR=int(xs.vector), X_COPIES=xs.copies, X_ITEMS=xs.items, Y_VECTOR=int(y_vector), Y_ROWS=int(y_rows), Y_FLOATS=pr.y_bytes // 4,
        K_FASTEST=int(pr.w_bytes < pr.x_bytes), CHANNEL_UNROLL_BY=max(1, min(8, 512 // body) // cf["cv"]),
        MIN_BLOCKS=cf["mb"], SHARED_BYTES=shared, OFFSET64=int(largest >= 1 << 33), SUM_THREADS=SUM_THREADS,
    )  # fmt: skip


def _work(pr: Problem, device: Device, cf: dict[str, int]) -> Work:
    geo = geometry(pr, cf)
    taps, lanes = pr.r * pr.s, device.lanes
    channels = cf["cs"] // (cf["sw"] * cf["sb"]) * geo.steps  # of one thread
    tile = geo.kb * geo.hb * geo.wb
    shares = cf["sc"] * cf["sg"]
    blocks = geo.tiles * geo.view.n * pr.groups * shares
    fma = channels * taps * cf["v"] * cf["tk"] * cf["th"] * cf["tw"]
    x_loads, x_waves = _x_loads(pr, cf, geo)
    f_loads, f_waves = taps * cf["tk"], taps * cf["tk"] * _f_wavefronts(cf)
    shared_loads = channels * (x_loads * cf["x"] + f_loads * cf["f"])
    global_loads = channels * (x_loads * (1 - cf["x"]) + f_loads * (1 - cf["f"]))
    warps = max(1, geo.threads // 32)
    x_step = cf["cs"] * geo.xh * geo.xw
    f_step = cf["cs"] * taps * geo.kb
    xs = staging(pr, cf, geo)
    staged = xs.items / geo.threads * (5.0 if xs.copies else 22.0) + cf["f"] * f_step / geo.threads / 4 * 1.5
    outputs = pr.n * pr.k * geo.view.p * geo.view.q // (pr.n // geo.view.n)
    return Work(
        blocks=blocks, threads=geo.threads, registers=registers(cf, geo.row), resident=cf["mb"],
        shared_bytes=shared_bytes(pr, cf, geo),
        steps=geo.steps, buffers=cf["stages"] if cf["x"] + cf["f"] else 0, fma=fma, shared_loads=shared_loads,
        global_loads=global_loads, staging=staged * geo.steps,
        epilogue=_epilogue(cf, tile, geo),
        wavefronts=warps * channels * (x_waves * cf["x"] + f_waves * cf["f"])
        + geo.steps * (x_step * cf["x"] + f_step * cf["f"]) / 32,
        load_bytes=4.0 * geo.steps * (x_step + f_step),
        store_sectors=_store_sectors(pr, cf, tile, geo) / cf["sc"],
        dram_bytes=pr.x_bytes + pr.w_bytes + pr.y_bytes,
        cluster=cf["sc"], shares=cf["sg"], combine=("none", "atomic", "two_pass", "last")[cf["combine"]],
        partial_bytes=0.0 if cf["sg"] == 1 else 4.0 * tile * blocks / cf["sc"], tile_bytes=4.0 * tile,
        useful=outputs / (tile * blocks / shares),
        register_intensity=2.0 * taps * cf["v"] * cf["tk"] * cf["th"] * cf["tw"]
        / (geo.rows * geo.row + taps * cf["v"] * cf["tk"]),
        block_intensity=2.0 * taps * tile * cf["cs"] / (x_step + f_step),
    )  # fmt: skip


def _x_loads(pr: Problem, cf: dict[str, int], geo: Geometry) -> tuple[float, float]:
    """Instructions and wavefronts of one warp to read the input rows of one channel."""
    step = cf["tw"] * pr.stride[1]
    vector = cf["x"] and cf["cv"] == 1 and step % 4 == 0
    instructions = pr.r * cf["th"] * (ceil_div(geo.row, 4) if vector else geo.row / cf["cv"])
    across = min(32 // cf["sw"], geo.team)
    apart = min(cf["bw"], across if cf["wfast"] else max(1, across // cf["bk"]))
    width = 4 if vector or cf["cv"] == 4 else 1
    spread = 32 // gcd(step, 32)  # lanes in a row that meet different banks
    return instructions, instructions * max(1.0, apart * width / 32, apart / spread)


def _f_wavefronts(cf: dict[str, int]) -> float:
    """Wavefronts of one warp's load of one vector of the filter."""
    across = min(32, cf["bk"] * cf["bw"] * cf["bh"])
    distinct = max(1, across // (cf["bw"] * cf["bh"])) if cf["wfast"] else min(cf["bk"], across)
    return max(1.0, distinct * cf["v"] / 32)


def _epilogue(cf: dict[str, int], tile: int, geo: Geometry) -> float:
    """Instructions of a thread from its accumulators to memory."""
    mine = tile / geo.team
    count = 4.0 * mine
    if out_shared(cf):
        count = 3.0 * mine + tile / geo.threads / cf["sc"] * (10.0 + 3.0 * cf["sb"] + 3.0 * cf["sc"])
    if cf["sw"] > 1:
        count += 2.0 * cf["sw"].bit_length() * mine
    return count


def _store_sectors(pr: Problem, cf: dict[str, int], tile: int, geo: Geometry) -> float:
    """Sectors written by a block: outputs of neighbouring threads share a sector, or do not."""
    if out_shared(cf):
        run = geo.kb if pr.layout_out == "nhwc" else geo.wb
    elif pr.layout_out == "nhwc":
        run = geo.kb
    elif cf["tw"] % 4 == 0 and geo.view.q % 4 == 0:
        run = 4
    else:
        run = max(1, 8 // cf["tw"]) if cf["wfast"] else 1
    return tile / min(8.0, max(1.0, run))

