"""The toeplitz family: depthwise convolution on tensor cores, a row of the filter as a Toeplitz matrix.

On CUDA cores a 7x7 layer at batch 16, or a 31x31 layer, is bound by its multiply-adds and their loads.
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule, Values
from tilewright.kernels.limits import (
    blocks_param,
    no_tensor_gpu,
    registers_rule,
    resident_rule,
    shared_rule,
    too_large,
)
from tilewright.kernels.requant import requant_defines
from tilewright.kernels.split_k import POOL_APART, POOL_PARAM
from tilewright.kernels.tile import View, image_defines, layer_defines, up_to
from tilewright.kernels.toeplitz.tile import (
    BAND,
    EIGHT,
    ToeplitzTiling,
    depth,
    eights_of,
    packed_bytes,
    products_of_row,
    registers,
    rows_in_flight,
    slope,
    steps,
    tiling_of,
    window,
)
from tilewright.kernels.toeplitz.work import work_of
from tilewright.kernels.whole_sums import input_defines, tiles_defines, whole_sums
from tilewright.kernels.word import dtype_code
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

MOST_WHOLE = 1024  # products of i8, up to 2^14 each, whose sum fits the 24 bits of an f32
MOST_WINDOW = 96  # inputs under eight outputs: more would take too many registers for a row
UNROLLED = 96  # products of an unrolled loop over a filter's rows: more would overflow the instruction cache


class Toeplitz(Family):
    """Depthwise layers on tensor cores."""

    name = "toeplitz"
    precisions = ("f16", "bf16", "f8", "i8", "q8", "tf32")
    examples = tuple(f"n2c16h9w11k16r3s3p1g16-{precision}-nhwc+bias" for precision in precisions)
    plain = False  # inputs of a window that an output does not depend on are multiplied by zeros

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support depthwise layers, on a device that has tensor cores."""
        if reason := super().refuses(problem, device) or too_large(problem) or no_tensor_gpu(device):
            return reason
        if not problem.cg == problem.kg == 1 or problem.groups == 1:
            return "it is made for depthwise layers: a group for each channel"
        if "nhwc" in (problem.layout_in, problem.layout_out) and problem.c % EIGHT:
            return "in nhwc it moves eight channels at a time, and has not a multiple of eight"
        if window(problem) > MOST_WINDOW:
            return f"eight outputs of a row see more than {MOST_WINDOW} columns"
        if problem.is_integer and problem.r * problem.s > MOST_WHOLE:
            return f"a sum of f32 of more than {MOST_WHOLE} products of i8 may not be whole"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        together = EIGHT if "nhwc" in (problem.layout_in, problem.layout_out) else 1
        return (
            Param("cb", tuple(c for c in (1, 2, 4, 8, 16, 32) if c % together == problem.c % c == 0),
                  "channels of a block"),
            Param("th", up_to(problem.p + BAND - 1, (16, 32, 48)), "output rows of a block"),
            Param("wb", up_to(ceil_div(problem.q, EIGHT), (1, 2, 3, 4, 6, 7, 8, 10, 14)),
                  "eights of output columns of a block"),
            Param("warps", (1, 2, 4, 8, 16), "warps of a block, which share its channels"),
            blocks_param(1, 2, 3, 4, 6, 8, 12, 16),
            POOL_PARAM,
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if there is a pool."""
        cf = config.values
        tiling = tiling_of(problem, cf)
        return whole_sums(
            "toeplitz", problem, cf["combine"], tiling.blocks, 32 * cf["warps"],
            _defines(problem, tiling, cf, aligned), packed_bytes(problem, tiling),
            (
                ("PACK_TAPS", tiling.taps), ("PACK_FIRST", slope(problem)),
                ("PACK_STEP", problem.dilation[1]), ("DTYPE", dtype_code(problem)),
            ),
            packer="toeplitz_pack.cu", chained=False,
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """All products of a window, including those with zeros."""
        return problem.r * depth(problem) * steps(problem)


RULES = (
    Rule("row", lambda problem, wb: eights_of(problem, wb) <= 32,
         "a row of the tile is more than a warp loads at once"),
    Rule("channels", lambda cb, warps: cb % warps == 0, "each warp takes as many channels"),
    resident_rule(lambda device, warps, mb: 32 * warps * mb <= device.threads_per_unit),
    registers_rule(registers, lambda cf: 32 * cf["warps"], "th wb warps mb cb combine"),
    shared_rule(lambda problem, cf: tiling_of(problem, cf).shared_bytes, "cb th wb mb combine"),
    POOL_APART,
)  # fmt: skip


def _defines(pr: Problem, tiling: ToeplitzTiling, cf: Values, aligned: bool) -> Values:
    products, view = products_of_row(pr, cf), View.unflattened(pr)
    return dict(
        **input_defines(pr, tiling.shared_bytes),
        CB=cf["cb"], HB=cf["th"], WBT=cf["wb"], WARPS=cf["warps"], MIN_BLOCKS=cf["mb"],
        KS=steps(pr), NC=tiling.eights, PITCH=tiling.pitch, PLANE=tiling.plane, SKEW=tiling.skew,
        TILE=tiling.tile,
        W_PITCH=tiling.taps, R_UNROLLED=max(1, min(pr.r, UNROLLED // products)), VECTORS=int(aligned),
        ROWS_IN_FLIGHT=rows_in_flight(pr, tiling, cf),
        **layer_defines(pr, view, by_group=False), **image_defines(pr, view),
        **tiles_defines(cf["combine"], tiling.k_tiles, tiling.p_tiles, tiling.q_tiles,
                        k_fastest=int(pr.layout_in == "nhwc")),
        OFFSET64=offset64(pr.x_bytes, DTYPE_BYTES[pr.dtype_out] * pr.z_elements, packed_bytes(pr, tiling)),
        **requant_defines(pr),
    )  # fmt: skip
