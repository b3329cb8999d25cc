"""Every family in every dtype that it takes, by its own examples: a new one needs no line here.

What a family promises to those who read it (``kernels/family.py``) is asked of configs drawn at random; its
kernels are compiled for ARCHITECTURES. ``tests/device/test_every_family_runs.py`` runs them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from every_family import CASES, compiles_unspilt, examples, holds_together
from pairs import facts, fewest
from test_direct_cpu import CORES

from tilewright.device import ARCHITECTURES, for_architecture
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.family import MOST_LAYER_PIXELS, Family
from tilewright.problem import MATHS, MAX_EXTENT, Problem

DEVICES = {**{arch: for_architecture(arch) for arch in ARCHITECTURES}, "cpu": CORES}
TAKEN = [
    (name, text, where)
    for name, text in CASES
    for where, device in DEVICES.items()
    if family_of(name).refuses(Problem.parse(text), device) is None
]


@pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.name)
def test_it_shows_a_layer_of_each_dtype(kind: Family) -> None:
    shown = {problem.precision for problem in examples(kind)}
    assert set(kind.precisions) <= shown, (
        f"give {type(kind).__name__} examples, one problem string for each dtype"
    )
    for problem in examples(kind):
        assert any(kind.refuses(problem, device) is None for device in DEVICES.values()), problem
        others = [problem.with_dtype(math_) for math_ in MATHS[1:]] if "f32" not in kind.precisions else []
        multiplied = {o.precision for o in others for d in DEVICES.values() if kind.refuses(o, d) is None}
        assert multiplied <= shown, "it shows no layer of a math that it takes"


@pytest.mark.parametrize(("name", "text", "where"), TAKEN)
def test_what_it_says_of_a_config_holds_together(name: str, text: str, where: str) -> None:
    holds_together(family_of(name), Problem.parse(text), DEVICES[where])


@pytest.mark.parametrize("kind", [one for one in FAMILIES if one.tunable], ids=lambda kind: kind.name)
def test_it_refuses_pixels_that_are_not_counted_in_32_bits(kind: Family) -> None:
    for problem in examples(kind):
        for device in DEVICES.values():
            if kind.refuses(problem, device) is None:
                said = kind.refuses(_large(problem), device) or ""
                assert "more than 1,073,741,824 pixels" in said, "ask super().refuses first, or too_many"


@pytest.mark.parametrize("name", ("grouped_mma", "kn2row", "stem", "toeplitz"))
def test_it_needs_tensor_cores_and_a_gpu(name: str) -> None:
    kind, h100 = family_of(name), DEVICES["sm_90"]
    for problem in examples(kind):
        assert kind.refuses(problem, h100) is None
        assert "no tensor cores" in str(kind.refuses(problem, replace(h100, tensor_macs=0)))
        assert "threads of a GPU" in str(kind.refuses(problem, CORES))


def _large(problem: Problem) -> Problem:
    """The layer with a few pixels too many: of more images, or one that a filter of the same size is over."""
    if (problem.r, problem.s) == (problem.h, problem.w):
        return replace(problem, h=40_000, w=40_000, r=40_000, s=40_000)
    images = MOST_LAYER_PIXELS // max(problem.h * problem.w, problem.p * problem.q) + 1
    if images <= MAX_EXTENT:
        return replace(problem, n=images)
    return replace(problem, n=MAX_EXTENT, h=64 * problem.h, w=64 * problem.w)


def _compiled() -> list[tuple[str, str, str]]:
    """Every family for each architecture and with every kind of numbers, these for each architecture too."""
    taken = [case for case in TAKEN if case[2] != "cpu"]
    return fewest({case: [case[0], case[2], *facts(Problem.parse(case[1]))] for case in taken})


@pytest.mark.parametrize(("name", "text", "arch"), _compiled())
def test_it_compiles_unspilt_for_every_architecture(
    name: str, text: str, arch: str, kept_cache: None
) -> None:
    compiles_unspilt(family_of(name), Problem.parse(text), arch)


def test_a_spec_that_lacks_a_member_is_told_of_it_at_once() -> None:
    class Half(Family):
        name = "half"

    with pytest.raises(TypeError, match=r"Half .*blueprint\W+chain\W+params\W+rules"):
        Half()  # type: ignore[abstract]


def test_the_cases_are_those_of_every_family() -> None:
    """Else the tests above would say nothing of it."""
    assert {name for name, _ in CASES} == {name for name, *_ in TAKEN} == {one.name for one in FAMILIES}
    for kind in FAMILIES:
        assert examples(kind)
