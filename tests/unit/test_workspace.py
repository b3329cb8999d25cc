"""Workspace is what a kernel uses: nothing where no shares of C meet in memory."""

from __future__ import annotations

import random

import pytest
from test_direct_cpu import CORES

from tilewright.device import Device, for_architecture
from tilewright.kernels import family_of
from tilewright.problem import Problem
from tilewright.search.space import space

H100 = for_architecture("sm_90")
F32, F16 = "n1c64h14w14k64r{0}s{0}-f32", "n1c64h14w14k64r{0}s{0}-f16-nhwc"
CASES = [
    ("direct", F32.format(3), H100, 0), ("gemm", F32.format(1), H100, 0), ("mma", F16.format(3), H100, 0),
    ("hopper", F16.format(3), H100, 0), ("gemv", "n1c512h1w1k64r1s1-f32", H100, 0),
    ("winograd", F32.format(3), H100, 0), ("grouped", "n1c64h14w14k64r3s3g64-f32", H100, 0),
    ("direct", F32.format(3), CORES, 8),  # its workers take tiles in turn, by two counters
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "device", "least"), CASES)
def test_a_kernel_that_needs_none_says_none(name: str, text: str, device: Device, least: int) -> None:
    kind, problem = family_of(name), Problem.parse(text)
    rng, seen = random.Random(0), set()
    for _ in range(300):
        config = space(kind, problem, device).sample(rng)
        blueprint = kind.blueprint(problem, device, config)
        names = {buffer.name for buffer in blueprint.workspace if buffer.nbytes}
        meets = config.values.get("sg", 1) > 1 or config.values.get("stream", 0)
        copies = name in ("mma", "hopper") and "copied" in names
        total = sum(buffer.nbytes for buffer in blueprint.workspace)
        if not meets and not copies:
            assert total == least, config
            seen.add(total)
        bound = {arg for launch in blueprint.launches for arg in launch.args}
        assert bound <= {"x", "w", "bias", "z", "y"} | {buffer.name for buffer in blueprint.workspace}
    assert seen == {least}
