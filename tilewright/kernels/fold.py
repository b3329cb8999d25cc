"""Folds columns into channels, where a filter's columns and its steps along a row are whole folds.

In nhwc a row of W pixels of C channels is, byte for byte, also a row of W / F pixels of F * C channels. So a
layer whose filter has S columns, whose stride is U and whose padding L and R columns is also one of F times
as many channels with S / F columns, stride U / F and padding L / F and R / F, if F divides them all: it
multiplies the same pairs of numbers, and has whole vectors to load and enough channels for tensor cores.

    a vision transformer's patches, 16 x 16 of 3 channels       F = 16   16 x 1 of 48 channels, stride 16 x 1
    a Fourier transform, 1024 samples every 256, of 1 channel   F = 256  1 x 4 of 256 channels, stride 1

In nchw with several channels the kernel that copies x to nhwc also folds it; there only filters whose columns
do not overlap are folded. The filter is packed with its columns as channels: channel j * C + c of column s is
column s * F + j of channel c (FOLD in untuned/filter.h).
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from tilewright.kernels.blueprint import Blueprint
from tilewright.kernels.limits import MOST_GATHERED
from tilewright.problem import Problem


def fold_of(pr: Problem, copied: bool = True) -> int:
    """Columns that become channels of one; 1 if none do.

    Args:
        pr: the layer.
        copied: whether a copy of x may fold it. It is not made if numbers are few, which are gathered without
            it, in accurate, where a fallback reads x again, and for an image of one pixel.
    """
    if pr.groups > 1 or pr.dilation[1] > 1:
        return 1
    found = gcd(pr.s, pr.stride[1], pr.w, *pr.pad[2:])
    if pr.layout_in == "nhwc" or pr.c == 1:
        return found
    apart = found == pr.s == pr.stride[1] and not any(pr.pad[2:])
    many = pr.math != "accurate" and pr.terms > MOST_GATHERED and pr.h * pr.w > pr.s
    return found if copied and apart and many else 1


def folded(pr: Problem, copied: bool = True) -> Problem:
    """Return the layer with columns as channels; the layer itself if it cannot be folded."""
    fold = fold_of(pr, copied)
    if fold == 1:
        return pr
    (left, right), (up, across) = pr.pad[2:], pr.stride
    return replace(
        pr, c=pr.c * fold, w=pr.w // fold, s=pr.s // fold, stride=(up, across // fold),
        pad=(*pr.pad[:2], left // fold, right // fold), layout_in="nhwc" if pr.c == 1 else pr.layout_in,
    )  # fmt: skip


def of_layer(blueprint: Blueprint, pr: Problem, copied: bool = True) -> Blueprint:
    """Return the blueprint of a folded layer for arrays of the layer: packing or copying folds them."""
    inner = folded(pr, copied)
    if inner is pr:
        return blueprint
    columns = pr.s // inner.s
    fold = (("FOLD", columns),)
    parts = tuple(
        replace(one, defines=(*one.defines, *fold))
        if inner.layout_in == "nchw" and one.source == "nhwc.cu" else one
        for one in blueprint.parts
    )  # fmt: skip
    pack = (*(blueprint.pack or ()), *fold, ("CG", inner.cg), ("SIZE_S", inner.s))
    said = f"\nS is {inner.s}: channel j * {pr.cg} + c of column s is column s * {columns} + j of channel c."
    return replace(blueprint, parts=parts, pack=pack, packing=blueprint.packing and blueprint.packing + said)
