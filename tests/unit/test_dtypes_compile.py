"""The families of every dtype: the model's first choices compile, unspilt, for each of ARCHITECTURES.

To rank configs of direct takes seconds: of each of its layers this is done for one architecture, and for
another one in the next dtype.
"""

from __future__ import annotations

import random

import pytest

from tilewright.device import ARCHITECTURES, for_architecture
from tilewright.errors import CompileError
from tilewright.kernels import family_of, word
from tilewright.kernels.direct.gpu_work import wavefronts
from tilewright.problem import Problem
from tilewright.search.guesses import GUESSES
from tilewright.search.ranking import rank_all
from tilewright.search.space import sample

DIRECT = family_of("direct")
LAYERS = (
    ("direct", "n1c512h7w7k512r3s3p1-{}"),
    ("direct", "n1c64h56w56k64r3s3p1-{}-nhwc+bias+relu"),
    ("direct", "n1c3h224w224k64r7s7p3u2-{}"),
    ("direct", "n1c256h14w14k256r1s1-{}-nhwc"),
    ("direct", "n1c16h52w52k32r3s3p1-{}+relu+maxpool2"),
    ("grouped", "n1c32h20w20k32r3s3p1g32-{}-nhwc"),
    ("grouped", "n1c32h20w20k32r3s3p1g8-{}"),
    ("gemv", "n1c2048h1w1k1000r1s1-{}+bias"),
)
CASES = [
    (name, text, dtype, arch)
    for row, (name, text) in enumerate(LAYERS)
    for column, dtype in enumerate(family_of(name).precisions)
    for turn, arch in enumerate(ARCHITECTURES)
    if name != "direct" or turn == (row + column) % len(ARCHITECTURES)
]


@pytest.mark.parametrize(("name", "text", "dtype", "arch"), CASES)
def test_the_first_choice_compiles(name: str, text: str, dtype: str, arch: str, kept_cache: None) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    problem, device = Problem.parse(text.format(dtype)), for_architecture(arch)
    ranked = rank_all(problem, device, [family_of(name)], len(GUESSES))
    for place in GUESSES[:6]:  # as dispatch does
        try:
            built = compile_cuda(family_of(name).blueprint(problem, device, ranked[place][0]), arch)
            break
        except CompileError as error:
            assert "spilled" in str(error)
    assert all(used.local_bytes == 0 for used in built.resources.values())


def test_every_dtype_of_a_family_meets_every_architecture() -> None:
    met = {(name, dtype, arch) for name, _, dtype, arch in CASES}
    kinds = {(name, dtype) for name, _ in LAYERS for dtype in family_of(name).precisions}
    assert met == {(*kind, arch) for kind in kinds for arch in ARCHITECTURES}
    assert {(text, arch) for _, text, _, arch in CASES} == {(t, a) for _, t in LAYERS for a in ARCHITECTURES}


def test_words() -> None:
    i8, f64 = Problem.parse("n1c10h4w4k8r3s3-i8"), Problem.parse("n1c10h4w4k8r3s3-f64")
    assert (word.words(i8), word.words(f64)) == (3, 10)
    assert (word.word_bytes(i8), word.word_bytes(f64)) == (4, 8)
    assert word.filter_bytes(i8) == 4 * 8 * 3 * 9 and word.filter_bytes(f64) == f64.w_bytes
    assert not word.as_words(i8.with_layout("nhwc"))
    assert word.as_words(Problem.parse("n1c12h4w4k8r3s3-i8-nhwc"))
    assert not word.as_words(Problem.parse("n1c12h4w4k8r3s3-i8-nhwc"), aligned=False)


def test_a_word_of_f64_takes_two_banks() -> None:
    lanes = dict(bk=32, bw=1, bh=1, sw=1, wfast=0, by_w=0, by_h=0, by_share=0)
    assert wavefronts(**lanes, by_k=1, words=1) == 1
    assert wavefronts(**lanes, by_k=1, words=1, banks_of_word=2) == 2


def test_f64_counts_twice_the_registers_and_bytes() -> None:
    device = for_architecture("sm_90")
    f32, f64 = (Problem.parse(f"n1c64h14w14k64r3s3p1-{d}") for d in ("f32", "f64"))
    config = sample(DIRECT, f64, device, random.Random(0))
    one, two = (DIRECT.work(p, device, config) for p in (f32, f64))
    assert two.shared_bytes == 2 * one.shared_bytes and two.fma == 2 * one.fma
    assert two.registers - 36 == 2 * (one.registers - 36)
