"""Strassen's algorithm: its tables, which products it takes, and its place beside gemm in the model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from test_direct_cpu import CORES

import tilewright
from tilewright.device import for_architecture
from tilewright.kernels import FAMILIES, PLAIN, family, pick
from tilewright.problem import Problem
from tilewright.search.strategies import rank

H100 = for_architecture("sm_90")
CUBE = "n1c{0}h64w{1}k{0}r1s1-f32"


def _table(name: str) -> np.ndarray:
    """The signs in strassen.h, (product, block)."""
    text = (Path(tilewright.__file__).parent / "kernels" / "strassen.h").read_text()
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


@pytest.mark.parametrize("name", ("strassen", "strassen2"))
def test_what_it_takes(name: str) -> None:
    kind = family(name)
    assert kind.refuses(Problem.parse(CUBE.format(1024, 16)), H100) is None
    for text, why in (
        (CUBE.format(1023, 16), "from 1,024"),
        (CUBE.format(1024, 15), "from 1,024"),
        ("n1c1024h32w32k1024r3s3p1-f32", "no single matrix product"),
        ("n1c1024h64w64k1024r1s1u2-f32", "no single matrix product"),
        ("n1c4096h32w32k4096r1s1g2-f32", "no single matrix product"),
        ("n1c1024h32w32k1024r1s1-f32+maxpool2", "pool"),
        ("n64c4096h64w64k4096r1s1-f32", "GiB of workspace"),
        ("n1c1024h32w32k1024r1s1-f16", "it computes f32"),
    ):
        assert why in (kind.refuses(Problem.parse(text), H100) or ""), text
    assert "GPU" in (kind.refuses(Problem.parse(CUBE.format(4096, 64)), CORES) or "")


def test_the_model_ranks_it_as_measured() -> None:
    def best_us(name: str, side: int) -> float:
        return rank(Problem.parse(CUBE.format(side, side // 64)), H100, family(name), 1)[0][1]

    assert best_us("strassen2", 8192) < best_us("strassen", 8192) < best_us("gemm", 8192)
    assert best_us("strassen2", 4096) < best_us("strassen", 4096) < best_us("gemm", 4096)


def test_plain_stands_for_all_that_sum_up_the_formulas_products() -> None:
    names = {one.name for one in pick(FAMILIES, (PLAIN,))}
    assert {"direct", "gemm", "im2col", "mma", "hopper"} <= names
    assert {one.name for one in pick(FAMILIES, ())} - names == {
        "winograd", "winograd4", "winograd8", "winograd_rows", "strassen", "strassen2"
    }  # fmt: skip
    assert [one.name for one in pick(FAMILIES, (PLAIN, "gemm", "winograd"))][-1] == "winograd"
    assert len(pick(FAMILIES, (PLAIN, "gemm"))) == len(names)
