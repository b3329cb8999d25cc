"""The direct family on CPU cores: the input as it is copied, taps that meet padding alone; in full checks."""

from __future__ import annotations

import pytest
from here import verified

from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

DIRECT = family_of("direct")
BASE = dict(v=4, tk=2, tw=4, th=1, nk=2, nh=4, nw=2, sg=1, x=1, cs=0, combine=0)
PADDED = (
    ("n2c5h13w13k12r3s3p5d5-f32+bias", dict(th=2, tk=1)),
    ("n1c16h13w13k12r3s3p5d5-f32-nhwc", dict(tw=5)),
    ("n1c7h9w17k10r1s7p0x3-f32", dict(tw=2, nw=8)),
    ("n1c7h17w9k10r7s1p3x0-f32-nhwc+relu", dict(tw=5, nh=14)),
    ("n1c5h5w4k9r3s3p4-f32", dict(nw=1)),  # outputs of padding alone
    ("n1c6h21w15k9r5s3p4x3u2x1d2x3g3-f32", dict(tk=1, nk=1)),
    ("n1c32h9w10k12r3s3p2d2-f32", dict(sg=2, combine=3, nw=2)),  # shares
    ("n1c20h9w10k12r3s3p2x5d2x5-f16+bias+relu", dict()),
    ("n1c20h9w10k12r3s3p5d5-i8", dict()),
    ("n1c6h9w10k12r3s3p3d3-f64", dict()),
    ("n1c6h18w10k12r3s3p4d4-f32+bias+maxpool2", dict(th=2, tk=1, nw=2)),
)


def _checked(text: str, change: dict[str, int], cpu: Runtime) -> dict[str, int]:
    """Check a config in full, NaN and infinity in x and in w with it; return its defines."""
    problem = Problem.parse(text)
    words = problem.cg if problem.dtype != "i8" else -(-problem.cg // 4)
    config = Config.make("direct", BASE | dict(cs=words) | change)
    return dict(verified(cpu, problem, config).blueprint.defines)


@pytest.mark.parametrize(
    "text",
    (
        "n1c16h1w33901k12r1s3p0x301d1x17000-f32+bias",  # the first, the last or both in the padding
        "n1c18h1w34302k12r1s3p0x201d1x17000-f16+relu",  # neither
        "n1c70h1w34301k12r1s2p0x203d1x34000-i8",
    ),
)
def test_under_a_far_dilation_few_channels_are_copied_at_a_time(text: str, cpu: Runtime) -> None:
    _checked(text, dict(cs=1, nk=1, nh=1, nw=1), cpu)


@pytest.mark.parametrize(("text", "change"), PADDED)
def test_taps_that_meet_padding_alone_are_skipped(text: str, change: dict[str, int], cpu: Runtime) -> None:
    assert _checked(text, change, cpu)["SKIP_PADDING"] == 1


@pytest.mark.parametrize(
    "text", ("n1c8h5w6k64r3s3p1g2-f32", "n2c9h5w6k96r3s3p1g3-f16-nhwc+bias", "n1c8h5w6k128r3s3p1g4-i8")
)
def test_the_next_group_begins_where_the_last_tile_of_channels_ends(text: str, cpu: Runtime) -> None:
    problem = Problem.parse(text)
    (v,) = (param.values[-1] for param in DIRECT.params(problem, cpu.device) if param.name == "v")
    assert problem.kg % (2 * v) == 0
    _checked(text, dict(v=v, tk=2, nk=1), cpu)


def test_rows_between_taps_far_apart_are_not_copied(cpu: Runtime) -> None:
    text, far = "n1c5h30w13k12r3s3p9d9-f32", dict(th=2, tk=1, nh=1, nw=1)
    near = _checked(text, far | dict(nh=4), cpu)  # of eight rows of outputs
    assert _checked(text, far, cpu)["SHARED_BYTES"] < near["SHARED_BYTES"] / 3


@pytest.mark.parametrize(
    "text",
    ("n1c3h11w5k9r3s3p1-f32", "n2c3h5w37k9r1s5p0x2-f16", "n1c4h7w19k9r3s3p1u2-bf16", "n1c3h6w6k9r2s2-f32"),
)
def test_rows_are_copied_in_vectors(text: str, cpu: Runtime) -> None:
    """Rows shorter than a vector, and such as end in one; of 4 numbers and of as many as there are lanes."""
    for v in (4, cpu.device.lanes):
        _checked(text, dict(v=v, tk=1, nk=1, nh=2, tw=2, nw=2), cpu)
