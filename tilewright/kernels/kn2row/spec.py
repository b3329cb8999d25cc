"""The kn2row family: last layers on tensor cores, the taps of all output channels as columns of a product.

As an implicit GEMM a layer of 1 to 4 output channels leaves most of a product's columns empty.
"""

from __future__ import annotations

from tilewright.arithmetic import offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule, Values
from tilewright.kernels.kn2row.tile import (
    CHUNK_WORDS,
    MOST_TAPS,
    RUN_BYTES,
    Kn2rowTiling,
    batches_in_body,
    chunks,
    chunks_at_once,
    columns_of,
    lead,
    pieces,
    registers,
    rows_at_once,
    rows_of_taps,
    runs,
    summed_rows,
    tap_rows,
    taps,
    tiling_of,
    units,
    whole,
    widths,
)
from tilewright.kernels.kn2row.work import work_of
from tilewright.kernels.limits import (
    blocks_param,
    no_tensor_gpu,
    registers_rule,
    shared_rule,
    thread_rule,
    warps_rules,
)
from tilewright.kernels.products import in_word
from tilewright.kernels.requant import requant_defines
from tilewright.kernels.split_k import POOL_APART, POOL_PARAM
from tilewright.kernels.tile import View, image_defines, layer_defines
from tilewright.kernels.whole_sums import input_defines, tiles_defines, whole_sums
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

MOST_SUMMED = 8  # output channels if rows of the filter are summed: an implicit GEMM has a column for each
MOST_COLUMNS = 512
MOST_SUMS = 32  # products that a warp holds at once, each four sums of a thread
HEIGHTS = (4, 8, 16, 32, 64, 128)  # rows of outputs
EIGHTS = (2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48, 64)  # of columns of the input


class Kn2row(Family):
    """Last layers on tensor cores."""

    name = "kn2row"
    precisions = ("f16", "bf16", "i8", "q8", "tf32")
    examples = tuple(f"n2c40h9w11k2r3s3p1-{precision}-nhwc+bias" for precision in precisions)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support layers of few output channels, on a device that has tensor cores."""
        if reason := super().refuses(problem, device) or no_tensor_gpu(device):
            return reason
        if problem.groups > 1:
            return "it is made for layers of one group"
        if problem.stride != (1, 1):
            return "it computes the taps of every pixel: a stride would leave most of them unused"
        if problem.r * problem.s == 1:
            return "its filter has one tap, and an output no neighbours' taps to add up"
        if taps(problem) > MOST_TAPS or (summed_rows(problem) > 1 and problem.k > MOST_SUMMED):
            return (
                f"output channels and taps are more than {MOST_TAPS}, and of one row of the filter too, "
                f"or output channels more than {MOST_SUMMED}: it is made for few output channels"
            )
        if columns_of(problem, _widths(problem)[0], runs(problem)[-1]) > MOST_COLUMNS:
            return f"an output sees more than {MOST_COLUMNS} columns"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        return (
            POOL_PARAM,
            Param("th", (*(v for v in HEIGHTS if v < problem.p), problem.p), "output rows of a block"),
            Param("tw", _widths(problem), "output columns of a block"),
            Param("rb", (1, 2, 3, 4, 6, 8, 12, 16, 20, 24), "rows of taps in a step"),
            Param("vx", runs(problem), "neighbouring pixels that a lane loads at once (in nchw)"),
            Param("pt", (1, 2, 4, 8), "eights of pixels that a warp takes at once"),
            Param("f", (0, 1), "where the filter is kept", ("registers", "shared memory")),
            Param("split", (1, 2, 4, 8), "shares of C in a block"),
            Param("warps", (1, 2, 4, 8, 16), "warps of a block"),
            blocks_param(1, 2, 3, 4, 6, 8),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if there is a pool."""
        cf = config.values
        tiling = tiling_of(problem, cf)
        return whole_sums(
            "kn2row", problem, cf["combine"], tiling.blocks, 32 * cf["warps"],
            _defines(problem, tiling, cf, aligned), tiling.w_bytes + RUN_BYTES,
            (("TAP_R", tap_rows(problem)),), packer="kn2row_pack.cu", chained=False,
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Length of the longest chain of adds: a tap's products, padded to whole chunks; then taps."""
        split = config["split"]
        along = summed_rows(problem) * chunks(problem) // split * CHUNK_WORDS * in_word(problem)
        return along + tap_rows(problem) * problem.s * split


def _widths(pr: Problem) -> tuple[int, ...]:
    found = widths(pr, EIGHTS)
    return tuple(v for v in found if columns_of(pr, v, runs(pr)[-1]) <= MOST_COLUMNS) or found[:1]


def _shared_bytes(problem: Problem, cf: Values) -> int:
    return tiling_of(problem, cf).shared_bytes


RULES = (
    Rule("rows", lambda problem, th, rb: rb <= rows_of_taps(problem, th),
         "a step of more rows than the tile has"),
    Rule("rows_at_once", lambda problem, rb: rb % rows_at_once(problem) == 0,
         "a warp sums two rows at once of a large filter's taps"),
    Rule("runs", lambda pt, vx: pt % vx == 0, "a lane has whole runs of pixels"),
    Rule("tiles", lambda problem, tw, vx: tw == problem.q or tw % vx == 0, "every tile begins with a run"),
    Rule("sums", lambda problem, pt: pieces(problem) * rows_at_once(problem) * pt <= MOST_SUMS,
         "more than 128 sums of a thread"),
    Rule("shares", lambda problem, split: chunks(problem) % split == 0, "each share takes as many channels"),
    Rule("share_warps", lambda split, warps: warps % split == 0, "each share has as many warps"),
    Rule("pixels", lambda problem, cf: units(problem, cf) >= cf["warps"] // cf["split"],
         "warps without pixels", needs="tw rb vx pt split warps"),
    # Checks limits for one warp or one block before their number is chosen, since a search goes through all
    # of a space that is almost empty.
    thread_rule(registers, "vx pt f split"),
    shared_rule(_shared_bytes, "th tw rb vx f split"),
    *warps_rules("warps"),
    registers_rule(registers, lambda cf: 32 * cf["warps"], "vx pt f split warps mb"),
    shared_rule(_shared_bytes, "th tw rb vx f split mb"),
    POOL_APART,
)  # fmt: skip


def _defines(pr: Problem, tiling: Kn2rowTiling, cf: Values, aligned: bool) -> Values:
    view = View.unflattened(pr)
    return requant_defines(pr) | dict(
        **input_defines(pr, tiling.shared_bytes),
        HB=cf["th"], WB=cf["tw"], RB=cf["rb"], PT=cf["pt"], F_SHARED=cf["f"], SPLIT=cf["split"],
        WARPS=cf["warps"], MIN_BLOCKS=cf["mb"],
        TAP_R=tap_rows(pr), ROWS=rows_at_once(pr), COLUMNS=tiling.columns, PITCH=tiling.pitch,
        RING=tiling.ring, LEAD=lead(pr, cf["vx"]), VX=cf["vx"],
        WHOLE=int(aligned and whole(pr, cf["vx"])), AT_ONCE=chunks_at_once(pr, cf),
        BODY=batches_in_body(pr, cf),
        **layer_defines(pr, view), **image_defines(pr, view),
        **tiles_defines(cf["combine"], 1, tiling.p_tiles, tiling.q_tiles),
        OFFSET64=offset64(pr.x_bytes, 4 * pr.z_elements, tiling.w_bytes),
    )  # fmt: skip
