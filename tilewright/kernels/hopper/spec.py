"""The hopper family: implicit GEMM on the tensor cores of sm_90a; some warps copy, others multiply."""

from __future__ import annotations

from tilewright.arithmetic import offset64
from tilewright.device import Device
from tilewright.device.architectures import WGMMA
from tilewright.kernels.bound import too_few
from tilewright.kernels.family import (
    MOST_PIXELS,
    Blueprint,
    Buffer,
    Config,
    Family,
    Launch,
    Param,
    Rule,
    Values,
    too_many,
)
from tilewright.kernels.fold import folded, of_layer
from tilewright.kernels.hopper import fallback, halves
from tilewright.kernels.hopper.finish import BY_TILE, OWN, finish, out_bytes, paired, run, stores
from tilewright.kernels.hopper.layout import layout
from tilewright.kernels.hopper.raster import (
    PIECES,
    SWIZZLED,
    TALL,
    image_of,
    joint,
    raster,
    raw_of,
    spans_of,
    stretch_of,
)
from tilewright.kernels.hopper.rules import CHUNKS, RULES, batches
from tilewright.kernels.hopper.sum import (
    ANEW,
    AS_IS,
    COPIED,
    COPIES,
    GATHERED,
    HALVED,
    NCHW,
    PLANES,
    PROMOTED,
    WAYS,
    chunks_of,
    copied_parts,
    held,
    leads,
    leap,
    most_steps,
    numbers,
    parts_of,
    products,
    promotions,
    skewed,
    turns_runs,
    ways,
)
from tilewright.kernels.hopper.tile import HopperTiling, k_group, registers, registers_at_most, tiling_of
from tilewright.kernels.hopper.work import work_of
from tilewright.kernels.products import PLAIN
from tilewright.kernels.requant import requant_defines, scale_operand
from tilewright.kernels.split_k import (
    combine_param,
    operands,
    reduction_buffers,
    second_pass,
    share_defines,
)
from tilewright.kernels.tile import LAST, NONE, TWO_PASS, image_defines, layer_defines, up_to
from tilewright.kernels.untuned import IN_ORDER, PAIRS
from tilewright.kernels.untuned.nhwc import (
    copied_bytes,
    copier,
    copy,
    copy_as_is,
    copy_defines,
    copy_defines_as_is,
    copy_remark,
    tap_chunks,
)
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPE_BYTES, DTYPES, MATHS, Problem

SHARES = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 16, 18, 24, 32)
WIDTHS = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 112, 128, 144, 160, 192, 224, 256)
WIDTHS_I8 = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256)
MOST_FILTER = 32  # rows or columns
FEWEST = 8  # channels of one of several groups
MOST_PIECES = (1 << 31) - 1  # of 16 bytes of the input, which a table counts in 32 bits
LEAST_ROOM = (8, 28)  # registers beside those counted, to unroll a loop of stores; of one that divides too


class Hopper(Family):
    """Convolutions in f16, bf16, i8, tf32, accurate and f8 on sm_90a."""

    name = "hopper"
    widens = False
    dtypes = ("f16", "bf16", "i8", "f8", "q8")  # and f32 where its math is not strict
    examples = (
        *(f"n1c48h9w8k40r3s3p1-{kind}-nhwc+bias" for kind in (*dtypes, *MATHS[1:])),
        "n1c48h9w8k40r3s3p1-f16+bias", "n1c48h9w8k40r1s1-bf16+bias",
    )  # fmt: skip

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take what fits the tensor cores of sm_90."""
        known, problem = (*self.dtypes, *MATHS[1:]), folded(problem)
        if problem.kind not in known:
            return f"it computes {', '.join(known)}, not {problem.kind}"
        elsewhere = device.is_cuda and device.capability != WGMMA
        if not device.is_gpu or not device.tensor_macs or elsewhere:
            return "it is made for the tensor cores of sm_90"
        if max(problem.r, problem.s) > MOST_FILTER:
            return f"the filter has more than {MOST_FILTER} rows or columns"
        if reason := too_many(problem) or too_few(problem):
            return reason
        if raster(problem) > MOST_PIXELS:
            return f"its raster has more than {MOST_PIXELS:,} places"
        pixels = problem.n * problem.h * problem.w
        if pixels * problem.groups * parts_of(problem) * tap_chunks(problem) > MOST_PIECES:
            return f"its input has more than {MOST_PIECES:,} pieces of 16 bytes"
        if problem.groups > 1 and min(problem.cg, problem.kg) < FEWEST:
            return f"groups of fewer than {FEWEST} channels leave most of a product empty"
        return None

    def inner(self, problem: Problem, device: Device) -> Problem:
        """The problem with columns that do not overlap as channels (fold.py)."""
        return folded(problem)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Offer the tunables, outermost choice first."""
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
            Param("bn", up_to(raster(problem) + 15, widths), "pixels of a warpgroup"),
            Param("mb", (1, 2, 3), "blocks that a unit holds at once (bounds the registers of a thread)"),
            Param("chunks", chunks, "pieces of 16 bytes of the sum in a step"),
            Param("pieces", (0, 1), "how they lie in shared memory", PIECES),
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
        """State what the hardware and the kernel forbid."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out one launch; some before it copy the input, some behind it sum shares, pool, fall back."""
        return of_layer(_blueprint(folded(problem), config.values, aligned, device), problem)

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count what one block and one thread do."""
        return work_of(folded(problem), device, config.values)

    def remarks(self, problem: Problem, config: Config) -> dict[str, str]:
        """Spell out what a copy of the input takes."""
        problem, cf = folded(problem), config.values
        if cf["x"] not in COPIES:
            return {}
        parts = copied_parts(problem, image_of(problem, cf) is not None)
        return copy_remark(problem, held(problem, cf), parts)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Products of 32 bytes, or all until they are promoted; then shares, one after the other.

        Or the fallback's, which may make any output.
        """
        cf, problem = config.values, folded(problem)
        shares = cf["sc"] * cf["sg"]
        of_step = promotions(problem, cf) or cf["chunks"] // 2
        found = most_steps(problem, cf) * of_step + shares + parts_of(problem) - 1
        return max(found, fallback.chain(problem)) if cf["x"] == HALVED else found


def _blueprint(pr: Problem, cf: Values, aligned: bool, device: Device) -> Blueprint:
    if not aligned and (cf["x"] == AS_IS or turns_runs(pr, cf["x"])):
        cf = cf | dict(x=COPIED)  # to a buffer that is
    tiling = tiling_of(pr, device, cf)
    who = finish(pr, cf, aligned) if device.is_cuda else BY_TILE
    blocks = min(tiling.blocks, cf["mb"] * device.units) if tiling.stays and who == OWN else tiling.blocks
    launches, workspace = _launches(pr, tiling, cf, blocks, device.units, aligned)
    stays = blocks < tiling.blocks
    early = tiling.image is not None and blocks <= device.units
    defines = _defines(pr, tiling, cf, aligned, device) | dict(FINISH=who, STAYS=int(stays), EARLY=int(early))
    defines |= dict(
        STORES=stores(pr, cf), PAIRED=int(paired(pr, cf)), OUT_BYTES=out_bytes(pr, cf)
    )
    defines |= requant_defines(pr)
    defines |= layout(pr, cf, stays, who).defines()
    parts: tuple[Blueprint, ...] = ()
    if cf["x"] == COPIED:
        moved = copy_defines(pr, held(pr, cf), tiling.x_parts, aligned) | _products(pr, cf, "COPIED_AS")
        parts = (copier(moved),)
    elif cf["x"] in ANEW and not aligned:
        parts = (copier(copy_defines_as_is(pr.x_bytes, DTYPE_BYTES[pr.dtype])),)
    elif cf["x"] == HALVED:
        layer = image_defines(pr, tiling.view) | {name: defines[name] for name in ("DTYPE", "OFFSET64")}
        layer |= dict(N=tiling.view.n) | layer_defines(pr, tiling.view)
        last = fallback.program(layer, pr, tiling.k_tiles * tiling.kb, _tiles_bytes(pr, tiling))
        parts = (*halves.programs(pr, held(pr, cf)), last)
    return Blueprint(
        source="hopper.cu", defines=tuple(defines.items()), launches=launches,
        packed_bytes=_packed_bytes(pr, tiling, cf),
        pack=(
            ("PACK_CHUNKS", cf["chunks"]), ("PACK_K", tiling.kb), ("PACK_STEPS", tiling.steps),
            ("PACK_C", _run_channels(pr, cf, tiling)),
            ("PACK_ORDER", PAIRS if paired(pr, cf) else IN_ORDER),
            ("PACK_APART", int(cf["pieces"] != SWIZZLED)),
            *_products(pr, cf, "PACK_PRODUCTS").items(), *((("PACK_PARTS", 2),) if parts_of(pr) == 2 else ()),
            *_pack_leads(pr, cf),
        ),
        workspace=workspace, parts=parts, specific=True,
        packer=_packer(pr, cf),
    )  # fmt: skip


def _run_channels(pr: Problem, cf: Values, tiling: HopperTiling) -> int:
    """Channels of a tap that are neighbours in the sum: of a step; where planes begin anywhere, of a lead."""
    if cf["x"] == GATHERED:
        return pr.cg
    return cf["chunks"] * numbers(pr, cf["x"]) * (tiling.steps // leads(pr) if skewed(pr, cf["x"]) else 1)


def _pack_leads(pr: Problem, cf: Values) -> tuple[tuple[str, int], ...]:
    """Tell who packs the filter of channels in the order of their leads: as taps, the longest lead first."""
    if not skewed(pr, cf["x"]):
        return ()
    return ("CG", pr.cg // leads(pr)), ("SIZE_S", leads(pr)), ("PACK_LEAP", leap(pr))


def _packer(pr: Problem, cf: Values) -> str:
    if cf["x"] == HALVED:
        return "halves_pack.cu"
    return "pack.cu" if products(pr, cf["x"]) == PLAIN else "mma_pack.cu"


def _products(pr: Problem, cf: Values, name: str) -> Values:
    """Define what is multiplied, where DTYPE does not say it."""
    found = products(pr, cf["x"])
    return {name: found} if found != PLAIN else {}


def _tiles_bytes(pr: Problem, tiling: HopperTiling) -> int:
    return pr.groups * tiling.k_tiles * tiling.steps * tiling.w_bytes


def _packed_bytes(pr: Problem, tiling: HopperTiling, cf: Values) -> int:
    """All tiles; of halves then how far each row was moved, and what a fallback needs."""
    beside = fallback.beside_bytes(pr, tiling.k_tiles * tiling.kb) if cf["x"] == HALVED else 0
    return _tiles_bytes(pr, tiling) + beside


def _launches(
    pr: Problem, tiling: HopperTiling, cf: Values, blocks: int, units: int, aligned: bool
) -> tuple[tuple[Launch, ...], tuple[Buffer, ...]]:
    combine, moved, scale = cf["combine"], cf["x"] in ANEW and not aligned, scale_operand(pr)
    copied = cf["x"] in COPIES or moved
    tiles = pr.groups * tiling.k_tiles * tiling.px_tiles
    main = Launch(
        "hopper", (blocks, 1, 1), (tiling.threads, 1, 1),
        (*operands(combine, "copied" if copied else "x"), "partial", "arrived",
         *((halves.MOVED,) if cf["x"] == HALVED else ()), *scale),
        shared_bytes=tiling.shared_bytes, cluster=cf["sc"] * cf["cm"], chained=copied,
        image=tiling.image or raw_of(pr, cf),
    )  # fmt: skip
    launches = (main, *second_pass(pr, combine))
    workspace = reduction_buffers(pr, cf, cf["sg"] * tiles * tiling.kb * tiling.nb, tiles)
    if not copied:
        return launches, workspace
    if moved:
        return (copy_as_is(pr.x_bytes), *launches), (*workspace, Buffer("copied", pr.x_bytes))
    chunks = held(pr, cf)
    if cf["x"] == COPIED:
        copies = Buffer("copied", copied_bytes(pr, chunks, tiling.x_parts))
        return (copy(pr, chunks), *launches), (*workspace, copies)
    last = fallback.launch(pr, units, halves.MOVED)  # it writes over what the others have made of y
    return (*halves.launches(pr, chunks), *launches, last), (*workspace, *halves.workspace(pr, chunks))


def _lead_defines(pr: Problem, cf: Values) -> Values:
    if not skewed(pr, cf["x"]):
        return dict(LEADS=1)
    stretch = stretch_of(pr, cf["bn"])
    assert stretch
    return dict(LEADS=leads(pr), LEAP=leap(pr), STRETCH=stretch.places, USED=stretch.used)


def _defines(pr: Problem, tiling: HopperTiling, cf: Values, aligned: bool, device: Device) -> Values:
    tiles = pr.groups * tiling.k_tiles * tiling.px_tiles
    sums_bytes = 4 * cf["sg"] * max(pr.z_elements, tiles * tiling.kb * tiling.nb)
    copied = copied_bytes(pr, held(pr, cf), tiling.x_parts)
    most_bytes = max(copied, pr.x_bytes, sums_bytes, _packed_bytes(pr, tiling, cf))
    view = tiling.view
    kind, spans = products(pr, cf["x"]), spans_of(pr, cf["bn"]) if cf["x"] == PLANES else None
    divides = cf["tall"] or (tiling.rows.extent, tiling.columns.extent) != (view.p, view.q)  # to find a pixel
    room = registers_at_most(tiling.threads, cf["mb"], device.regs_per_unit) - registers(pr, cf)
    return image_defines(pr, view) | _products(pr, cf, "PRODUCTS") | tiling.defines() | dict(
        PROMOTED=PROMOTED.get(kind, 0),
        DTYPE=DTYPES.index(pr.portable.dtype), WG_N=cf["bn"], WG_EIGHTHS=cf["bn"] // 8, WM=cf["wm"],
        WN=cf["wn"], CHUNKS=cf["chunks"], SWIZZLED=int(cf["pieces"] == SWIZZLED), TALL=cf["tall"],
        BATCH=cf["batch"], STAGES=cf["stages"], JOINT=int(joint(pr, cf["x"], tiling.image)),
        MIN_BLOCKS=cf["mb"], COPIES=cf["cm"], CLUSTER=cf["sc"] * cf["cm"],
        **share_defines(cf["combine"], cf["sc"], cf["sg"]),
        SPAN=spans.outputs if spans else 0, **_lead_defines(pr, cf), CC=held(pr, cf),
        K_GROUP=k_group(device, tiling), CS=1, K_FASTEST=1,
        N=view.n, **layer_defines(pr, view), X_WAY=cf["x"], RUN_OUT=run(pr, cf), Y_VECTOR=int(aligned),
        OFFSET64=offset64(most_bytes), TIGHT=int(room < LEAST_ROOM[divides]),
    )  # fmt: skip
