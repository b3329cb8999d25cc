"""The direct family on a GPU (``direct.cu``): parameters, rules and launches."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.direct.gpu_tile import GpuTiling, registers, shared_bytes, staging, tiling_of
from tilewright.kernels.family import Blueprint, Launch, Param, Rule, Values
from tilewright.kernels.limits import (
    MOST_BODY,
    MOST_COPIES,
    SPILLS,
    block_rule,
    blocks_param,
    fits_registers,
    fits_shared,
    resident_rule,
    shared_rule,
)
from tilewright.kernels.requant import requant_defines, scale_operand
from tilewright.kernels.split_k import (
    ATOMIC_EPILOGUE,
    ATOMIC_SUMS,
    COMBINE_NONE,
    LAST_ORDER,
    combine_param,
    combining,
    operands,
    reduction_buffers,
    share_defines,
)
from tilewright.kernels.tile import (
    ATOMIC,
    LAST,
    NONE,
    TWO_PASS,
    View,
    columns_under,
    image_defines,
    k_fastest,
    layer_defines,
    up_to,
    windows,
)
from tilewright.kernels.word import (
    as_words,
    dtype_code,
    in_tiles,
    word_bytes,
    word_channels,
    word_registers,
    words,
)
from tilewright.problem import Problem

SHARES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 14, 16, 20, 22, 24, 32, 48, 64)  # fill any number of units


def _most_shared(problem: Problem, cf: Values) -> int:
    # While ``combine`` is not chosen, either the block or a second launch may pool: one of the two must fit.
    if "combine" not in cf and problem.epilogue.pool:
        return min(_most_shared(problem, cf | dict(combine=way)) for way in (NONE, TWO_PASS))
    tiling = tiling_of(problem, cf)
    most = shared_bytes(problem, cf, tiling)
    # Unaligned arrays are read channel by channel, and may then need the larger tile.
    return most if cf["cv"] == 1 else max(most, shared_bytes(problem, cf | dict(cv=1), tiling))


def _fits_registers(problem: Problem, device: Device, cf: Values) -> bool:
    threads = cf["bk"] * cf["bw"] * cf["bh"] * cf["sw"] * cf["sb"]
    return fits_registers(device, registers(problem, cf), threads * cf["mb"])


def _few_copies(problem: Problem, cf: Values) -> bool:
    """Whether a thread has few staging copies; parameters chosen later do not change their number."""
    if cf["x"] == 0 or cf["cv"] == 1:
        return True
    cf = cf | dict(f=0, sc=1, sg=1)
    return staging(problem, cf, tiling_of(problem, cf)).copies <= MOST_COPIES


def params(pr: Problem, device: Device) -> tuple[Param, ...]:
    """Return the tunables, outermost choice first."""
    view = View.of(pr)
    powers = (1, 2, 4, 8, 16, 32)
    clusters = up_to(device.max_cluster, (1, 2, 4, 8))
    return (
        Param("v", (1, 2, 4)[: 3 - (pr.dtype == "f64")], "output channels of one vector load of the filter"),
        Param("tk", up_to(pr.kg, (1, 2, 4, 8)), "vectors of output channels a thread"),
        Param("tw", up_to(view.q, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17)),
              "output columns a thread"),
        Param("th", up_to(view.p, (1, 2, 3, 4, 6, 7, 8)), "output rows a thread"),
        Param("bk", powers, "threads of a block over K"),
        Param("bw", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17, 32), "threads of a block over Q"),
        Param("bh", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17), "threads of a block over P"),
        Param("sw", (1, 2, 4, 8), "shares of C inside a warp, summed by shuffles"),
        Param("sb", (1, 2, 4, 8), "shares of C inside a block, summed in shared memory"),
        Param("cv", (1, 4) if pr.layout_in == "nhwc" and pr.cg % (4 * word_channels(pr)) == 0 else (1,),
              "channels read at once (nhwc), or words of 4 (i8)"),
        blocks_param(1, 2, 3, 4, 6, 8),
        Param("cs", (1, 2, 3, 4, 8, 16, 32, 64), "channels staged per step, or words of 4 (i8)"),
        Param("x", (0, 1), "input from global memory or staged in shared memory", ("global", "shared")),
        Param("f", (0, 1, 2), "filter from global memory, or staged by threads or by the copy engine",
              ("global", "shared", "engine")),
        Param("stages", (1, 2, 3, 4, 6, 8), "buffers of the staging pipeline"),
        Param("sc", clusters, "shares of C across a cluster, summed in distributed shared memory"),
        Param("sg", SHARES, "shares of C across the grid"),
        combine_param(NONE, ATOMIC, TWO_PASS, LAST),
        Param("out", (0, 1), "output stored from registers or through shared memory", ("direct", "shared")),
        Param("pad", (0, 1), "padding of the output tile's rows in shared memory, sums"),
        Param("wfast", (0, 1), "neighbouring lanes lie along K or along W", ("k", "w")),
    )  # fmt: skip


RULES = (
    Rule("k_reach", lambda problem, v, tk: v * tk < 2 * problem.kg + 2,
         "a thread's channels reach past K twice over"),
    Rule("registers_tile", lambda problem, v, tk, th, tw: v * tk * th * tw * word_registers(problem) <= 128,
         "accumulators must fit the register file of one lane"),
    Rule("k_threads", lambda problem, v, tk, bk: v * tk * (bk - 1) < problem.kg or (v * tk == 1 and bk == 32),
         "threads along K without outputs"),
    Rule("w_threads", lambda problem, tw, bw: tw * (bw - 1) < View.of(problem).q,
         "threads along Q without outputs"),
    Rule("h_threads", lambda problem, th, bh: th * (bh - 1) < View.of(problem).p,
         "threads along P without outputs"),
    block_rule(lambda device, bk, bw, bh, sw, sb: bk * bw * bh * sw * sb <= min(576, device.max_threads)),
    Rule("whole_warps", lambda bk, bw, bh, sw, sb: bk * bw * bh * sw * sb % 32 == 0,
         "a block is made of whole warps"),
    Rule("warp_share", lambda bk, bw, bh, sw: sw == 1 or bk * bw * bh % (32 // sw) == 0,
         "lanes that split C must tile the warp"),
    Rule("warp_shuffles", lambda device, sw: sw == 1 or device.has_shuffles,
         "lanes that split C add up their sums by shuffles, which OpenCL C has not"),
    Rule("registers", _fits_registers, SPILLS, needs="v tk th tw bk bw bh sw sb cv mb"),
    resident_rule(lambda device, bk, bw, bh, sw, sb, mb:
                  bk * bw * bh * sw * sb * mb <= device.threads_per_unit),
    Rule("shares", lambda cs, sw, sb: cs % (sw * sb) == 0,
         "each share inside a block takes the same channels"),
    Rule("channels", lambda problem, cs: cs <= max(4, 2 * words(problem)),
         "more channels staged than there are"),
    Rule("pieces", lambda problem, cs, sc, sg: cs * (sc * sg - 1) < words(problem),
         "shares of C without channels"),
    Rule("channel_vector", lambda cs, sw, sb, cv, x: cv == 1 or (x == 1 and cs % (4 * sw * sb) == 0),
         "channels are read four at once only from a staged tile, four to each share"),
    Rule("x_copies", _few_copies, "a thread keeps the addresses of at most 16 copies in registers",
         needs="v tk th tw bk bw bh sw sb cs cv x"),
    Rule("f_engine", lambda device, f: f < 2 or (device.is_cuda and device.max_cluster > 1),
         "only Hopper and later have a copy engine"),
    Rule("f_vector", lambda v, tk, bk, f: f == 0 or v * tk * bk % 4 == 0,
         "the filter is staged 16 bytes at a time"),
    Rule(
        "x_in_flight",
        lambda problem, tw, th, x: x == 1 or th * columns_under(problem, tw) * word_registers(problem) <= 64,
        "a thread keeps at most 64 inputs in flight from global memory",
    ),
    Rule(
        "registers_in_place",
        lambda problem, device, cf: cf["x"] == 1 or _fits_registers(problem, device, cf),
        "more registers than there are, where each thread gathers its input from global memory",
        needs="v tk th tw bk bw bh sw sb cv mb x",
    ),
    Rule("registers_lane", lambda problem, device, cf: fits_registers(device, registers(problem, cf), 1),
         "more registers than a thread has, in a block of any size", needs="v tk th tw"),
    Rule("staged", lambda problem, device, cf: fits_shared(
        device, _most_shared(problem, cf | dict(sc=1, sg=1, out=0, pad=0)), cf["mb"]),
        "the staged tiles take more shared memory than a block may have",
        needs="v tk th tw bk bw bh sw sb cv mb cs x f stages"),
    Rule("pipeline", lambda x, f, stages: stages == 1 or x + f > 0,
         "nothing is staged, so nothing can be buffered"),
    COMBINE_NONE,
    LAST_ORDER,
    Rule("pool_window", lambda problem, tw, th, bw, bh, combine: _pools_well(
        problem, combine, th * bh, tw * bw),
        "a tile that pools holds a window, and sums less than twice what its windows need"),
    Rule("pool_last", lambda problem, sc, combine: not problem.epilogue.pool or combine != LAST or sc == 1,
         "windows reach over the parts of a tile that the blocks of a cluster finish"),
    ATOMIC_EPILOGUE,
    ATOMIC_SUMS,
    Rule("out_forced", lambda sb, sc, out: out == 1 or (sb == 1 and sc == 1),
         "shares of a block or cluster meet in shared memory"),
    Rule("pool_shared", lambda problem, combine, out:
         not problem.epilogue.pool or combine == TWO_PASS or out == 1,
         "windows are taken from the tile in shared memory"),
    Rule("out_pad", lambda out, pad: out == 1 or pad == 0, "only the shared output tile is padded"),
    shared_rule(_most_shared, "v tk th tw bk bw bh sw sb cv mb cs x f stages sc sg combine out pad"),
)  # fmt: skip


def _pools_well(pr: Problem, combine: int, rows: int, columns: int) -> bool:
    pool = pr.epilogue.pool
    if pool is None or combine == TWO_PASS:
        return True
    needed = windows(pr, combine, rows) * windows(pr, combine, columns) * pool.stride**2
    return 2 * needed >= rows * columns


def blueprint(pr: Problem, device: Device, cf: Values, aligned: bool) -> Blueprint:
    """Return the launch, or two if a second pass adds up the shares."""
    cf = cf if aligned else {**cf, "cv": 1}
    tiling = tiling_of(pr, cf)
    shared, combine, tiles = shared_bytes(pr, cf, tiling), cf["combine"], tiling.all_tiles
    args = (*operands(combine), "partial", "arrived", *scale_operand(pr))
    grid, block = (tiles * cf["sc"] * cf["sg"], 1, 1), (tiling.threads, 1, 1)
    main = Launch("direct", grid, block, args, shared, cluster=cf["sc"])
    return Blueprint(
        source="direct.cu",
        defines=tuple(_defines(pr, cf, tiling, shared, aligned).items()),
        launches=combining(main, pr, device, combine),
        packed_bytes=word_bytes(pr) * tiling.filter_words,
        pack=(("DTYPE", dtype_code(pr)), ("PACK_K", tiling.kb), ("PACK_C", tiling.c_padded)),
        packing=in_tiles(tiling.kb, tiling.c_padded),
        workspace=reduction_buffers(pr, cf, tiles * cf["sg"] * tiling.tile, tiles, word_bytes(pr)),
    )


def _defines(pr: Problem, cf: Values, tiling: GpuTiling, shared: int, aligned: bool) -> dict[str, int]:
    view = tiling.view
    y_nhwc = pr.layout_out == "nhwc"
    y_vector = y_nhwc and pr.kg % cf["v"] == 0 and (aligned or cf["v"] == 1) and cf["combine"] != ATOMIC
    y_rows = not y_nhwc and aligned and cf["tw"] % 4 == 0 and view.q % 4 == 0 and cf["combine"] != ATOMIC
    parts = tiling.all_tiles * cf["sg"] * tiling.tile if cf["combine"] == LAST else 0
    largest = max(pr.x_elements, pr.y_elements, pr.z_elements * cf["sg"], tiling.filter_words, parts)
    body = pr.r * pr.s * cf["v"] * cf["tk"] * cf["th"] * cf["tw"]
    return dict(
        VECTOR=cf["v"], TK=cf["tk"], TH=cf["th"], TW=cf["tw"], BK=cf["bk"], BH=cf["bh"], BW=cf["bw"],
        SW=cf["sw"], SB=cf["sb"], CS=cf["cs"], STAGES=cf["stages"],
        X_SHARED=cf["x"], F_SHARED=cf["f"], OUT=cf["out"], OUT_PAD=cf["pad"],
        W_FASTEST=cf["wfast"], CLUSTER=cf["sc"],
        DTYPE=dtype_code(pr), AS_WORDS=int(as_words(pr, aligned)),
        CG=pr.cg, C_ALL=pr.c, **layer_defines(pr, view, words(pr)), **image_defines(pr, view),
        **requant_defines(pr),
        K_TILES=tiling.k_tiles, P_TILES=tiling.p_tiles, Q_TILES=tiling.q_tiles, STEPS=tiling.steps,
        C_PADDED=tiling.c_padded,
        CV=cf["cv"], F_FLOATS=tiling.f_floats, **staging(pr, cf, tiling, aligned).defines(),
        Y_VECTOR=int(y_vector), Y_ROWS=int(y_rows),
        K_FASTEST=k_fastest(pr), CHANNEL_UNROLL_BY=max(1, min(8, 512 // body) // cf["cv"]),
        ROW_UNROLL_BY=pr.r if body * cf["cv"] <= MOST_BODY else 1,
        MIN_BLOCKS=cf["mb"], SHARED_BYTES=shared, OFFSET64=offset64(largest),
        **share_defines(cf["combine"], cf["sc"], cf["sg"]),
    )  # fmt: skip


def chain(pr: Problem, cf: Values) -> int:
    """Length of the longest chain of adds: one share of C, then the shares one after the other."""
    inside = ceil_div(cf["cs"], cf["sw"] * cf["sb"]) * tiling_of(pr, cf).steps * pr.r * pr.s
    return inside + cf["sw"].bit_length() + cf["sb"] * cf["sc"] + cf["sg"] + 1
