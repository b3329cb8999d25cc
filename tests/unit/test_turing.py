"""Turing (sm_75: T4, RTX 20) has no copies to shared memory past the registers: plain ones stand in.

What is left to it are the families of CUDA cores; its tensor cores lack the products that kernels use.
"""

from __future__ import annotations

import random
from itertools import islice

import pytest
from every_family import taken

from tilewright.device import for_architecture
from tilewright.dispatch.kept_guesses import ranked_for
from tilewright.errors import CompileError
from tilewright.kernels import FAMILIES, pick
from tilewright.kernels.family import Config, Family
from tilewright.problem import Problem
from tilewright.search.space import Space, usable

pytest.importorskip("cuda.bindings.nvrtc")

from tilewright.runtime.nvrtc import compile_cuda  # noqa: E402

T4 = for_architecture("sm_75")
CORES = [kind for kind in FAMILIES if kind.tunable and taken(kind, T4)]
TENSOR_CORES = {kind.name for kind in FAMILIES if not taken(kind, T4)}
LAYERS = [
    Problem.parse(text)
    for text in (
        "n1c512h7w7k512r3s3p1-f32",
        "n1c64h56w56k64r3s3p1-f32-nhwc+bias+relu",
        "n1c256h14w14k256r1s1-f32",
        "n1c256h14w14k256r1s1-f32-nhwc+add",
        "n1c4096h64w64k4096r1s1-f32",
        "n8c4h32w32k16r7s7p3-f32",
        "n1c48h40w40k32r5s5p2-f32-nhwc2nchw+maxpool2",
        "n1c128h14w14k128r3s3p1g128-f32-nhwc",
        "n4c2048h1w1k1000r1s1-f32+bias",
        "n1c64h14w14k64r3s3p1-i8-nhwc",
        "n1c64h14w14k64r3s3p1-f16-nhwc",
        "n1c64h14w14k64r3s3p1-f64",
        "n1c64h14w14k64r3s3p1-f8",
        "n1c3h64w64k64r3s3p1-f32-nhwc",
        "n1c64h28w28k64r7s7p3-f32",
        "n1c64h28w28k64r3s3p1g8-f32",
        "n1c2048h64w64k2048r1s1-f32-nhwc",
        "n1c4096h1w1k1000r1s1-f16",
        "n1c256h14w14k64r1s1-q8-nhwc",
    )
]

pytestmark = pytest.mark.usefixtures("kept_cache")


def compiles(kind: Family, problem: Problem, config: Config) -> bool:
    """Compile all programs; a spill is data, all else a failure."""
    try:
        for program in kind.blueprint(problem, T4, config).programs:
            compile_cuda(program, "sm_75")
    except CompileError as error:
        assert "spilled" in str(error), config
        return False
    return True


@pytest.mark.parametrize("kind", CORES, ids=lambda kind: kind.name)
def test_every_family_of_cuda_cores_compiles(kind: Family) -> None:
    own = taken(kind, T4)
    problems = taken(kind, T4, LAYERS)
    assert len(problems) >= 2 or problems == own
    for problem in problems[: len(own) + 5 : 2]:  # test_dtypes_compile.py has each dtype
        space, rng = Space(kind, problem, T4), random.Random(1)
        assert any(compiles(kind, problem, space.sample(rng)) for _ in range(5)), problem


def test_tensor_cores_are_left_out() -> None:
    known = "mma hopper toeplitz stem kn2row grouped_mma planar pointwise shifted"
    assert {*known.split()} <= TENSOR_CORES
    for kind in FAMILIES:
        if kind.name in TENSOR_CORES:
            assert all(kind.refuses(problem, T4) for problem in LAYERS)


@pytest.mark.parametrize("problem", [LAYERS[i] for i in (0, 3, 9)], ids=str)
def test_the_first_guess_of_dispatch_compiles(problem: Problem) -> None:
    families, _ = usable(pick(FAMILIES, ()), problem, T4)
    kinds = {kind.name: kind for kind in families}
    guesses = islice(ranked_for(problem, T4, families, False), 3)
    assert any(compiles(kinds[config.family], problem, config) for config in guesses)
