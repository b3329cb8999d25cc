"""The raster that pixels lie in: tiles of it, patches of the input under them, as the copy engine is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from tilewright.kernels.family import MOST_PIXELS, Values
from tilewright.kernels.hopper.sum import (
    ANEW,
    COPIED,
    GATHERED,
    PLANES,
    TAPWISE,
    TURNED,
    held,
    leads,
    numbers,
    parts_of,
    products,
    skewed,
    turns_runs,
)
from tilewright.kernels.products import TF32, THREE
from tilewright.kernels.tensor_map import Im2colMap, TensorMap, TiledMap
from tilewright.kernels.tile import TWO_PASS, View, ceil_div
from tilewright.kernels.untuned.nhwc import each
from tilewright.problem import DTYPE_BYTES, Problem

APART, SWIZZLED = range(2)
PIECES = ("pieces of 16 bytes apart", "swizzled rows")
TALL = ("a run of the raster", "a rectangle: a row of the raster to each warpgroup")
IMAGED = ("x", "wn", "bn", "chunks", "pieces", "tall")  # parameters that say what the copy engine is told
SPANS = (64, 32, 16)  # pixels of a plane, 2 bytes each, that the copy engine swizzles together
SEGMENT = 64  # pixels of a channel that the copy engine brings at once, to be turned
FEW_MORE = 1.09  # times the places of a row, for whole pieces of y (80 columns gain by it, 64 lose)
SENT_FOR = 8  # pixels that another copy costs as much as (guess)
MOST_MOVED = 255  # columns or rows, by which the copy engine moves a box for a tap


@dataclass(frozen=True)
class Line:
    """Places along one side of the image, as outputs and the input share them.

    Output p under tap r reads place p + r * dilation // stride of phase r * dilation % stride.
    ``extent`` places lie between two rows (or images): a place past the last one is one of the next row,
    where both are outside of the image.
    """

    extent: int
    phases: int
    reach: int

    @classmethod
    def of(cls, size: int, outputs: int, taps: int, stride: int, dilation: int, pad: int) -> Line:
        """Lay out one side: ``size`` inputs, so many outputs and taps, ``pad`` before the first input."""
        moves = [(t * dilation % stride, t * dilation // stride) for t in range(taps)]

        def outside(extent: int) -> bool:
            return all(
                place * stride + phase - pad >= size and (place - extent) * stride + phase - pad < 0
                for phase, move in moves
                for place in range(extent, outputs + move)
            )

        reach = moves[-1][1]
        extent = next(e for e in range(outputs, outputs + reach + 1) if outside(e))
        return cls(extent, max(phase for phase, _ in moves) + 1, reach)


class Spans(NamedTuple):
    """How a row of a plane is copied: spans of so many ``places``, of which ``outputs`` are used."""

    places: int
    outputs: int


def spans_of(pr: Problem, bn: int) -> Spans | None:
    """Return the spans of rows of a plane; None where no spans make up the ``bn`` pixels of a warpgroup.

    Warpgroups have whole spans, or a part of one. Few outputs should lie past the end of a row, in few spans.
    """
    if leads(pr) > 1 and stretch_of(pr, bn) is None:
        return None
    q = View.of(pr).q
    found = [Spans(places, places if bn % places == 0 else bn) for places in SPANS
             if bn % places == 0 or bn < places]  # fmt: skip

    def cost(one: Spans) -> tuple[int, int]:
        if leads(pr) > 1:  # of lines that a row crosses each has its price
            return ceil_div(bn, one.places), one.places
        return ceil_div(q, one.outputs) * (one.outputs + SENT_FOR), one.places

    return min(found, default=None, key=cost)


class Stretch(NamedTuple):
    """Places of the raster with pixels side by side, of a plane that begins anywhere; ``used`` by outputs."""

    places: int
    used: int


def stretch_of(pr: Problem, bn: int) -> Stretch | None:
    """Return the stretches of ``bn`` pixels of a warpgroup (hopper_lead.h); None where planes begin alike.

    All of them, or each span of 64. Its last places are in other stretches, too, for some leads: used are all
    of a plane, or a multiple of 8, for the next stretch's boxes to begin there.
    """
    alike = each(pr) // leads(pr)
    longest, plane = each(pr) - alike, View.of(pr).q
    found = [Stretch(places, plane if plane <= places - longest else places - each(pr))
             for places in {bn, SPANS[0]} if places > each(pr) and bn % places == 0]  # fmt: skip
    if leads(pr) == 1:
        return None
    return min(found, default=None, key=lambda one: (ceil_div(plane, one.used) * one.places, -one.places))


@lru_cache(maxsize=256)
def lines(pr: Problem, way: int = 0, bn: int = 0) -> tuple[View, Line, Line]:
    """Lay out the raster of a problem; what is gathered, or comes tap by tap, lies as the outputs do.

    So do planes, but for rows of whole spans, where a warpgroup has ``bn`` pixels.
    """
    view = View.of(pr)
    if way in (GATHERED, TAPWISE):
        return view, Line(view.p, 1, 0), Line(view.q, 1, 0)
    if way == PLANES:
        spans = spans_of(pr, bn)
        row = ceil_div(view.q, spans.outputs) * spans.outputs if spans else view.q
        if spans and (stretch := stretch_of(pr, bn)):
            row = ceil_div(view.q, stretch.used) * stretch.places
        return view, Line(view.p, 1, 0), Line(row, 1, 0)
    rows = Line.of(view.h, view.p, pr.r, pr.stride[0], pr.dilation[0], pr.pad[0])
    columns = Line.of(view.w, view.q, pr.s, pr.stride[1], pr.dilation[1], pr.pad[2])
    even = ceil_div(columns.extent, 8) * 8
    if in_pieces(pr, view) and even <= columns.extent * FEW_MORE:
        columns = replace(columns, extent=even)
    return view, rows, columns


def in_pieces(pr: Problem, view: View) -> bool:
    """Whether rows of y in nchw are whole pieces of 16 bytes, eight outputs each."""
    return pr.layout_out == "nchw" and DTYPE_BYTES[pr.dtype_out] == 2 and view.q % 8 == 0


def raster(pr: Problem, way: int = 0, bn: int = 0) -> int:
    """Places from the first output to the last."""
    view, rows, columns = lines(pr, way, bn)
    last = columns.extent if skewed(pr, way) else view.q
    return max(1, ((view.n - 1) * rows.extent + view.p - 1) * columns.extent + last)


def outputs_of(pr: Problem, cf: Values) -> tuple[int, int]:
    """Rows and columns of y that a tile has which lies within an image; where the kernel pools, of windows.

    One that is a run of the raster has whole rows, and begins with one.
    """
    view, _, columns = lines(pr, cf["x"], cf["bn"])
    nb = cf["bn"] * cf["wn"]
    tall, pool = cf["tall"], pr.epilogue.pool
    tile_rows = cf["wn"] if tall else (nb - view.q) // columns.extent + 1 if nb >= view.q else 0
    tile_columns = cf["bn"] if tall else view.q
    if pool is None or cf.get("combine", TWO_PASS) == TWO_PASS:
        return tile_rows, tile_columns

    def windows(extent: int) -> int:
        return (extent - pool.size) // pool.stride + 1 if extent >= pool.size else 0

    return windows(tile_rows), windows(tile_columns)


def tiles_of(pr: Problem, cf: Values) -> tuple[int, int, int]:
    """Tiles of pixels: of images, rows and columns; of runs of the raster one number for all."""
    pools = pr.epilogue.pool is not None and cf.get("combine", TWO_PASS) != TWO_PASS
    view = lines(pr, cf["x"])[0]
    if not (cf["tall"] or pools):
        return 1, 1, ceil_div(raster(pr, cf["x"], cf["bn"]), cf["bn"] * cf["wn"])
    rows, columns = outputs_of(pr, cf)
    p, q = (pr.y_p, pr.y_q) if pools else (view.p, view.q)
    return view.n, ceil_div(p, max(1, rows)), ceil_div(q, max(1, columns))


def patch_of(pr: Problem, cf: Values) -> tuple[int, int]:
    """Lines of the raster, and places of each, that the taps of a tile read, of one phase.

    What comes anew for each step is what one tap reads; of planes spans.
    """
    if cf["x"] == PLANES and (spans := spans_of(pr, cf["bn"])):
        return cf["wn"] * ceil_div(cf["bn"], spans.places), spans.places
    _, rows, columns = lines(pr, cf["x"], cf["bn"])
    if cf["tall"]:
        return cf["wn"] + rows.reach, ceil_div(cf["bn"] + columns.reach, 8) * 8
    return 1, ceil_div(cf["bn"] * cf["wn"] + rows.reach * columns.extent + columns.reach, 8) * 8


def places_of(pr: Problem, cf: Values) -> int:
    """Places of a patch, of all phases."""
    _, rows, columns = lines(pr, cf["x"], cf["bn"])
    patch_lines, line = patch_of(pr, cf)
    return rows.phases * columns.phases * patch_lines * line


def segments_of(pr: Problem, cf: Values) -> int:
    """Segments that a patch has its pixels in, at most (hopper_turn.h); 0 where it comes otherwise.

    Its pixels, and those between them, are one run; with strides that has pixels which no place shows.
    """
    if not turns_runs(pr, cf["x"]):
        return 0
    view, rows, columns = lines(pr, cf["x"], cf["bn"])
    patch, up, pixels = patch_of(pr, cf)[1], pr.stride[1], view.h * view.w
    spanned = ceil_div(patch - 1, columns.extent) + 1  # rows of the raster
    images = min(view.n, ceil_div(spanned - 1, rows.extent) + 1)
    most = patch * up + max(0, view.w - columns.extent * up) * spanned
    if view.n == 1:
        return ceil_div(min(most + 8, pixels), SEGMENT)
    return min(ceil_div(most, SEGMENT) + 2 * images, images * ceil_div(pixels, SEGMENT))


def raw_stages_of(cf: Values) -> int:
    """Patches that are on their way before they are turned: one, or where there are buffers for more two."""
    return min(cf["xs"], 2)


def raw_of(pr: Problem, cf: Values) -> TiledMap | None:
    """The input for the copy engine where it is turned: a segment of each of a step's channels at a time."""
    if not turns_runs(pr, cf["x"]):
        return None
    return TiledMap(
        size=DTYPE_BYTES[pr.dtype], columns=pr.h * pr.w, channels=pr.c, rows=1, images=pr.n,
        box_columns=SEGMENT, box_channels=cf["chunks"] * numbers(pr, cf["x"]),
    )  # fmt: skip


def joint(pr: Problem, way: int, image: TensorMap | None) -> bool:
    """Whether patches come and go with the filters that read them, so that a batch may have several."""
    return image is not None and (way in ANEW or pr.r * pr.s == 1)


def image_of(pr: Problem, cf: Values) -> TensorMap | None:
    """The input for the copy engine, a line of a patch at a time; None where threads copy it."""
    return _image(pr, *(cf[name] for name in IMAGED))


@lru_cache(maxsize=8192)
def _image(pr: Problem, *values: int) -> TensorMap | None:
    """Work out what ``image_of`` returns, from the values of ``IMAGED``.

    None (threads copy instead of the copy engine) where pieces are not swizzled, or made here; where a box
    would read past the last channels of a group into the next group's, or from high parts into low ones; and
    where the threads split numbers themselves because no kernel before has done so.
    """
    cf = dict(zip(IMAGED, values, strict=True))
    kind, parts = products(pr, cf["x"]), parts_of(pr)
    by_threads = cf["pieces"] != SWIZZLED or cf["x"] in (GATHERED, TURNED)
    if by_threads or (kind == THREE and cf["x"] != COPIED):
        return None
    of_piece = numbers(pr, cf["x"])
    if cf["x"] == PLANES:
        return _planes(pr, cf, of_piece)
    if pr.groups * parts > 1 and held(pr, cf) % cf["chunks"]:
        return None
    moves = ((taps - 1) * apart for taps, apart in zip((pr.r, pr.s), pr.dilation, strict=True))
    if cf["x"] == TAPWISE and (cf["tall"] or max(moves) > MOST_MOVED):
        return None
    view, rows, columns = lines(pr, cf["x"], cf["bn"])
    (up_h, up_w), (pad_t, pad_l) = pr.stride, (pr.pad[0], pr.pad[2])
    last = ((columns.extent - 1) * up_w - pad_l, (rows.extent - 1) * up_h - pad_t)
    found = Im2colMap(
        size=16 // of_piece, channels=pr.groups * parts * held(pr, cf) * of_piece,
        columns=view.w, rows=view.h, images=view.n, lower=(-pad_l, -pad_t),
        upper=(last[0] - view.w + 1, last[1] - view.h + 1), stride=(up_w, up_h),
        box_channels=cf["chunks"] * of_piece, box_pixels=patch_of(pr, cf)[1],
        rounds=kind == TF32,
    )  # fmt: skip
    return found if found.legal else None


def _planes(pr: Problem, cf: Values, of_piece: int) -> TiledMap | None:
    """The input in nchw for the copy engine, a span of each of a step's channels at a time.

    Where planes begin anywhere, all that lie between two of one lead are one row.
    """
    view, spans, apart = View.of(pr), spans_of(pr, cf["bn"]), leads(pr)
    deep = cf["chunks"] * of_piece
    if raster(pr, PLANES, cf["bn"]) > MOST_PIXELS:
        return None
    if spans is None or cf["tall"] or (pr.groups > 1 and pr.cg // apart % deep):
        return None
    found = TiledMap(
        size=16 // of_piece, columns=apart * view.w, channels=pr.c // apart, rows=view.h, images=view.n,
        box_columns=spans.places, box_channels=deep,
    )  # fmt: skip
    return found if found.legal else None
