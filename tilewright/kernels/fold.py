"""Patches as fewer columns of more channels: filters that do not overlap along a row, and no padding there.

A row of W pixels of C channels is, in nhwc, also one of W / S pixels of S * C channels, byte for byte. Where
a filter of S columns moves by S, each output sees one such pixel of a row: the layer is one whose filter has
a single column. So a vision transformer's first layer, patches of 16 x 16 pixels of 3 channels, has 48
channels and a filter of 16 x 1: whole vectors to load, and channels enough for tensor cores. In nchw the
kernel that copies x to nhwc does it on the way.

The filter is packed as it was, with columns for channels: channel s * C + c is column s of channel c (FOLD in
untuned/filter.h).
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.kernels.family import Blueprint
from tilewright.kernels.limits import MOST_GATHERED
from tilewright.problem import Problem


def folds(pr: Problem) -> bool:
    """Whether the filter's columns lie side by side and make up whole rows.

    In nchw x is copied for it. Few numbers are gathered from there without a copy; one of accurate is there
    to be read again by a fallback; and an image of one pixel would not be copied at all.
    """
    apart = pr.stride[1] == pr.s > 1 and pr.dilation[1] == 1 and pr.pad[2:] == (0, 0)
    copied = pr.math != "accurate" and pr.cg * pr.r * pr.s > MOST_GATHERED and pr.h * pr.w > pr.s
    return apart and pr.w % pr.s == 0 and pr.groups == 1 and (pr.layout_in == "nhwc" or copied)


def folded(pr: Problem) -> Problem:
    """Return the layer with the filter's columns as channels; the layer itself where they overlap."""
    if not folds(pr):
        return pr
    return replace(pr, c=pr.c * pr.s, w=pr.w // pr.s, s=1, stride=(pr.stride[0], 1))


def of_layer(blueprint: Blueprint, pr: Problem) -> Blueprint:
    """Return the blueprint of a folded layer for arrays of the layer: who packs or copies folds them."""
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
