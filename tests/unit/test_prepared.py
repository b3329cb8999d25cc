"""``Runtime.prepared``: launches on the same memory, done and waited for with little Python."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from typing import Any
from weakref import ref

import numpy as np
import pytest

from tilewright.checking.inputs import normal_inputs
from tilewright.errors import DeviceError, OutOfMemory, RunError
from tilewright.kernels import family_of
from tilewright.kernels.blueprint import ZERO
from tilewright.kernels.config import Config
from tilewright.plans.bound_run import BoundRun
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.search.ranking import rank
from tilewright.search.space import Space

LAYER = Problem.parse("n1c8h5w6k16r3s3p1-f32")


@pytest.fixture
def cpu() -> Iterator[Any]:
    try:
        runtime: Any = open_runtime("cpu")
    except DeviceError as error:
        pytest.skip(str(error))
    yield runtime
    runtime.synchronize()


@pytest.fixture
def bound(cpu: Any) -> BoundRun:
    return _bound(cpu)


def _bound(cpu: Any) -> BoundRun:
    config, _ = rank(LAYER, cpu.device, family_of("direct"), 1)[0]
    return BoundRun.of(Plan.make(cpu, LAYER, config), normal_inputs(LAYER, 0).given(LAYER))


def _y(bound: BoundRun) -> Any:
    return bound._memories["y"].owner


def test_each_run_is_complete_when_it_returns(cpu: Any, bound: BoundRun) -> None:
    want = bound.once().view(np.uint8).reshape(-1)
    run = cpu.prepared(bound._steps)
    for _ in range(3):
        _y(bound)[:] = 0
        run()
        np.testing.assert_array_equal(_y(bound)[: want.size], want)


def test_other_runs_of_the_same_kernels_change_none_of_its_arguments(cpu: Any, bound: BoundRun) -> None:
    other = BoundRun.of(bound.plan, normal_inputs(LAYER, 1).given(LAYER))
    want, run = bound.once().view(np.uint8).reshape(-1), cpu.prepared(bound._steps)
    theirs = other.once()
    _y(bound)[:] = 0
    run()
    np.testing.assert_array_equal(_y(bound)[: want.size], want)
    np.testing.assert_array_equal(other.once(), theirs)


def test_buffers_are_zeroed_in_each_run(cpu: Any) -> None:
    """Shares of a sum that are added by atomics begin at 0."""
    layer = Problem.parse("n1c64h7w7k16r3s3p1-f32")
    space = Space(family_of("direct"), layer, cpu.device, {"combine": 1})
    plan = Plan.make(cpu, layer, space.sample(random.Random(0)))
    assert ZERO in [launch.kernel for launch in plan.blueprint.launches]
    bound = BoundRun.of(plan, normal_inputs(layer, 0).given(layer))
    want, run = bound.once(), cpu.prepared(bound._steps)
    for _ in range(2):
        run()
        y = _y(bound)[: want.nbytes].view(np.float32).reshape(want.shape)
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


def test_it_keeps_the_memory_that_it_uses(cpu: Any) -> None:
    bound = _bound(cpu)
    run, held = cpu.prepared(bound._steps), ref(bound._memories["x"])
    del bound
    gc.collect()
    assert held() is not None
    run()
    del run
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_what_was_enqueued_is_waited_for_before_anything_is_raised(
    kind: type[BaseException], cpu: Any, bound: BoundRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller owns the arrays, and may free them at once."""
    enqueue, waited, synchronize = cpu._enqueue, [], cpu.synchronize

    class Interrupting:
        def wait(self) -> None:
            raise kind

    def enqueued(*given: Any) -> Interrupting:
        enqueue(*given)
        return Interrupting()

    monkeypatch.setattr(cpu, "_enqueue", enqueued)
    run = cpu.prepared(bound._steps)
    monkeypatch.setattr(cpu, "synchronize", lambda: waited.append(synchronize()))
    with pytest.raises(kind):
        run()
    assert len(waited) == 1


def test_errors_of_the_driver_are_in_our_words(
    cpu: Any, bound: BoundRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Exception] = []

    def refused(*given: Any) -> None:
        raise raised[0]

    monkeypatch.setattr(cpu, "_enqueue", refused)
    run, kernel = cpu.prepared(bound._steps), bound._steps[0][1].kernel
    for error, ours in ((cpu.cl.RuntimeError("x failed"), RunError), (cpu.cl.MemoryError("x"), OutOfMemory)):
        raised[:] = [error]
        with pytest.raises(ours, match=kernel):
            run()


def test_numpy_waits_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = open_runtime("numpy")
    plan = Plan.make(runtime, LAYER, Config.parse("reference:v=1"))
    bound = BoundRun.of(plan, normal_inputs(LAYER, 0).given(LAYER))
    want, run = bound.once(), runtime.prepared(bound._steps)
    _y(bound)[:] = 0
    run()
    np.testing.assert_array_equal(_y(bound)[: want.nbytes].view(np.float32).reshape(want.shape), want)
    waited = []
    monkeypatch.setattr(runtime, "synchronize", lambda: waited.append(1))

    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runtime, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert waited == [1]
