"""The raster, a linear order of pixels with padding: its tiles, and the patches of the input under them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.family import Values
from tilewright.kernels.hopper.planes import line_of, row_of, slid_row, spans_of
from tilewright.kernels.hopper.ways import AS_IS, GATHERED, PLANES, SLID, TAPWISE, skewed, turns_runs
from tilewright.kernels.tile import TWO_PASS, View, tiles_along, windows
from tilewright.problem import DTYPE_BYTES, Problem
from tilewright.problem.epilogue import Pool

TALL = ("a run of the raster", "a rectangle: a row of the raster to each warpgroup")
SEGMENT = 64  # pixels of a channel that the copy engine copies at once, to be transposed
FEW_MORE = 1.09  # most growth of a row to have whole pieces of y (a gain at 80 columns, a loss at 64)


@dataclass(frozen=True)
class Line:
    """Places along one side of the image, which outputs and the input share.

    Output p under tap r reads place p + r * dilation // stride of phase r * dilation % stride.
    A row (or image) begins ``extent`` places after the one before: a place past the end of a row is also one
    of the next row, if it is outside the image for both.
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


@dataclass(frozen=True)
class Raster:
    """The raster of a problem.

    Attributes:
        view: the images.
        rows: lines of an image, one for each row of its outputs.
        columns: places of a row.
        last: places of the last row of outputs.
    """

    view: View
    rows: Line
    columns: Line
    last: int

    @property
    def places(self) -> int:
        """Places from the first output to the last."""
        before = (self.view.n - 1) * self.rows.extent + self.view.p - 1  # rows
        return max(1, before * self.columns.extent + self.last)

    @property
    def phases(self) -> int:
        """Phases of the input along both sides."""
        return self.rows.phases * self.columns.phases


@lru_cache(maxsize=256)
def raster_of(pr: Problem, way: int = AS_IS, bn: int = 0) -> Raster:
    """Return the raster of a problem; of the outputs alone if the input is gathered or copied tap by tap.

    So it is for planes, but with rows of whole spans (planes.py) for warpgroups of ``bn`` pixels. If sums
    slide, rows are of whole spans, too, and columns under the taps beside them are not needed.
    """
    view = View.of(pr)
    rows, columns = _lines(pr, view, way, bn)
    return Raster(view, rows, columns, columns.extent if skewed(pr, way) else view.q)


def _lines(pr: Problem, view: View, way: int, bn: int) -> tuple[Line, Line]:
    if way in (GATHERED, TAPWISE):
        return Line(view.p, 1, 0), Line(view.q, 1, 0)
    if way == PLANES:
        return Line(view.p, 1, 0), Line(row_of(pr, bn), 1, 0)
    rows = Line.of(view.h, view.p, pr.r, pr.stride[0], pr.dilation[0], pr.pad[0])
    columns = Line.of(view.w, view.q, pr.s, pr.stride[1], pr.dilation[1], pr.pad[2])
    if way == SLID:
        return rows, Line(slid_row(pr), 1, 0)
    even = round_up(columns.extent, 8)
    if in_pieces(pr, view) and even <= columns.extent * FEW_MORE:
        columns = replace(columns, extent=even)
    return rows, columns


def in_pieces(pr: Problem, view: View) -> bool:
    """Whether rows of y in nchw are whole pieces of 16 bytes, eight outputs each."""
    return pr.layout_out == "nchw" and DTYPE_BYTES[pr.dtype_out] == 2 and view.q % 8 == 0


def _combine(cf: Values) -> int:
    """How shares are combined; while that is not known, as if a second kernel pooled."""
    return cf.get("combine", TWO_PASS)


def pool_of(pr: Problem, cf: Values) -> Pool | None:
    """The pool that the kernel itself does: none if a second kernel pools, or if that is not known yet."""
    return None if _combine(cf) == TWO_PASS else pr.epilogue.pool


def _sums_of(pr: Problem, cf: Values) -> tuple[int, int]:
    """Rows and columns of sums in a tile that lies within an image.

    A tile that is a run of the raster begins with a row and has whole rows.
    """
    if cf["tall"]:
        return cf["wn"], cf["bn"]
    raster, nb = raster_of(pr, cf["x"], cf["bn"]), cf["bn"] * cf["wn"]
    q = raster.view.q
    return (nb - q) // raster.columns.extent + 1 if nb >= q else 0, q


def outputs_of(pr: Problem, cf: Values) -> tuple[int, int]:
    """Rows and columns of y in such a tile: those of the sums or, if the kernel pools, of windows."""
    rows, columns = _sums_of(pr, cf)
    return windows(pr, _combine(cf), rows), windows(pr, _combine(cf), columns)


def tiles_of(pr: Problem, cf: Values) -> tuple[int, int, int]:
    """Tiles of pixels along images, rows and columns; for runs of the raster all in one number."""
    if not cf["tall"] and pool_of(pr, cf) is None:
        return 1, 1, ceil_div(raster_of(pr, cf["x"], cf["bn"]).places, cf["bn"] * cf["wn"])
    (rows, columns), view, combine = _sums_of(pr, cf), View.of(pr), _combine(cf)
    p_tiles = tiles_along(pr, combine, view.p, pr.y_p, rows)
    return view.n, p_tiles, tiles_along(pr, combine, view.q, pr.y_q, columns)


def patch_of(pr: Problem, cf: Values) -> tuple[int, int]:
    """Lines of the raster, and places of each, that the taps of a tile read, in one phase.

    If each step copies a patch of its own, those that one tap reads; for planes, spans.
    """
    if cf["x"] == PLANES and (spans := spans_of(pr, cf["bn"])):
        return cf["wn"] * ceil_div(cf["bn"], spans.places), spans.places
    raster = raster_of(pr, cf["x"], cf["bn"])
    rows, columns = raster.rows, raster.columns
    if cf["x"] == SLID:
        return (cf["bn"] * cf["wn"] + rows.reach * columns.extent) // line_of(pr), line_of(pr)
    if cf["tall"]:
        return cf["wn"] + rows.reach, round_up(cf["bn"] + columns.reach, 8)
    return 1, round_up(cf["bn"] * cf["wn"] + rows.reach * columns.extent + columns.reach, 8)


def places_of(pr: Problem, cf: Values) -> int:
    """Places of a patch in all phases."""
    lines, line = patch_of(pr, cf)
    return raster_of(pr, cf["x"], cf["bn"]).phases * lines * line


def segments_of(pr: Problem, cf: Values) -> int:
    """Most segments that hold the pixels of a patch (hopper_turn.h); 0 if it is not copied in segments.

    Its pixels, and those between them, are one run; with strides the run has pixels that belong to no place.
    """
    if not turns_runs(pr, cf["x"]):
        return 0
    raster = raster_of(pr, cf["x"], cf["bn"])
    view, row = raster.view, raster.columns.extent
    patch, up, pixels = patch_of(pr, cf)[1], pr.stride[1], view.h * view.w
    spanned = ceil_div(patch - 1, row) + 1  # rows of the raster
    images = min(view.n, ceil_div(spanned - 1, raster.rows.extent) + 1)
    most = patch * up + max(0, view.w - row * up) * spanned
    if view.n == 1:
        return ceil_div(min(most + 8, pixels), SEGMENT)
    return min(ceil_div(most, SEGMENT) + 2 * images, images * ceil_div(pixels, SEGMENT))


def raw_stages_of(cf: Values) -> int:
    """Patches in flight before they are transposed: one, or two if there are buffers for several."""
    return min(cf["xs"], 2)
