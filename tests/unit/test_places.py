"""How far apart configs, layers and estimates lie."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tilewright.kernels.config import Config
from tilewright.kernels.family import Param
from tilewright.problem import Problem
from tilewright.record import Estimate
from tilewright.search.places import PARTS, Floats, coordinates, distances, features, makeup

LAYER = "n2c64h16w16k64r3s3p1-f32"
SIZE = Param("size", (0, 1, 2, 8), "a size")
CHOICE = Param("choice", (0, 1, 7), "a choice", names=("none", "one", "another"))


def apart(a: Floats, b: Floats) -> float:
    return float(distances(a[None], b[None])[0, 0])


def places(*values: dict[str, int]) -> Floats:
    return coordinates((SIZE, CHOICE), [Config.make("any", one) for one in values])


@pytest.mark.parametrize(
    ("a", "b", "octaves"),
    (
        (dict(size=1, choice=0), dict(size=1, choice=0), 0),
        (dict(size=1, choice=0), dict(size=2, choice=0), 1),
        (dict(size=2, choice=0), dict(size=8, choice=0), 2),
        (dict(size=0, choice=0), dict(size=1, choice=0), 1),  # nothing is half of one
        (dict(size=1, choice=0), dict(size=1, choice=1), 1),  # any two options are as far apart
        (dict(size=1, choice=1), dict(size=1, choice=7), 1),
        (dict(size=1, choice=0), dict(size=8, choice=7), 4),
    ),
)
def test_configs(a: dict[str, int], b: dict[str, int], octaves: float) -> None:
    first, second = places(a, b)
    assert apart(first, second) == pytest.approx(octaves)


@pytest.mark.parametrize(
    ("other", "octaves"),
    (
        ("n4c64h16w16k64r3s3p1-f32", 1),
        ("n2c128h16w16k64r3s3p1-f32", 1),
        ("n2c64h16w16k128r3s3p1-f32", 1),
        ("n2c64h32w16k64r3s3p1-f32", 1),  # rows and columns of outputs are pixels, as images are
        ("n2c64h16w64k64r3s3p1-f32", 2),
        ("n2c64h16w16k64r5s5p2-f32", 4),  # a row of the filter counts twice
        ("n2c64h32w32k64r3s3p1u2-f32", 2),  # as many outputs, by another stride
        ("n2c64h16w16k64r3s3p1g4-f32", 2),
        ("n2c64h16w16k64r3s3p1-f32-nhwc", 2),
    ),
)
def test_layers(other: str, octaves: float) -> None:
    assert apart(features(Problem.parse(LAYER)), features(Problem.parse(other))) == pytest.approx(octaves)


def estimate(total_us: float, terms_us: Mapping[str, float], **facts: float) -> Estimate:
    return Estimate(total_us=total_us, terms_us=dict(terms_us), facts=facts)


@pytest.mark.parametrize(
    ("total_us", "terms_us", "facts", "shares"),
    (
        (10.0, {PARTS[0]: 5.0}, {}, 0),
        (10.0, {PARTS[0]: 2.0}, {}, 0.3),  # a smaller share of the time
        (10.0, {PARTS[-1]: 5.0}, {}, 1.0),  # another part
        (20.0, {PARTS[0]: 10.0}, {}, 0.25),  # an octave
        (10.0, {PARTS[0]: 5.0}, dict(waves=4.0), 0.5),
        (10.0, {PARTS[0]: 5.0}, dict(occupancy=0.5), 0.25),
        (10.0, {PARTS[0]: 5.0}, dict(blocks_per_unit_at_once=2.0), 0.25),
        (10.0, {PARTS[0]: 5.0}, dict(useful_outputs=0.6), 0.4),  # 1 where nothing is said
        (10.0, {PARTS[0]: 5.0}, dict(tail=0.5), 0.25),
        (10.0, {PARTS[0]: 5.0}, dict(tail=3.0), 0.5),  # no more than a whole wave
        (10.0, {PARTS[0]: 5.0}, dict(waves=0.0), 0.25 * np.log2(100)),
    ),
)
def test_estimates(
    total_us: float, terms_us: dict[str, float], facts: dict[str, float], shares: float
) -> None:
    first, second = makeup([estimate(10.0, {PARTS[0]: 5.0}), estimate(total_us, terms_us, **facts)])
    assert apart(first, second) == pytest.approx(shares)
