"""Activations of many sums at once, on CPU cores: the same function of each, special values and all."""

from __future__ import annotations

import numpy as np
import pytest
from every_activation import WORDS, activated

from tilewright.kernels import family_of
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.search.ranking import rank

# Sums that are one number of x each, so that y is its activation.
LAYERS = [
    ("direct", "n1c1h16w64k16r1s1-{}"),
    ("direct", "n1c1h16w64k16r1s1-{}-nhwc"),
    ("grouped", "n1c16h16w64k16r1s1g16-{}"),
    ("grouped", "n1c16h16w64k16r1s1g16-{}-nhwc"),
]
TINY = 1e-36  # below this e^-x overflows in f32, and its SiLU is 0


def _values() -> np.ndarray:
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 1e-40, 3e38, -3e38, 88.7, -88.7, -89.5]
    return np.concatenate([special, np.linspace(-130, 130, 1024 - len(special))]).astype(np.float32)


@pytest.mark.parametrize("act", WORDS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("name", "layer"), LAYERS)
def test_each_lane_is_activated(cpu: Runtime, name: str, layer: str, dtype: str, act: str) -> None:
    problem, kind = Problem.parse(f"{layer.format(dtype)}{act}"), family_of(name)
    width = "f4" if dtype == "f32" else "f8"
    values = _values().astype(width)
    planes = np.broadcast_to(values.reshape(1, 1, 16, 64), (1, problem.c, 16, 64))
    nhwc = problem.layout_in == "nhwc"
    x = np.ascontiguousarray(planes.transpose(0, 2, 3, 1) if nhwc else planes)
    ranked = [config for config, _ in rank(problem, cpu.device, kind, 40)]
    widest = max(ranked, key=lambda config: config["v"])
    for config in {ranked[0], widest}:
        plan = LayerPlan(Plan.make(cpu, problem, config))
        y = np.asarray(plan(x, plan.pack(np.ones(problem.w_shape, width))), np.float64)
        y = y.transpose(0, 3, 1, 2) if nhwc else y
        right = activated(problem.epilogue, values.astype(np.float64))
        expected = np.broadcast_to(right.reshape(1, 1, 16, 64), y.shape)
        close = 4e-7 if dtype == "f32" else 1e-15
        np.testing.assert_allclose(y, expected, rtol=close, atol=TINY, err_msg=str(config))
