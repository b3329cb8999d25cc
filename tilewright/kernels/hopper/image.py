"""The tensor map of the input for the copy engine, and when threads copy it instead."""

from __future__ import annotations

from functools import lru_cache

from tilewright.kernels.family import MOST_LAYER_PIXELS, Values
from tilewright.kernels.hopper.planes import line_of, slid_row, spans_of
from tilewright.kernels.hopper.raster import SEGMENT, patch_of, raster_of
from tilewright.kernels.hopper.sum import held, numbers, parts_of, products
from tilewright.kernels.hopper.ways import (
    ANEW,
    COPIED,
    GATHERED,
    PLANES,
    SLID,
    TAPWISE,
    TURNED,
    leads,
    turns_runs,
)
from tilewright.kernels.products import TF32, THREE
from tilewright.kernels.tensor_map import Im2colMap, TensorMap, TiledMap
from tilewright.kernels.tile import View
from tilewright.problem import DTYPE_BYTES, Problem

APART, SWIZZLED = range(2)
PIECES = ("pieces of 16 bytes apart", "swizzled rows")
IMAGED = ("x", "wn", "bn", "chunks", "pieces", "tall")  # parameters that decide the tensor map
MOST_MOVED = 255  # columns or rows by which the copy engine can shift a box for a tap


def image_of(pr: Problem, cf: Values) -> TensorMap | None:
    """The tensor map of the input, a line of a patch at a time; None if threads copy it."""
    return _image(pr, *(cf[name] for name in IMAGED))


@lru_cache(maxsize=8192)
def _image(pr: Problem, *values: int) -> TensorMap | None:
    """Return what ``image_of`` does, from the values of ``IMAGED``.

    None (threads copy instead of the copy engine) if pieces are not swizzled, or are gathered or transposed
    here; if a box would read past the last channels of a group into the next group's, or from high parts into
    low ones; and if the threads have to split numbers because no earlier kernel did.
    """
    cf = dict(zip(IMAGED, values, strict=True))
    product, parts = products(pr, cf["x"]), parts_of(pr)
    by_threads = cf["pieces"] == APART or cf["x"] in (GATHERED, TURNED)
    if by_threads or (product == THREE and cf["x"] != COPIED):
        return None
    of_piece = numbers(pr, cf["x"])
    if cf["x"] == PLANES:
        return _planes(pr, cf, of_piece)
    if cf["x"] == SLID:
        return _slid(pr, cf, of_piece)
    if pr.groups * parts > 1 and held(pr, cf) % cf["chunks"]:
        return None
    moves = ((taps - 1) * apart for taps, apart in zip((pr.r, pr.s), pr.dilation, strict=True))
    if cf["x"] == TAPWISE and (cf["tall"] or max(moves) > MOST_MOVED):
        return None
    raster = raster_of(pr, cf["x"], cf["bn"])
    view, rows, columns = raster.view, raster.rows, raster.columns
    (up_h, up_w), (pad_t, pad_l) = pr.stride, (pr.pad[0], pr.pad[2])
    last = ((columns.extent - 1) * up_w - pad_l, (rows.extent - 1) * up_h - pad_t)
    found = Im2colMap(
        size=16 // of_piece, channels=pr.groups * parts * held(pr, cf) * of_piece,
        columns=view.w, rows=view.h, images=view.n, lower=(-pad_l, -pad_t),
        upper=(last[0] - view.w + 1, last[1] - view.h + 1), stride=(up_w, up_h),
        box_channels=cf["chunks"] * of_piece, box_pixels=patch_of(pr, cf)[1],
        rounds=product == TF32,
    )  # fmt: skip
    return found if found.legal else None


def _planes(pr: Problem, cf: Values, of_piece: int) -> TiledMap | None:
    """The tensor map of an input in nchw: a copy takes a span of each of a step's channels.

    If planes begin anywhere, a row is all planes from one to the next with the same lead.
    """
    spans, apart = spans_of(pr, cf["bn"]), leads(pr)
    deep = cf["chunks"] * of_piece
    if raster_of(pr, PLANES, cf["bn"]).places > MOST_LAYER_PIXELS:
        return None
    if spans is None or cf["tall"] or (pr.groups > 1 and pr.cg // apart % deep):
        return None
    return _in_spans(pr, spans.places, cf["chunks"], of_piece)


def _slid(pr: Problem, cf: Values, of_piece: int) -> TiledMap | None:
    """The tensor map of an input in nchw of which a patch serves all taps: a copy takes a span.

    A warpgroup has whole rows of the raster, or whole spans of one that its tile has.
    """
    line, row, deep = line_of(pr), slid_row(pr), cf["chunks"] * of_piece
    whole = cf["bn"] % row == 0 or (row % cf["bn"] == 0 and cf["wn"] * cf["bn"] % row == 0)
    if not whole or cf["bn"] % line or cf["tall"] or (pr.groups > 1 and pr.cg % deep):
        return None
    if raster_of(pr, SLID).places > MOST_LAYER_PIXELS:
        return None
    return _in_spans(pr, line, cf["chunks"], of_piece)


def _in_spans(pr: Problem, places: int, chunks: int, of_piece: int) -> TiledMap | None:
    """The tensor map of planes of which a copy takes a span of each channel of a step, if it is legal."""
    view, apart = View.of(pr), leads(pr)
    found = TiledMap(
        size=16 // of_piece, columns=apart * view.w, channels=pr.c // apart, rows=view.h, images=view.n,
        box_columns=places, box_channels=chunks * of_piece,
    )  # fmt: skip
    return found if found.legal else None


def joint(pr: Problem, way: int, image: TensorMap | None) -> bool:
    """Whether patches share the buffers and barriers of their filters, so that a batch may have several."""
    return image is not None and (way in ANEW or pr.r * pr.s == 1)


def raw_of(pr: Problem, cf: Values) -> TiledMap | None:
    """The tensor map of an input to be transposed: a copy takes a segment of each of a step's channels."""
    if not turns_runs(pr, cf["x"]):
        return None
    return TiledMap(
        size=DTYPE_BYTES[pr.dtype], columns=pr.h * pr.w, channels=pr.c, rows=1, images=pr.n,
        box_columns=SEGMENT, box_channels=cf["chunks"] * numbers(pr, cf["x"]),
    )  # fmt: skip
