"""The planar family: 1x1 layers in nchw of planes that begin anywhere; on a GPU, and by emulation on the CPU.

Of what a GPU does the emulation has the places in shared memory, the order of channels and what is stored;
barriers, copies and fragments are only there.
"""

from __future__ import annotations

from collections import Counter

import pytest
from here import EMULATED_AND_GPU, GPU
from planes import config_agrees, configs_agree, emulated_configs_agree, nan_stays
from test_gpu_path import runtime

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.planar.tile import plane
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["runtime"]  # a fixture

KIND = family_of("planar")
H100 = for_architecture("sm_90")
BASE = dict(ni=1, bn=32, mb=1, stages=2, sender=1, sets=2, sc=1, turns=1)
LAYERS = (
    ("n2c136h7w7k40r1s1-f16", {}),  # odd planes; channels in and out past the last whole step and tile
    ("n3c200h7w7k72r1s1-bf16+bias+add0.5+relu", dict(ni=2, bn=64, stages=3, sender=0, sets=1)),  # and images
    ("n5c128h5w3k32r1s1-f16+silu", dict(ni=4)),
    ("n1c264h9w7k96r1s1-f16+bias", dict(bn=96, sc=2)),
    ("n3c520h3w5k40r1s1-bf16+add", dict(ni=2, sets=1, sc=4)),
    ("n1c1024h3w3k8r1s1-f16", dict(sc=8)),  # the channels of a cluster's last blocks are not there
    ("n1c520h17w17k56r1s1-f16+bias", dict(sc=2, stages=3)),
    ("n1c136h19w19k40r1s1-bf16+bias+add", dict(sets=1)),  # six warpgroups
    ("n2c132h6w7k68r1s1-bf16+bias", dict(bn=64)),  # planes of 2 mod 4 numbers
    ("n3c260h6w3k36r1s1-f16+alpha0.5+leaky0.5", dict(ni=3, sc=2)),
    ("n2c130h6w6k34r1s1-f16+bias+clamp-3:6", dict(ni=2, sender=0)),  # of 4 mod 8
    ("n1c258h2w10k130r1s1-bf16+add", dict(bn=128, sc=2)),
    ("n2c133h4w6k35r1s1-f16+bias+add", dict(ni=2)),  # of 8 mod 16
    ("n1c193h5w8k33r1s1-bf16", {}),
    ("n2c129h4w12k31r1s1-f16+relu", dict(ni=2)),  # of 0 mod 16
    ("n1c321h8w12k200r1s1-f16", dict(bn=192, sc=2)),
    ("n1c128h3w7k256r1s1-bf16+bias", dict(bn=256)),
    ("n34c72h3w5k128r1s1-f16+bias+relu", dict(stages=3, turns=2)),  # several tiles of a block
    ("n67c130h3w4k64r1s1-bf16+add", dict(sender=0, sets=1, turns=2)),  # the last of some is not there
    ("n133c130h3w4k68r1s1-f16", dict(bn=64, sender=0, stages=5, turns=3)),
    ("n2c68h7w7k40r1s1-tf32+bias", {}),  # odd planes; channels in and out past the last whole step and tile
    ("n3c100h5w5k72r1s1-tf32+bias+add0.5+relu", dict(ni=2, bn=64, stages=3, sender=0, sets=1)),  # and images
    ("n1c132h14w14k64r1s1-tf32+silu", dict(bn=64, sc=2, sets=1)),  # of 4 mod 8
    ("n2c65h6w6k33r1s1-tf32+add", dict(ni=2)),
    ("n1c66h6w7k34r1s1-tf32", dict(sender=0)),  # of 2 mod 4
    ("n3c260h3w5k40r1s1-tf32+add", dict(ni=2, sets=1, sc=4)),
    ("n1c97h4w6k96r1s1-tf32+relu", dict(bn=96)),  # of 8 mod 16
    ("n67c68h3w4k64r1s1-tf32+bias", dict(stages=3, turns=2)),
)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS)
def test_planes_that_begin_anywhere(
    text: str, change: dict[str, int], device: str, runtime: Runtime
) -> None:
    config_agrees(runtime, text, Config.make("planar", BASE | change))


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), LAYERS[::2])
def test_a_nan_stays_with_the_outputs_that_it_belongs_to(
    text: str, change: dict[str, int], device: str, runtime: Runtime
) -> None:
    """Channels past the last are zeros, as their filters are, whatever was in shared memory before."""
    nan_stays(runtime, text, Config.make("planar", BASE | change))


@pytest.mark.parametrize("text", [text for text, _ in LAYERS[1::2]])
def test_configs_by_emulation(text: str, runtime: Runtime) -> None:
    emulated_configs_agree(runtime, KIND, text)


@pytest.mark.parametrize("device", GPU)
@pytest.mark.parametrize(
    "text",
    (
        "n9c328h7w7k200r1s1-f16+bias+relu",
        "n8c512h7w7k520r1s1-bf16+add",
        "n3c1024h14w14k256r1s1-f16",
        "n2c1032h17w17k136r1s1-f16+bias+add+silu",
        "n3c328h19w19k136r1s1-f16+bias",
        "n5c300h6w7k164r1s1-bf16+silu",
        "n33c641h4w4k129r1s1-f16+add0.5",
        "n10c520h3w3k96r1s1-f16",
        "n9c164h7w7k200r1s1-tf32+bias+relu",
        "n8c512h14w14k520r1s1-tf32+add",
        "n33c321h4w4k129r1s1-tf32+add0.5",
    ),
)
def test_configs_on_a_gpu(text: str, device: str, runtime: Runtime) -> None:
    configs_agree(runtime, KIND, text)


def test_all_kinds_of_planes_are_tried() -> None:
    rests = {(plane(Problem.parse(text)) % 16) for text, _ in LAYERS}
    kinds = {16 if rest % 2 else 8 if rest % 4 else 4 if rest % 8 else 2 if rest else 1 for rest in rests}
    assert kinds == {16, 8, 4, 2, 1}
    tried = Counter((BASE | change)["sc"] for _, change in LAYERS)
    assert {*tried} == {1, 2, 4, 8}
