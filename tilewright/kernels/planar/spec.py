"""The planar family: 1x1 layers in nchw on the tensor cores of sm_90a, of planes that begin anywhere.

Copies by tensor maps begin at multiples of 16 bytes, as planes of 7x7 or 14x14 pixels do not. The planes of
an image follow each other, so that many of them are one copy in bulk.
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.limits import (
    COLUMNS_OF_32,
    SPARE,
    SPILLS,
    block_rule,
    blocks_param,
    fits_registers,
    no_wgmma,
    not_planes,
    resident_rule,
    shared_rule,
)
from tilewright.kernels.planar.tile import (
    PlanarTiling,
    of_step,
    plane,
    registers,
    steps,
    teams,
    threads,
    tiles_of,
    tiling_of,
)
from tilewright.kernels.planar.work import work_of
from tilewright.kernels.products import in_chunk, products_define, tf32_or_plain
from tilewright.kernels.split_k import operands
from tilewright.kernels.tile import NONE, pointwise, up_to
from tilewright.kernels.untuned.nhwc import copied_first, copy_as_is
from tilewright.kernels.word import dtype_code
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

FEWEST_PIXELS, MOST_PIXELS = 9, 384  # of a plane
MOST_TEAMS = 6
FEWEST_STEPS = 2  # of a share


class Planar(Family):
    """1x1 layers of planes that begin anywhere, on sm_90a."""

    name = "planar"
    precisions = ("f16", "bf16", "tf32")
    examples = (
        "n3c136h7w7k40r1s1-f16+bias+add0.5+relu", "n2c132h6w7k68r1s1-bf16+silu", "n3c68h5w5k36r1s1-tf32+bias",
    )  # fmt: skip

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support 1x1 layers in nchw whose images are whole copies, on the tensor cores of sm_90."""
        if reason := super().refuses(problem, device) or no_wgmma(device) or not_planes(problem):
            return reason
        if not pointwise(problem):
            return "every pixel is computed from itself: it takes 1x1 filters without stride or padding"
        if problem.epilogue.pool:
            return "it takes pixels two by two, whatever their rows: it does not pool"
        if not FEWEST_PIXELS <= plane(problem) <= MOST_PIXELS:
            return f"a block has whole planes, of {FEWEST_PIXELS} to {MOST_PIXELS} pixels"
        whole = in_chunk(problem)
        if problem.c * plane(problem) % whole or problem.k * plane(problem) % whole:
            return "images of x and y are copied in bulk: they begin at multiples of 16 bytes"
        if steps(problem) < FEWEST_STEPS:
            return f"it has too few input channels for a loop of {of_step(problem)} in a step"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        clusters = up_to(device.max_cluster, (1, 2, 4, 8))
        return (
            Param("ni", up_to(problem.n, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)), "images of a block"),
            Param("bn", (32, 64, 96, 128, 192, 256), "output channels of a block"),
            blocks_param(1, 2),
            Param("sender", (0, 1), "a warp that only sends for what the others multiply"),
            Param("sets", (1, 2), "sets of fragments; of two, one is read while the other is multiplied"),
            Param("sc", clusters, "shares of the sum across a cluster, added up from its shared memory"),
            Param("turns", (1, 2, 3, 4, 6, 8), "tiles of a block, one stored while the next is multiplied"),
            Param("stages", (2, 3, 4, 5, 6, 7, 8), "steps of 64 channels, or 32 of tf32, in flight"),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch; before it another one if x is to be copied to where bulk copies may begin."""
        cf = config.values
        tiling = tiling_of(problem, cf)
        main = Launch(
            "planar", (tiling.blocks, 1, 1), (threads(problem, cf["ni"], cf["sender"]), 1, 1),
            operands(NONE), shared_bytes=tiling.shared_bytes, cluster=cf["sc"],
        )  # fmt: skip
        found = Blueprint(
            source="planar.cu", defines=tuple(_defines(problem, tiling, cf, aligned).items()),
            launches=(main,), packed_bytes=_packed_bytes(problem, tiling),
            pack=(
                ("PACK_K", cf["bn"]), ("PACK_PLANE", plane(problem)),
                *products_define("PACK_PRODUCTS", tf32_or_plain(problem)).items(),
            ),
            packer="planar_pack.cu", specific=True,
        )  # fmt: skip
        return found if aligned else copied_first(found, copy_as_is(problem))

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Length of the longest chain of adds: products of 16 channels, or 8, then the shares."""
        return ceil_div(steps(problem), config["sc"]) * 4 + config["sc"]


def _packed_bytes(pr: Problem, tiling: PlanarTiling) -> int:
    return tiling.k_tiles * steps(pr) * tiling.w_bytes


def _fits_registers(problem: Problem, device: Device, cf: Values) -> bool:
    of_unit = threads(problem, cf["ni"], cf["sender"]) * cf["mb"]
    return fits_registers(device, registers(problem, cf), of_unit, spare=SPARE)


RULES = (
    Rule("teams", lambda problem, ni: teams(problem, ni) <= MOST_TEAMS,
         "warpgroups, of 32 pairs of pixels each, for which a unit has no registers"),
    COLUMNS_OF_32,
    block_rule(lambda problem, device, ni, sender: threads(problem, ni, sender) <= device.max_threads),
    resident_rule(
        lambda problem, device, ni, mb, sender: threads(problem, ni, sender) * mb <= device.threads_per_unit
    ),
    Rule("registers", _fits_registers, SPILLS, needs="ni bn mb sender sets sc"),
    Rule("shares", lambda problem, sc: sc == 1 or steps(problem) >= FEWEST_STEPS * sc,
         "shares of fewer than two steps"),
    Rule("turns", lambda problem, device, cf: cf["turns"] == 1 or (
         cf["sc"] == 1 and tiles_of(problem, cf) > device.units * cf["mb"] * (cf["turns"] - 1)),
         "turns for fewer tiles than the device has at once, or for shares", needs="ni bn mb sc turns"),
    Rule("stages", lambda problem, sc, turns, stages: stages <= max(2, ceil_div(steps(problem), sc) * turns),
         "more buffers than steps of a block"),
    shared_rule(lambda problem, cf: tiling_of(problem, cf).shared_bytes, "ni bn mb sc turns stages"),
)  # fmt: skip


def _defines(pr: Problem, tiling: PlanarTiling, cf: Values, aligned: bool) -> Values:
    return dict(
        DTYPE=dtype_code(pr), **products_define("PRODUCTS", tf32_or_plain(pr)),
        N=pr.n, C=pr.c, K=pr.k, HW=plane(pr),
        IMAGES=cf["ni"], KB=cf["bn"], WG_N=cf["bn"], WG_EIGHTHS=cf["bn"] // 8, STAGES=cf["stages"],
        SENDER=cf["sender"], SETS=cf["sets"], SC=cf["sc"], TURNS=cf["turns"], CLUSTER=cf["sc"],
        MIN_BLOCKS=cf["mb"], TEAMS=teams(pr, cf["ni"]), STEPS=steps(pr), K_TILES=tiling.k_tiles,
        TILES=tiling.tiles, W_BYTES=tiling.w_bytes, X_BYTES=tiling.x_bytes, X_FROM=tiling.x_from,
        TILE_FROM=tiling.tile_from, BARS_FROM=tiling.bars_from,
        SHARED_BYTES=tiling.shared_bytes, Y_ALIGNED=int(aligned),
        OFFSET64=offset64(pr.x_bytes, 4 * pr.z_elements, _packed_bytes(pr, tiling)),
        **pr.epilogue.defines(pr.dtype),
    )  # fmt: skip
