"""Calls interrupted by Ctrl-C, or by a signal's handler that raises: nothing is freed under a kernel."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.arrays.look import look_at
from tilewright.errors import RunError
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime
from tilewright.runtime.pending import settle
from tilewright.search.ranking import rank

LAYER = Problem.parse("n1c4h5w6k3r3s3p1-f32")
REFERENCE = Config.parse("reference:v=1")


class Interrupt(Exception):
    """As a signal's handler may raise it."""


def interrupted(
    runtime: Runtime, kind: type[BaseException], times: int
) -> tuple[Callable[[], None], list[str]]:
    """A ``synchronize`` that is interrupted so many times before it waits, and what became of its calls."""
    plain, told = runtime.synchronize, list[str]()

    def synchronize() -> None:
        if told.count("interrupted") < times:
            told.append("interrupted")
            raise kind("first" if len(told) == 1 else "later")
        plain()
        told.append("done")

    return synchronize, told


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Interrupt])
@pytest.mark.parametrize("packs", [False, True])
def test_a_call_waits_for_the_device_before_it_raises(
    kind: type[BaseException], packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second and a third interrupt do not end that wait, and the first is what is raised."""
    runtime = open_runtime("numpy")
    plan = LayerPlan(Plan.make(runtime, LAYER, REFERENCE))
    x, w = np.ones(LAYER.x_shape, "f"), np.ones(LAYER.w_shape, "f")
    packed = plan.pack(w)
    synchronize, told = interrupted(runtime, kind, 3)
    monkeypatch.setattr(runtime, "synchronize", synchronize)
    with pytest.raises(kind, match="first"):
        plan.run(look_at(x=x, w=w if packs else None), None if packs else packed.memory)
    assert told == ["interrupted"] * 3 + ["done"]


def test_a_failure_while_filters_are_packed_waits_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some launches may be under way."""
    runtime = open_runtime("numpy")
    plan = LayerPlan(Plan.make(runtime, LAYER, REFERENCE))
    packed = plan.pack(np.ones(LAYER.w_shape, "f"))
    synchronize, told = interrupted(runtime, KeyboardInterrupt, 0)
    monkeypatch.setattr(runtime, "synchronize", synchronize)

    def launch(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runtime, "launch", launch)
    with pytest.raises(KeyboardInterrupt):
        plan(np.ones(LAYER.x_shape, "f"), packed)
    assert told == ["done"]


def test_packing_waits_for_the_device_before_it_raises(cpu: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    config = next(c for c, _ in rank(LAYER, cpu.device, family_of("direct"), 1))
    plan = Plan.make(cpu, LAYER, config)
    assert plan.blueprint.pack is not None
    w = cpu.wrap(np.ones(LAYER.w_shape, "f"))
    plan.pack(w)
    synchronize, told = interrupted(cpu, KeyboardInterrupt, 2)
    monkeypatch.setattr(cpu, "synchronize", synchronize)
    with pytest.raises(KeyboardInterrupt, match="first"):
        plan.pack(w)
    assert told == ["interrupted"] * 2 + ["done"]


def test_memory_outlives_a_wait_that_is_interrupted(cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = cpu._queue

    class Interrupting:
        def finish(self) -> None:
            raise KeyboardInterrupt

    memory = cpu.alloc(64)
    held = weakref.ref(memory)
    cpu.fill(memory, 0)
    del memory
    monkeypatch.setattr(cpu, "_queue", Interrupting())
    with pytest.raises(KeyboardInterrupt):
        cpu.synchronize()
    monkeypatch.setattr(cpu, "_queue", queue)
    assert held() is not None, "freed while the device may use it"
    cpu.synchronize()
    assert held() is None


def test_a_device_that_is_broken_is_not_waited_for() -> None:
    class Broken:
        def synchronize(self) -> None:
            raise RunError("broken")

    settle(Broken())  # type: ignore[arg-type]
