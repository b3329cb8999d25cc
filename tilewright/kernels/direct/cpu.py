"""The direct family on CPU cores (``direct_cpu.h``): parameters, rules and launches.

A work-item runs on one core. A block is NK x NH x NW register tiles that share one copy of their input.
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.direct.cpu_tile import (
    AVX2_LANES,
    FLAT_COLUMNS,
    CpuTiling,
    asks_for_input,
    dots_bytes,
    live_vectors,
    one_row,
    reread,
    tiling_of,
)
from tilewright.kernels.family import Blueprint, Launch, Param, Rule, Values
from tilewright.kernels.requant import requant_defines, scale_operand
from tilewright.kernels.split_k import (
    ATOMIC_EPILOGUE,
    ATOMIC_SUMS,
    COMBINE_NONE,
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
    image_defines,
    k_fastest,
    layer_defines,
    up_to,
)
from tilewright.kernels.word import as_words, dtype_code, in_tiles, word_registers, words
from tilewright.problem import Problem

POOLED = 256  # outputs of a work-item that pools, at least
ASKED_OUTPUT = 512 << 10  # bytes of y from which on tiles ask for the lines that they store
WORKERS = 4  # work-items per core: a driver may spread them unevenly, but they take blocks in turn


def params(pr: Problem, device: Device) -> tuple[Param, ...]:
    """Return the tunables, outermost choice first."""
    pr = one_row(pr)
    view, lanes = View.of(pr), max(4, min(16, device.lanes) // word_registers(pr))
    widths = (lanes,) if pr.kg % lanes == 0 else tuple(v for v in (4, 8, 16) if v <= lanes)
    smallest = dict(v=min(widths), tk=1, tw=1, th=1, nk=1, nh=1, nw=1, sg=1, x=1, cs=16)
    few_channels = () if _fits_shared(pr, device, smallest) else (1, 4)  # for a large dilation
    channels = sorted({*up_to(words(pr), (*few_channels, 16, 64, 256)), words(pr)})
    # With few registers the best tiles are 3 vectors x 4 columns and 2 x 6: these counts of them fit layers.
    few = device.lanes == AVX2_LANES
    over_k = (1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 64) if few else (1, 2, 4, 8, 16, 32, 64)
    over_q = (1, 2, 3, 4, 5, 7, 8, 10, 16) if few else (1, 2, 4, 8, 16)
    return (
        Param("v", widths, "output channels of a vector"),
        Param("tk", up_to(ceil_div(pr.kg, 4), (1, 2, 3, 4, 6)),
              "vectors of output channels of a register tile"),
        Param("tw", up_to(view.q, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 20, 24, 28)),
              "output columns of a register tile"),
        Param("th", up_to(view.p, (1, 2, 3, 4, 7)), "output rows of a register tile"),
        Param("nk", up_to(ceil_div(pr.kg, 4), over_k), "register tiles of a block over K"),
        Param("nh", up_to(view.p, (1, 2, 3, 4, 7, 8, 14, 17, 28, 33)), "register tiles of a block over P"),
        Param("nw", up_to(view.q, over_q), "register tiles of a block over Q"),
        Param("sg", (1, 2, 4, 8, 16, 32), "shares of C across the grid"),
        Param("x", (0, 1), "input in place, or copied with its padding", ("global", "shared")),
        Param("cs", tuple(channels), "channels copied per step, or words of 4 (i8)"),
        combine_param(NONE, ATOMIC, TWO_PASS, LAST),
    )  # fmt: skip


def _pools(problem: Problem, th: int, tw: int, x: int, combine: int) -> bool:
    pool = problem.epilogue.pool
    if pool is None or combine == TWO_PASS:
        return True
    disjoint = (pool.stride, pool.pad) == (pool.size, 0)
    return disjoint and x == 1 and th % pool.size == 0 and tw % pool.size == 0


def _fits_shared(problem: Problem, device: Device, cf: Values) -> bool:
    return cf["x"] == 0 or tiling_of(problem, cf).shared_bytes + 64 <= device.shared_per_block


_REGISTERS = "accumulators must fit the vector registers of a core"
RULES = (
    Rule("k_reach", lambda problem, v, tk: v * (tk - 1) < problem.kg, "vectors of a tile without channels"),
    Rule("registers", lambda problem, device, v, tk, tw: live_vectors(problem, device, v, tk, 1, tw)
         <= device.regs_per_thread, _REGISTERS),
    Rule("registers", lambda problem, device, v, tk, th, tw: live_vectors(problem, device, v, tk, th, tw)
         <= device.regs_per_thread, _REGISTERS),
    Rule("k_block", lambda problem, v, tk, nk: v * tk * (nk - 1) < problem.kg, "tiles without channels"),
    Rule("h_block", lambda problem, th, nh: th * (nh - 1) < View.of(problem).p, "tiles without rows"),
    Rule("w_block", lambda problem, tw, nw: tw * (nw - 1) < View.of(problem).q, "tiles without columns"),
    Rule("shares", lambda problem, sg: sg == 1 or words(problem) >= 16 * sg,
         "shares of fewer than 16 channels"),
    Rule("in_place", lambda problem, x: x == 1 or not any(problem.pad),
         "input in place has no zeros around it"),
    Rule("in_place_words", lambda problem, x: x == 1 or problem.dtype in ("f64", "f32"),
         "input in place is multiplied as it is"),
    Rule("in_place_steps", lambda problem, x, cs: x == 1 or cs == words(problem),
         "input in place is not cut in steps"),
    Rule("steps", lambda problem, sg, cs: cs == words(problem) or cs * sg < words(problem),
         "one step takes all channels of a share: write that as all channels"),
    Rule("one_copy", lambda problem, nk, nh, nw, cs: nk * nh * nw == 1 or cs == words(problem),
         "the register tiles of a block share one copy of all its channels"),
    COMBINE_NONE,
    Rule("pool_tile", _pools,
         "a register tile that pools is made of whole windows, and no tile lies over its neighbour"),
    ATOMIC_EPILOGUE,
    ATOMIC_SUMS,
    Rule("shared", _fits_shared, "the copied input does not fit the local memory of a core",
         needs="v tk th tw nk nh nw sg cs x"),
)  # fmt: skip


def blueprint(problem: Problem, device: Device, cf: Values) -> Blueprint:
    """Return the launch, or two if a second pass adds up the shares."""
    pr = one_row(problem)
    flat = dict(CG=pr.cg, SIZE_R=1, SIZE_S=1) if pr.c > problem.c else {}
    tiling, workers, combine = tiling_of(pr, cf), WORKERS * device.units, cf["combine"]
    tiles = tiling.blocks // cf["sg"] if combine == LAST else 0
    args = (*operands(combine), "partial", "arrived", *scale_operand(pr))
    main, lines = Launch("direct", (workers, 1, 1), (1, 1, 1), args), _lines(pr, cf)
    return Blueprint(
        source="direct.cu",
        defines=tuple(_defines(pr, device, cf, tiling, workers).items()),
        launches=(main, _pooling(pr, lines)) if lines else combining(main, pr, device, combine),
        packed_bytes=tiling.word * tiling.filter_words,
        pack=(("DTYPE", dtype_code(pr)), ("PACK_K", tiling.tile_k), ("PACK_C", tiling.c_padded),
              *flat.items()),
        packing="" if flat else in_tiles(tiling.tile_k, tiling.c_padded),
        # 2 more counters: the workers take blocks in turn.
        workspace=reduction_buffers(pr, cf, tiling.outputs, tiles, tiling.word, more=2),
    )


def _lines(pr: Problem, cf: Values) -> int:
    """Lines of y that a work-item of the second pass pools; 0: there is none, or it has nothing to pool."""
    if cf["combine"] != TWO_PASS or pr.epilogue.pool is None:
        return 0
    return ceil_div(POOLED, pr.y_q * (pr.k if pr.layout_out == "nhwc" else 1))


def _pooling(pr: Problem, lines: int) -> Launch:
    """Return the launch that adds up the shares in ``partial`` and pools, ``lines`` by a work-item."""
    groups = ceil_div(pr.n * pr.y_p * (1 if pr.layout_out == "nhwc" else pr.k), lines)
    args = ("partial", "bias", "z", "y", *scale_operand(pr))
    return Launch("pool_lines", (groups, 1, 1), (1, 1, 1), args)


def _defines(pr: Problem, device: Device, cf: Values, tiling: CpuTiling, workers: int) -> Values:
    view = tiling.view
    partial = tiling.outputs if cf["combine"] == LAST else cf["sg"] * pr.z_elements
    largest = max(pr.x_elements, pr.z_elements, pr.y_elements, tiling.filter_words, partial)
    return dict(
        ONE_LANE=1, AVX512=int(device.lanes >= 16), VECTOR=cf["v"], TK=cf["tk"], TH=cf["th"], TW=cf["tw"],
        BK=cf["nk"], BH=cf["nh"], BW=cf["nw"], CS=tiling.cs, CB=tiling.run, STEPS=tiling.steps,
        X_SHARED=cf["x"], SKIP_PADDING=int(tiling.skip), DTYPE=dtype_code(pr), AS_WORDS=int(as_words(pr)),
        DOT_BYTES=int(dots_bytes(pr, device)),
        CG=pr.cg, C_ALL=pr.c, **layer_defines(pr, view, words(pr)), X_ALL=pr.x_elements,
        **image_defines(pr, view), **requant_defines(pr),
        K_TILES=tiling.k_tiles, P_TILES=tiling.p_tiles, Q_TILES=tiling.q_tiles,
        C_PADDED=tiling.c_padded, K_FASTEST=k_fastest(pr), BLOCKS=tiling.blocks, WORKERS=workers,
        SHARED_BYTES=tiling.shared_bytes if cf["x"] else 64, OFFSET64=offset64(largest), LINES=_lines(pr, cf),
        **_loop_defines(pr, device, cf, tiling), **share_defines(cf["combine"], sg=cf["sg"]),
    )  # fmt: skip


def _loop_defines(pr: Problem, device: Device, cf: Values, tiling: CpuTiling) -> Values:
    """Return the defines of how the inner loop is written: in the plainest way unless measured otherwise."""
    few = device.lanes == AVX2_LANES and not pr.is_integer
    return dict(
        FLAT_TAPS=int(few and 1 < pr.s <= FLAT_COLUMNS and not tiling.skip), AHEAD=int(few),
        ASK_INPUT=int(asks_for_input(pr, cf, tiling, few)), ASK_OUTPUT=int(_asks_for_output(pr, device, cf)),
        REREAD=reread(pr, device, cf["v"], cf["tk"], cf["th"], cf["tw"]),
    )  # fmt: skip


def _asks_for_output(pr: Problem, device: Device, cf: Values) -> bool:
    """Whether a tile asks for the lines that it stores, before it multiplies; not measured without AVX-512.

    Medians of 5 runs, 64 channels of 256x256 to 32: 4643 -> 2824 us, of 8 images of 56x56 to 64: 1450 ->
    1284; 3x3 with more multiply-adds for each output the same, and outputs of 300 KB 5% more. Eight 1x1
    layers whose outputs have 0.7 to 2 MB take 0.89 to 1.0 of the time, 0.97 in the mean.
    """
    sums = cf["combine"] == NONE and pr.epilogue.pool is None
    return device.lanes >= 16 and sums and pr.y_bytes > ASKED_OUTPUT


def chain(pr: Problem, cf: Values) -> int:
    """Length of the longest chain of adds: one share of C, then the shares one after the other."""
    pr = one_row(pr)
    return tiling_of(pr, cf).share * pr.r * pr.s + cf["sg"] + 1
