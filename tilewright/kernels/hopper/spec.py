"""The hopper family: implicit GEMM on the tensor cores of sm_90a; some warps copy, others multiply."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.error_bound import too_few
from tilewright.kernels.family import MOST_LAYER_PIXELS, Blueprint, Config, Family, Param, Rule
from tilewright.kernels.fold import folded, of_layer
from tilewright.kernels.hopper import fallback
from tilewright.kernels.hopper.blueprint import blueprint_of
from tilewright.kernels.hopper.image import PIECES, image_of
from tilewright.kernels.hopper.raster import TALL, raster_of
from tilewright.kernels.hopper.rules import CHUNKS, RULES, batches
from tilewright.kernels.hopper.sum import chunks_of, copied_parts, held, most_steps, parts_of, promotions
from tilewright.kernels.hopper.ways import COPIES, GATHERED, HALVED, NCHW, WAYS, ways
from tilewright.kernels.hopper.work import work_of
from tilewright.kernels.limits import blocks_param, no_wgmma, thin_groups
from tilewright.kernels.split_k import combine_param
from tilewright.kernels.tile import LAST, NONE, TWO_PASS, up_to
from tilewright.kernels.untuned.nhwc import copy_remark, tap_chunks
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

SHARES = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 16, 18, 24, 32)
WIDTHS = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 112, 128, 144, 160, 192, 224, 256)
WIDTHS_I8 = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256)
MOST_PIECES = (1 << 31) - 1  # of the input, 16 bytes each, which a table counts in 32 bits


class Hopper(Family):
    """Convolutions in f16, bf16, i8, tf32, accurate and f8 on sm_90a."""

    name = "hopper"
    precisions = ("f16", "bf16", "i8", "f8", "q8", "tf32", "accurate")
    examples = (
        *(f"n1c48h9w8k40r3s3p1-{precision}-nhwc+bias" for precision in precisions),
        "n1c48h9w8k40r3s3p1-f16+bias", "n1c48h9w8k40r1s1-bf16+bias",
    )  # fmt: skip

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support what fits the tensor cores of sm_90."""
        problem = folded(problem)
        if reason := super().refuses(problem, device) or no_wgmma(device) or too_few(problem):
            return reason
        if raster_of(problem).places > MOST_LAYER_PIXELS:
            return f"its raster has more than {MOST_LAYER_PIXELS:,} places"
        pixels = problem.n * problem.h * problem.w
        if pixels * problem.groups * parts_of(problem) * tap_chunks(problem) > MOST_PIECES:
            return f"its input has more than {MOST_PIECES:,} pieces of 16 bytes"
        return thin_groups(problem)

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The problem with columns turned into channels, where these are whole folds (fold.py)."""
        return folded(problem)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        layer, problem = problem, folded(problem)
        clusters = up_to(device.max_cluster, (1, 2, 4, 8))
        widths = WIDTHS_I8 if problem.stored == "i8" else WIDTHS
        found = ways(problem)
        if layer is not problem:  # x in nchw is folded as it is copied
            found = tuple(way for way in found if way not in NCHW)
        whole = {chunks_of(problem, GATHERED)} if GATHERED in found else set()
        chunks = tuple(sorted({*up_to(max(2, 2 * tap_chunks(problem) - 1), CHUNKS), *whole}))
        return (
            Param("x", found, "how the input is read", tuple(WAYS[way] for way in found)),
            Param("wm", (1, 2, 3, 4), "warpgroups of a block over channels, 64 each"),
            Param("wn", (1, 2, 3, 4), "warpgroups of a block over pixels"),
            Param("bn", up_to(raster_of(problem).places + 15, widths), "pixels of a warpgroup"),
            blocks_param(1, 2, 3),
            Param("chunks", chunks, "pieces of 16 bytes of the sum in a step"),
            Param("pieces", (0, 1), "how pieces lie in shared memory", PIECES),
            Param("tall", (0, 1), "what a tile of pixels is", TALL),
            Param("batch", batches(problem), "steps that come and go together"),
            Param("stages", (2, 3, 4, 5, 6, 8, 9, 10, 12, 16, 18, 24), "batches of filters in flight"),
            Param("xs", (1, 2, 3, 4, 6, 8), "patches of the input in flight"),
            Param("cm", clusters, "blocks of a cluster that share filters"),
            Param("sc", clusters, "shares of the sum across a cluster, added up in its shared memory"),
            Param("sg", SHARES, "shares of the sum across the grid"),
            combine_param(NONE, TWO_PASS, LAST),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch; others before it copy the input, after it sum shares, pool or fall back."""
        return of_layer(blueprint_of(folded(problem), device, config.values, aligned), problem)

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(folded(problem), device, config.values)

    def remarks(self, problem: Problem, config: Config) -> dict[str, str]:
        """Report the size of the copied input."""
        problem, cf = folded(problem), config.values
        if cf["x"] not in COPIES:
            return {}
        parts = copied_parts(problem, image_of(problem, cf) is not None)
        return copy_remark(problem, held(problem, cf), parts)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Products of 32 bytes, or promotions of several; then the shares one after the other.

        Or the fallback's chain, if longer, since it may compute any output.
        """
        cf, problem = config.values, folded(problem)
        shares = cf["sc"] * cf["sg"]
        of_step = promotions(problem, cf) or cf["chunks"] // 2
        found = most_steps(problem, cf) * of_step + shares + parts_of(problem) - 1
        return max(found, fallback.chain(problem)) if cf["x"] == HALVED else found
