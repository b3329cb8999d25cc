"""The direct family on CPU cores: tiles past the last channel, row or column: parts of vectors."""

from __future__ import annotations

import pytest
from here import fitting, verified

from tilewright.kernels.direct.cpu import _defines as defines
from tilewright.kernels.family import Config
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

BASE = dict(v=4, tk=2, tw=5, th=2, nk=2, nh=2, nw=2, sg=1, x=1, cs=0, combine=0)
WINDOWS = dict(tw=4, tk=1)  # of a pool
PIXELS = dict(th=1, nh=1)  # of all rows, one behind the other
# 7 rows of tiles of 2, 13 columns of tiles of 5; the last vector of 4 has 1, 2 or 3 channels of 13, 14 or 15.
EDGES = tuple(
    (f"n2c5h7w13k{k}r3s3p1-{rest}", change)
    for k, rest, change in (
        (13, "f32-nhwc+alpha0.5+bias+add2+silu", dict()),
        (14, "f32+bias+add+relu", dict()),
        (15, "f32-nchw2nhwc", dict(v=8, tk=1)),
        (15, "f32-nhwc2nchw+bias", dict(v=8, tk=1)),
        (13, "f64-nhwc+bias+add", dict()),
        (14, "f64+bias", dict()),
        (15, "f16-nhwc+bias+add+relu", dict()),
        (13, "f16+bias+add", dict(v=8, tk=1)),
        (14, "bf16-nhwc+bias", dict()),
        (15, "bf16+add", dict()),
        (13, "f8-nhwc+bias+add", dict()),
        (14, "f8+bias", dict()),
        (15, "i8-nhwc+bias+add+relu", dict()),
        (13, "i8+bias", dict(v=8, tk=1)),
        (14, "i8-nhwc+bias+add+requant", dict()),
        (15, "i8+bias+requant", dict()),
        (13, "f32-nhwc+bias+add+relu+maxpool2", WINDOWS),
        (14, "f32+bias+maxpool2", WINDOWS),
        (15, "f32+avgpool2", WINDOWS | dict(v=8)),
        (13, "f16-nhwc+bias+avgpool2", WINDOWS),
        (14, "f32+bias+add+relu+maxpool2", WINDOWS),
        (15, "i8+bias+add+maxpool2", WINDOWS | dict(v=8)),
    )
) + (
    ("n2c6h7w13k42r3s3p1g3-f32-nhwc+bias+add", dict()),  # groups of 14
    ("n2c6h7w13k42r3s3p1g3-f32+bias+add", dict()),
    ("n1c32h7w13k13r1s1-f32-nhwc+bias", PIXELS | dict(sg=2, combine=2)),  # shares
    ("n1c32h7w13k13r1s1-f32", PIXELS | dict(sg=2, combine=1)),
    ("n1c32h7w13k13r1s1-f32+bias+add", PIXELS | dict(sg=2, combine=3)),
    ("n1c32h7w13k13r1s1-f32-nhwc+bias+add+relu", PIXELS | dict(x=0)),
    ("n1c32h7w13k13r1s1-f32+bias+add+relu", PIXELS | dict(x=0)),
    ("n5c64h1w1k13r1s1-f32+bias", dict(th=1, nh=1, x=0, tw=3)),  # a classifier
)  # fmt: skip


@pytest.mark.parametrize(("text", "change"), EDGES)
def test_tiles_past_an_edge_are_stored(text: str, change: dict[str, int], cpu: Runtime) -> None:
    problem = Problem.parse(text)
    words = -(-problem.cg // 4) if problem.is_integer else problem.cg
    values = fitting(problem, cpu.device, BASE | dict(cs=words) | change)
    verified(cpu, problem, Config.make("direct", values))


@pytest.mark.parametrize("pixels", (*range(1, 15), 17, 28))
def test_pixels_of_a_part_of_a_vector_are_stored(pixels: int, cpu: Runtime) -> None:
    """Whole tiles of so many columns, and one past the edge; z is read in the same parts."""
    v = min(16 if pixels > 7 else 8, cpu.device.lanes)
    problem = Problem.parse(f"n1c3h2w{2 * pixels + pixels // 2}k{2 * v + 1}r1s1u1-f32+bias+add0.5+relu")
    if (pixels + 2) * cpu.device.lanes > cpu.device.regs_per_thread:
        pytest.skip("a core here has fewer registers")
    tile = dict(v=v, tk=1, th=1, nk=1, nh=1, nw=1, tw=pixels, cs=3, x=0)
    verified(cpu, problem, Config.make("direct", BASE | tile))


@pytest.mark.parametrize("layout", ("", "-nhwc"))
def test_channels_of_a_part_of_the_widest_vector_are_stored(layout: str, cpu: Runtime) -> None:
    v = min(16, cpu.device.lanes)
    problem = Problem.parse(f"n1c6h5w{v + 3}k{2 * v + 5}r3s3p1-f32{layout}+bias+add+silu")
    verified(cpu, problem, Config.make("direct", BASE | dict(v=v, tk=1, th=1, nk=1, tw=v + 1, cs=6)))


@pytest.mark.parametrize(
    ("text", "change"),
    (
        ("n1c3h211w213k13r3s3p1-f32+bias", dict()),
        ("n1c3h211w213k13r3s3p1-f32-nhwc", dict()),
        ("n1c2h211w213k29r1s1-f16-nhwc2nchw+relu", PIXELS),
        ("n1c16h211w213k13r1s1-f32", PIXELS | dict(x=0)),
    ),
)
def test_tiles_of_a_large_output_are_asked_for(text: str, change: dict[str, int], cpu: Runtime) -> None:
    problem = Problem.parse(text)
    values = fitting(problem, cpu.device, BASE | dict(cs=problem.cg) | change)
    plan = verified(cpu, problem, Config.make("direct", values))
    defines, wide = dict(plan.blueprint.defines), cpu.device.lanes >= 16
    assert defines["ASK_OUTPUT"] == wide
    assert defines["ASK_INPUT"] == ("x" in change and (wide or cpu.device.lanes == 8))


# Windows that meet several tiles, have gaps between them, are as large as the image or see its edges alone.
POOLS = (
    ("c32h7w13k13", "f32+bias+add+relu+maxpool3u2p1", dict(sg=2)),
    ("c32h7w13k14", "f32-nhwc+alpha0.5+bias+add2+maxpool3u2p1", dict(sg=2, v=8, tk=1)),
    ("c32h7w13k15", "f64+bias+avgpool3u1", dict()),
    ("c32h7w43k3", "f16-nhwc2nchw+add+maxpool2u5p1", dict(tk=1, nk=1, sg=2)),
    ("c32h7w13k17", "bf16-nchw2nhwc+bias+maxpool7u1p3", dict()),
    ("c32h9w12k13", "f8+avgpool9u2", dict()),
    ("c32h3w2k13", "f32-nhwc+avgpool2u3", dict(nh=1, tw=2, nw=1)),
    ("c32h3w2k13", "f32+silu+maxpool2u1p1", dict(nh=1, tw=2, nw=1)),
    ("c128h7w13k13", "i8+bias+add+maxpool3u2p1+requant", dict(sg=2)),
    ("c128h7w13k14", "i8-nhwc+maxpool4u6p2", dict(sg=2)),
)


@pytest.mark.parametrize(("layer", "rest", "change"), POOLS)
def test_windows_are_pooled_by_vectors(layer: str, rest: str, change: dict[str, int], cpu: Runtime) -> None:
    problem = Problem.parse(f"n2{layer}r3s3p1-{rest}")
    words = -(-problem.cg // 4) if problem.is_integer else problem.cg
    values = fitting(problem, cpu.device, BASE | dict(cs=words, combine=2) | change)
    plan = verified(cpu, problem, Config.make("direct", values))
    assert [one.kernel for one in plan.blueprint.launches] == ["direct", "pool_lines"]


@pytest.mark.parametrize("layout", ("", "-nhwc"))
def test_more_than_2_to_the_31_lines_are_pooled(
    layout: str, cpu: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as this layer goes: of a row of y the kernel believes that there are 2^32 times as many."""
    problem = Problem.parse(f"n2c3h20w32k12r1s1-f32{layout}+bias+maxpool3u2p1")
    more = dict(OFFSET64=1, Y_FLOATS=problem.y_elements << 32)
    monkeypatch.setattr("tilewright.kernels.direct.cpu._defines", lambda *given: defines(*given) | more)
    plan = verified(cpu, problem, Config.make("direct", BASE | PIXELS | dict(cs=3, combine=2)))
    known = dict(plan.blueprint.defines)
    assert known["Y_FLOATS"] == more["Y_FLOATS"] and known["LINES"]
    assert 2 * problem.y_p * (1 if layout else problem.k) % known["LINES"] == 0
