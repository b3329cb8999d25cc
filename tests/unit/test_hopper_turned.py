"""Runs of pixels that the hopper kernel turns: no block has more of them than it has room for.

In the words of the kernel (hopper_turn.h), which runs on a GPU alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tilewright.arithmetic import ceil_div
from tilewright.kernels.fold import folded
from tilewright.kernels.hopper.raster import SEGMENT, Line, patch_of, raster_of, segments_of
from tilewright.kernels.hopper.ways import TURNED, turns_runs
from tilewright.problem import Problem

LAYERS = (
    "n1c64h64w64k64r3s3p1-f16",
    "n1c72h12w22k70r3s3p1-bf16",
    "n3c24h4w6k40r3s3p1-f16",
    "n2c48h8w13k70r5s3p2x0d2x1-bf16",
    "n2c40h5w16k24r3s3p1d2u1x2-f16",
    "n3c32h1w72k70r1s3p0x1u2-f16",
    "n1c64h7w8k64r1s1-f16",
)
ONE_ROW = (
    "n3c8h1w72k8r3s3p1u3x1-f16",  # a row of the filter is in another phase than the image
    "n1c8h1w72k8r1s2p1u2x1-f16",  # the image lies between two rows of y
    "n5c8h1w64k8r3s5p3.5.1.1u3x1d2x3-f16",
)


@dataclass(frozen=True)
class Turned:
    """A layer and a tile of it, as the kernel has them by its defines."""

    pr: Problem
    rows: Line
    columns: Line
    patch: int

    @classmethod
    def of(cls, pr: Problem, nb: int) -> Turned:
        """Read the defines of a block of ``nb`` pixels."""
        raster = raster_of(pr, TURNED, nb)
        return cls(pr, raster.rows, raster.columns, patch_of(pr, dict(x=TURNED, bn=nb, wn=1, tall=0))[1])

    @property
    def image(self) -> int:
        """Pixels of an image."""
        return self.pr.h * self.pr.w

    def pixel_from(self, place: int, phase_h: int, phase_w: int) -> int:
        """Return the pixel that a place shows, or the next one behind it."""
        view = raster_of(self.pr, TURNED).view
        h, w = view.h, view.w
        (up_h, up_w), (pad_t, _, pad_l, _) = self.pr.stride, self.pr.pad
        row, column = divmod(place, self.columns.extent)
        n, p = divmod(row, self.rows.extent)
        i, j = p * up_h + phase_h - pad_t, column * up_w + phase_w - pad_l
        if n >= self.pr.n:
            return self.pr.n * self.image
        return n * self.image + (0 if i < 0 else self.image if i >= h else i * w + min(max(j, 0), w))

    def segments(self, px0: int) -> tuple[int, int]:
        """Return the first segment (of one image: pixel) of a block, and how many it has: find_segments."""
        first, end = self.pixel_from(px0, 0, 0), self.pr.n * self.image
        last = self.pixel_from(px0 + self.patch - 1, self.rows.phases - 1, self.columns.phases - 1)
        last = min(last, end - 1)
        if first >= end:
            return 0, 0
        if self.pr.n == 1:
            return first // 8 * 8, (last - first // 8 * 8) // SEGMENT + 1
        of_image = ceil_div(self.image, SEGMENT)
        one, other = (at // self.image * of_image + at % self.image // SEGMENT for at in (first, last))
        return one, other - one + 1

    def shown(self, px0: int) -> np.ndarray:
        """Return the pixel of each place of a patch as the table of find_turned has it; -1 for none."""
        view = raster_of(self.pr, TURNED).view
        first, count = self.segments(px0)
        i, of_image = np.arange(count * SEGMENT), ceil_div(self.image, SEGMENT)
        segment = first + i // SEGMENT
        n = segment // of_image if self.pr.n > 1 else 0 * i
        at = segment % of_image * SEGMENT + i % SEGMENT if self.pr.n > 1 else first + i
        h, v = at // view.w + self.pr.pad[0], at % view.w + self.pr.pad[2]
        (p, phase_h), (q, phase_w) = np.divmod(h, self.pr.stride[0]), np.divmod(v, self.pr.stride[1])
        place = (n * self.rows.extent + p) * self.columns.extent + q - px0
        is_one = (at < self.image) & (p < self.rows.extent) & (q < self.columns.extent)
        is_one &= (phase_h < self.rows.phases) & (phase_w < self.columns.phases)
        is_one &= (place >= 0) & (place < self.patch)
        row = ((phase_h * self.columns.phases + phase_w) * self.patch + place)[is_one]
        assert len(np.unique(row)) == len(row)
        found = np.full(self.rows.phases * self.columns.phases * self.patch, -1)
        found[row] = (n * self.image + at)[is_one]
        return found

    def wanted(self, px0: int) -> np.ndarray:
        """Return the same by the place: find_pixel."""
        view = raster_of(self.pr, TURNED).view
        phase, place = np.divmod(np.arange(self.rows.phases * self.columns.phases * self.patch), self.patch)
        (row, q), (phase_h, phase_w) = (
            np.divmod(px0 + place, self.columns.extent), np.divmod(phase, self.columns.phases))  # fmt: skip
        n, p = np.divmod(row, self.rows.extent)
        h = p * self.pr.stride[0] + phase_h - self.pr.pad[0]
        v = q * self.pr.stride[1] + phase_w - self.pr.pad[2]
        outside = (n >= self.pr.n) | (h < 0) | (h >= view.h) | (v < 0) | (v >= view.w)
        return np.where(outside, -1, n * self.image + h * view.w + v)


def _drawn(count: int) -> Iterator[Problem]:
    """Layers of small images, with any pads, strides and dilations, whose pixels come as runs."""
    rng = random.Random(1)
    while count:
        h, w = rng.choice((1, 2, 3, 4, 5, 8, 12, 31)), rng.choice((4, 6, 8, 9, 13, 16, 24, 40, 72))
        r, s, *pads = (rng.randint(low, 5) for low in (1, 1, 0, 0, 0, 0))
        up = f"u{rng.choice((1, 2, 3)) if h == 1 else 1}x{rng.choice((1, 1, 2, 3, 4))}"
        apart = f"d{rng.choice((1, 1, 2))}x{rng.choice((1, 1, 3))}"
        if h + sum(pads[:2]) < 2 * r or w + sum(pads[2:]) < 3 * s or h * w % 8:
            continue
        text = f"n{rng.choice((1, 1, 2, 5))}c8h{h}w{w}k8r{r}s{s}p{'.'.join(map(str, pads))}{up}{apart}-f16"
        pr = Problem.parse(text)
        if folded(pr) is pr and turns_runs(pr, TURNED):
            count -= 1
            yield pr


@pytest.mark.parametrize("pr", [*map(Problem.parse, LAYERS), *_drawn(60)], ids=str)
def test_a_block_has_room_for_its_pixels_and_every_place_its_own(pr: Problem) -> None:
    rng = random.Random(str(pr))
    for nb in rng.sample((8, 16, 24, 40, 64, 96, 128, 192, 256), 3):
        turned, room = Turned.of(pr, nb), segments_of(pr, dict(x=TURNED, bn=nb, wn=1, tall=0))
        places = raster_of(pr, TURNED, nb).places + nb  # a cluster's last blocks may have none
        for px0 in {0, places, *(rng.randrange(places) for _ in range(12))}:  # any one where tiles are pooled
            assert turned.segments(px0)[1] <= room
            assert np.array_equal(turned.shown(px0), turned.wanted(px0))


@pytest.mark.parametrize("text", ONE_ROW)
def test_an_image_of_one_row_is_no_run_where_places_show_parts_of_it_alone(text: str) -> None:
    assert not turns_runs(Problem.parse(text), TURNED)
