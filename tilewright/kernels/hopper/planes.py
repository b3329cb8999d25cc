"""How a row of a plane of x in nchw is copied, for tensor cores that take pixels as they lie in a row."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.hopper.ways import leads
from tilewright.kernels.products import in_chunk
from tilewright.kernels.tile import View
from tilewright.problem import Problem

SPANS = (64, 32, 16)  # pixels of a plane, 2 bytes each, that the copy engine swizzles together
SENT_FOR = 8  # cost of another copy, in pixels (guess)


class Spans(NamedTuple):
    """How a row of a plane is copied: in spans of ``places`` pixels, of which ``outputs`` are used."""

    places: int
    outputs: int


def spans_of(pr: Problem, bn: int) -> Spans | None:
    """Return the spans of a plane's rows; None if no spans make up the ``bn`` pixels of a warpgroup.

    A warpgroup has whole spans or a part of one. Best are few spans with few outputs past the end of a row.
    """
    if leads(pr) > 1 and stretch_of(pr, bn) is None:
        return None
    q = View.of(pr).q
    found = [Spans(places, places if bn % places == 0 else bn) for places in SPANS
             if bn % places == 0 or bn < places]  # fmt: skip

    def cost(one: Spans) -> tuple[int, int]:
        if leads(pr) > 1:  # each line that a row crosses has a cost
            return ceil_div(bn, one.places), one.places
        return ceil_div(q, one.outputs) * (one.outputs + SENT_FOR), one.places

    return min(found, default=None, key=cost)


def line_of(pr: Problem) -> int:
    """Pixels of a span, whole ones of which make a row if sums slide (hopper_slide.h): few past its end."""
    w = View.of(pr).w
    return min(SPANS, key=lambda places: (ceil_div(w, places) * (places + SENT_FOR), -places))


def slid_row(pr: Problem) -> int:
    """Places of the raster for a row, if sums slide."""
    return round_up(View.of(pr).w, line_of(pr))


class Stretch(NamedTuple):
    """Places of the raster with consecutive pixels, of planes that begin anywhere; ``used`` by outputs."""

    places: int
    used: int


def stretch_of(pr: Problem, bn: int) -> Stretch | None:
    """Return the stretches of a warpgroup's ``bn`` pixels (hopper_lead.h); None if all planes begin alike.

    A stretch is all of them, or a span of 64. Its last places are not used, since for some leads they are in
    the next stretch: used are a whole plane, or a multiple of 8, where the next stretch's boxes can begin.
    """
    if leads(pr) == 1:
        return None
    alike = in_chunk(pr) // leads(pr)
    longest, plane = in_chunk(pr) - alike, View.of(pr).q
    found = [Stretch(places, plane if plane <= places - longest else places - in_chunk(pr))
             for places in {bn, SPANS[0]} if places > in_chunk(pr) and bn % places == 0]  # fmt: skip
    return min(found, default=None, key=lambda one: (ceil_div(plane, one.used) * one.places, -one.places))


def row_of(pr: Problem, bn: int) -> int:
    """Places of the raster for a row of outputs: whole stretches or spans, if there are any."""
    q, spans = View.of(pr).q, spans_of(pr, bn)
    if spans is None:
        return q
    if stretch := stretch_of(pr, bn):
        return ceil_div(q, stretch.used) * stretch.places
    return ceil_div(q, spans.outputs) * spans.outputs
