"""The stem family: first layers on tensor cores, with fragments read directly from rows of the image."""

from __future__ import annotations

from tilewright.arithmetic import offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule, Values
from tilewright.kernels.limits import (
    blocks_param,
    fits_shared,
    no_tensor_gpu,
    registers_rule,
    shared_rule,
    thread_rule,
    warps_rules,
)
from tilewright.kernels.products import in_word
from tilewright.kernels.requant import requant_defines
from tilewright.kernels.split_k import POOL_PARAM, may_combine
from tilewright.kernels.stem.tile import (
    Runs,
    StemTiling,
    line_of,
    loads,
    meets,
    piece,
    registers,
    runs_of,
    staged,
    tiling_of,
    turned,
)
from tilewright.kernels.stem.work import work_of
from tilewright.kernels.tile import View, image_defines, layer_defines, row_threads, up_to, windows
from tilewright.kernels.whole_sums import input_defines, tiles_defines, whole_sums
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

MOST_STEPS = 80  # products along the sum: their loop is unrolled
MOST_UNROLLED = 1500  # instructions of that loop: more would overflow the instruction cache
MOST_ROW = 1 << 30  # bytes of a row of the image, with its padding
FAN = ("FAN_P", "FAN_R", "FAN_W")  # planes, rows and words that four lanes load at once
# Of a block's tile: sums, and outputs of a pool.
ROWS, POOLED_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16), (1, 2, 3, 4, 6, 8)
COLUMNS, POOLED_COLUMNS, MOST_COLUMNS = (8, 16, 32, 64, 128, 256), (4, 7, 8, 14, 16, 28, 32, 64), 1024


class Stem(Family):
    """First layers on tensor cores."""

    name = "stem"
    precisions = ("f16", "bf16", "i8", "q8", "tf32")
    examples = tuple(f"n2c3h17w22k20r5s5p2u2-{precision}-nhwc+bias" for precision in precisions)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support layers whose whole sum takes few products, on a device that has tensor cores."""
        if reason := super().refuses(problem, device) or no_tensor_gpu(device):
            return reason
        if problem.groups > 1:
            return "it is made for layers of one group"
        if problem.dilation[1] > 1 and problem.s > 1:
            return "a row of the filter must see neighbouring columns: they are dilated"
        if (problem.w + sum(problem.pad[2:])) * runs_of(problem).column > MOST_ROW:
            return f"a row of the image has more than {MOST_ROW:,} bytes: they are counted in 32 bits"
        if runs_of(problem).steps(problem) > MOST_STEPS:
            return f"the sum takes more than {MOST_STEPS} products: it is made for few input channels"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        columns = (*COLUMNS, min(problem.q, MOST_COLUMNS))
        return (
            POOL_PARAM,
            Param("th", _extents(problem, problem.p, ROWS, POOLED_ROWS), "output rows of a block"),
            Param("tw", _extents(problem, problem.q, columns, POOLED_COLUMNS), "output columns of a block"),
            Param("kt", (1, 2, 3, 4, 5, 6, 8, 10, 12, 16), "pieces of channels a warp"),
            Param("pt", (1, 2, 4, 8), "pieces of pixels that a warp takes at once"),
            Param("f", (0, 1), "where the filter is kept", ("registers", "shared memory")),
            Param("wn", (1, 2, 3, 4, 6, 8), "warps over channels"),
            Param("wm", (1, 2, 3, 4, 6, 7, 8, 14, 16), "warps over pixels"),
            blocks_param(1, 2, 3, 4, 5, 6, 8, 10, 12, 16),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if a second one pools."""
        cf = config.values
        tiling, packed, runs = tiling_of(problem, cf), runs_of(problem, cf), runs_of(problem, cf, aligned)
        return whole_sums(
            "stem", problem, cf["combine"], tiling.blocks, _threads(cf),
            _defines(problem, tiling, runs, cf, aligned), tiling.k_tiles * tiling.w_bytes,
            (
                ("PACK_KT", cf["kt"]), ("PACK_WN", cf["wn"]), ("PACK_GROUP", max(1, tiling.run // 2)),
                ("PACK_NHWC", int(problem.layout_out == "nhwc")), ("PACK_PLANES", packed.planes),
                ("PACK_QUARTERS", packed.quarters), ("PACK_SHIFT", packed.shift),
                *zip(FAN, packed.fan, strict=True),
            ),
            packer="stem_pack.cu", chained=False,
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """All products of the sum."""
        return 8 * runs_of(problem, config.values).steps(problem) * in_word(problem)


def _threads(cf: Values) -> int:
    return 32 * cf["wm"] * cf["wn"]


def _body(pr: Problem, cf: Values) -> int:
    """Instructions of the unrolled loop over the sum."""
    runs = runs_of(pr, cf)
    x_loads = loads(pr, runs) * (3 if runs.unaligned else 2) // 2  # and a shift for every two
    return runs.steps(pr) * (cf["pt"] * (x_loads + cf["kt"]) + cf["kt"] * cf["f"])


def _extents(pr: Problem, sums: int, values: tuple[int, ...], pooled: tuple[int, ...]) -> tuple[int, ...]:
    """Choices of a tile's rows or columns: ``values`` sums, and sums under ``pooled`` outputs of a pool."""
    found = up_to(sums, values)
    if pool := pr.epilogue.pool:
        found += tuple((v - 1) * pool.stride + pool.size for v in up_to(sums // pool.stride, pooled))
    return tuple(dict.fromkeys(found))


RULES = (
    Rule("pool", lambda problem, combine: may_combine(problem, 1, combine),
         "a second kernel is there to pool"),
    Rule("rows", lambda problem, combine, th: windows(problem, combine, th) > 0, "a tile without windows"),
    Rule("windows", lambda problem, combine, tw: windows(problem, combine, tw) > 0, "a tile without windows"),
    Rule("image", lambda problem, device, cf: fits_shared(
        device, staged(problem, cf, runs_of(problem, cf)).nbytes, 1),
        "staged rows alone fill the shared memory", needs="combine th tw"),
    Rule("channels", lambda problem, kt: piece(problem)[1] * (kt - 1) < problem.k, "pieces without channels"),
    Rule("slices", lambda problem, kt, wn: piece(problem)[1] * kt * (wn - 1) < problem.k,
         "warps without channels"),
    Rule("sums", lambda kt, pt: kt * pt <= 24, "more than 96 sums of a thread"),
    Rule("pixels", lambda problem, th, tw, pt, wm: piece(problem)[0] * pt * (wm - 1) < th * tw
         and piece(problem)[0] * (pt - 1) < th * tw, "warps or pieces without pixels"),
    *warps_rules("wm wn"),
    Rule("body", lambda problem, cf: _body(problem, cf) <= MOST_UNROLLED,
         "the unrolled loop overflows the instruction cache", needs="combine tw kt pt f"),
    thread_rule(registers, "combine tw kt pt f"),
    registers_rule(registers, _threads, "combine tw kt wn pt wm f mb"),
    shared_rule(lambda problem, cf: tiling_of(problem, cf).shared_bytes, "combine th tw kt wn pt wm f mb"),
)  # fmt: skip


def _defines(pr: Problem, tiling: StemTiling, runs: Runs, cf: Values, aligned: bool) -> Values:
    view, nhwc = View.unflattened(pr), pr.layout_out == "nhwc"
    unit = 4 if nhwc else 1  # outputs that a thread stores at once after combining
    whole = line_of(pr, cf) % (unit if meets(pr, cf) else tiling.run) == 0
    more = requant_defines(pr)
    return more | dict(
        **input_defines(pr, tiling.shared_bytes),
        HB=cf["th"], WB=cf["tw"], KT=cf["kt"], WN=cf["wn"], PT=cf["pt"], WM=cf["wm"], F_SHARED=cf["f"],
        MIN_BLOCKS=cf["mb"],
        COPY=runs.copy, LEAD=runs.lead, SHIFT=runs.shift, UNALIGNED=int(runs.unaligned),
        QUARTERS=runs.quarters, RUN_NUMBERS=runs.numbers, **dict(zip(FAN, runs.fan, strict=True)),
        STAGED_BYTES=tiling.image.row, PITCH=tiling.image.pitch, GAP=runs.gap, SUM_PITCH=tiling.sum_pitch,
        ROW_THREADS=row_threads(tiling.image.row // runs.chunk, _threads(cf)),
        RUN_OUT=tiling.run, WORDS_OUT=tiling.run // 4, UNIT_OUT=unit, POOL_HELD=int(tiling.held),
        Y_VECTOR=int(whole and aligned), TURNED=turned(pr, cf) if whole and aligned or tiling.run == 2 else 1,
        **layer_defines(pr, view), **image_defines(pr, view),
        **tiles_defines(cf["combine"], tiling.k_tiles, tiling.p_tiles, tiling.q_tiles),
        OFFSET64=offset64(pr.x_bytes, 4 * pr.z_elements, tiling.k_tiles * tiling.w_bytes),
    )  # fmt: skip
