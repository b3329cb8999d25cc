"""The shifted family: any filter over x in nchw as it is, on the tensor cores of sm_90a.

Lanes read the pixels under each tap from planes in shared memory, number by number, and hand them to the
tensor cores in registers. So neither does a kernel copy x to nhwc before, nor do threads turn it.
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.limits import (
    COLUMNS_OF_32,
    MOST_BITS,
    SPILLS,
    block_rule,
    blocks_param,
    fits_shared,
    handed_on,
    no_wgmma,
    not_planes,
    resident_rule,
    shared_rule,
)
from tilewright.kernels.products import in_chunk, packer_of, products_define, tf32_or_plain
from tilewright.kernels.shifted.registers import fits, hands_on, registers_to_send
from tilewright.kernels.shifted.shape import Shape, columns
from tilewright.kernels.shifted.tile import (
    PIECE,
    ShiftedTiling,
    blocks,
    channels,
    filter_rows,
    image_rows,
    k_tiles,
    runs,
    shape_of,
    steps,
    tiles,
    tiling_of,
)
from tilewright.kernels.shifted.work import work_of
from tilewright.kernels.split_k import operands
from tilewright.kernels.tile import NONE, View, image_defines, layer_defines, pointwise, up_to
from tilewright.kernels.untuned import pack_rows
from tilewright.kernels.untuned.nhwc import copied_first, copy_as_is
from tilewright.kernels.wgmma import TEAM
from tilewright.kernels.word import dtype_code
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

MOST_TEAMS = 4
IMAGES = (1, 2, 3, 4, 5)  # of a block
SMALLEST = dict(rows=1, ni=1, across=0, tall=1, bn=32, chunks=4, xs=1, stages=2, stay=0)
OF_SHAPE = "rows parts ni across tall"  # parameters that say which outputs a block has
MOST_PIXELS = 1 << 30  # of all images, if a run is of pixels of several
MOST_PRODUCTS = 80  # of a step, all unrolled


class Shifted(Family):
    """Convolutions of nchw as it is, in f16, bf16 and tf32, on sm_90a."""

    name = "shifted"
    precisions = ("f16", "bf16", "tf32")
    examples = (
        "n2c72h10w12k40r3s3p1-f16+bias+add0.5+relu", "n1c68h9w8k36r3s3p1u2-bf16+silu",
        "n1c40h6w10k33r3s3p1-tf32+bias",
    )  # fmt: skip

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support filters over images of whole pieces of 16 bytes, on the tensor cores of sm_90."""
        if reason := super().refuses(problem, device) or no_wgmma(device) or not_planes(problem):
            return reason
        if pointwise(problem):
            return "a filter of one tap and no stride shifts nothing: other families are made for it"
        if problem.epilogue.pool:
            return "a block has rows of outputs, not windows: it does not pool"
        if problem.c * problem.h * problem.w % in_chunk(problem):
            return "planes are copied in bulk: images are multiples of 16 bytes"
        if min(problem.c, channels(problem, 8)) * problem.h * problem.w >= 1 << 31:
            return "the planes of a run of channels have more pixels than are counted in 32 bits"
        if max(problem.r, problem.s) > MOST_BITS:
            return f"lanes keep a bit for each row and column of a filter, {MOST_BITS} at most"
        shapes = [Shape(problem, rows, problem.q, 1) for rows in _rows(problem)]
        shapes += [Shape(problem, 1, columns(problem, parts), 1) for parts in _parts(problem)]
        if not any(shape.meets_image for shape in shapes if shape.teams <= MOST_TEAMS):
            return "tiles of rows of outputs would see padding alone"
        least = SMALLEST | dict(parts=max(_parts(problem)))
        if not fits_shared(device, tiling_of(problem, least).shared_bytes, 1):
            return "a block has no room for the planes under a row of outputs, and two rows of the filter"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        clusters = up_to(device.max_cluster, (1, 2, 4, 8))
        return (
            Param("rows", _rows(problem), "rows of pixels of a block"),
            Param("parts", _parts(problem), "parts of a row, if a block has but one of them"),
            Param("ni", up_to(problem.n, IMAGES), "images of a block, if it has all rows"),
            Param("across", (0, 1), "whether tiles go on across rows and images, until warpgroups are full"),
            Param("tall", (1, 2, 3, 4), "outputs of a pixel, one below the other"),
            Param("bn", (32, 64, 96, 128, 192, 256), "output channels of a block"),
            Param("chunks", (2, 4, 8), "pieces of 16 bytes of a run's channels"),
            blocks_param(1, 2, 3),
            Param("sets", (1, 2), "sets of fragments; of two, one is read while the other is multiplied"),
            Param("sc", clusters, "shares of the sum across a cluster, added up from its shared memory"),
            Param("xs", (1, 2, 3, 4), "runs of channels of the input in flight"),
            Param("stages", (1, 2, 3, 4, 5, 6), "steps, of a filter row each or of all, in flight"),
            Param("stay", (0, 1), "whether sums go from registers to y, and blocks stay for more tiles"),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch; before it another one if x is to be copied to where bulk copies may begin."""
        cf, chunks = config.values, config["chunks"]
        tiling, product = tiling_of(problem, cf), tf32_or_plain(problem)
        main = Launch(
            "shifted", (blocks(problem, device, cf), 1, 1), (shape_of(problem, cf).threads, 1, 1),
            operands(NONE), shared_bytes=tiling.shared_bytes, cluster=cf["sc"],
        )  # fmt: skip
        found = Blueprint(
            source="shifted.cu", defines=tuple(_defines(problem, device, tiling, cf, aligned).items()),
            launches=(main,), packed_bytes=_packed_bytes(problem, cf),
            pack=pack_rows(product, chunks, cf["bn"], _taps(problem, chunks), channels(problem, chunks)),
            packer=packer_of(product), specific=True,
        )  # fmt: skip
        return found if aligned else copied_first(found, copy_as_is(problem))

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Length of the longest chain of adds: products of 32 bytes, then the shares."""
        sc, of_tap = config["sc"], config["chunks"] // 2
        taps = filter_rows(problem, config["tall"]) * problem.s  # of a step
        return ceil_div(steps(problem, config.values), sc) * taps * of_tap + sc


def _rows(pr: Problem) -> tuple[int, ...]:
    """Rows of a tile: a few, as many as some warpgroups hold, or a small part of all."""
    wide = Shape(pr, 1, pr.q, 1).wide
    most = min(pr.p, max(1, MOST_TEAMS * TEAM // wide))
    full = {count * TEAM // wide for count in range(1, MOST_TEAMS + 1)}
    parts = {ceil_div(pr.p, part) for part in range(1, 9)}
    return tuple(sorted({min(rows, most) for rows in {1, 2, 3} | full | parts if rows}))


def _parts(pr: Problem) -> tuple[int, ...]:
    """Parts of a row: none, or as many as have the pixels of some warpgroups."""
    parts = {ceil_div(pr.q, count * TEAM) for count in range(1, MOST_TEAMS + 1)}
    whole = {1} if Shape(pr, 1, pr.q, 1).teams <= MOST_TEAMS else set()
    return tuple(sorted({part for part in parts if part > 1} | whole))


def _runs_of_block(pr: Problem, device: Device, cf: Values) -> int:
    """Runs that a block is sent, one after the other: of all its tiles."""
    of_block = ceil_div(tiles(pr, cf), max(1, blocks(pr, device, cf))) if cf["stay"] else 1
    return runs(pr, cf["chunks"]) * of_block


def _packed_bytes(pr: Problem, cf: Values) -> int:
    bn, chunks = cf["bn"], cf["chunks"]
    return k_tiles(pr, cf) * _taps(pr, chunks) * (bn * PIECE * chunks)


def _taps(pr: Problem, chunks: int) -> int:
    """Taps of the filter, of each run of channels anew."""
    return runs(pr, chunks) * pr.r * pr.s


def _goes_on(pr: Problem, cf: Values) -> bool:
    """Whether tiles have more than their rows of images, and would have more warpgroups with another."""
    shape, rows, images = shape_of(pr, cf), cf["rows"], cf["ni"]
    rows, images = (rows + 1, images) if rows < shape.p_rows else (rows, images + 1)
    more = Shape(pr, rows, shape.columns, images, across=True, tall=shape.tall)
    return (shape.columns == pr.q and shape.of_image % shape.pixels != 0
            and (more.teams > shape.teams or images > min(pr.n, IMAGES[-1]))
            and pr.n * shape.of_image < MOST_PIXELS)  # fmt: skip


def _reads_less(pr: Problem, cf: Values) -> bool:
    """Whether outputs of a pixel share rows of the image, and blocks have no more than there are."""
    tall = cf["tall"]
    shares = pr.dilation[0] == 1 and pr.stride[0] < pr.r and image_rows(pr, tall) <= MOST_BITS
    return bool(cf["stay"]) and shares and tall <= pr.p and cf["rows"] <= ceil_div(pr.p, tall)


def _products(pr: Problem, cf: Values) -> int:
    """Fragments that a lane reads in a step, one set after the other."""
    return cf["chunks"] // 2 * image_rows(pr, cf["tall"])


def _unrolled(pr: Problem, cf: Values) -> int:
    """Products of a step, each an instruction of its own."""
    return cf["chunks"] // 2 * cf["tall"] * filter_rows(pr, cf["tall"]) * pr.s


def _has_stages(stages: int, of_share: int) -> bool:
    """Whether there are no more buffers than steps, and more than one for several."""
    return min(2, of_share) <= stages <= max(2, of_share)


RULES = (
    Rule("parts", lambda rows, parts, ni: parts == 1 or rows == ni == 1,
         "parts of several rows: a block has a run of outputs"),
    Rule("tall", lambda problem, cf: cf["tall"] == 1 or _reads_less(problem, cf),
         "pixels of several outputs that share no rows, or of more than a block has", needs="rows tall stay"),
    Rule("images", lambda problem, rows, ni, tall: ni == 1 or rows == ceil_div(problem.p, tall),
         "several images of which a block does not have all rows"),
    Rule("across", lambda problem, cf: not cf["across"] or _goes_on(problem, cf),
         "a run of pixels that is a tile of rows, or of more of them, too", needs=OF_SHAPE),
    Rule("padding", lambda problem, cf: shape_of(problem, cf).meets_image,
         "tiles that see padding alone, of which nothing can be copied", needs=OF_SHAPE),
    Rule("teams", lambda problem, cf: shape_of(problem, cf).teams <= MOST_TEAMS,
         "warpgroups, of 64 pixels each, for which a unit has no registers", needs=OF_SHAPE),
    COLUMNS_OF_32,
    block_rule(lambda problem, device, cf: shape_of(problem, cf).threads <= device.max_threads, OF_SHAPE),
    resident_rule(
        lambda problem, device, cf: shape_of(problem, cf).threads * cf["mb"] <= device.threads_per_unit,
        f"{OF_SHAPE} mb",
    ),
    Rule("registers", fits, SPILLS, needs=f"{OF_SHAPE} bn chunks mb sets sc stay"),
    Rule("depth", lambda problem, chunks: chunks < 8 or channels(problem, 4) < problem.c,
         "more channels of a run than there are"),
    Rule("unrolled", lambda problem, cf: _unrolled(problem, cf) <= MOST_PRODUCTS,
         "a step of so many products that it takes seconds to compile", needs="chunks tall"),
    Rule("sets", lambda problem, cf: _products(problem, cf) % cf["sets"] == 0,
         "two sets of fragments, of which a step does not end with the second", needs="chunks tall sets"),
    Rule("shares", lambda problem, cf: cf["sc"] <= steps(problem, cf),
         "shares of the sum without steps", needs="chunks tall sc"),
    Rule("runs", lambda problem, device, cf: cf["xs"] <= _runs_of_block(problem, device, cf),
         "more buffers than runs of channels", needs=f"{OF_SHAPE} bn chunks mb xs sc stay"),
    Rule("stages", lambda problem, cf: _has_stages(cf["stages"], ceil_div(steps(problem, cf), cf["sc"])),
         "more buffers than steps of a share, or one for several", needs="chunks tall sc stages"),
    Rule("stay", lambda problem, device, cf:
         not cf["stay"] or (cf["sc"] == 1 and k_tiles(problem, cf) <= device.units * cf["mb"]),
         "shares of sums that go to y, or more tiles of channels than the device has blocks at once",
         needs="bn mb sc stay"),
    shared_rule(lambda problem, cf: tiling_of(problem, cf).shared_bytes,
                f"{OF_SHAPE} bn chunks mb xs stages stay"),
)  # fmt: skip


def _defines(pr: Problem, device: Device, tiling: ShiftedTiling, cf: Values, aligned: bool) -> Values:
    view, shape, bn = View.unflattened(pr), shape_of(pr, cf), cf["bn"]
    handing = hands_on(pr, device, cf)
    return image_defines(pr, view) | layer_defines(pr, view) | dict(
        DTYPE=dtype_code(pr), **products_define("PRODUCTS", tf32_or_plain(pr)),
        N=pr.n, ROWS=shape.rows, TALL=shape.tall, COLUMNS=shape.columns, IMAGES=shape.met_images,
        WIDE=shape.wide, PIXELS=shape.of_image, P_ROWS=shape.p_rows, SPAN_COLUMNS=shape.span,
        ROW_W=shape.row_w, TILES=tiling.tiles, K_TILES=k_tiles(pr, cf), CHANNELS=channels(pr, cf["chunks"]),
        RUNS=runs(pr, cf["chunks"]), STEPS=steps(pr, cf), OF_STEP=filter_rows(pr, cf["tall"]),
        ACROSS=int(shape.across), SPLIT=int(shape.split), KB=bn, WG_N=bn, WG_EIGHTHS=bn // 8,
        CHUNKS=cf["chunks"], STAGES=cf["stages"], X_STAGES=cf["xs"], SETS=cf["sets"],
        SC=cf["sc"], CLUSTER=cf["sc"],
        MIN_BLOCKS=cf["mb"], HANDS_ON=int(handing), STAYS=cf["stay"],
        **(handed_on(shape.teams, cf["mb"], device, registers_to_send(pr, cf)) if handing else {}),
        TEAMS=shape.teams, PITCH=shape.pitch, STEP_BYTES=tiling.w_bytes, X_BYTES=tiling.x_bytes,
        X_FROM=tiling.x_from, TILE_PIXELS=shape.pixels, TILE_PITCH=tiling.tile_pitch,
        BARS_FROM=tiling.bars_from, SHARED_BYTES=tiling.shared_bytes, RUN_OUT=shape.run_out,
        Y_VECTOR=int(aligned),
        OFFSET64=offset64(pr.x_bytes, 4 * pr.z_elements, _packed_bytes(pr, cf)),
    )  # fmt: skip
