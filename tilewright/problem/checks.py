"""Validation of a layer: its sizes, and its dtype, layouts, math and epilogue.

Raises ProblemError, which says what was given and what is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.errors import ProblemError, shown
from tilewright.problem.epilogue import Epilogue
from tilewright.problem.precision import LAYOUTS, MATHS, MAX_EXTENT, PRECISIONS

if TYPE_CHECKING:
    from tilewright.problem import Problem

_COUNTS = dict(n=0, c=1, h=1, w=1, k=1, r=1, s=1, groups=1)  # the least of each
_ROWS = (("pad", 4, 0), ("stride", 2, 1), ("dilation", 2, 1))  # how many, and the least of them
SIZES = (*_COUNTS, *(name for name, _, _ in _ROWS))


def check_sizes(p: Problem) -> None:
    """Refuse sizes that are out of range, or leave no output.

    Raises:
        ProblemError: names the size, and what it must be.
    """
    for name, low in _COUNTS.items():
        value = getattr(p, name)
        if type(value) is not int or not low <= value <= MAX_EXTENT:
            raise ProblemError(f"{name}={shown(value)}: must be an integer from {low} to {MAX_EXTENT}")
    for name, count, low in _ROWS:
        values = getattr(p, name)
        good = isinstance(values, tuple) and len(values) == count
        if not good or not all(type(v) is int and low <= v <= MAX_EXTENT for v in values):
            a_row = "" if isinstance(values, tuple) else "a tuple of "
            many = f"{a_row}{count} integers from {low} to {MAX_EXTENT}"
            raise ProblemError(f"{name}={shown(values)}: must be {many}")
    if p.c % p.groups or p.k % p.groups:
        raise ProblemError(f"groups={p.groups}: must divide c={p.c} and k={p.k}")
    if p.p < 1 or p.q < 1:
        span_h, span_w = p.dilation[0] * (p.r - 1) + 1, p.dilation[1] * (p.s - 1) + 1
        spread = " with its dilation" if p.dilation != (1, 1) else ""
        raise ProblemError(
            f"the filter spans {span_h}x{span_w}{spread} but the padded input is only "
            f"{p.h + p.pad[0] + p.pad[1]}x{p.w + p.pad[2] + p.pad[3]}: the output would be empty; "
            "give a larger input or padding, or a smaller filter"
        )


def check_names(p: Problem) -> None:
    """Refuse a dtype, layout, math or epilogue that is unknown, or a combination that is contradictory.

    Raises:
        ProblemError: names what is wrong, and what it must be.
    """
    for name, value, known in (
        ("dtype", p.dtype, PRECISIONS),
        ("layout_in", p.layout_in, LAYOUTS),
        ("layout_out", p.layout_out, LAYOUTS),
        ("math", p.math, MATHS),
    ):
        if not isinstance(value, str) or value not in known:  # an array would be compared by element
            raise ProblemError(f"{name}={shown(value)}: must be one of {', '.join(known)}")
    if not isinstance(p.epilogue, Epilogue):
        raise ProblemError(f"epilogue={shown(p.epilogue)}: must be an Epilogue, e.g. Epilogue(bias=True)")
    if p.y_p < 1 or p.y_q < 1:
        raise ProblemError(f"+{p.epilogue.pool}: no window fits into the convolution's {p.p}x{p.q} output")
    if p.math != "strict" and p.dtype != "f32":
        raise ProblemError(f"math={p.math!r} needs dtype f32, got {p.dtype}")
    if p.is_integer and not p.epilogue.keeps_integers:
        takes = "bias, add (no factor), relu, maxpool and requant (last)"
        raise ProblemError(f"{p.epilogue}: i8 layers accept only {takes}")
