"""The pointwise family: 1x1 layers in nchw on the tensor cores of sm_90a, whose planes begin at 16 bytes.

Such a layer has few products for each byte of x, and few for each output. So what comes in, what is
multiplied and what goes out go on side by side, of tile after tile.
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.limits import SPILLS, blocks_param, handed_on, no_wgmma, shared_rule
from tilewright.kernels.pointwise.tile import (
    PIECE,
    PointwiseTiling,
    blocks,
    channels,
    fits,
    hands_on,
    k_tiles,
    kept_bytes,
    plane,
    span,
    steps,
    threads,
    tiles_of_block,
    tiling_of,
)
from tilewright.kernels.pointwise.work import work_of
from tilewright.kernels.products import TF32, in_chunk, packer_of, products_define, tf32_or_plain
from tilewright.kernels.split_k import operands
from tilewright.kernels.tensor_map import TiledMap
from tilewright.kernels.tile import NONE, pointwise
from tilewright.kernels.untuned import pack_rows
from tilewright.kernels.untuned.nhwc import copied_first, copy_as_is
from tilewright.kernels.word import dtype_code
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

MOST_TEAMS = 4
MOST_SPANS = 1 << 30  # of all images, times output channels: tiles are counted in 32 bits


class Pointwise(Family):
    """1x1 layers of nchw as it is, in f16, bf16 and tf32, on sm_90a."""

    name = "pointwise"
    widens = False
    dtypes = ("f16", "bf16")
    takes_tf32 = True
    examples = (
        "n3c136h4w6k40r1s1-f16+bias+add0.5+relu", "n2c132h8w9k68r1s1-bf16+silu", "n2c34h6w6k33r1s1-tf32+bias",
    )  # fmt: skip

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support 1x1 layers in nchw whose planes begin at 16 bytes, on the tensor cores of sm_90."""
        if reason := super().refuses(problem, device) or no_wgmma(device):
            return reason
        if (problem.layout_in, problem.layout_out) != ("nchw", "nchw"):
            return "it reads planes and writes planes: it takes x and y in nchw"
        if not pointwise(problem):
            return "every pixel is computed from itself: it takes 1x1 filters without stride or padding"
        if problem.groups > 1:
            return "it is made for layers of one group"
        if problem.epilogue.pool:
            return "it takes pixels in runs, whatever their rows: it does not pool"
        if plane(problem) % in_chunk(problem):
            return "planes are copied by a tensor map: they are multiples of 16 bytes"
        if problem.n * ceil_div(plane(problem), span(problem)) * problem.k > MOST_SPANS:
            return f"it counts spans of {span(problem)} pixels, by channels, up to {MOST_SPANS:,}"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        return (
            Param("bn", (32, 64, 96, 128, 192, 256), "output channels of a block"),
            Param("teams", (1, 2, 3, MOST_TEAMS), "warpgroups that multiply, 64 pixels each"),
            Param("turns", (0, 1), "whether these take turns: one multiplies while another stores"),
            Param("chunks", (4, 8), "pieces of 16 bytes of a step's channels"),
            blocks_param(1, 2, 3),
            Param("sets", (1, 2, 4), "sets of fragments; one of several is read while others are multiplied"),
            Param("keep", (0, 1), "whether a block's filter stays in shared memory, and comes once"),
            Param("stages", (2, 3, 4, 6, 8, 12), "steps in flight"),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch; before it another one if x is to be copied to where planes may begin."""
        cf, chunks = config.values, config["chunks"]
        tiling, product = tiling_of(problem, cf), tf32_or_plain(problem)
        main = Launch(
            "pointwise", (blocks(problem, device, cf), 1, 1), (threads(cf), 1, 1), operands(NONE),
            shared_bytes=tiling.shared_bytes, image=_image(problem, chunks),
        )  # fmt: skip
        found = Blueprint(
            source="pointwise.cu", defines=tuple(_defines(problem, device, tiling, cf, aligned).items()),
            launches=(main,), packed_bytes=_packed_bytes(problem, tiling, cf),
            pack=pack_rows(product, chunks, cf["bn"], steps(problem, chunks), channels(problem, chunks)),
            packer=packer_of(product), specific=True,
        )  # fmt: skip
        return found if aligned else copied_first(found, copy_as_is(problem))

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Length of the longest chain of adds: products of 32 bytes."""
        return steps(problem, config["chunks"]) * config["chunks"] // 2


def _image(pr: Problem, chunks: int) -> TiledMap:
    """The tensor map of x: an image's planes as rows of pixels; a copy takes a span of a step's channels."""
    return TiledMap(
        size=DTYPE_BYTES[pr.dtype], columns=plane(pr), channels=pr.c, rows=1, images=pr.n,
        box_columns=span(pr), box_channels=channels(pr, chunks), rounds=tf32_or_plain(pr) == TF32,
    )  # fmt: skip


def _packed_bytes(pr: Problem, tiling: PointwiseTiling, cf: Values) -> int:
    return k_tiles(pr, cf) * steps(pr, cf["chunks"]) * tiling.w_bytes


def _has_stages(problem: Problem, device: Device, cf: Values) -> bool:
    return cf["stages"] <= max(2, tiles_of_block(problem, device, cf) * steps(problem, cf["chunks"]))


RULES = (
    Rule("channels", lambda problem, bn: bn == 32 or bn < problem.k + 32,
         "32 columns of a product, or more, without channels"),
    Rule("depth", lambda problem, chunks: chunks < 8 or channels(problem, 4) < problem.c,
         "more channels of a step than there are"),
    Rule("sets", lambda chunks, sets: sets <= chunks // 2, "more sets of fragments than products of a step"),
    Rule("registers", fits, SPILLS, needs="bn teams mb sets"),
    Rule("turns", lambda problem, device, cf: not cf["turns"] or (
         1 < cf["teams"] <= tiles_of_block(problem, device, cf)),
         "turns of one warpgroup, or of more than there are tiles", needs="bn teams turns mb"),
    Rule("keep", lambda problem, device, cf: not cf["keep"] or tiles_of_block(problem, device, cf) > 1,
         "a filter that stays for one tile", needs="bn teams turns mb keep"),
    Rule("stages", _has_stages, "more buffers than steps of a block",
         needs="bn teams turns chunks mb stages"),
    shared_rule(lambda problem, cf: tiling_of(problem, cf).shared_bytes,
                "bn teams turns chunks mb keep stages"),
)  # fmt: skip


def _defines(pr: Problem, device: Device, tiling: PointwiseTiling, cf: Values, aligned: bool) -> Values:
    handing = hands_on(pr, device, cf)
    return dict(
        DTYPE=dtype_code(pr), **products_define("PRODUCTS", tf32_or_plain(pr)),
        N=pr.n, C=pr.c, K=pr.k, HW=plane(pr), KB=cf["bn"], WG_N=cf["bn"], WG_EIGHTHS=cf["bn"] // 8,
        CHUNKS=cf["chunks"], TEAMS=cf["teams"], TURNS=cf["turns"], SETS=cf["sets"], KEEPS=cf["keep"],
        STAGES=cf["stages"], MIN_BLOCKS=cf["mb"], CLUSTER=1, X_FROM=tiling.x_from, OUT_FROM=tiling.out_from,
        OUT_BYTES=tiling.out_bytes, BARS_FROM=tiling.bars_from, SHARED_BYTES=tiling.shared_bytes,
        HANDS_ON=int(handing), **(handed_on(cf["teams"], cf["mb"], device) if handing else {}),
        RUN_OUT=PIECE // kept_bytes(pr) if aligned else 1,
        OFFSET64=offset64(pr.x_bytes, 4 * pr.z_elements, _packed_bytes(pr, tiling, cf)),
        **pr.epilogue.defines(pr.dtype),
    )  # fmt: skip
