"""Offsets past 2^31, run: images of as many numbers, all but a few of which a large stride leaves out.

On the CPU alone, GPUs' kernels too: what is not touched takes no memory there.
"""

from __future__ import annotations

import mmap
import random

import numpy as np
import pytest
from test_gpu_path import runtime

from tilewright.kernels import family_of
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.search.space import Space

__all__ = ["runtime"]  # a fixture

# What takes it, and how it must read x, where there are several ways.
LAYERS = (
    ("n2c16h16384w8192k8r1s1u2048x128-i8", "stem", {}),
    ("n1c256h4096w2304k256r1s1u512x64g32-i8", "mma", dict(x=2)),
    ("n1c256h4096w2304k256r1s1u512x64g32-i8", "hopper", dict(x=2)),
    ("n1c256h65536w136k256r1s1u8192x1g32-i8-nhwc", "grouped_mma", {}),
    ("n1c256h4096w2304k256r1s1u512x64g32-i8", "direct", {}),
)


@pytest.mark.parametrize("device", ["emulated"])
@pytest.mark.parametrize(("text", "name", "pins"), LAYERS)
def test_an_image_of_more_than_2_to_the_31_numbers(
    text: str, name: str, pins: dict[str, int], device: str, runtime: object
) -> None:
    problem, kind, rng = Problem.parse(text), family_of(name), random.Random(0)
    if problem.x_bytes > runtime.array_bytes:  # OpenCL bounds it by the memory that the machine has
        pytest.skip(f"{runtime.device.name} takes at most {runtime.array_bytes:,} bytes in one array here")
    space = Space(kind, problem, runtime.device)
    drawn = (space.sample(rng) for _ in range(3000))
    config = next(one for one in drawn if pins.items() <= one.values.items())
    plan = Plan.make(runtime, problem, config)

    read = np.random.default_rng(0).integers(-4, 5, (problem.n, problem.c, problem.p, problem.q), np.int8)
    w = np.random.default_rng(1).integers(-4, 5, problem.w_shape, np.int8)
    room = mmap.mmap(-1, problem.x_bytes)  # what is not read is never touched, so it takes no memory
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # of pages of 2 MB, for which NumPy asks, every one would be touched
        room.madvise(mmap.MADV_NOHUGEPAGE)
    x = np.frombuffer(room, np.int8).reshape(problem.x_shape)
    rows, columns = (slice(0, None, step) for step in problem.stride)
    if problem.layout_in == "nchw":
        x[:, :, rows, columns] = read
    else:
        x[:, rows, columns] = read.transpose(0, 2, 3, 1)
    y = np.full(problem.y_shape, -1, np.int32)
    plan.run(dict(x=runtime.wrap(x), w=plan.pack(runtime.wrap(w)), y=runtime.wrap(y)))
    runtime.synchronize()

    groups = (problem.n, problem.groups, problem.cg, problem.p, problem.q)
    filters = w.reshape(problem.groups, problem.kg, problem.cg).astype(np.int32)
    expected = np.einsum("ngcpq,gkc->ngkpq", read.reshape(groups).astype(np.int32), filters)
    expected = expected.reshape(problem.n, problem.k, problem.p, problem.q)
    if problem.layout_out == "nhwc":
        expected = expected.transpose(0, 2, 3, 1)
    assert np.array_equal(y, expected)
