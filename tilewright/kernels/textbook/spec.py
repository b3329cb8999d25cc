"""The textbook family: convolutions and matrix products as in textbooks, optimised step by step.

It shows what each step gains, and runs only if it is named. Sources of the steps: "Investigation of CUDA
Optimizations for Accelerating a Toy CNN Architecture" (H. Grisett, UCLA), and "Mapping and Accelerating a
Convolutional Neural Network on a GPU" (S.-K. Huang).
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.gemm.product import is_product, product
from tilewright.kernels.limits import (
    MOST_BODY,
    TOO_FULL,
    block_rule,
    no_kernels,
    no_tensor_cores,
    registers_rule,
)
from tilewright.kernels.textbook.work import (
    GEMM_COALESCED,
    GEMM_NAIVE,
    TENSOR_NAIVE,
    TENSOR_TILED,
    UNROLL,
    shared_bytes,
    side,
    tensor_registers,
    tiles,
    work_of,
)
from tilewright.kernels.untuned import sizes
from tilewright.kernels.work import Work
from tilewright.problem import Problem

STEP_NAMES = (
    "naive", "tile", "unroll", "gemm_naive", "gemm_uncoalesced", "gemm_coalesced", "tensor_naive",
    "tensor_tiled",
)  # fmt: skip
HALVES = ("f16", "bf16")  # what the tensor-core steps multiply
ROLLED, UNROLLED = range(2)
MOST_SUMS = 16  # of a window that a thread holds at once


def steps(problem: Problem) -> tuple[int, ...]:
    """Return the steps that a layer can take."""
    if problem.groups > 1 or problem.dtype not in ("f32", *HALVES):
        return ()
    matrix = is_product(problem) and not problem.epilogue.pool
    if problem.dtype in HALVES:
        return (TENSOR_NAIVE, TENSOR_TILED) if matrix else ()
    return tuple(range(TENSOR_NAIVE if matrix else GEMM_NAIVE))


class Textbook(Family):
    """An output per thread: naive, by shared memory, unrolled, coalesced; a tile per warp on tensor cores."""

    name = "textbook"
    races = False
    precisions = ("f32", *HALVES)
    examples = ("n1c6h14w13k5r3s3-f32+bias", *(f"n1c40h6w7k35r1s1-{dtype}+bias" for dtype in HALVES))

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support f32 layers of one group, and matrix products of f16 and bf16 on tensor cores."""
        if reason := super().refuses(problem, device):
            return reason
        if problem.groups > 1:
            return f"it computes one group, not {problem.groups}"
        if not steps(problem):
            return f"in {problem.dtype} it computes matrix products alone"
        if problem.dtype in HALVES and (reason := no_tensor_cores(device)):
            return reason
        return no_kernels(device)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the step and the shape of a block."""
        ways, taken = (ROLLED, UNROLLED) if problem.epilogue.pool else (ROLLED,), steps(problem)
        return (
            Param("step", taken, "how far the kernel has come", tuple(STEP_NAMES[step] for step in taken)),
            Param("bw", (4, 8, 16, 32), "threads of a block over Q; over K in a gemm step; of a warp"),
            Param("bh", (1, 2, 4, 8, 16, 32),
                  "threads of a block over P; over pixels in a gemm step; warps over these in a tensor step"),
            Param("bk", (1, 2, 4, 8, 16), "threads of a block over K; warps over K in a tensor step"),
            Param("pool", ways, "a window's sums one after the other, or all at once",
                  ("rolled", "unrolled")[: len(ways)]),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernels."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if the filter is transposed first."""
        cf = config.values
        if cf["step"] >= TENSOR_NAIVE:
            return _tensor(problem, cf, aligned)
        return _gemm(problem, cf) if cf["step"] >= GEMM_NAIVE else _conv(problem, cf)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count the work of one block and one thread."""
        return work_of(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """All products of an output, added one after the other."""
        return problem.c * problem.r * problem.s


RULES = (
    Rule("square", lambda step, bw, bh, bk: not GEMM_NAIVE <= step < TENSOR_NAIVE or (bw == bh and bk == 1),
         "a block of a gemm step is a square tile: bw is its side, bh the same, bk 1"),
    Rule("warp", lambda step, bw: step < TENSOR_NAIVE or bw == 32, "a tensor step counts whole warps of 32"),
    Rule("one_warp", lambda step, bh, bk: step != TENSOR_NAIVE or bh == bk == 1,
         "a block of tensor_naive is one warp"),
    Rule("staging", lambda step, bh: step != TENSOR_TILED or bh <= 16,
         "all threads copy as many words of either tile"),
    block_rule(lambda device, bw, bh, bk: bw * bh * bk <= min(1024, device.max_threads)),
    registers_rule(lambda problem, cf: tensor_registers(cf) if cf["step"] >= TENSOR_NAIVE else 0,
                   lambda cf: 32 * cf["bh"] * cf["bk"], "step bh bk"),
    Rule("window", lambda problem, pool: side(problem, pool) ** 2 <= MOST_SUMS,
         "the sums of a window do not fit a thread's registers all at once"),
    Rule("body", lambda problem, step, pool: step != UNROLL
         or problem.r * problem.s * side(problem, pool) ** 2 <= MOST_BODY,
         "the unrolled loops overflow the instruction cache"),
    Rule("shared", lambda problem, device, cf: shared_bytes(problem, cf) <= device.shared_per_block,
         TOO_FULL, "step bw bh bk pool"),
)  # fmt: skip


def _conv(pr: Problem, cf: Values) -> Blueprint:
    k, p, q = tiles(pr, cf)
    defines = sizes(pr) | dict(
        STEP=cf["step"], SIDE=side(pr, cf["pool"]), BW=cf["bw"], BH=cf["bh"], BK=cf["bk"],
        K_TILES=k, P_TILES=p, Q_TILES=q, SHARED_BYTES=shared_bytes(pr, cf),
    )  # fmt: skip
    launch = Launch(
        "textbook", (pr.n * k * p * q, 1, 1), (cf["bw"] * cf["bh"] * cf["bk"], 1, 1),
        ("x", "w", "bias", "z", "y"), shared_bytes(pr, cf),
    )  # fmt: skip
    return Blueprint("textbook.cu", tuple(defines.items()), (launch,), packed_bytes=pr.w_bytes)


def _gemm(pr: Problem, cf: Values) -> Blueprint:
    k, pixels, _ = tiles(pr, cf)
    turned, block, shared = cf["step"] == GEMM_COALESCED, (cf["bw"] * cf["bw"], 1, 1), shared_bytes(pr, cf)
    defines = sizes(pr) | dict(
        STEP=cf["step"], BW=cf["bw"], K_TILES=k, X_ROWS=int(product(pr).x_nhwc), SHARED_BYTES=shared,
    )  # fmt: skip
    args = ("x", "turned" if turned else "w", "bias", "z", "y")
    main = Launch("textbook_gemm", (k * pixels, 1, 1), block, args, shared, chained=turned)
    first = Launch("transpose", (k * ceil_div(pr.c, cf["bw"]), 1, 1), block, ("w", "turned"), shared)
    return Blueprint(
        "textbook_gemm.cu", tuple(defines.items()), (first, main) if turned else (main,),
        packed_bytes=pr.w_bytes, workspace=(Buffer("turned", pr.w_bytes),) if turned else (),
    )  # fmt: skip


def _tensor(pr: Problem, cf: Values, aligned: bool) -> Blueprint:
    k, pixels, _ = tiles(pr, cf)
    shared = shared_bytes(pr, cf)
    defines = sizes(pr) | dict(
        STEP=cf["step"], BH=cf["bh"], BK=cf["bk"], K_TILES=k, X_ROWS=int(product(pr).x_nhwc),
        PAIRS=int(pr.c % 2 == 0 and aligned), SHARED_BYTES=shared,
    )  # fmt: skip
    block = (32 * cf["bh"] * cf["bk"], 1, 1)
    launch = Launch("textbook_tensor", (k * pixels, 1, 1), block, ("x", "w", "bias", "z", "y"), shared)
    return Blueprint("textbook_tensor.cu", tuple(defines.items()), (launch,), packed_bytes=pr.w_bytes)
