"""The pointwise family: 1x1 layers in nchw on the tensor cores of sm_90a.

Such a layer has few products for each byte of x, and few for each output. So what comes in, what is
multiplied and what goes out go on side by side, of tile after tile.
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.limits import (
    COLUMNS_OF_32,
    SPILLS,
    blocks_param,
    handed_on,
    no_wgmma,
    not_planes,
    shared_rule,
)
from tilewright.kernels.pointwise.tile import (
    PointwiseTiling,
    blocks,
    boxes,
    channels,
    fits,
    hands_on,
    k_tiles,
    places,
    plane,
    plane_in,
    row_bytes,
    run_out,
    span,
    spans,
    steps,
    strands,
    thins,
    threads,
    tiles_of_block,
    tiling_of,
)
from tilewright.kernels.pointwise.work import work_of
from tilewright.kernels.products import TF32, packer_of, products_define, tf32_or_plain
from tilewright.kernels.split_k import operands
from tilewright.kernels.tensor_map import TiledMap
from tilewright.kernels.tile import NONE
from tilewright.kernels.untuned import pack_rows
from tilewright.kernels.untuned.nhwc import copied_first, copy_as_is
from tilewright.kernels.untuned.thin import thin, thinned_bytes
from tilewright.kernels.word import dtype_code
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, Problem

MOST_TEAMS = 4
MOST_SPANS = 1 << 30  # of all images, times output channels: tiles are counted in 32 bits


class Pointwise(Family):
    """1x1 layers of nchw as it is, in f16, bf16 and tf32, on sm_90a."""

    name = "pointwise"
    precisions = ("f16", "bf16", "tf32")
    examples = (
        "n3c136h4w6k40r1s1-f16+bias+add0.5+relu", "n2c132h8w9k68r1s1-bf16+silu", "n2c34h6w6k33r1s1-tf32+bias",
    )  # fmt: skip

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support 1x1 layers in nchw, on the tensor cores of sm_90."""
        if reason := super().refuses(problem, device) or no_wgmma(device) or not_planes(problem):
            return reason
        if (problem.r, problem.s, *problem.pad) != (1, 1, 0, 0, 0, 0):
            return "every pixel is computed from one of x: it takes 1x1 filters without padding"
        if problem.epilogue.pool:
            return "it takes pixels in runs, whatever their rows: it does not pool"
        if problem.c % strands(problem):
            return f"{strands(problem)} of its planes are a multiple of 16 bytes: so are its input channels"
        if strands(problem) * plane_in(problem) * DTYPE_BYTES[problem.dtype] >= 1 << 31:
            return "planes that begin anywhere have more bytes than are counted in 32 bits"
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
            shared_bytes=tiling.shared_bytes, tensor_map=_image(problem, chunks),
        )  # fmt: skip
        found = Blueprint(
            source="pointwise.cu", defines=tuple(_defines(problem, device, tiling, cf, aligned).items()),
            launches=(main,), packed_bytes=_packed_bytes(problem, tiling, cf),
            pack=_pack(problem, cf), packer=packer_of(product), specific=True,
        )  # fmt: skip
        if thins(problem):
            return copied_first(found, thin(problem, aligned))
        return found if aligned else copied_first(found, copy_as_is(problem))

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(problem, device, config.values)

    def remarks(self, problem: Problem, config: Config) -> dict[str, str]:
        """Report the size of the copied pixels."""
        if not thins(problem):
            return {}
        return {"copied": f"the pixels that are read, as planes: {thinned_bytes(problem):,} bytes"}

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Length of the longest chain of adds: products of 32 bytes."""
        return steps(problem, config["chunks"]) * config["chunks"] // 2


def _image(pr: Problem, chunks: int) -> TiledMap:
    """The tensor map of x: rows of a plane of each strand; a copy takes a strand's spans of a step."""
    apart, size = strands(pr), DTYPE_BYTES[pr.dtype]
    return TiledMap(
        size=size, columns=plane_in(pr) * apart, channels=pr.c // apart, rows=1, images=pr.n,
        box_columns=row_bytes(pr) // size, box_channels=channels(pr, chunks) // apart,
        rounds=tf32_or_plain(pr) == TF32,
    )  # fmt: skip


def _pack(pr: Problem, cf: Values) -> tuple[tuple[str, int], ...]:
    """Return the packer's defines of the filter's order: a step's strands follow each other as taps do."""
    apart, chunks = strands(pr), cf["chunks"]
    rows = pack_rows(tf32_or_plain(pr), chunks, cf["bn"], steps(pr, chunks), channels(pr, chunks) // apart)
    return *rows, ("CG", pr.c // apart), ("SIZE_S", apart)


def _packed_bytes(pr: Problem, tiling: PointwiseTiling, cf: Values) -> int:
    return k_tiles(pr, cf) * steps(pr, cf["chunks"]) * tiling.w_bytes


def _has_stages(problem: Problem, device: Device, cf: Values) -> bool:
    return cf["stages"] <= max(2, tiles_of_block(problem, device, cf) * steps(problem, cf["chunks"]))


RULES = (
    COLUMNS_OF_32,
    Rule("boxes", lambda problem, chunks: boxes(problem, chunks),
         "boxes of a strand's channels that are not eights"),
    Rule("depth", lambda problem, chunks:
         chunks < 8 or channels(problem, 4) < problem.c or not boxes(problem, 4),
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
        N=pr.n, C=pr.c, K=pr.k, HW=plane(pr), PLANE_IN=plane_in(pr), STRANDS=strands(pr),
        SPAN_PIXELS=span(pr), ROW_BYTES=row_bytes(pr), SPANS=spans(pr, cf), PLACES=places(pr, cf),
        K_TILES=k_tiles(pr, cf), CHANNELS=channels(pr, cf["chunks"]), STEPS=steps(pr, cf["chunks"]),
        KB=cf["bn"], WG_N=cf["bn"], WG_EIGHTHS=cf["bn"] // 8,
        CHUNKS=cf["chunks"], TEAMS=cf["teams"], TURNS=cf["turns"], SETS=cf["sets"], KEEPS=cf["keep"],
        STAGES=cf["stages"], MIN_BLOCKS=cf["mb"], W_BYTES=tiling.w_bytes, X_BYTES=tiling.x_bytes,
        X_FROM=tiling.x_from, OUT_FROM=tiling.out_from, OUT_BYTES=tiling.out_bytes,
        BARS_FROM=tiling.bars_from, SHARED_BYTES=tiling.shared_bytes,
        HANDS_ON=int(handing), **(handed_on(cf["teams"], cf["mb"], device) if handing else {}),
        RUN_OUT=run_out(pr) if aligned else 1,
        OFFSET64=offset64(pr.x_bytes, 4 * pr.z_elements, _packed_bytes(pr, tiling, cf)),
        **pr.epilogue.defines(pr.dtype),
    )  # fmt: skip
