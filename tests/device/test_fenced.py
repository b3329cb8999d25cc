"""Kernels on the CPU touch nothing beside an array: pages around it that nobody may read, let alone write."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import random
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.dtypes import numpy_dtype
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.family import Config
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime
from tilewright.search.space import Space, sample

CASES = {  # words that direct copies per step: 16 do not divide the channels, nor words of four those of i8
    "n1c20h5w4k5r3s3p1-f32-nhwc": 16,
    "n2c37h3w4k9r3s3p1-f16-nhwc+bias+add": 37,
    "n1c61h4w4k8r3s3p1-i8-nhwc": 16,
    "n1c30h5w5k20r3s3p1g2-bf16+add+relu": 15,
    "n1c17h7w7k19r3s3p1-f32-nhwc2nchw+add+maxpool2": 16,
    "n2c21h1w1k9r1s1-i8+bias": 6,
    "n3c9h6w7k9r3s3p1u2g9-f64+bias": 1,
    "n1c12h5w11k3r3s3p1-f32": 12,  # over columns
}
SLABS = {"n3c16h22w21k16r3s3p1-f32": 16, "n3c16h22w21k16r3s3p1-f32-nhwc": 16}
SMALL_L2 = 250_000  # bytes: few rows of tiles fit, and they do not divide the batch's


def _fenced(array: Any, at_end: bool) -> Any:
    """Copy an array to between two pages that nobody may touch: it ends at one, or begins at the other."""
    size, page = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE, mmap.PAGESIZE
    room = np.frombuffer(mmap.mmap(-1, size + 2 * page), np.uint8)
    for place in (0, page + size):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(room.ctypes.data + place), page, 0) == 0
    start = page + (size - array.nbytes if at_end else 0)
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _configs(problem: Problem, runtime: Runtime, cs: int) -> list[Config]:
    """One of direct that copies the input so, and two of each family."""
    rng = random.Random(str(problem))
    found = [Space(family_of("direct"), problem, runtime.device, dict(x=1, cs=cs)).sample(rng)]
    for family in FAMILIES:
        if family.tunable and family.refuses(problem, runtime.device) is None:
            found += [sample(family, problem, runtime.device, rng) for _ in range(2)]
    return found


def _run_all(cases: dict[str, int], l2_bytes: int = 0) -> None:
    runtime = open_runtime("cpu")
    runtime.device = replace(runtime.device, l2_bytes=l2_bytes or runtime.device.l2_bytes)
    for text, cs in cases.items():
        problem = Problem.parse(text)
        for config in _configs(problem, runtime, cs):
            plan = Plan.make(runtime, problem, config)
            for at_end in (True, False):
                print(problem, config, at_end, flush=True)
                arrays = {
                    name: _fenced(np.ones(one.shape, numpy_dtype(one.dtype)), at_end)
                    for name, one in problem.operands.items()
                }
                memories = {name: runtime.wrap(array.view(np.uint8)) for name, array in arrays.items()}
                plan.run({**memories, "w": plan.pack(memories["w"])})
                runtime.synchronize()


@pytest.mark.skipif(sys.platform != "linux", reason="the pages of Linux")
@pytest.mark.parametrize("given", [(CASES,), (SLABS, SMALL_L2)], ids=["all", "slabs"])
def test_nothing_beside_the_arrays_is_touched(given: tuple[Any, ...], cpu: Runtime) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_run_all, args=given)
    process.start()
    process.join(300)
    assert process.exitcode == 0, "the last line of its output says of what"
