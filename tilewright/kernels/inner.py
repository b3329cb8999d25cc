"""Matrix products that a family computes by another's kernel (``Family.inner``), between its own launches."""

from __future__ import annotations

from dataclasses import replace

from tilewright.arithmetic import round_up
from tilewright.kernels.blueprint import Blueprint, Launch
from tilewright.problem import Problem


def side_by_side(count: int, c: int, k: int, pixels: int, layout_in: str, layout_out: str) -> Problem:
    """Return ``count`` products of K x C filters and C x pixels as groups of a 1x1 layer.

    The pixels are rounded up to whole quads.
    """
    return Problem(
        n=1, c=count * c, h=1, w=round_up(pixels, 4), k=count * k, r=1, s=1, groups=count,
        layout_in=layout_in, layout_out=layout_out,
    )  # fmt: skip


def between(inner: Blueprint, x: str) -> list[Launch]:
    """Return the launches of the products, from the buffer ``x`` to the outer family's ``products``."""
    names = {"x": x, "y": "products"}
    return [
        replace(one, args=tuple(names.get(name, name) for name in one.args), chained=True)
        for one in inner.launches
    ]


def program(inner: Blueprint) -> Blueprint:
    """Return the products as a part of the outer family's blueprint, which has their launches and buffers."""
    return replace(inner, launches=(), workspace=())
