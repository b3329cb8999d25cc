"""The grouped_mma family: many small groups on tensor cores.

Implicit GEMM copies a tile of pixels for each tap of each group. Here pixels are staged once, and the rows
of a product are 16 bytes of their channels, at any tap.
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64, round_up
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule, Values
from tilewright.kernels.grouped_mma.tile import (
    EIGHT,
    PIECE,
    PIXELS,
    GroupBundle,
    GroupedMmaTiling,
    bundle_of,
    columns_at_once,
    pieces_of_sum,
    registers,
    strip_rows,
    tiling_of,
)
from tilewright.kernels.grouped_mma.work import work_of
from tilewright.kernels.limits import (
    MOST_BODY,
    blocks_param,
    fits_shared,
    no_tensor_gpu,
    registers_rule,
    shared_rule,
    too_large,
    warps_rules,
)
from tilewright.kernels.requant import requant_defines
from tilewright.kernels.split_k import POOL_APART, POOL_PARAM
from tilewright.kernels.tile import NONE, TWO_PASS, View, image_defines, layer_defines, row_threads, up_to
from tilewright.kernels.whole_sums import input_defines, tiles_defines, whole_sums
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

MOST_WORDS = 64  # registers of a lane for the filter of eight outputs (128 for a bundle): more would not fit
GRANULE = 8  # unit in which a thread's registers are allocated


class GroupedMma(Family):
    """Convolutions of many small groups, on tensor cores."""

    name = "grouped_mma"
    precisions = ("f16", "bf16", "i8", "q8")
    examples = tuple(f"n2c{c}h9w11k{c}r3s3p1g4-{dtype}-nhwc+bias" for dtype in precisions for c in (32, 128))
    plain = False  # for groups smaller than 16 bytes, inputs of neighbouring groups are multiplied by zeros

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support layers whose groups fill pieces of 16 bytes, on a device that has tensor cores."""
        if reason := super().refuses(problem, device) or too_large(problem) or no_tensor_gpu(device):
            return reason
        if problem.groups == 1:
            return "it is made for several groups"
        bundle = bundle_of(problem)
        if bundle is None:
            return "its groups do not fill 16 bytes with inputs, and eights with outputs"
        if pieces_of_sum(problem, bundle) > MOST_WORDS:
            return f"the filter of 8 outputs takes more than {MOST_WORDS} registers of a thread"
        least = dict(nt=1, wn=bundle.tiles, bw=1)
        if not _tile_fits(problem, device, _least(least)):
            return "the input under eight outputs fills the shared memory"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        return (
            POOL_PARAM,
            Param("nt", _tiles(problem), "pieces of 8 outputs of a bundle that a warp makes"),
            Param("wn", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16), "warps over outputs"),
            Param("bw", _divisors(problem, (1, 2, 3, 4)), "bundles of groups a warp"),
            Param("tw", up_to(problem.q + EIGHT - 1, (8, 16, 24, 32, 40, 48, 56, 64, 96, 112, 128)),
                  "output columns of a block"),
            Param("pt", (1, 2, 3, 4, 6, 7, 8), "rows of 16 outputs that a warp takes at once"),
            Param("th", (1, 2, 3, 4, 6, 7, 8, 10, 12, 14, 16, 24, 28, 32), "output rows of a block"),
            Param("wm", (1, 2, 3, 4, 6, 7, 8, 14, 16), "warps over pixels"),
            blocks_param(1, 2, 3, 4, 5, 6, 8, 10, 12, 16),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if there is a pool."""
        cf = config.values
        tiling, bundle = tiling_of(problem, cf), _bundle(problem)
        return whole_sums(
            "grouped_mma", problem, cf["combine"], tiling.blocks, _threads(cf),
            _defines(problem, tiling, cf, aligned), 128 * tiling.words * cf["wn"] * tiling.k_tiles,
            (
                ("BW", cf["bw"]), ("NT", cf["nt"]), ("PARTS", tiling.parts), ("PIECES", bundle.pieces),
                ("GROUP_OF", tiling.run // 2), ("PACK_GROUPS", bundle.groups),
            ),
            packer="grouped_mma_pack.cu", chained=False,
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """All products of the sum, including those with zeros."""
        return pieces_of_sum(problem, _bundle(problem)) * PIECE // DTYPE_BYTES[problem.dtype]


def _bundle(pr: Problem) -> GroupBundle:
    bundle = bundle_of(pr)
    assert bundle  # of a layer that is not refused
    return bundle


def _body(pr: Problem, cf: Values) -> int:
    """Products and loads of the unrolled loops over a strip's sums."""
    tiling = tiling_of(pr, cf)
    return ceil_div(tiling.row_sum, 2) * cf["bw"] * (pr.r * cf["pt"] * cf["nt"] + tiling.seen)


def _divisors(pr: Problem, values: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the values that divide the number of bundles."""
    return tuple(v for v in values if pr.groups // _bundle(pr).groups % v == 0)


def _tiles(pr: Problem) -> tuple[int, ...]:
    """Choices of how many of a bundle's pieces of outputs a warp has: all, or an equal part of them."""
    tiles = _bundle(pr).tiles
    return tuple(v for v in (1, 2, 3, 4, 5, 6, 7, 8, tiles) if v <= tiles and tiles % v == 0)


def _threads(cf: Values) -> int:
    return 32 * cf["wm"] * cf["wn"]


def _least(cf: Values) -> Values:
    """The smallest config that the choices so far can lead to, for rules that cut a search early."""
    return dict(combine=NONE, tw=EIGHT, pt=1, th=1, wm=1, mb=1) | cf


def _registers(problem: Problem, cf: Values) -> int:
    return round_up(registers(problem, _least(cf)), GRANULE)


def _tile_fits(problem: Problem, device: Device, cf: Values) -> bool:
    return fits_shared(device, tiling_of(problem, cf).shared_bytes, cf["mb"])


RULES = (
    POOL_APART,
    Rule("words", lambda problem, nt, bw:
         nt * bw * pieces_of_sum(problem, _bundle(problem)) <= 2 * MOST_WORDS,
         "a thread holds the filter in registers"),
    Rule("parts", lambda problem, nt, bw: bw == 1 or nt == _bundle(problem).tiles,
         "a warp that makes a part of a bundle's outputs takes one"),
    Rule("bundles", lambda problem, nt, wn, bw: nt * wn * bw % _bundle(problem).tiles == 0
         and _divisors(problem, (nt * wn * bw // _bundle(problem).tiles,)) != (),
         "blocks that do not share out all groups"),
    registers_rule(_registers, lambda cf: 32 * cf["wn"], "nt wn bw", "slices"),
    Rule("image", lambda problem, device, cf: _tile_fits(problem, device, _least(cf)),
         "staged columns alone fill the shared memory", needs="nt wn bw tw"),
    Rule("strips", lambda tw, pt, th: th % strip_rows(tw, pt) == 0, "a tile is whole strips"),
    Rule("rows", lambda problem, tw, pt, th: th - strip_rows(tw, pt) < problem.p, "strips without outputs"),
    Rule("warps", lambda tw, pt, th, wm: PIXELS * pt * wm <= th * tw, "warps without strips"),
    Rule("body", lambda problem, cf: _body(problem, cf) <= MOST_BODY,
         "the unrolled loops overflow the instruction cache", needs="combine nt wn bw tw pt th wm"),
    *warps_rules("wm wn"),
    registers_rule(_registers, _threads, "combine nt wn bw tw pt th wm mb"),
    shared_rule(lambda problem, cf: tiling_of(problem, cf).shared_bytes, "combine nt wn bw tw pt th wm mb"),
)  # fmt: skip


def _defines(pr: Problem, tiling: GroupedMmaTiling, cf: Values, aligned: bool) -> Values:
    view, (run_in, lead) = View.unflattened(pr), columns_at_once(pr, aligned)
    copies = ceil_div(lead + tiling.columns, run_in) * tiling.pieces  # of a row
    pairs = cf["combine"] != TWO_PASS and DTYPE_BYTES[pr.dtype_out] == 2 and pr.q % 2 == 0
    return requant_defines(pr) | dict(
        **input_defines(pr, tiling.shared_bytes),
        HB=cf["th"], WB=cf["tw"], BW=cf["bw"], PT=cf["pt"], WN=cf["wn"], WM=cf["wm"],
        MIN_BLOCKS=cf["mb"],
        NT=cf["nt"], PARTS=tiling.parts, PIECES=tiling.bundle.pieces, LENGTH=tiling.length,
        EXCHANGED=tiling.swizzle,
        ROW_THREADS=row_threads(copies, _threads(cf)), VECTORS=int(aligned), RUN_IN=run_in, LEAD=lead,
        PAIRS_OUT=int(pairs and aligned),
        RUN_OUT=tiling.run, WORDS_OUT=tiling.run // 4, GROUP_OF=tiling.run // 2, Y_VECTOR=int(aligned),
        TURNED=tiling.turned if aligned else 1,
        **layer_defines(pr, view, by_group=False), **image_defines(pr, view),
        **tiles_defines(cf["combine"], tiling.k_tiles, tiling.p_tiles, tiling.q_tiles),
        OFFSET64=offset64(pr.x_bytes, 4 * pr.z_elements),
    )  # fmt: skip
