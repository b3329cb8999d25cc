"""How a row of a plane of x in nchw is copied, where the tensor cores take pixels side by side."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.arithmetic import ceil_div
from tilewright.kernels.hopper.ways import leads
from tilewright.kernels.tile import View
from tilewright.kernels.untuned.nhwc import each
from tilewright.problem import Problem

SPANS = (64, 32, 16)  # pixels of a plane, 2 bytes each, that the copy engine swizzles together
SENT_FOR = 8  # pixels that another copy costs as much as (guess)


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
    if leads(pr) == 1:
        return None
    alike = each(pr) // leads(pr)
    longest, plane = each(pr) - alike, View.of(pr).q
    found = [Stretch(places, plane if plane <= places - longest else places - each(pr))
             for places in {bn, SPANS[0]} if places > each(pr) and bn % places == 0]  # fmt: skip
    return min(found, default=None, key=lambda one: (ceil_div(plane, one.used) * one.places, -one.places))


def row_of(pr: Problem, bn: int) -> int:
    """Places of the raster that a row of outputs takes: whole stretches or spans, where there are some."""
    q, spans = View.of(pr).q, spans_of(pr, bn)
    if spans is None:
        return q
    if stretch := stretch_of(pr, bn):
        return ceil_div(q, stretch.used) * stretch.places
    return ceil_div(q, spans.outputs) * spans.outputs
