"""The mma family: implicit GEMM on tensor cores by warp-wide ``mma.sync`` instructions, from sm_80 on."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.device.architectures import mma_f64
from tilewright.kernels.error_bound import too_few
from tilewright.kernels.family import Blueprint, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.fold import folded, of_layer
from tilewright.kernels.limits import blocks_param, no_tensor_cores, thin_groups, too_wide
from tilewright.kernels.mma.rules import RULES
from tilewright.kernels.mma.tile import (
    AS_IS,
    COPIED,
    COPIES,
    GATHERED,
    PLANES,
    WAYS,
    WIDENED,
    all_chunks,
    chunks_of,
    numbers,
    pixels_on_m,
    products,
    row_pieces,
    run_chunks,
    stores_fours,
    tiling_of,
    ways,
)
from tilewright.kernels.mma.work import work_of
from tilewright.kernels.products import DOUBLE, E4M3, E4M3_AS_F16, THREE, packer_of, products_define
from tilewright.kernels.requant import requant_defines, scale_operand
from tilewright.kernels.split_k import combine_param, operands, reduction_buffers, second_pass, share_defines
from tilewright.kernels.tile import (
    LAST,
    NONE,
    TWO_PASS,
    ProductTiling,
    View,
    image_defines,
    k_fastest,
    layer_defines,
    up_to,
)
from tilewright.kernels.untuned import COLUMNS, IN_ORDER
from tilewright.kernels.untuned.nhwc import copied_bytes, copied_first, copy_of, copy_remark
from tilewright.kernels.word import dtype_code, word_bytes
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

SHARES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 24, 32)


class Mma(Family):
    """Convolution on tensor cores."""

    name = "mma"
    precisions = ("f16", "bf16", "i8", "f8", "q8", "f64", "tf32", "accurate")
    examples = tuple(f"n1c48h9w8k40r3s3p1-{precision}-nhwc+bias" for precision in precisions)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support what fits tensor cores, on a device that has them."""
        pr = folded(problem)
        if reason := super().refuses(pr, device) or no_tensor_cores(device):
            return reason
        if pr.dtype == "f64" and device.is_cuda and not mma_f64(device.capability):
            return "the device's tensor cores multiply f64 no faster than its threads, if at all"
        return too_wide(pr) or too_few(pr) or thin_groups(pr)

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The problem with columns turned into channels, where these are whole folds (fold.py)."""
        return folded(problem)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        problem = folded(problem)
        clusters = up_to(device.max_cluster, (1, 2, 4, 8))
        chunks = up_to(max(2, 2 * all_chunks(problem, GATHERED)), (2, 4, 8, 16))
        l1 = (0, 1) if problem.r * problem.s > 1 else (0,)
        return (
            Param("x", ways(problem), "how the input is read", tuple(WAYS[way] for way in ways(problem))),
            Param("l1", l1, "input past or through the L1 cache", ("past", "through")[: len(l1)]),
            Param("mt", (1, 2, 3, 4, 5, 6, 8), "pieces of 16 rows a warp"),
            Param("nt", (1, 2, 3, 4, 5, 6, 8), "pieces of 16 columns a warp"),
            Param("wm", (1, 2, 3, 4, 8), "warps over rows"),
            Param("wn", (1, 2, 3, 4, 8), "warps over columns"),
            Param("sb", (1, 2, 4), "shares of the sum inside a block, added up in shared memory"),
            blocks_param(1, 2, 3, 4, 6, 8),
            Param("fd", (1, 2), "buffers of what a thread holds in registers of the staged tiles"),
            Param("chunks", chunks, "chunks of 16 bytes of the sum staged per step"),
            Param("stages", (2, 3, 4, 5, 6, 8), "buffers of the staging pipeline"),
            Param("sc", clusters, "shares of the sum across a cluster, added up in its shared memory"),
            Param("sg", SHARES, "shares of the sum across the grid"),
            combine_param(NONE, TWO_PASS, LAST),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch; one before it may copy the input, one after it may sum shares and pool."""
        return of_layer(_blueprint(folded(problem), config.values, aligned), problem)

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(folded(problem), device, config.values)

    def remarks(self, problem: Problem, config: Config) -> dict[str, str]:
        """Report the size of the copied input."""
        pr, way = folded(problem), config["x"]
        return copy_remark(pr, chunks_of(pr, way)) if way in COPIES else {}

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """One share of the sum, then the shares one after the other; joint promotions count as one add."""
        cf, problem = config.values, folded(problem)
        shares = cf["sb"] * cf["sc"] * cf["sg"]
        chunks = tiling_of(problem, cf).steps * cf["chunks"]
        promoted = products(problem, cf["x"]) in (THREE, E4M3)
        return ceil_div(chunks // 2 if promoted else chunks * numbers(problem, cf["x"]), shares) + shares


def _blueprint(pr: Problem, cf: Values, aligned: bool) -> Blueprint:
    if not aligned and cf["x"] in (AS_IS, PLANES):
        cf = cf | dict(x=COPIED)  # to an aligned buffer
    tiling, way, combine = tiling_of(pr, cf), cf["x"], cf["combine"]
    moved_as = E4M3_AS_F16 if way == WIDENED else products(pr, way)  # the products that words are made for
    main = Launch(
        "mma", (tiling.tiles * cf["sc"] * cf["sg"], 1, 1), (tiling.threads, 1, 1),
        (*operands(combine), "partial", "arrived", *scale_operand(pr)),
        shared_bytes=tiling.shared_bytes, cluster=cf["sc"],
    )  # fmt: skip
    found = Blueprint(
        source="mma.cu", defines=tuple(_defines(pr, tiling, cf, aligned).items()),
        launches=(main, *second_pass(pr, combine)), packed_bytes=_packed_bytes(pr, tiling, cf),
        pack=(
            ("PACK_CHUNKS", cf["chunks"]), ("PACK_K", tiling.kb), ("PACK_STEPS", tiling.steps),
            ("PACK_C", _run_channels(pr, cf)),
            ("PACK_ORDER", COLUMNS if pixels_on_m(pr) and moved_as != DOUBLE else IN_ORDER),
            *products_define("PACK_PRODUCTS", moved_as).items(),
        ),
        workspace=reduction_buffers(
            pr, cf, cf["sg"] * tiling.tiles * tiling.tile, tiling.tiles, word_bytes(pr)
        ),
        packer=packer_of(moved_as),
    )  # fmt: skip
    if way not in COPIES:
        return found
    return copied_first(found, copy_of(pr, chunks_of(pr, way), moved_as, aligned=aligned))


def _run_channels(pr: Problem, cf: Values) -> int:
    """Channels of a tap that are consecutive in the sum."""
    way = cf["x"]
    return pr.cg if way == GATHERED else run_chunks(pr, cf["chunks"], way) * numbers(pr, way)


def _packed_bytes(pr: Problem, tiling: ProductTiling, cf: Values) -> int:
    return 16 * pr.groups * tiling.k_tiles * tiling.steps * tiling.kb * cf["chunks"]


def _defines(pr: Problem, tiling: ProductTiling, cf: Values, aligned: bool) -> Values:
    sums_bytes = word_bytes(pr) * cf["sg"] * max(pr.z_elements, tiling.tiles * tiling.tile)
    way, product = cf["x"], products(pr, cf["x"])
    x_bytes = pr.x_bytes + 16 * row_pieces(pr, tiling.pb)  # the last pieces of a plane's row may lie past x
    packed_bytes = _packed_bytes(pr, tiling, cf)
    most_bytes = max(copied_bytes(pr, chunks_of(pr, way)), x_bytes, sums_bytes, packed_bytes)
    view = View.of(pr)
    images = image_defines(pr, view) | dict(Y_NHWC=int(pixels_on_m(pr)))
    more = products_define("PRODUCTS", product) | requant_defines(pr)
    # DTYPE: of sums and outputs, and of the input unless PRODUCTS says otherwise.
    return images | more | dict(
        DTYPE=dtype_code(pr.portable), MT=cf["mt"], NT=cf["nt"], WM=cf["wm"], WN=cf["wn"],
        SB=cf["sb"], FRAGMENTS=cf["fd"], CHUNKS=cf["chunks"], STAGES=cf["stages"], MIN_BLOCKS=cf["mb"],
        X_WAY=COPIED if way == WIDENED else way, X_L1=cf["l1"], RUN=run_chunks(pr, cf["chunks"], way),
        CC=chunks_of(pr, way), STEPS=tiling.steps,
        CLUSTER=cf["sc"], **share_defines(cf["combine"], cf["sc"], cf["sg"]),
        K_TILES=tiling.k_tiles, P_TILES=1, Q_TILES=tiling.q_tiles, N=view.n, **layer_defines(pr, view),
        PADDED=int(any(pr.pad)),
        Y_VECTOR=int(stores_fours(pr) and aligned), K_FASTEST=k_fastest(pr),
        SHARED_BYTES=tiling.shared_bytes, OFFSET64=offset64(most_bytes),
    )  # fmt: skip
