"""Folds columns into channels, if filters do not overlap along a row and there is no padding along it.

In nhwc a row of W pixels of C channels is, byte for byte, also a row of W / S pixels of S * C channels. If a
filter of S columns has stride S, each output depends on one such pixel per row: the layer has a filter of a
single column. So a vision transformer's first layer, patches of 16 x 16 pixels of 3 channels, has 48
channels and a 16 x 1 filter: whole vectors to load, and enough channels for tensor cores. In nchw the kernel
that copies x to nhwc also folds it.

The filter is packed with its columns as channels: channel s * C + c is column s of channel c (FOLD in
untuned/filter.h).
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.kernels.blueprint import Blueprint
from tilewright.kernels.limits import MOST_GATHERED
from tilewright.problem import Problem


def folds(pr: Problem) -> bool:
    """Whether the filter's columns do not overlap and make up whole rows.

    In nchw folding needs a copy of x. So it is not done if numbers are few, which are gathered without a
    copy, in accurate, where a fallback reads x again, and for an image of one pixel, which is not copied.
    """
    apart = pr.stride[1] == pr.s > 1 and pr.dilation[1] == 1 and pr.pad[2:] == (0, 0)
    copied = pr.math != "accurate" and pr.cg * pr.r * pr.s > MOST_GATHERED and pr.h * pr.w > pr.s
    return apart and pr.w % pr.s == 0 and pr.groups == 1 and (pr.layout_in == "nhwc" or copied)


def folded(pr: Problem) -> Problem:
    """Return the layer with the filter's columns as channels; the layer itself if it cannot be folded."""
    if not folds(pr):
        return pr
    return replace(pr, c=pr.c * pr.s, w=pr.w // pr.s, s=1, stride=(pr.stride[0], 1))


def of_layer(blueprint: Blueprint, pr: Problem) -> Blueprint:
    """Return the blueprint of a folded layer for arrays of the layer: packing or copying folds them."""
    inner = folded(pr)
    if inner is pr:
        return blueprint
    fold = (("FOLD", pr.s),)
    copies = pr.layout_in == "nchw"
    parts = tuple(
        replace(one, defines=(*one.defines, *fold)) if copies and one.source == "nhwc.cu" else one
        for one in blueprint.parts
    )
    pack = (*(blueprint.pack or ()), *fold, ("CG", inner.cg), ("SIZE_S", 1))
    return replace(blueprint, parts=parts, pack=pack)
