"""winograd and winograd4 on CPU cores: layouts, edges, epilogues of the transforms, against NumPy in f64."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.kernels import family_of
from tilewright.kernels.family import Family
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.search.space import sample

FAMILY, SMALL = family_of("winograd4"), family_of("winograd")
LAYERS = (
    "n1c16h4w4k16r3s3p1-f32",  # one tile
    "n2c19h13w11k37r3s3p1-f32{}+bias+relu",  # channels that hang over
    "n2c19h13w18k33r3s3p1.0.0.2-f32{}",
    "n1c32h12w14k16r3s3p2-f32{}+alpha0.5+bias+add2+silu",
    "n1c16h15w17k40r3s3p1-f32{}+bias+add+relu+maxpool4",
    "n2c20h13w11k24r3s3-f32{}+bias+maxpool2",
    "n1c16h9w70k16r3s3p1-f32{}+avgpool2",  # more than one vector of tiles in a row
    "n3c16h40w36k32r3s3p1-f32{}",  # several runs of rows
    "n1c16h6w6k16r5s5-f32",  # tiles of 2x2 outputs: one of them
    "n2c19h13w11k37r5s5p2-f32{}+bias+relu",
    "n2c19h13w38k33r5s5p2.1.0.3-f32{}+bias+add+maxpool2",
    "n1c16h9w70k20r3s5p1-f32{}",
    "n1c20h19w15k16r5s3p1-f32{}+bias+avgpool2",
    "n2c19h13w11k37r3s3p2x3d2x3-f32{}+bias+relu",  # dilated: the outputs of a tile lie apart
    "n1c16h30w40k20r5s5p4d3x2-f32{}",
    "n1c20h11w70k32r3s3d1x7-f32{}+bias+add",
    "n1c16h10w9k16r3s3p9d9-f32{}",  # tiles of one row and column inside the image
)
OF_SMALL_TILES = (
    "n1c16h2w2k16r3s3p1-f32",  # one tile
    *(text for text in LAYERS if "r3s3" in text and "maxpool4" not in text),
)
LAYOUTS = ("", "-nhwc", "-nchw2nhwc", "-nhwc2nchw")


def _worst(runtime: Runtime, problem: Problem, seed: int, family: Family = FAMILY) -> float:
    """Run twice, over what the first run left; return the error, by its bound."""
    rng = np.random.default_rng(seed)
    config = sample(family, problem, runtime.device, random.Random(seed))
    plan = LayerPlan(Plan.make(runtime, problem, config))
    shapes = dict(x=problem.x_shape, w=problem.w_shape, bias=(problem.k,), z=problem.z_shape)
    data: dict[str, Any] = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    given = {name: data[name] for name in ("bias", "z") if name in problem.operands}
    packed = plan.pack(data["w"])
    first = plan(data["x"], packed, **given)
    second = plan(data["x"], packed, out=np.full(problem.y_shape, np.nan, np.float32), **given)
    if plan.deterministic:
        assert (first == second).all(), config
    ref, size = numpy_conv(problem, data["x"], data["w"], data["bias"], data["z"])
    chain = family.chain(problem, runtime.device, config)
    bound = 4 * np.sqrt(chain) * 2.0**-24 * size + 2.0**-24 * np.abs(ref) + 1e-44
    return float(np.max(np.abs(second - ref) / bound))  # NaN, where something was not written


def _laid_out(layers: Sequence[str] = LAYERS) -> Iterator[str]:
    """Each layer in two layouts, with either of x and of y: one launch reads x, another one stores y."""
    for number, text in enumerate(layers):
        pair = LAYOUTS[:2] if number % 2 else LAYOUTS[2:]
        yield from dict.fromkeys(text.format(layout) for layout in pair)


@pytest.mark.parametrize("text", [*_laid_out()])
def test_every_layout_edge_and_epilogue(
    runtime: Runtime, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Corners that see one tap, too: of so few images none is beyond the bound."""
    monkeypatch.setattr("tilewright.kernels.winograd.chained.FEWEST_AT_EDGES", 0)
    problem = Problem.parse(text)
    assert FAMILY.refuses(problem, runtime.device) is None
    assert _worst(runtime, problem, sum(map(ord, text))) <= 1


@pytest.mark.parametrize("text", [*_laid_out(OF_SMALL_TILES)])
def test_every_layout_edge_and_epilogue_of_small_tiles(runtime: Runtime, text: str) -> None:
    problem = Problem.parse(text)
    assert SMALL.refuses(problem, runtime.device) is None
    assert _worst(runtime, problem, sum(map(ord, text)), SMALL) <= 1


@pytest.mark.parametrize("text", ("n8c16h18w18k32r3s3p2-f32", "n8c32h18w18k32r3s3p2-f32-nhwc"))
def test_corners_that_see_one_tap_would_be_beyond_the_bound(
    runtime: Runtime, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem.parse(text)
    assert "less than half" in (FAMILY.refuses(problem, runtime.device) or "")
    monkeypatch.setattr("tilewright.kernels.winograd.chained.FEWEST_AT_EDGES", 0)
    assert max(_worst(runtime, problem, seed) for seed in range(3)) > 1


@pytest.mark.parametrize("family", (FAMILY, SMALL))
@pytest.mark.parametrize("layout", ("", "-nhwc"))
def test_slabs_that_do_not_divide_the_rows(runtime: Runtime, layout: str, family: Family) -> None:
    problem = Problem.parse(f"n3c16h22w21k16r3s3p1-f32{layout}")
    known = runtime.device
    runtime.device = replace(known, l2_bytes=250_000)  # so that few rows of tiles fit
    try:
        config = sample(family, problem, runtime.device, random.Random(1))
        found = family.blueprint(problem, runtime.device, config)
        assert len({launch.kernel for launch in found.launches}) < len(found.launches)
        rows = 3 * {FAMILY: 6, SMALL: 11}[family]  # of tiles
        assert rows % dict(found.defines)["SLAB_ROWS"]
        assert _worst(runtime, problem, 1, family) <= 1
    finally:
        runtime.device = known


@pytest.mark.parametrize("family", (FAMILY, SMALL))
def test_other_vectors(runtime: Runtime, family: Family) -> None:
    known = runtime.device
    for lanes in (4, 8):
        if lanes < known.lanes:
            runtime.device = replace(known, lanes=lanes, regs_per_thread=16 * lanes)
            try:
                for layout in LAYOUTS:
                    problem = Problem.parse(f"n2c19h13w11k37r3s3p1-f32{layout}+bias+relu")
                    assert _worst(runtime, problem, lanes, family) <= 1
            finally:
                runtime.device = known


@pytest.mark.parametrize(
    "text",
    ("n1c16h8w8k16r3s3p1u2-f32", "n1c16h8w8k16r3s3p2d2-f32+maxpool2", "n1c16h8w8k16r7s7p3-f32",
     "n1c16h8w8k16r1s5p1-f32", "n1c16h12w12k16r5s5-f32+maxpool4",
     "n1c8h8w8k16r3s3p1-f32", "n1c32h8w8k32r3s3p1g2-f32", "n1c16h8w8k16r3s3p1-f16",
     "n1c16h8w8k16r3s3p1-f32+maxpool3u2p1", "n0c16h8w8k16r3s3p1-f32",
     "n1c16h4w20000k16r3s3p1-f32", "n1c16h4w9000k16r3s3p1x2000d1x2000-f32"),
)  # fmt: skip
def test_what_is_refused(runtime: Runtime, text: str) -> None:
    assert FAMILY.refuses(Problem.parse(text), runtime.device)
