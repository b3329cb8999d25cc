"""Shared by families whose blocks go from item to item: bands of rows of a few images (bands.h).

They are for few input channels, with which a block per tile would mostly wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Param, Rule, Values
from tilewright.kernels.limits import BLOCK, RESIDENT, fits_registers
from tilewright.kernels.split_k import pool_apart, share_defines
from tilewright.kernels.tile import View, image_defines, layer_defines, rows_under, single_tile_defines, up_to
from tilewright.problem import Problem

MOST_CHANNELS = 8  # of the input


@dataclass(frozen=True)
class Bands:
    """Items, which a block processes one after the other, and their units, each done by a thread.

    Attributes:
        band: output rows of an item.
        k_groups: runs of output channels, one per unit.
        units: of an item.
        items: of the layer.
        xh: rows of the image under an item.
    """

    band: int
    k_groups: int
    units: int
    items: int
    xh: int

    def blocks(self, device: Device, cf: Values) -> int:
        """Blocks of the launch: as many as the device holds at once, but not more than items."""
        return min(self.items, device.units * cf["mb"])


def bands_of(pr: Problem, cf: Values, places: int) -> Bands:
    """Split a layer into bands; ``places``: units along a row."""
    band = ceil_div(pr.p, cf["bands"])
    p_parts, k_groups = ceil_div(band, cf["th"]), ceil_div(pr.k, cf["tk"])
    return Bands(
        band=band, k_groups=k_groups, units=cf["ni"] * p_parts * places * k_groups,
        items=ceil_div(pr.n, cf["ni"]) * ceil_div(pr.p, band), xh=rows_under(pr, p_parts * cf["th"]),
    )  # fmt: skip


def many_channels(problem: Problem) -> str | None:
    """Refuse layers of several groups, or of more channels than a thread can loop over."""
    if problem.groups != 1 or problem.c > MOST_CHANNELS:
        return f"it is made for one group of at most {MOST_CHANNELS} input channels"
    return None


def bands_param(problem: Problem) -> Param:
    """The tunable of how many bands of rows an image is split into."""
    parts = up_to(problem.p, (1, 2, 3, 4, 5, 8, 10, 14, 20, 28, 40, 56, 68, 136))
    bands = tuple(dict.fromkeys(ceil_div(problem.p, ceil_div(problem.p, b)) for b in parts))
    return Param("bands", bands, "parts of an image, along its rows, worked on one after the other")


def bands_rules(registers: Callable[[Problem, Values], int], needs: str) -> tuple[Rule, ...]:
    """The rules of registers, threads and items.

    Args:
        registers: estimate of the registers of a thread; it depends on the parameters in ``needs``.
    """
    return (
        Rule("registers_lane", lambda problem, device, cf: fits_registers(device, registers(problem, cf), 1),
             "more registers than a thread has", needs),
        Rule("registers", lambda problem, device, cf: fits_registers(
            device, registers(problem, cf), cf["threads"] * cf["mb"]),
            "more registers than a unit has: the compiler would spill", f"{needs} threads mb"),
        BLOCK,
        RESIDENT,
        Rule("images", lambda bands, ni: ni == 1 or bands == 1, "several images at once are whole ones"),
    )  # fmt: skip


def bands_defines(pr: Problem, device: Device, bands: Bands, cf: Values, aligned: bool) -> Values:
    """The defines of bands.h and tile.h, and of what a thread holds: TH rows of TK channels, in vectors."""
    view, vector = View.unflattened(pr), min(cf["tk"], 4)
    whole = pr.layout_out == "nhwc" and pr.k % vector == 0 and (aligned or vector == 1)
    return dict(
        VECTOR=vector, TK=cf["tk"], TH=cf["th"], K_GROUPS=bands.k_groups, BAND=bands.band,
        BANDS=ceil_div(pr.p, bands.band), IMAGES=cf["ni"], THREADS=cf["threads"], MIN_BLOCKS=cf["mb"],
        GRID=bands.blocks(device, cf), Y_VECTOR=int(whole),
        N=pr.n, **layer_defines(pr, view), **image_defines(pr, view), **single_tile_defines(),
        **share_defines(pool_apart(pr)), OFFSET64=offset64(pr.x_bytes // 4, pr.y_bytes // 4, pr.z_bytes // 4),
    )  # fmt: skip
