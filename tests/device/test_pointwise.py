"""The pointwise family: 1x1 layers in nchw, spans of planes in tiles; on a GPU, and by emulation on the CPU.

Of what a GPU does the emulation has the spans, the tiles, the places in shared memory and what is stored;
barriers, copies and fragments are only there.
"""

from __future__ import annotations

from itertools import product

import pytest
from here import EMULATED_AND_GPU, GPU
from planes import config_agrees, configs_agree, emulated_configs_agree, nan_stays
from test_gpu_path import runtime

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.pointwise.tile import places, plane, span, spans
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["runtime"]  # a fixture

KIND = family_of("pointwise")
H100 = for_architecture("sm_90")
BASE = dict(bn=32, teams=1, turns=0, chunks=4, mb=1, sets=2, keep=0, stages=2)
LAYERS = (
    ("n2c136h7w8k40r1s1-f16", {}),  # channels in and out past the last whole step and tile
    ("n5c200h8w9k72r1s1-bf16+bias+add0.5+relu", dict(bn=64, teams=2, chunks=8, stages=3)),
    ("n9c40h3w8k40r1s1-f16+silu", dict(teams=3)),  # a span has more pixels than a plane
    ("n3c64h14w12k96r1s1-f16+bias", dict(bn=96, teams=2)),  # three parts: memory in turns from tile to tile
    ("n9c72h16w16k64r1s1-f16+add", dict(bn=64, teams=3, chunks=8, sets=4)),
    ("n2c65h4w6k35r1s1-f16+bias+add", dict(sets=1)),
    ("n1c264h16w20k32r1s1-f16", dict(chunks=8, stages=4)),
    ("n40c40h4w8k170r1s1-f16+bias", dict(bn=192, teams=2)),
    ("n3c134h6w10k72r1s1-f16+bias+add0.5+relu", dict(bn=64, teams=2)),  # two strands
    ("n2c68h2w18k33r1s1-f16+silu", dict(stages=3)),  # four
    ("n5c136h5w13k40r1s1-bf16+bias", dict(chunks=8, teams=2)),  # eight
    ("n2c34h7w8k33r1s1-tf32+bias", {}),
    ("n3c34h3w14k40r1s1-tf32+add", dict(chunks=4, teams=2)),  # two
    ("n2c68h7w9k33r1s1-tf32+bias", dict(chunks=8)),  # four
    ("n3c133h9w16k40r1s1u2-f16+bias+add0.5+relu", dict(teams=2)),  # every other pixel, copied first: eights
    ("n3c70h8w12k72r1s1u2-bf16", dict(bn=64)),  # twos
    ("n2c35h8w7k33r1s1u2-tf32+bias", {}),  # one by one
    ("n2c35h7w12k33r1s1u1x3-f16", {}),
    ("n5c68h6w6k40r1s1-tf32+add0.5+relu", dict(bn=64, teams=2, chunks=8, stages=3)),
    ("n3c40h6w6k70r1s1-tf32", dict(bn=96, teams=3, stages=3)),
    ("n9c17h4w4k33r1s1-tf32+silu", dict(teams=2, chunks=4, sets=1)),
    ("n1c260h14w14k32r1s1-tf32+bias", dict(chunks=8, sets=4, stages=4)),
)  # fmt: skip
MANY = (  # tiles, so that filters can stay and warpgroups take turns
    ("n70c40h14w12k33r1s1-f16+bias", dict(teams=2, turns=1, keep=1)),
    ("n70c40h14w12k33r1s1-bf16", dict(teams=3, turns=1, stages=3)),
    ("n70c40h14w12k33r1s1-f16+add", dict(bn=64, keep=1)),
    ("n70c36h6w12k68r1s1-tf32+relu", dict(teams=2, turns=1, keep=1, chunks=8)),
    ("n70c20h6w12k33r1s1-tf32+bias+add", dict(teams=2, turns=1, stages=4)),
)  # fmt: skip


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS + MANY)
def test_spans_go_on_from_image_to_image(
    text: str, change: dict[str, int], device: str, runtime: Runtime
) -> None:
    config_agrees(runtime, text, Config.make("pointwise", BASE | change))


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), (*LAYERS[::2], *MANY[::3]))
def test_a_nan_stays_with_the_outputs_that_it_belongs_to(
    text: str, change: dict[str, int], device: str, runtime: Runtime
) -> None:
    """Channels past the last are zeros, as their filters are, whatever was in shared memory before."""
    nan_stays(runtime, text, Config.make("pointwise", BASE | change))


@pytest.mark.parametrize("text", [text for text, _ in LAYERS[1::2]])
def test_configs_by_emulation(text: str, runtime: Runtime) -> None:
    emulated_configs_agree(runtime, KIND, text)


@pytest.mark.parametrize("device", GPU)
@pytest.mark.parametrize(
    "text",
    (
        "n32c128h28w28k512r1s1-f16",
        "n9c328h7w8k200r1s1-f16+bias+relu",
        "n32c512h8w9k520r1s1-bf16+add",
        "n33c64h28w28k256r1s1-f16+bias+add+silu",
        "n99c300h4w6k164r1s1-bf16+silu",
        "n333c641h4w4k129r1s1-f16+add0.5",
        "n64c256h14w14k1024r1s1-tf32",
        "n37c320h6w6k1280r1s1-tf32+bias",
        "n16c65h56w60k65r1s1-tf32+add",
    ),
)
def test_configs_on_a_gpu(text: str, device: str, runtime: Runtime) -> None:
    configs_agree(runtime, KIND, text)


def test_planes_and_tiles_of_all_kinds_are_tried() -> None:
    tried = [(Problem.parse(text), BASE | change) for text, change in LAYERS]
    of_plane = {(problem.dtype != "f32", plane(problem) > span(problem)) for problem, _ in tried}
    assert of_plane == {*product((False, True), repeat=2)}  # planes of a span, of several
    whole = {places(problem, cf) * spans(problem, cf) * span(problem) == problem.n * plane(problem)
             for problem, cf in tried}  # fmt: skip
    assert whole == {False, True}
