"""Strassen's algorithm: its tables, and its place beside gemm in the model."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.device import for_architecture
from tilewright.errors import ConfigError
from tilewright.kernels import FAMILIES, PLAIN, family_of, pick
from tilewright.kernels.source import kernel_files
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem
from tilewright.search.ranking import rank

H100 = for_architecture("sm_90")
CUBE = "n1c{0}h64w{1}k{0}r1s1-f32"


def _table(name: str) -> np.ndarray:
    """The signs in strassen.h, (product, block)."""
    text = kernel_files()["strassen.h"].read_text()
    body = text.split(f"int {name}(int m, int block)")[1].split("return")[0]
    return np.array([int(sign) for sign in re.findall(r"-?\b[01]\b", body.split("=")[1])]).reshape(7, 4)


def test_the_tables_make_a_product_of_blocks() -> None:
    in_a, in_b, out = _table("sign_in_a"), _table("sign_in_b"), _table("sign_of")
    # Of every pair of blocks: how often it is in each block of the answer.
    found = np.einsum("ma,mb,mc->abc", in_a, in_b, out).reshape(2, 2, 2, 2, 2, 2)
    wanted = np.zeros_like(found)
    for i in range(2):
        for j in range(2):
            for inner in range(2):
                wanted[i, inner, inner, j, i, j] = 1
    assert np.array_equal(found, wanted)


def test_the_model_ranks_it_as_measured() -> None:
    def best_us(name: str, side: int) -> float:
        return rank(Problem.parse(CUBE.format(side, side // 64)), H100, family_of(name), 1)[0][1]

    assert best_us("strassen2", 8192) < best_us("strassen", 8192) < best_us("gemm", 8192)
    assert best_us("strassen2", 4096) < best_us("strassen", 4096) < best_us("gemm", 4096)


def test_plain_stands_for_all_that_sum_up_the_formulas_products() -> None:
    names = {one.name for one in pick(FAMILIES, (PLAIN,))}
    assert {"direct", "gemm", "im2col", "mma", "hopper"} <= names
    others = {one.name for one in pick(FAMILIES, ())} - names
    assert others == {one.name for one in FAMILIES if one.races and not one.plain}
    assert others >= {
        "winograd", "winograd4", "winograd8", "winograd_rows", "strassen", "strassen2", "toeplitz",
        "grouped_mma",
    }  # fmt: skip
    assert [one.name for one in pick(FAMILIES, (PLAIN, "gemm", "winograd"))][-1] == "winograd"
    assert len(pick(FAMILIES, (PLAIN, "gemm"))) == len(names)
    with pytest.raises(ConfigError, match="family 'plain': known are direct"):
        family_of(PLAIN)


def test_what_a_config_costs() -> None:
    """Chains, what is moved, and numbers one by one where arrays are not aligned."""
    problem, kind = Problem.parse(CUBE.format(4096, 64)), family_of("strassen2")
    config = rank(problem, H100, kind, 1)[0][0]
    inner = kind.inner(problem, H100)
    assert (inner.cg, inner.kg, inner.groups, inner.h * inner.w) == (1024, 1024, 49, 1024)
    assert kind.chain(problem, H100, config) == 9 * family_of("gemm").chain(inner, H100, config) + 12

    def moved(text: str) -> float:
        work = kind.work(Problem.parse(text), H100, config)
        assert isinstance(work, GpuWork)
        return work.more_bytes

    plain, added = moved(str(problem)), moved(f"{problem}+add")
    assert plain == 2 * 4 * (4096**2 + 49 * 1024**2) and added == plain + 4 * 4096**2
    for aligned, run in ((True, 4), (False, 1)):
        defines = dict(kind.blueprint(problem, H100, config, aligned).defines)
        assert (defines["RUN_IN"], defines["RUN_OUT"]) == (run, run)


@pytest.mark.parametrize("layout", ("nchw", "nhwc"))
def test_rows_are_taken_as_channels_side_by_side(layout: str) -> None:
    """A pixel to an image is nhwc, whatever the layout is called; the products are of nchw."""
    kind, problem = family_of("strassen"), Problem.parse(f"n4096c4096h1w1k4096r1s1-f32-{layout}")
    blueprint = kind.blueprint(problem, H100, rank(problem, H100, kind, 1)[0][0])
    defines = dict(blueprint.defines)
    assert (defines["X_NHWC"], defines["Y_NHWC"], defines["RUN_IN"], defines["RUN_OUT"]) == (1, 1, 4, 4)
    inner = kind.inner(problem, H100)
    assert (inner.layout_in, inner.layout_out) == ("nchw", "nhwc")
