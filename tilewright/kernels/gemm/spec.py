"""The gemm family: a matrix product for each tap of a filter, with register, warp and block tiles.

A 1x1 layer is one product. Of other layers (implicit GEMM) each tap is one, whose pixels are read where they
lie in x; the sums of all taps stay in registers.

Source of the stream-K schedule: D. Merrill et al., "Stream-K: Work-centric Parallel Decomposition for Dense
Matrix-Matrix Multiplication on the GPU", arXiv:2301.03598.
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.fold import folded, of_layer
from tilewright.kernels.gemm.product import GemmTiling, Product, few_copies, is_product, product, tiling_of
from tilewright.kernels.gemm.rules import rules_of
from tilewright.kernels.gemm.work import LAST_TURN, REST, stream_of, work_of
from tilewright.kernels.limits import blocks_param, no_gpu, too_wide
from tilewright.kernels.split_k import combine_param, combining, operands, reduction_buffers, share_defines
from tilewright.kernels.tile import ATOMIC, LAST, NONE, TWO_PASS, View, image_defines, k_fastest, up_to
from tilewright.kernels.word import in_tiles
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

SHARES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
FEWEST = 4  # output channels of a thread


class Gemm(Family):
    """Matrix products on CUDA cores, one for each tap of the filter.

    Attributes:
        product: returns the products of a layer; a subclass may make others of it, with the same kernel.
    """

    name = "gemm"
    examples: tuple[str, ...] = ("n1c42h9w8k38r1s1-f32+bias", "n1c20h9w11k24r3s3p1u2-f32-nhwc+bias")
    product = staticmethod(product)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support a GPU, and groups of 4 or more filters if these have several taps."""
        if reason := super().refuses(problem, device) or too_wide(self.inner(problem, device)):
            return reason
        if problem.kg < FEWEST and not is_product(problem):
            return f"a group has {problem.kg} filters: a thread computes {FEWEST} at least"
        return refused(problem, device)

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The problem with columns turned into channels, if it lies in memory like that (fold.py)."""
        return folded(problem, copied=False)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        pd = self.product(self.inner(problem, device))
        quads = pd.x_nhwc and pd.c % 4 == 0 and not pd.flat
        return (
            Param("tk", (1, 2, 3, 4), "pieces of 4 output channels a thread"),
            Param("v", (1, 2, 4), "pixels of a piece"),
            Param("tp", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20), "pieces of pixels a thread"),
            Param("lk", (1, 2, 4, 8, 16, 32), "lanes of a warp over K; the others lie over pixels"),
            Param("wk", (1, 2, 4), "warps over K"),
            Param("wp", (1, 2, 3, 4, 8), "warps over pixels"),
            Param("sb", (1, 2, 4, 8), "shares of C inside a block, summed in shared memory"),
            blocks_param(1, 2, 3, 4, 6, 8),
            Param("fd", (1, 2), "buffers of what a thread holds in registers of the staged tiles"),
            Param("cv", (1, 4) if quads else (1,), "channels read at once (nhwc)"),
            Param("cs", up_to(max(4, 2 * pd.c), (4, 8, 16, 32, 64)), "channels staged per step"),
            Param("stages", (2, 3, 4), "buffers of the staging pipeline"),
            Param("stream", (0, LAST_TURN, REST),
                  "tiles to blocks; or even shares of the last turn's and the rest's steps, or of the rest's",
                  ("tiles", "turn", "rest")),
            Param("sg", SHARES, "shares of C across the grid"),
            combine_param(NONE, ATOMIC, TWO_PASS, LAST),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return rules_of(self.product)

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if a second pass adds up the shares."""
        inner = self.inner(problem, device)
        found = blueprint(inner, self.product(inner), device, config.values, aligned)
        return of_layer(found, problem, copied=False)

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        inner = self.inner(problem, device)
        return work_of(inner, self.product(inner), device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Length of the longest chain of adds: a block's longest share of C, then the shares in turn."""
        cf = config.values
        steps = tiling_of(self.product(self.inner(problem, device)), cf).steps
        shares = steps if cf["stream"] else cf["sg"]
        return ceil_div(steps, cf["sg"]) * cf["cs"] // cf["sb"] + cf["sb"] + shares


def refused(problem: Problem, device: Device) -> str | None:
    """Say why no config of the kernel can compute the problem; None if one can."""
    return no_gpu(device) or (None if problem.n else "the batch is empty")


def blueprint(pr: Problem, pd: Product, device: Device, cf: Values, aligned: bool = True) -> Blueprint:
    """Return the launches; the input of a product of columns is the buffer ``columns``."""
    cf = cf if aligned or pd.columns else {**cf, "cv": 1, "fd": 1 if cf["cv"] == 4 else cf["fd"]}
    tiling = tiling_of(pd, cf, aligned or pd.columns)
    c_padded = ceil_div(tiling.steps * cf["cs"], pr.r * pr.s)
    stream = stream_of(device, tiling, cf)
    blocks = stream.full_tiles + stream.blocks if stream else tiling.tiles * cf["sg"]
    # Partial sums that blocks store: a block of a stream has two, as it ends one tile and begins another.
    parts = tiling.tile * (2 * stream.blocks if stream else blocks)
    shared = {}
    if stream:
        shared = dict(FULL_TILES=stream.full_tiles, STREAM_STEPS=stream.each, LONGER=stream.longer)
    defines = _defines(pr, pd, tiling, cf, parts, c_padded * pr.r * pr.s, aligned) | shared
    combine = cf["combine"]
    args = (*operands(combine, "columns" if pd.columns else "x"), "partial", "arrived")
    main = Launch("gemm", (blocks, 1, 1), (tiling.threads, 1, 1), args, tiling.shared_bytes)
    return Blueprint(
        source="gemm.cu", defines=tuple(defines.items()),
        launches=combining(main, pr, device, combine),
        packed_bytes=4 * pd.groups * tiling.k_tiles * c_padded * pr.r * pr.s * tiling.kb,
        pack=(("PACK_K", tiling.kb), ("PACK_C", c_padded)), packing=in_tiles(tiling.kb, c_padded),
        workspace=reduction_buffers(pr, cf, parts, tiling.tiles),
    )  # fmt: skip


def _defines(
    pr: Problem, pd: Product, tiling: GemmTiling, cf: Values, parts: int, c_padded: int, aligned: bool
) -> dict[str, int]:
    quads = pd.quads and tiling.pb % 4 == 0 and (aligned or pd.columns)
    divisible = pd.k % 4 == 0 if pd.y_nhwc else pr.p * pr.q % cf["v"] == 0
    y_vector = divisible and cf["combine"] != ATOMIC and (aligned or (not pd.y_nhwc and cf["v"] == 1))
    last = (pd.pitch if pd.columns else pd.pixels) - (4 if quads else 1)
    filter_bytes = 4 * c_padded * tiling.k_tiles * tiling.kb * pd.groups
    met = 4 * parts if cf["combine"] == LAST else 0
    reach = pr.r * pr.dilation[0] * pr.w * (pr.c if pd.x_nhwc else 1)  # from the first tap to the last
    columns = pd.column_floats if pd.columns else 0
    largest = max(4 * columns, 4 * reach, pr.x_bytes, pr.y_bytes, pr.z_bytes * cf["sg"], filter_bytes, met)
    images = image_defines(pr, View.unflattened(pr)) | dict(Y_NHWC=int(pd.y_nhwc))
    return images | dict(
        VECTOR=cf["v"], TK=cf["tk"], TP=cf["tp"], LK=cf["lk"], WK=cf["wk"], WP=cf["wp"], SB=cf["sb"],
        CV=cf["cv"], CS=cf["cs"], STAGES=cf["stages"], FRAGMENTS=cf["fd"], UNROLLED=tiling.run,
        MIN_BLOCKS=cf["mb"], STREAM=cf["stream"],
        STEPS=tiling.steps,
        K_TILES=tiling.k_tiles, P_TILES=1, Q_TILES=tiling.q_tiles, C_PADDED=c_padded,
        N=pr.n, C=pd.c, H=pr.h, W=pr.w, K=pd.k, GROUPS_=pd.groups,
        STR_H=pr.stride[0], STR_W=pr.stride[1], PAD_T=pr.pad[0], PAD_L=pr.pad[2], STRIDED=int(pd.strided),
        TAPPED=int(pd.tapped), FLAT=int(pd.flat), **_taps(pr, pd, tiling),
        X_NHWC=int(pd.x_nhwc), X_ROWS=int(pd.columns or pr.n == 1), X_PITCH_C=pd.pitch,
        X_QUADS=int(quads), X_LAST=last, X_PITCH=tiling.x_pitch, X_FLOATS=tiling.x_floats,
        X_KEPT=int(few_copies(pd, tiling)), Y_VECTOR=int(y_vector),
        K_FASTEST=k_fastest(pr), SHARED_BYTES=tiling.shared_bytes,
        OFFSET64=offset64(largest // 4, cf["sg"] * tiling.steps),
        **share_defines(cf["combine"], sg=cf["sg"]),
    )  # fmt: skip


def _taps(pr: Problem, pd: Product, tiling: GemmTiling) -> dict[str, int]:
    """The defines of gemm_taps.h and gemm_flat.h."""
    if not pd.tapped:
        return {}
    table = dict(C_ALL=pr.c, TABLE_AT=tiling.table_at) if pd.flat else {}
    return dict(
        R=pr.r, S=pr.s, DIL_H=pr.dilation[0], DIL_W=pr.dilation[1], PADDED=int(any(pr.pad)), **table
    )
