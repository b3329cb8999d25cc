"""Filters of more than 15 rows or columns, padded: on a GPU, and by emulation on the CPU."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from here import GPU, agrees
from test_gpu_path import computed, runtime

from tilewright.errors import CompileError
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.search.space import Space

__all__ = ["computed", "runtime"]  # fixtures

LAYERS = (
    ("gemm", "n2c18h1w40k20r1s17p0x8-f32+bias"),
    ("gemm", "n1c20h33w9k12r18s3p9x1u2x1-f32-nhwc+relu"),
    ("gemm", "n2c3h24w30k9r5s21p2x14d1x2-f32"),  # few channels; more padding than a filter reaches beyond
    ("gemm", "n2c8h7w19k16r3s16p2x20d2x3g2-f32-nhwc2nchw+add"),
    ("mma", "n2c24h1w40k20r1s32p0x16g2-f16-nhwc+bias"),
    ("mma", "n1c16h33w9k12r18s3p9x1u2x1-bf16"),
    ("mma", "n2c3h9w30k18r2s21p1x14d1x2-f16"),  # gathered, too
    ("mma", "n1c32h21w18k24r16s17p19x8u3x2d2x1-i8-nhwc+bias+requant"),
    ("hopper", "n2c24h1w40k20r1s48p0x24g2-f16-nhwc+bias"),
    ("hopper", "n1c32h41w7k12r33s3p16x1u2x1-bf16-nhwc"),
    ("hopper", "n1c32h21w36k24r2s35p1x40d1x2-i8+relu"),
)


@pytest.mark.parametrize("device", ["cpu", *GPU])
@pytest.mark.parametrize(("name", "text"), LAYERS)
def test_wide_filters(device: str, name: str, text: str, runtime: Runtime) -> None:
    problem = Problem.parse(text)
    space, rng = Space(family_of(name), problem, runtime.device), random.Random(text)
    sampled = [space.sample(rng) for _ in range(60)]
    for way in sorted({config.values.get("x", 0) for config in sampled}):
        chosen = [config for config in sampled if config.values.get("x", 0) == way]
        plans = [*filter(None, (_plan(runtime, problem, config) for config in dict.fromkeys(chosen[:2])))]
        assert plans
        for plan in plans:
            agrees(plan)


def _plan(runtime: Runtime, problem: Problem, config: Config) -> Plan | None:
    """Return the plan; None if the GPU's compiler spills: no rule foresees all of that."""
    with suppress(CompileError):
        return Plan.make(runtime, problem, config)
    assert runtime.device.is_cuda
    return None
