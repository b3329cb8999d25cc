"""Plan on the NumPy runtime, and what it refuses; the pieces it is made of."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from api_samples import copy_unaligned

from tilewright import api
from tilewright.arrays.view import ArraySpec, ArrayView
from tilewright.checking.inputs import exact_inputs
from tilewright.device import for_architecture
from tilewright.errors import ArrayError, CompileError, ConfigError, DeviceError
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.family import Blueprint, Buffer, Config, Family
from tilewright.kernels.source import full_source, kernel_files, source_key
from tilewright.kernels.untuned.reference import Reference, numpy_conv, reference_f64
from tilewright.plans import binding
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.plans.provenance import Basis, Provenance
from tilewright.problem import Problem
from tilewright.runtime import list_devices, open_runtime, opening
from tilewright.runtime.base import Built, Memory, Resources
from tilewright.runtime.host import NumpyRuntime
from tilewright.search.space import sample

REFERENCE = Config.parse("reference:v=1")
LAYER = Problem.parse("n1c4h5w6k3r3s3p1-f32-nchw2nhwc+bias+relu")


def _made(problem: Problem = LAYER) -> LayerPlan:
    return LayerPlan(Plan.make(open_runtime("numpy"), problem, REFERENCE))


@pytest.fixture
def plan() -> LayerPlan:
    return _made()


def _arrays(problem: Problem = LAYER) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(1)
    shapes = (problem.x_shape, problem.w_shape, (problem.k,))
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return x, w, b


def test_plan_gives_the_formula(plan: LayerPlan) -> None:
    x, w, b = _arrays()
    want = np.zeros(LAYER.y_shape)
    padded = np.pad(x[0].astype(float), ((0, 0), (1, 1), (1, 1)))
    for p, q, k in np.ndindex(LAYER.p, LAYER.q, LAYER.k):
        want[0, p, q, k] = max(0.0, (padded[:, p : p + 3, q : q + 3] * w[k]).sum() + b[k])
    np.testing.assert_allclose(plan(x, plan.pack(w), b), want, atol=1e-6)
    out = np.full(LAYER.y_shape, np.nan, np.float32)
    assert plan(x, plan.pack(w), b, out=out) is out
    np.testing.assert_allclose(out, want, atol=1e-6)


def test_plan_says_what_it_is(plan: LayerPlan) -> None:
    assert "slow" in plan.note
    assert plan.deterministic and plan.workspace_bytes == 0
    assert plan.device.backend == "numpy" and plan.problem is LAYER and plan.config is REFERENCE


def _run(plan: LayerPlan, x: Any, w: Any, b: Any) -> Any:
    return plan(x, plan.pack(w), b)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("kind", ["numpy", "cpu"])
def test_a_plan_is_copied_and_goes_to_other_processes(kind: str) -> None:
    why = Provenance(Basis.STORED, remark="untuned")
    plan = LayerPlan(Plan.make(open_runtime(kind), LAYER, REFERENCE, why))
    expected = _run(plan, *_arrays())
    for again in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert (again.problem, again.config, again.device) == (plan.problem, plan.config, plan.device)
        assert again.note == plan.note == "untuned" and again.plan is not plan.plan
        np.testing.assert_array_equal(_run(again, *_arrays()), expected)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(_run, (plan, *_arrays())), expected)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("dtype", ["f", "f2", "i1"])
def test_memory_of_a_cpu_is_an_array_in_place_row_by_row(dtype: str) -> None:
    runtime = open_runtime("cpu")
    there = np.arange(24).astype(dtype).reshape(4, 6)
    memory, found = runtime.wrap(there), np.empty(8, dtype)
    there[1, 2] = 77
    runtime.download(runtime.slice(memory, 6 * there.itemsize, found.nbytes), found)
    np.testing.assert_array_equal(found, there.reshape(-1)[6:14])
    runtime.upload(runtime.slice(memory, 0, 4 * there.itemsize), np.zeros(4, dtype))
    assert not there[0, :4].any() and there[0, 4] == 4
    runtime.upload(runtime.slice(memory, 4, 0), np.zeros(0, dtype))
    by_column = np.empty(24, dtype)
    runtime.download(runtime.wrap(np.asfortranarray(there)), by_column)
    np.testing.assert_array_equal(by_column, there.reshape(-1))


def test_a_plan_says_less_of_its_config_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = LayerPlan(Plan.make(open_runtime("numpy"), LAYER, REFERENCE, Provenance(Basis.STORED)))
    pickled = pickle.dumps(plan)
    runtime = open_runtime("numpy")
    monkeypatch.setattr(runtime, "device", replace(runtime.device, name="another"))
    assert pickle.loads(pickled).note == "chosen by hand (not verified)"


def test_a_packed_filter_is_copied_and_says_that_it_cannot_go_elsewhere(plan: LayerPlan) -> None:
    packed = plan.pack(_arrays()[1])
    assert copy.deepcopy({"plan": plan, "w": packed})["w"] is packed
    assert copy.copy(packed) is packed
    with pytest.raises(TypeError, match=r"memory of \w+:0 and cannot be pickled; pickle w, and pack it with"):
        pickle.dumps(packed)


def test_read_only_and_unaligned_inputs_are_used_in_place(plan: LayerPlan) -> None:
    x, w, b = _arrays()
    want = plan(x, plan.pack(w), b)
    held = np.empty(x.size + 1, np.float32)
    moved = held[1:].reshape(x.shape)
    moved[:] = x
    moved.flags.writeable = False
    np.testing.assert_array_equal(plan(moved, plan.pack(w), b), want)
    memory = plan.plan.runtime.wrap(moved)
    assert memory.address == moved.ctypes.data
    assert Memory(4, 20, None).aligned is False and Memory(4, 32, None).aligned is True


def test_arrays_that_are_not_aligned_share_the_workspace_that_is_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Reference.blueprint

    def blueprint(kind: Any, *given: Any, aligned: bool = True) -> Blueprint:
        more = () if aligned else (Buffer("copied", 64),)
        counts = Buffer("counts", 8, zeroed=not aligned)
        return replace(plain(kind, *given, aligned), workspace=(Buffer("partial", 64), counts, *more))

    monkeypatch.setattr(Reference, "blueprint", blueprint)
    plan = _made()
    x, w, b = _arrays()
    held = np.empty(x.size + 1, np.float32)
    moved = held[1:].reshape(x.shape)
    moved[:] = x
    np.testing.assert_array_equal(plan(moved, plan.pack(w), b), plan(x, plan.pack(w), b))
    first, second = plan.plan._aligned.workspace, plan.plan._unaligned[0, 0].workspace
    assert set(second) == {"partial", "copied", "counts"} and second["partial"] is first["partial"]
    assert second["counts"] is not first["counts"], "that one need not hold zeros"
    assert plan.workspace_bytes == 64 + 8 and plan.allocated_bytes == 64 + 8 + 8 + 64


def _unaligned(plan: Plan, x: Any, w: Any, b: Any, y: Any) -> dict[str, Memory]:
    """The memory of a run, of which x is not aligned."""
    held = np.empty(x.size + 1, np.float32)
    moved = held[1:].reshape(x.shape)
    moved[:] = x
    return {name: plan.runtime.wrap(array) for name, array in dict(x=moved, w=w, bias=b, y=y).items()}


def test_streams_share_no_workspace_of_arrays_that_are_not_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    copy_unaligned(monkeypatch)
    plan = Plan.make(open_runtime("numpy"), LAYER, REFERENCE)
    assert not plan.of_one_stream
    x, w, b = _arrays()
    y = np.empty(LAYER.y_shape, np.float32)
    memories = _unaligned(plan, x, w, b, y)
    made = []
    for stream in (5, 6, 5):
        plan.run(memories, stream)
        np.testing.assert_array_equal(y, _made()(x, _made().pack(w), b))
        made.append(plan._unaligned[stream, 0])
    assert {*plan._unaligned} == {(5, 0), (6, 0)} and made[0] is made[2], "nothing is made anew"
    assert plan._unaligned[5, 0].workspace["copied"] is not plan._unaligned[6, 0].workspace["copied"]
    assert plan.workspace_bytes == 0 and plan.allocated_bytes == 2 * 64
    plan.let_go_unaligned()
    assert plan.allocated_bytes == 0 and not plan._unaligned


@pytest.mark.parametrize("differs", [False, True])
def test_streams_share_a_kernel_for_arrays_that_are_not_aligned(
    differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it needs no memory; where it is that of aligned arrays, nothing is made."""
    plain = Reference.blueprint

    def blueprint(kind: Any, *given: Any, aligned: bool = True) -> Blueprint:
        found = plain(kind, *given, aligned)
        return found if aligned or not differs else replace(found, defines=(*found.defines, ("NARROW", 1)))

    monkeypatch.setattr(Reference, "blueprint", blueprint)
    plan = Plan.make(open_runtime("numpy"), LAYER, REFERENCE)
    memories = _unaligned(plan, *_arrays(), np.empty(LAYER.y_shape, np.float32))
    for stream in (5, 6):
        plan.run(memories, stream)
    assert len(plan._unaligned) == differs == plan.make_unaligned()


def test_a_plan_of_several_programs_has_the_registers_of_the_largest_and_the_time_of_all() -> None:
    plan = _made().plan
    plan.built = tuple(Built("", b"", {"one": Resources(most, 0, 0)}, 0.5) for most in (40, 64, 32))
    assert (plan.registers, plan.compile_s) == (64, 1.5)


def test_a_device_with_memory_of_its_own_gives_the_answer_back(
    plan: LayerPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An OpenCL device that is no CPU works on copies of NumPy's arrays, also in a bound call."""
    x, w, b = _arrays()
    want, other = plan(x, plan.pack(w), b), plan(2 * x, plan.pack(w), b)
    runtime = plan.plan.runtime
    wrap = runtime.wrap
    monkeypatch.setattr(runtime, "unified", False)
    monkeypatch.setattr(runtime, "wrap", lambda array: wrap(array.copy()))
    out = np.full(LAYER.y_shape, np.nan, np.float32)
    assert plan(x, plan.pack(w), b, out=out) is out
    np.testing.assert_array_equal(out, want)
    run = plan.bind(x, plan.pack(w), b)
    np.testing.assert_array_equal(run(), want)
    x *= 2
    np.testing.assert_array_equal(run(), other)


def test_a_tensor_that_lies_both_ways_is_told_by_its_shape() -> None:
    """Without PyTorch, which need not be here; test_api_tensors has the whole of it."""
    one = Problem.parse("n2c1h5w6k3r1s1-f32-nhwc")

    def given(library: str, *shape: int) -> ArrayView:
        array = np.zeros(shape, np.float32)
        strides = tuple(stride // 4 for stride in array.strides)
        return ArrayView("x", array, ArraySpec(library, "cpu", "f32", shape, strides), array.ctypes.data)

    for shape, turned in (((2, 1, 5, 6), True), ((2, 5, 6, 1), False)):
        binding.require_fit(one, {"x": given("torch", *shape)}, "nchw")
        seen_as_nchw = binding.is_turned(one, given("torch", *shape), "nchw")
        array = binding._input(one, given("torch", *shape), seen_as_nchw)
        assert array.shape == (2, 5, 6, 1) and seen_as_nchw == turned
    for seen, layout in ((given("torch", 2, 1, 5, 6), "nhwc"), (given("numpy", 2, 1, 5, 6), "nchw")):
        with pytest.raises(ArrayError, match=r"must be \(2, 5, 6, 1\)"):
            binding.require_fit(one, {"x": seen}, layout)
    two = Problem.parse("n2c2h5w6k3r1s1-f32-nhwc")
    with pytest.raises(ArrayError, match=r"must be \(2, 5, 6, 2\)"):
        binding.require_fit(two, {"x": given("torch", 2, 2, 5, 6)}, "nchw")


class Spilling(NumpyRuntime):
    """Its compiler finds that some programs spill, and refuses those of them that must not."""

    def __init__(self, spills: Callable[[Blueprint], bool]) -> None:
        super().__init__()
        self.spills = spills
        self.allowed: list[bool] = []  # whether each program that was compiled might spill

    def compile(self, blueprint: Blueprint, spills: bool = False) -> Built:
        self.allowed.append(spills)
        if self.spills(blueprint) and not spills:
            raise CompileError(f"{blueprint.source} spills")
        return super().compile(blueprint, spills)


def test_only_what_takes_arrays_that_are_not_aligned_may_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Reference.blueprint

    def blueprint(kind: Any, *given: Any, aligned: bool = True) -> Blueprint:
        found = plain(kind, *given, aligned)
        return replace(found, defines=(*found.defines, ("BY_ITEMS", int(not aligned))))

    monkeypatch.setattr(Reference, "blueprint", blueprint)
    runtime = Spilling(lambda program: ("BY_ITEMS", 1) in program.defines)
    plan = LayerPlan(Plan.make(runtime, LAYER, REFERENCE))
    x, w, b = _arrays()
    want = plan(x, plan.pack(w), b)
    assert runtime.allowed == [False]
    held = np.empty(x.size + 1, np.float32)
    moved = held[1:].reshape(x.shape)
    moved[:] = x
    np.testing.assert_array_equal(plan(moved, plan.pack(w), b), want)
    assert runtime.allowed == [False, True]
    with pytest.raises(CompileError, match=r"reference\.cu spills"):
        Plan.make(Spilling(lambda program: True), LAYER, REFERENCE)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("x", lambda a: a.astype(np.float64), "x: dtype float64"),
        ("x", lambda a: a[:, :, :, :-1], r"x: shape .* must be \(1, 4, 5, 6\)"),
        ("x", lambda a: a[0], "x: shape"),
        ("x", lambda a: a.tolist(), "x: a list was given"),
        ("w", lambda a: a.transpose(0, 2, 3, 1), "w: shape"),
        ("w", lambda a: a.astype(np.float16), "w: dtype float16"),
        ("bias", lambda a: None, "bias: is missing"),
        ("bias", lambda a: a[:2], "bias: shape"),
        ("out", lambda a: np.empty((1, 3, 5, 6), np.float32), "out: shape"),
        ("out", lambda a: np.empty((1, 5, 6, 3), np.int32), "out: dtype int32"),
        ("out", lambda a: np.broadcast_to(np.float32(0), (1, 5, 6, 3)), "out: "),
    ],
)
def test_bad_arrays_are_named(plan: LayerPlan, name: str, change: Any, said: str) -> None:
    x, w, b = _arrays()
    given = {"x": x, "w": w, "bias": b, "out": None}
    given[name] = change(given[name])
    with pytest.raises(ArrayError, match=said):
        plan(given["x"], plan.pack(given["w"]), given["bias"], out=given["out"])


def test_bias_that_is_not_in_the_problem_is_refused() -> None:
    problem = Problem.parse("n1c4h5w6k3r1s1-f32")
    plan = _made(problem)
    x, w, b = _arrays(problem)
    with pytest.raises(ArrayError, match="the problem has none"):
        plan(x, plan.pack(w), b)


ADDS = Problem.parse("n1c4h5w6k3r1s1-i8+bias+add+relu+maxpool2")


def test_plan_adds_a_residual_and_pools_in_the_dtype_of_y() -> None:
    plan = _made(ADDS)
    data = exact_inputs(ADDS, 1)
    y = plan(data.x, plan.pack(data.w), data.bias, data.z)
    assert y.dtype == np.int32 and y.shape == ADDS.y_shape == (1, 3, 2, 3)
    sums = np.einsum("chw,kc->khw", data.x[0].astype(int), data.w[:, :, 0, 0].astype(int))
    sums = np.maximum(sums + data.bias.reshape(-1, 1, 1) + data.z[0], 0)
    assert np.array_equal(y[0], sums[:, :4].reshape(3, 2, 2, 3, 2).max((2, 4)))
    assert plan.workspace_bytes == 2 * 8 * ADDS.z_elements


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("x", lambda a: a.astype(np.float32), "x: dtype float32 was given; must be int8"),
        ("bias", lambda a: a.astype(np.int8), "bias: dtype int8 was given; must be int32"),
        ("bias", lambda a: None, "bias: is missing"),
        ("z", lambda a: None, "z: is missing"),
        ("z", lambda a: a.astype(np.float32), "z: dtype float32 was given; must be int32"),
        ("z", lambda a: a[:, :, :4], r"z: shape \(1, 3, 4, 6\) was given; must be \(1, 3, 5, 6\)"),
        ("out", lambda a: np.empty((1, 3, 5, 6), np.int32), r"out: shape .* must be \(1, 3, 2, 3\)"),
        ("out", lambda a: np.empty((1, 3, 2, 3), np.int8), "out: dtype int8"),
    ],
)
def test_bad_arrays_of_another_problem_are_named(name: str, change: Any, said: str) -> None:
    plan = _made(ADDS)
    data = exact_inputs(ADDS, 1)
    given = {"x": data.x, "bias": data.bias, "z": data.z, "out": None}
    given[name] = change(given[name])
    with pytest.raises(ArrayError, match=said):
        plan(given["x"], plan.pack(data.w), given["bias"], given["z"], given["out"])


def test_a_residual_that_is_not_in_the_problem_is_refused(plan: LayerPlan) -> None:
    x, w, b = _arrays()
    with pytest.raises(ArrayError, match="z: is given, but the problem has none"):
        plan(x, plan.pack(w), b, np.zeros(LAYER.z_shape, np.float32))


def test_nothing_is_launched_for_a_batch_of_zero() -> None:
    problem = Problem.parse("n0c4h5w6k3r1s1-f32")
    plan = Plan.make(open_runtime("numpy"), problem, REFERENCE)
    plan.runtime = None  # type: ignore[assignment]
    memory = Memory(4, 0, None)
    plan.run(dict.fromkeys("xwy", memory))


@pytest.mark.parametrize("text", ["nothing:v=1", "reference:v=2", "reference:w=1"])
def test_bad_configs_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Plan.make(open_runtime("numpy"), LAYER, Config.parse(text))


@pytest.mark.usefixtures("cpu")
def test_a_config_of_numpys_numbers_runs() -> None:
    config = api.plan(LAYER, "cpu", family="direct").config
    numbers = Config("direct", tuple((name, np.int64(value)) for name, value in config.items))  # type: ignore[misc]
    plan, (x, w, b) = api.plan(LAYER, "cpu", config=numbers), _arrays()
    np.testing.assert_allclose(plan(x, plan.pack(w), b), _made()(x, _made().pack(w), b), atol=1e-5)


def test_numpy_runs_no_other_family() -> None:
    blueprint = Blueprint("direct.cu", (), (), 0)
    with pytest.raises(CompileError, match="reference family only"):
        open_runtime("numpy").compile(blueprint)


def programs_of(known: Family) -> Iterator[Blueprint]:
    """What a family's examples are compiled from, on a GPU or on a CPU."""
    for device in (for_architecture("sm_90"), open_runtime("numpy").device, open_runtime("cpu").device):
        for problem in map(Problem.parse, known.examples):
            if known.refuses(problem, device) is None:
                config = sample(known, problem, device, random.Random(0))
                yield from known.blueprint(problem, device, config).programs


def test_families_have_names_and_kernels_beside_their_specs() -> None:
    for known in FAMILIES:
        assert family_of(known.name) is known
        folder = Path(inspect.getfile(type(known))).parent
        named = {program.source for program in programs_of(known)}
        beside = [name for name in named if kernel_files()[name].parent == folder]
        assert beside and all(len(source_key(name)) == 64 for name in named), known.name


def test_source_is_complete_and_keyed() -> None:
    text = full_source(reference_f64(LAYER, open_runtime("numpy").device))
    assert "#include" not in text
    assert text.startswith("#define SIZE_N 1\n")
    assert text.count("#define FOR_EACH") == 1
    assert source_key("pack.cu") != source_key("check.cu")


def test_devices_are_opened_once_and_unknown_ones_refused() -> None:
    assert open_runtime("numpy") is open_runtime("numpy")
    for kind, index in (("tpu", 0), ("numpy", 1), ("cuda", 99), ("opencl", 99), ("cpu", 99)):
        with pytest.raises(DeviceError):
            open_runtime(kind, index)
    found = list_devices()
    assert any(getattr(d, "backend", "") == "numpy" for d in found)
    assert all(isinstance(d, DeviceError) or d.key for d in found)


def test_threads_that_open_a_device_at_once_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are kept by their runtime, and each has a queue of its own."""
    made: list[NumpyRuntime] = []

    def slow(kind: str, index: int) -> NumpyRuntime:
        time.sleep(0.1)
        made.append(NumpyRuntime())
        if len(made) == 1:
            raise DeviceError("in other use")
        return made[-1]

    monkeypatch.setattr(opening, "_opened", {})
    monkeypatch.setattr(opening, "_driven", slow)
    with pytest.raises(DeviceError, match="in other use"):
        open_runtime("cuda")
    start = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: (start.wait(), open_runtime("cuda"))[1], range(4)))
    assert len(made) == 2 and {id(one) for one in found} == {id(made[1])}, "a failure is not remembered"


@pytest.mark.parametrize("kinds", [("cpu", "opencl"), ("opencl", "cpu")])
def test_a_cpu_by_either_name_is_one_device(kinds: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its plans are compiled, and kept, twice; OpenCL's other devices are no CPU."""

    def driven(kind: str, index: int) -> Any:
        if kind == "cpu" and index:
            raise DeviceError("cpu:1: no such OpenCL CPU")
        return SimpleNamespace(unified=index == 0)

    monkeypatch.setattr(opening, "_opened", {})
    monkeypatch.setattr(opening, "_driven", driven)
    first, second = (open_runtime(kind) for kind in kinds)
    assert first is second
    assert open_runtime("opencl", 1) is not first
    with pytest.raises(DeviceError, match="no such OpenCL CPU"):
        open_runtime("cpu", 1)


def test_numpy_reference_spreads_nan_as_the_formula_has_it() -> None:
    problem = Problem.parse("n1c1h3w3k1r1s1-f32+relu")
    x, w = np.ones(problem.x_shape, np.float32), np.ones(problem.w_shape, np.float32)
    x[0, 0, 1, 1] = np.nan
    y, _ = numpy_conv(problem, x, w)
    assert np.isnan(y).sum() == 1 and np.isnan(y[0, 0, 1, 1])
