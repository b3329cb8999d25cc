"""The blueprint of a config of the hopper family: its launches, their buffers, the kernels' defines."""

from __future__ import annotations

from dataclasses import replace

from tilewright.arithmetic import offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Launch, Values
from tilewright.kernels.hopper import fallback, halves
from tilewright.kernels.hopper.finish import BY_TILE, OWN, finish, paired, run, stores
from tilewright.kernels.hopper.image import APART, SWIZZLED, joint, raw_of
from tilewright.kernels.hopper.layout import layout
from tilewright.kernels.hopper.planes import line_of, spans_of, stretch_of
from tilewright.kernels.hopper.sum import PROMOTED, held, numbers, parts_of, products
from tilewright.kernels.hopper.tile import (
    HopperTiling,
    k_group,
    most_registers,
    registers,
    tiling_of,
)
from tilewright.kernels.hopper.ways import (
    ANEW,
    AS_IS,
    COPIED,
    GATHERED,
    HALVED,
    PLANES,
    SLID,
    leads,
    leap,
    skewed,
    turns_runs,
)
from tilewright.kernels.limits import handed_on
from tilewright.kernels.products import packer_of, products_define
from tilewright.kernels.requant import requant_defines, scale_operand
from tilewright.kernels.split_k import operands, reduction_buffers, second_pass, share_defines, stored_bytes
from tilewright.kernels.tile import image_defines, layer_defines
from tilewright.kernels.untuned import IN_ORDER, PAIRS
from tilewright.kernels.untuned.nhwc import copied_bytes, copied_first, copy_as_is, copy_of
from tilewright.kernels.word import dtype_code
from tilewright.problem import Problem

PADDING_BYTES = 8  # of a row: two sums
LEAST_ROOM = (8, 28)  # spare registers needed to unroll the loop of stores; of one with divisions, too


def blueprint_of(pr: Problem, device: Device, cf: Values, aligned: bool) -> Blueprint:
    """Return the launch; others before it copy the input, after it sum shares, pool or fall back."""
    if not aligned and (cf["x"] == AS_IS or turns_runs(pr, cf["x"])):
        cf = cf | dict(x=COPIED)  # to an aligned buffer
    tiling = tiling_of(pr, device, cf)
    product = products(pr, cf["x"])
    who = finish(pr, cf, aligned) if device.is_cuda else BY_TILE
    blocks = min(tiling.blocks, cf["mb"] * device.units) if tiling.stays and who == OWN else tiling.blocks
    stays = blocks < tiling.blocks
    early = tiling.image is not None and blocks <= device.units
    defines = _defines(pr, tiling, cf, aligned, device) | dict(
        FINISH=who, STAYS=int(stays), EARLY=int(early),
        STORES=stores(pr, cf), PAIRED=int(paired(pr, cf)), OUT_BYTES=stored_bytes(pr, cf["combine"]),
        **requant_defines(pr), **layout(pr, cf, stays, who).defines(),
    )  # fmt: skip
    main = Launch(
        "hopper", (blocks, 1, 1), (tiling.threads, 1, 1),
        (*operands(cf["combine"]), "partial", "arrived",
         *((halves.MOVED,) if cf["x"] == HALVED else ()), *scale_operand(pr)),
        shared_bytes=tiling.shared_bytes, cluster=cf["sc"] * cf["cm"],
        tensor_map=tiling.image or raw_of(pr, cf),
    )  # fmt: skip
    sums = tiling.tiles * tiling.kb * tiling.nb
    found = Blueprint(
        source="hopper.cu", defines=tuple(defines.items()), launches=(main, *second_pass(pr, cf["combine"])),
        packed_bytes=_packed_bytes(pr, tiling, cf), pack=_pack(pr, tiling, cf), packer=packer_of(product),
        workspace=reduction_buffers(pr, cf, cf["sg"] * sums, tiling.tiles), specific=True,
    )  # fmt: skip
    if cf["x"] == COPIED:
        return copied_first(found, copy_of(pr, held(pr, cf), product, tiling.x_parts, aligned))
    if cf["x"] in (*ANEW, SLID) and not aligned:
        return copied_first(found, copy_as_is(pr))
    if cf["x"] == HALVED:
        return _with_fallback(halves.halved_first(found, pr, held(pr, cf)), pr, tiling, device)
    return found


def _with_fallback(found: Blueprint, pr: Problem, tiling: HopperTiling, device: Device) -> Blueprint:
    """Return the blueprint with a last launch that overwrites what the others stored to y, where need be."""
    defines = dict(found.defines)
    view = tiling.raster.view
    layer = image_defines(pr, view) | {name: defines[name] for name in ("DTYPE", "OFFSET64")}
    layer |= dict(N=view.n) | layer_defines(pr, view)
    last = fallback.program(layer, pr, tiling.k_tiles * tiling.kb, _tiles_bytes(pr, tiling))
    again = fallback.launch(pr, device.units, halves.MOVED)
    return replace(found, launches=(*found.launches, again), parts=(*found.parts, last))


def _pack(pr: Problem, tiling: HopperTiling, cf: Values) -> tuple[tuple[str, int], ...]:
    """Return the packer's defines of the filter's order."""
    return (
        ("PACK_CHUNKS", cf["chunks"]), ("PACK_K", tiling.kb), ("PACK_STEPS", tiling.steps),
        ("PACK_C", _run_channels(pr, cf, tiling)),
        ("PACK_ORDER", PAIRS if paired(pr, cf) else IN_ORDER),
        ("PACK_APART", int(cf["pieces"] == APART)),
        *products_define("PACK_PRODUCTS", products(pr, cf["x"])).items(),
        *((("PACK_PARTS", 2),) if parts_of(pr) == 2 else ()),
        *_pack_leads(pr, cf), *((("PACK_PADDING", 1),) if cf["x"] == SLID else ()),
    )  # fmt: skip


def _run_channels(pr: Problem, cf: Values, tiling: HopperTiling) -> int:
    """Consecutive channels of a tap in the sum: those of a step, or of a lead if planes begin anywhere."""
    if cf["x"] == GATHERED:
        return pr.cg
    return cf["chunks"] * numbers(pr, cf["x"]) * (tiling.steps // leads(pr) if skewed(pr, cf["x"]) else 1)


def _pack_leads(pr: Problem, cf: Values) -> tuple[tuple[str, int], ...]:
    """Return the packer's defines of channels ordered by their leads: as taps, the longest lead first."""
    if not skewed(pr, cf["x"]):
        return ()
    return ("CG", pr.cg // leads(pr)), ("SIZE_S", leads(pr)), ("PACK_LEAP", leap(pr))


def _tiles_bytes(pr: Problem, tiling: HopperTiling) -> int:
    return pr.groups * tiling.k_tiles * tiling.steps * tiling.w_bytes


def _packed_bytes(pr: Problem, tiling: HopperTiling, cf: Values) -> int:
    """Bytes of all tiles; for halves also how far each row was shifted, and what a fallback needs.

    If sums slide, also each row's sums of products with padding.
    """
    rows, beside = tiling.k_tiles * tiling.kb, 0
    if cf["x"] == HALVED:
        beside = fallback.beside_bytes(pr, rows)
    if cf["x"] == SLID:
        beside = PADDING_BYTES * pr.groups * rows
    return _tiles_bytes(pr, tiling) + beside


def _plane_defines(pr: Problem, cf: Values) -> Values:
    """Return the defines of the spans of planes that the copy engine copies, and of leads if there are."""
    if cf["x"] == SLID:
        return dict(SPAN=line_of(pr), LEADS=1)
    spans = spans_of(pr, cf["bn"]) if cf["x"] == PLANES else None
    span = dict(SPAN=spans.outputs if spans else 0)
    if not skewed(pr, cf["x"]):
        return span | dict(LEADS=1)
    stretch = stretch_of(pr, cf["bn"])
    assert stretch
    return span | dict(LEADS=leads(pr), LEAP=leap(pr), STRETCH=stretch.places, USED=stretch.used)


def _handed(cf: Values, device: Device) -> Values:
    """Return the defines of the registers that those who send hand on to those who sum."""
    if cf["x"] != SLID:
        return {}
    return handed_on(cf["wm"] * cf["wn"], cf["mb"], device)


def _most_bytes(pr: Problem, tiling: HopperTiling, cf: Values) -> int:
    """Bytes of the largest buffer, which decides how wide offsets are."""
    sums_bytes = 4 * cf["sg"] * max(pr.z_elements, tiling.tiles * tiling.kb * tiling.nb)
    copied = copied_bytes(pr, held(pr, cf), tiling.x_parts)
    return max(copied, pr.x_bytes, sums_bytes, _packed_bytes(pr, tiling, cf))


def _tight(pr: Problem, tiling: HopperTiling, cf: Values, device: Device) -> bool:
    """Whether too few registers are left to unroll the loop that stores."""
    raster = tiling.raster
    whole = (raster.rows.extent, raster.columns.extent) == (raster.view.p, raster.view.q)
    divides = cf["tall"] or not whole  # to find a pixel
    room = most_registers(cf, tiling.threads, device.regs_per_unit) - registers(pr, cf)
    return room < LEAST_ROOM[divides]


def _defines(pr: Problem, tiling: HopperTiling, cf: Values, aligned: bool, device: Device) -> Values:
    """Return the defines of the parameters and of what follows from them, except how sums are finished."""
    view = tiling.raster.view
    product = products(pr, cf["x"])
    return image_defines(pr, view) | products_define("PRODUCTS", product) | tiling.defines() | dict(
        PROMOTED=PROMOTED.get(product, 0),
        DTYPE=dtype_code(pr.portable), WG_N=cf["bn"], WG_EIGHTHS=cf["bn"] // 8, WM=cf["wm"],
        WN=cf["wn"], CHUNKS=cf["chunks"], SWIZZLED=int(cf["pieces"] == SWIZZLED), TALL=cf["tall"],
        BATCH=cf["batch"], STAGES=cf["stages"], JOINT=int(joint(pr, cf["x"], tiling.image)),
        MIN_BLOCKS=cf["mb"], COPIES=cf["cm"], CLUSTER=cf["sc"] * cf["cm"],
        **share_defines(cf["combine"], cf["sc"], cf["sg"]),
        **_plane_defines(pr, cf), CC=held(pr, cf), **_handed(cf, device),
        K_GROUP=k_group(device, tiling), K_FASTEST=1,
        N=view.n, **layer_defines(pr, view), X_WAY=cf["x"], RUN_OUT=run(pr, cf), Y_VECTOR=int(aligned),
        OFFSET64=offset64(_most_bytes(pr, tiling, cf)), TIGHT=int(_tight(pr, tiling, cf, device)),
    )  # fmt: skip
