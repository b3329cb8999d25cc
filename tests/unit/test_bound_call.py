"""``LayerPlan.bind``: calls on the same arrays, which are looked at once."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from typing import Any
from weakref import ref

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ArrayError, DeviceError
from tilewright.kernels.config import Config
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime

LAYER = Problem.parse("n1c4h5w6k3r3s3p1-f32-nchw2nhwc+bias+add+relu")


@pytest.fixture(params=["numpy", "cpu"])
def plan(request: pytest.FixtureRequest) -> LayerPlan:
    if request.param == "numpy":
        return LayerPlan(Plan.make(open_runtime("numpy"), LAYER, Config.parse("reference:v=1")))
    try:
        return tw.plan(LAYER, "cpu", family="direct")
    except DeviceError as error:
        pytest.skip(str(error))


def _arrays(seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = dict(x=LAYER.x_shape, w=LAYER.w_shape, bias=(LAYER.k,), z=LAYER.z_shape)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def test_each_call_is_of_what_the_arrays_hold_then(plan: LayerPlan) -> None:
    given, out = _arrays(), np.empty(LAYER.y_shape, np.float32)
    packed = plan.pack(given.pop("w"))
    run = plan.bind(packed_w=packed, out=out, **given)
    for seed in (2, 3):
        for name, array in _arrays(seed).items():
            if name in given:
                given[name][:] = array
        assert run() is out and run.out is out
        np.testing.assert_array_equal(out, plan(packed_w=packed, **given))
    assert str(LAYER) in repr(run) and run.problem is plan.problem


def test_without_out_all_calls_write_one_new_array(plan: LayerPlan) -> None:
    given = _arrays()
    packed = plan.pack(given.pop("w"))
    run, other = (plan.bind(packed_w=packed, **given) for _ in range(2))
    assert run() is run() is run.out is not other()
    np.testing.assert_array_equal(run.out, plan(packed_w=packed, **given))
    np.testing.assert_array_equal(run.out, other.out)


def test_what_calls_copy_is_copied_in_each_call(plan: LayerPlan) -> None:
    given = _arrays()
    packed = plan.pack(given.pop("w"))
    wide = np.zeros((*LAYER.x_shape[:3], 2 * LAYER.w), np.float32)
    run = plan.bind(wide[..., ::2], packed, given["bias"], given["z"])
    wide[..., ::2] = given["x"]
    np.testing.assert_array_equal(run(), plan(packed_w=packed, **given))


def test_arrays_that_are_not_aligned(plan: LayerPlan) -> None:
    given = _arrays()
    packed = plan.pack(given.pop("w"))
    moved = np.empty(given["x"].size + 1, np.float32)[1:].reshape(LAYER.x_shape)
    run = plan.bind(moved, packed, given["bias"], given["z"])
    moved[:] = given["x"]
    np.testing.assert_array_equal(run(), plan(packed_w=packed, **given))


def test_calls_of_several_threads_and_plans_own_do_not_mix(plan: LayerPlan) -> None:
    wants, runs, wrong = [], [], []
    for seed in range(3):
        given = _arrays(seed)
        packed = plan.pack(given.pop("w"))
        wants.append(plan(packed_w=packed, **given))
        runs.append(plan.bind(packed_w=packed, **given))

    def work(run: Any, want: Any) -> None:
        for _ in range(50):
            if not np.array_equal(run(), want):
                wrong.append(run)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(runs, wants, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_bad_array_is_refused_when_it_is_bound(plan: LayerPlan) -> None:
    given = _arrays()
    packed = plan.pack(given.pop("w"))
    with pytest.raises(ArrayError, match="bias: is missing"):
        plan.bind(given["x"], packed, z=given["z"])
    with pytest.raises(ArrayError, match="x: shape"):
        plan.bind(given["x"][0], packed, given["bias"], given["z"])
    with pytest.raises(ArrayError, match="out: overlaps z"):
        plan.bind(packed_w=packed, out=given["z"], **given)


def test_an_output_must_not_lie_over_a_filter_that_is_read_where_it_is() -> None:
    plan = tw.plan("n1c4h1w4k4r1s1-f32", device="numpy")
    x, w = np.ones((1, 4, 1, 4), np.float32), np.ones((4, 4, 1, 1), np.float32)
    packed, out = plan.pack(w), w.reshape(1, 4, 1, 4)
    for call in (plan, plan.bind):
        with pytest.raises(ArrayError, match="out: overlaps the packed filter"):
            call(x, packed, out=out)


def test_it_keeps_its_arrays_and_goes_nowhere_else(plan: LayerPlan) -> None:
    given = _arrays()
    run = plan.bind(packed_w=plan.pack(given.pop("w")), **given)
    run()
    held = ref(given.pop("x"))
    gc.collect()
    assert held() is not None
    for elsewhere in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="pickle the plan"):
            elsewhere(run)
    del run
    gc.collect()
    assert held() is None


def test_a_batch_of_zero() -> None:
    problem = Problem.parse("n0c4h5w6k3r1s1-f32")
    plan = LayerPlan(Plan.make(open_runtime("numpy"), problem, Config.parse("reference:v=1")))
    w, x = np.ones(problem.w_shape, np.float32), np.empty(problem.x_shape, np.float32)
    assert plan.bind(x, plan.pack(w))().shape == problem.y_shape


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    name = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    try:
        plan = tw.plan(f"n1c8h6w6k16r3s3p1-{name}-nhwc", "cpu")
    except DeviceError as error:
        pytest.skip(str(error))
    kind = getattr(torch, dtype)
    x = torch.zeros(1, 8, 6, 6, dtype=kind).to(memory_format=torch.channels_last)
    w = torch.randn(16, 8, 3, 3, dtype=kind)
    packed = plan.pack(w)
    run = plan.bind(x, packed)
    x.copy_(torch.randn(1, 8, 6, 6, dtype=kind))
    version = run.out._version
    assert run() is run.out and run.out.shape == (1, 16, 6, 6) and run.out._version > version
    torch.testing.assert_close(run.out, plan(x, packed), rtol=0, atol=0)
