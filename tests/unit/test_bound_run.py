"""A plan bound to memory: its kernels keep their arguments until others are given."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from tilewright.checking.inputs import normal_inputs
from tilewright.errors import DeviceError
from tilewright.kernels import family_of
from tilewright.plans.bound_run import BoundRun
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.search.ranking import rank

LAYER = Problem.parse("n1c8h5w6k16r3s3p1-f32")


@pytest.fixture
def plan() -> Plan:
    try:
        runtime: Any = open_runtime("cpu")
    except DeviceError as error:
        pytest.skip(str(error))
    config, _ = rank(LAYER, runtime.device, family_of("direct"), 1)[0]
    return Plan.make(runtime, LAYER, config)


def test_runs_on_memories_of_their_own_take_turns(plan: Plan) -> None:
    given = [normal_inputs(LAYER, seed).given(LAYER) for seed in (0, 1)]
    runs = [BoundRun.of(plan, arrays) for arrays in given]
    first, second = (run.once() for run in runs)
    assert not np.array_equal(first, second)
    for _ in range(2):
        for run, right in zip(runs, (first, second), strict=True):
            run._memories["y"].owner[:] = 0
            np.testing.assert_array_equal(run.once(), right)
            np.testing.assert_array_equal(run.once(), right)
    plan.run(runs[0]._memories)
    np.testing.assert_array_equal(runs[1].once(), second)


def test_kernels_keep_no_memory(plan: Plan) -> None:
    run = BoundRun.of(plan, normal_inputs(LAYER, 0).given(LAYER))
    run.once()
    loaded, launch, given = run._steps[0]
    last = loaded.given[launch.kernel]
    assert last is not None and last() is given
    del run, given
    gc.collect()
    assert last() is None


def test_arguments_that_were_passed_half_way_are_passed_again(plan: Plan) -> None:
    """An error, or an interrupt, leaves a kernel with some arguments of the run before it."""
    given = [normal_inputs(LAYER, seed).given(LAYER) for seed in (0, 1)]
    first, second = (BoundRun.of(plan, arrays) for arrays in given)
    right = first.once()
    loaded, launch, _ = first._steps[0]
    kernel = loaded.kernels[launch.kernel]

    class Interrupted:
        """A kernel that takes its arguments, and is interrupted behind the last."""

        def set_args(self, *arguments: object) -> None:
            kernel.set_args(*arguments)
            raise KeyboardInterrupt

    loaded.kernels[launch.kernel] = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        second.run()
    loaded.kernels[launch.kernel] = kernel
    first._memories["y"].owner[:] = 0
    np.testing.assert_array_equal(first.once(), right)
