"""What a device has room for, to the last byte, register and number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.device import for_architecture
from tilewright.kernels import limits
from tilewright.kernels.family import MOST_LAYER_PIXELS, too_many
from tilewright.problem import Problem

H100 = for_architecture("sm_90")


@pytest.mark.parametrize("blocks", (1, 2, 3))
def test_blocks_share_the_memory_of_a_unit_and_cuda_keeps_some_of_each(blocks: int) -> None:
    beside = limits.DECLARED_SHARED + limits.RESERVED_SHARED
    most = min(H100.shared_per_unit // blocks - beside, H100.shared_per_block - limits.DECLARED_SHARED)
    assert limits.fits_shared(H100, most, blocks)
    assert not limits.fits_shared(H100, most + 1, blocks)


@pytest.mark.parametrize(("threads", "warps"), ((32, 1), (128, 1), (160, 2), (288, 3), (384, 3)))
def test_a_scheduler_holds_the_registers_of_whole_warps(threads: int, warps: int) -> None:
    """``warps``: of the fullest of four schedulers, which have 16,384 registers each."""
    most = min(255 - 15, 16_384 // (32 * warps))
    assert limits.fits_registers(H100, most, threads)
    assert not limits.fits_registers(H100, most + 1, threads)


def test_blocks_are_resident_as_long_as_there_is_room_of_each_kind() -> None:
    assert limits.resident(H100, 56, 256, 0, 1) == 65_536 // (64 * 256)
    beside = limits.DECLARED_SHARED + limits.RESERVED_SHARED
    assert limits.resident(H100, 24, 256, H100.shared_per_unit // 5 - beside, 1) == 5
    assert limits.resident(H100, 24, 1024, 0, 1) == 2  # 2,048 threads
    assert limits.resident(H100, 56, 256, 0, 7) == 7  # as many as were asked for


def test_the_largest_filter_and_the_largest_image_are_taken() -> None:
    filters = Problem.parse("n1c16384h1w1k16384r1s1-f32")
    assert filters.k * filters.c == limits.MOST_WEIGHTS and limits.too_large(filters) is None
    assert "268,435,456 numbers" in (limits.too_large(replace(filters, k=16_385)) or "")
    image = Problem.parse("n1c1h32768w32768k1r1s1-f32")
    assert image.h * image.w == MOST_LAYER_PIXELS and too_many(image) is None
    assert "1,073,741,824 pixels" in (too_many(replace(image, h=32_769)) or "")
    padded = replace(image, pad=(1, 0, 0, 0))  # y is larger than x
    assert "1,073,741,824 pixels" in (too_many(padded) or "")
