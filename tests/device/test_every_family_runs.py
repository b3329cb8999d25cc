"""Every family on its own examples, in every dtype: its kernels for a CPU, and by PoCL those for a GPU.

A new family needs no line here: see ``tests/every_family.py``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from every_family import CASES
from here import DEVICES, agrees
from test_gpu_path import FACTS, _configs
from test_gpu_path import runtime as gpu_facts

from tilewright.device import Device
from tilewright.dtypes import numpy_dtype
from tilewright.errors import CompileError
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.family import Config, Family
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime

__all__ = ["gpu_facts"]  # a fixture

EMULATED = replace(DEVICES["cpu"], **FACTS) if "cpu" in DEVICES else None
MOST_FLOPS = 4e8  # of an emulated layer; test_gpu_path has smaller ones of Strassen's algorithm, and why


def _takes(name: str, text: str, device: Device | None) -> bool:
    return device is not None and family_of(name).refuses(Problem.parse(text), device) is None


ON_CPU = [case for case in CASES if _takes(*case, DEVICES.get("cpu"))]
FOR_GPU = [c for c in CASES if _takes(*c, EMULATED) and Problem.parse(c[1]).flops <= MOST_FLOPS]
ON_GPU = [case for case in CASES if _takes(*case, DEVICES.get("cuda"))]


def _some(kind: Family, problem: Problem, runtime: Runtime) -> list[Config]:
    if kind.tunable:
        return _configs(kind, problem, runtime)
    return [Config.make(kind.name, {p.name: p.values[0] for p in kind.params(problem, runtime.device)})]


def _check(name: str, text: str, runtime: Runtime) -> None:
    """Check a config that compiles, also with base pointers that are aligned to their elements alone."""
    problem = Problem.parse(text)
    for config in _some(family_of(name), problem, runtime):
        try:
            plan = Plan.make(runtime, problem, config)
        except CompileError as error:
            assert "spilled" in str(error), config
            continue
        agrees(plan)
        agrees(plan, shift=np.dtype(numpy_dtype(problem.dtype_out)).itemsize)
        return
    assert runtime.device.is_cuda
    pytest.skip("the configs that were drawn spill")


@pytest.mark.parametrize(("name", "text"), ON_CPU)
def test_on_a_cpu(name: str, text: str, runtime: Runtime) -> None:
    _check(name, text, runtime)


@pytest.mark.parametrize(("name", "text"), FOR_GPU)
def test_for_a_gpu(name: str, text: str, gpu_facts: Runtime) -> None:
    _check(name, text, gpu_facts)


@pytest.mark.parametrize(("name", "text"), ON_GPU)
def test_on_a_gpu(name: str, text: str) -> None:
    _check(name, text, open_runtime("cuda"))


def test_every_family_is_run_in_every_dtype() -> None:
    """But for Strassen's algorithm, whose examples are too large to be emulated."""
    if EMULATED is None:
        pytest.skip("no OpenCL here")
    large = {case for case in CASES if Problem.parse(case[1]).flops > MOST_FLOPS}
    assert {name for name, _ in large} <= {"strassen", "strassen2"}, "give it smaller examples"
    assert {*CASES} - large == {*ON_CPU, *FOR_GPU}, "neither a CPU nor EMULATED takes them: what refuses?"
    assert {name for name, _ in CASES} == {one.name for one in FAMILIES}
