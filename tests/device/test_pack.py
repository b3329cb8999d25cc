"""The packing kernel against NumPy: every dtype, tails in K and C, groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_reference import each_with_kernels, runtime

from tilewright.checking.inputs import normal_inputs
from tilewright.dtypes import numpy_dtype
from tilewright.kernels.family import Blueprint
from tilewright.kernels.untuned import pack
from tilewright.problem import DTYPES, Problem
from tilewright.runtime.base import Runtime

__all__ = ["runtime"]  # a fixture

WORDS = {"f64": "f8", "i8": "u4"}  # f4 else


def packed_by_numpy(problem: Problem, w: Any, pack_k: int, pack_c: int) -> Any:
    """Do what pack.cu says, one word after the other."""
    word, taps = np.dtype(WORDS.get(problem.dtype, "f4")), problem.r * problem.s
    each, tiles = (4 if problem.dtype == "i8" else 1), -(-problem.kg // pack_k)
    out = np.zeros((problem.groups, tiles, pack_c, taps, pack_k), word)
    for k, c, tap in np.ndindex(problem.k, problem.cg, taps):
        at = (k // problem.kg, k % problem.kg // pack_k, c // each, tap, k % problem.kg % pack_k)
        value = w.reshape(problem.k, problem.cg, taps)[k, c, tap]
        if each == 4:
            out[at] |= np.uint32(np.uint8(value)) << np.uint32(8 * (c % 4))
        else:
            out[at] = value
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("text", "pack_k", "pack_c"), [
    ("n1c10h5w5k6r3s2", 4, 12), ("n1c12h5w5k18r1s3g2", 8, 6), ("n1c1h1w1k1r1s1", 1, 1),
])  # fmt: skip
@each_with_kernels
def test_pack(dtype: str, text: str, pack_k: int, pack_c: int, runtime: Runtime) -> None:
    problem = Problem.parse(f"{text}-{dtype}")
    w = normal_inputs(problem, 1).w
    assert w.dtype == numpy_dtype(dtype)
    want = packed_by_numpy(problem, w, pack_k, pack_c)
    geometry = (("PACK_K", pack_k), ("PACK_C", pack_c))
    kernel = Blueprint(source="", defines=(), launches=(), packed_bytes=want.nbytes, pack=geometry)
    blueprint = pack(problem, runtime.device, kernel)
    given, packed = runtime.alloc(w.nbytes), runtime.alloc(want.nbytes)
    runtime.upload(given, w)
    runtime.launch(runtime.load(runtime.compile(blueprint)), blueprint.launches[0], [given, packed])
    found = np.empty_like(want)
    runtime.download(packed, found)
    np.testing.assert_array_equal(found, want)
