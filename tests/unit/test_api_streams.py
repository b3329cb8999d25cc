"""Arrays of a GPU, with a pretended CuPy: whose stream runs what, and what is each stream's own."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from api_samples import B, F, W, X, Z, copy_unaligned, expected, near, own_cache
from fake_cuda import FakeCupy, cupy

import tilewright as tw
from tilewright import arguments
from tilewright.arrays.look import look
from tilewright.arrays.use import current_stream
from tilewright.arrays.view import ArraySpec
from tilewright.checking.inputs import normal_inputs
from tilewright.dtypes import numpy_dtype
from tilewright.errors import ArrayError, RunError
from tilewright.kernels.error_bound import error_bound
from tilewright.kernels.family import Buffer, Config, Launch
from tilewright.kernels.untuned.reference import Reference, numpy_conv
from tilewright.plans import plan_cache, stream_plans
from tilewright.plans.binding import Binding
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.plans.streams import PER_THREAD
from tilewright.problem import DTYPES, Problem

__all__ = ["cupy", "own_cache"]  # fixtures


def test_cuda_arrays_are_used_on_their_stream(cupy: FakeCupy) -> None:
    x = look("x", cupy.array(X, device=1))
    assert (x.device, x.index, x.library, x.contiguous) == ("cuda:1", 1, "cupy", True)
    assert current_stream(x) == 1001 and current_stream(look("x", X)) is None


def test_every_dtype_on_a_gpu(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments.layer, "open_runtime", cupy.runtime)
    for dtype in DTYPES:
        problem = Problem.parse(f"n2c4h7w9k6r3s2-{dtype}+bias+add")
        data = normal_inputs(problem, 4)
        x, w, b, z = (cupy.array(a) for a in (data.x, data.w, data.bias, data.z))
        y = tw.conv2d(x, w, b, z=z)
        assert y.dtype == numpy_dtype(problem.dtype_out) and cupy.launched[-1] == cupy.stream
        ref, size = numpy_conv(problem, data.x, data.w, data.bias, data.z)
        assert error_bound(problem, 1).allows(y.data_, ref, size).all()


def test_channels_last_on_a_gpu_is_looked_at_once(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel needs no more than the address of arrays that are seen as (N, C, H, W)."""

    def turned(array: Any) -> Any:
        return cupy.array(np.ascontiguousarray(array.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)

    text = "n2c4h7w9k6r3s2-f32"
    problem = Problem.parse(f"{text}-nhwc+bias+add")
    layer = LayerPlan(Plan.make(cupy.runtime("cuda"), problem, Config.parse("reference:v=1")))
    last = property(lambda spec: len(spec.shape) == 4 and not spec.contiguous)  # CuPy has no channels_last
    monkeypatch.setattr(ArraySpec, "channels_last", last)
    looked, looks = list[bool](), Binding._looked_at
    monkeypatch.setattr(Binding, "_looked_at", lambda *given: looked.append(True) or looks(*given))
    packed, bias = layer.pack(cupy.array(W)), cupy.array(B)
    for factor in (1, 2, 3):
        x, z = (array * F(factor) for array in (X, Z))
        want = expected(f"{text}+bias+add", x, W, B, z)
        y, out = layer(turned(x), packed, bias, turned(z)), turned(np.zeros(want.shape, F))
        assert layer(turned(x), packed, bias, turned(z), out=out) is out
        for found in (y, out):
            assert found.shape == want.shape and found.strides == turned(want.astype(F)).strides
            near(found.data_, want)
    assert len(looked) == 2, "a call with an output, and one without"


def test_gaps_on_a_gpu_are_refused_not_copied(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments.layer, "open_runtime", cupy.runtime)
    x, w = cupy.array(X), cupy.array(W)
    for wrong, words in (
        ((cupy.array(X[:, :, :, ::2]), w), r"x: strides .*; call cupy.ascontiguousarray\(x\)"),
        ((x, w, None, cupy.array(Z[:, :, ::-1])), r"z: strides .*; call cupy.ascontiguousarray\(z\)"),
        ((x, w, cupy.array(np.zeros(12, F)[::2])), r"bias: strides .*; call cupy.ascontiguousarray\(bias\)"),
    ):
        with pytest.raises(ArrayError, match=words):
            tw.conv2d(*wrong[:3], z=wrong[3] if len(wrong) > 3 else None)


def test_a_filter_with_gaps_is_copied_on_a_gpu(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is packed anyway; a model in channels_last has such."""
    monkeypatch.setattr(arguments.layer, "open_runtime", cupy.runtime)
    turned = W[:, :, ::-1]
    y = tw.conv2d(cupy.array(X), cupy.array(turned))
    np.testing.assert_array_equal(y.data_, tw.conv2d(cupy.array(X), cupy.array(turned.copy())).data_)


def test_cuda_launches_go_to_the_callers_stream(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments.layer, "open_runtime", cupy.runtime)
    want = expected("n2c4h7w9k6r3s2-f32", X, W)
    for stream in (5, 6, 5):
        cupy.stream = stream
        near(tw.conv2d(cupy.array(X), cupy.array(W)).data_, want)
        assert cupy.launched[-1] == stream
    assert cupy.waits == 0


def test_filters_are_packed_on_the_callers_stream(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another a kernel might read what is not packed yet; a stream packs into one buffer each time."""
    runtime, packs_into, packs = cupy.runtime("cuda"), Plan.pack_into, list[tuple[int | None, Any]]()
    packs_w(monkeypatch, 0)
    launch = runtime.launch

    def noted(loaded: Any, one: Any, given: Any, stream: int | None = None) -> None:
        if one == "packing":
            packs.append((stream, given[1]))
            given[1].owner[: given[0].nbytes] = given[0].owner
        else:
            launch(loaded, one, given, stream)

    monkeypatch.setattr(Plan, "pack_into", packs_into)
    monkeypatch.setattr(Plan, "_load_packer", lambda plan: ("program", "packing"))
    monkeypatch.setattr(runtime, "launch", noted)
    monkeypatch.setattr(arguments.layer, "open_runtime", cupy.runtime)
    for stream in (5, 6, 5):
        cupy.stream = stream
        near(tw.conv2d(cupy.array(X), cupy.array(W)).data_, expected("n2c4h7w9k6r3s2-f32", X, W))
    layer = LayerPlan(Plan.make(runtime, Problem.parse("n2c4h7w9k6r3s2-f32"), Config.parse("reference:v=1")))
    layer.pack(cupy.array(W))
    assert [stream for stream, _ in packs] == [5, 6, 5, 5] and cupy.waits == 0
    (_, first), (_, second), (_, third), (_, own) = packs
    assert first is third and len({id(first), id(second), id(own)}) == 3


def test_streams_share_no_workspace_and_no_constant_memory(cupy: FakeCupy) -> None:
    """A loaded program has one constant memory; a plan that has neither is shared."""
    fill = Launch("constant", (1, 1, 1), (1, 1, 1), ("w",))
    for text, launches, shared in (
        ("n2c4h7w9k6r3s2-f32", (), True), ("n2c4h7w9k6r3s2-f32", (fill,), False),
        ("n2c4h7w9k6r3s2-f32+maxpool2", (), False),
    ):  # fmt: skip
        problem = Problem.parse(text)
        layer = LayerPlan(Plan.make(cupy.runtime("cuda"), problem, Config.parse("reference:v=1")))
        blueprint = layer.plan.blueprint
        layer.plan.blueprint = replace(blueprint, launches=(*launches, *blueprint.launches))
        for stream in (5, 6, 5):
            cupy.stream = stream
            near(layer(cupy.array(X), layer.pack(cupy.array(W))).data_, expected(text, X, W))
        plans = {id(one.plan) for one in layer._streams.by_stream.values()}
        assert len(plans) == (1 if shared else 3)


def test_streams_share_a_plan_that_keeps_nothing_of_aligned_arrays(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mma and hopper copy others; a new stream, which may be recorded, need not wait for a plan."""
    problem = Problem.parse("n2c4h7w9k6r3s2-f32")
    copy_unaligned(monkeypatch)
    layer = LayerPlan(Plan.make(cupy.runtime("cuda"), problem, Config.parse("reference:v=1")))
    assert layer.workspace_bytes == 0
    for stream in (5, 6, 5):
        cupy.stream = stream
        layer(cupy.array(X), layer.pack(cupy.array(W)))
    assert len(layer._streams.by_stream) == 3
    assert len({id(one.plan) for one in layer._streams.by_stream.values()}) == 1


def test_a_stream_that_records_is_got_ready_without_waiting_for_the_device(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wait for all of it, or to set memory on the legacy stream, ends any recording with an error."""
    plain, runtime = Reference.blueprint, cupy.runtime("cuda")
    zeroed = (Buffer("partial", 64, zeroed=True),)
    monkeypatch.setattr(
        Reference, "blueprint", lambda *given, **more: replace(plain(*given, **more), workspace=zeroed)
    )

    def broken(*given: Any) -> None:
        raise RunError("CUDA: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")

    layer = LayerPlan(Plan.make(runtime, Problem.parse("n2c4h7w9k6r3s2-f32"), Config.parse("reference:v=1")))
    packed = layer.pack(cupy.array(W))
    for name in ("synchronize", "fill"):
        monkeypatch.setattr(runtime, name, broken)
    monkeypatch.setattr(runtime, "zero", lambda memory: memory.owner.fill(0))
    monkeypatch.setattr(runtime, "is_recording", lambda stream: True)
    near(layer(cupy.array(X), packed).data_, expected("n2c4h7w9k6r3s2-f32", X, W))
    assert len({id(one.plan) for one in layer._streams.by_stream.values()}) == 2
    monkeypatch.setattr(runtime, "zero", broken)
    cupy.stream += 1
    with pytest.raises(RunError, match=r"recording a graph: CUDA: .*; call the plan once .*stream=s\)$"):
        layer(cupy.array(X), packed)
    monkeypatch.setattr(runtime, "is_recording", lambda stream: False)
    with pytest.raises(RunError, match="^CUDA: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED$"):
        layer(cupy.array(X), packed)


def test_bound_calls_are_enqueued_on_the_callers_stream(cupy: FakeCupy) -> None:
    """Arrays of a GPU are used in place: a call has a plan's launches alone, and waits for nothing."""
    text = "n2c4h7w9k6r3s2-f32+bias"
    layer = LayerPlan(Plan.make(cupy.runtime("cuda"), Problem.parse(text), Config.parse("reference:v=1")))
    x, b = cupy.array(np.zeros_like(X)), cupy.array(np.zeros(6, F))
    run, other = (layer.bind(x, layer.pack(cupy.array(W)), b) for _ in range(2))
    before = len(cupy.launched), cupy.waits
    x.data_[:] = X
    for stream in (5, 6, 5):
        cupy.stream = stream
        run.out.data_.fill(0)
        near(run().data_, expected("n2c4h7w9k6r3s2-f32", X, W))
    assert cupy.launched[before[0] :] == [5, 6, 5] and cupy.waits == before[1]
    assert run() is run.out is not other()


@pytest.mark.parametrize("start", [0, 1])
def test_streams_share_no_workspace_of_a_bound_call(
    start: int, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what arrays that are not aligned need; a stream that comes again makes nothing anew."""
    problem, runtime = Problem.parse("n2c4h7w9k6r3s2-f32"), cupy.runtime("cuda")
    plain, launch, used = Reference.blueprint, runtime.launch, []

    def works(family: Any, *given: Any, aligned: bool = True) -> Any:
        blueprint = plain(family, *given, aligned)
        return replace(blueprint, workspace=(Buffer("here" if aligned else "copied", 64),))

    def named(loaded: Any, one: Launch, given: Any, stream: int | None = None) -> None:
        used.append((stream, given))
        launch(loaded, one, given, stream)

    monkeypatch.setattr(Reference, "blueprint", works)
    layer = LayerPlan(Plan.make(runtime, problem, Config.parse("reference:v=1")))
    memory = np.empty(X.size + 5, F)
    begin = -memory.ctypes.data % 16 // 4 + start
    there = memory[begin : begin + X.size].reshape(X.shape)
    there[:] = X
    run = layer.bind(cupy.array(there), layer.pack(cupy.array(W)))
    monkeypatch.setattr(runtime, "launch", named)
    for stream in (5, 6, 5):
        cupy.stream = stream
        near(run().data_, expected("n2c4h7w9k6r3s2-f32", X, W))
    plans = {key: one.plan for key, one in layer._streams.by_stream.items()}
    assert len({id(plan) for plan in plans.values()}) == 3
    assert [len(plan._unaligned) for plan in plans.values()] == [0, start, start]
    (_, first), (_, second), (_, third) = used
    assert first is third is not second, "the steps of a stream are kept"


@pytest.mark.parametrize("recording", [False, True])
def test_what_a_threads_own_stream_had_goes_with_the_thread(
    recording: bool, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its work is done; what a graph recorded there goes on to be used, also after other calls."""
    packs_w(monkeypatch, 1000)
    runtime, finished = cupy.runtime("cuda"), list[int]()
    layer = LayerPlan(Plan.make(runtime, Problem.parse("n2c4h7w9k6r3s2-f32"), Config.parse("reference:v=1")))
    x, packed, before = cupy.array(X), layer.pack(cupy.array(W)), layer.allocated_bytes
    monkeypatch.setattr(runtime, "finish", finished.append)
    cupy.stream, held = PER_THREAD, list[int]()

    def call() -> None:
        for now in (recording, False):
            monkeypatch.setattr(runtime, "is_recording", lambda stream, now=now: now)
            near(layer(x, packed).data_, expected("n2c4h7w9k6r3s2-f32", X, W))
        held.append(layer.allocated_bytes)

    for _ in range(3):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    if recording:
        assert held == [before + 1000 * (i + 1) for i in range(3)] and not finished
        return
    assert held == [before + 1000] * 3 and layer.allocated_bytes == before
    assert finished == [PER_THREAD] * 3 and len(layer._streams.by_stream) == 1


@pytest.mark.parametrize("recording", [False, True])
def test_streams_without_end_do_not_fill_the_device(
    recording: bool, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first keep what they have, of later ones those used last, and those that a graph recorded."""
    packs_w(monkeypatch, 1000)
    monkeypatch.setattr(stream_plans, "MOST_STREAMS", 3)
    runtime = cupy.runtime("cuda")
    layer = LayerPlan(Plan.make(runtime, Problem.parse("n2c4h7w9k6r3s2-f32"), Config.parse("reference:v=1")))
    run = layer.bind(cupy.array(X), layer.pack(cupy.array(W)))
    monkeypatch.setattr(runtime, "is_recording", lambda stream: recording and stream == 12)
    for cupy.stream in (10, 11, 12, 13, 14, 12, 15, 11, 16, 17):  # with the default stream three are first
        near(run().data_, expected("n2c4h7w9k6r3s2-f32", X, W))
    kept = [12, 15, 16, 17] if recording else [15, 16, 17]
    assert list(layer._streams.by_stream) == [(stream, 0) for stream in (0, 10, 11, *kept)]
    assert layer.allocated_bytes == 1000 * len(layer._streams.by_stream)
    cupy.stream = 13
    near(run().data_, expected("n2c4h7w9k6r3s2-f32", X, W))


def test_a_plan_is_not_kept_to_be_told_of_a_threads_end(cupy: FakeCupy) -> None:
    layer = LayerPlan(
        Plan.make(cupy.runtime("cuda"), Problem.parse("n2c4h7w9k6r3s2-f32"), Config.parse("reference:v=1"))
    )
    cupy.stream, gone = PER_THREAD, weakref.ref(layer)
    layer(cupy.array(X), layer.pack(cupy.array(W)))
    assert len(layer._streams.by_stream) == 2
    del layer
    gc.collect()
    assert gone() is None


def test_so_does_what_it_needed_for_arrays_that_are_not_aligned(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_unaligned(monkeypatch)
    problem = Problem.parse("n2c4h7w9k6r3s2-f32")
    layer = LayerPlan(Plan.make(cupy.runtime("cuda"), problem, Config.parse("reference:v=1")))
    packed = layer.pack(cupy.array(W))
    room = np.empty(X.size + 4, F)
    start = next(i for i in range(4) if (room.ctypes.data + 4 * i) % 16 == 4)
    x = room[start : start + X.size].reshape(X.shape)
    x[...] = X
    cupy.stream, held = PER_THREAD, list[int]()

    def call() -> None:
        near(layer(cupy.array(x), packed).data_, expected("n2c4h7w9k6r3s2-f32", X, W))
        held.append(layer.allocated_bytes)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert held == [64] and layer.allocated_bytes == 0 and not layer.plan._unaligned


def packs_w(monkeypatch: pytest.MonkeyPatch, workspace: int) -> None:
    """Have the reference kernel want a workspace and a filter that is packed, which is to copy it."""
    plain = Reference.blueprint

    def blueprint(family: Any, problem: Problem, *given: Any, aligned: bool = True) -> Any:
        found = plain(family, problem, *given, aligned)
        partial = Buffer("partial", workspace)
        return replace(found, pack=(), packed_bytes=problem.w_bytes, workspace=(partial,))

    def copied(self: Plan, w: Any, packed: Any, stream: int | None = None) -> None:
        packed.owner[: w.nbytes] = w.owner

    monkeypatch.setattr(Reference, "blueprint", blueprint)
    monkeypatch.setattr(Plan, "pack_into", copied)


def test_what_each_stream_holds_counts(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all streams, packed filters included; where that is too much, other layers are evicted."""
    packs_w(monkeypatch, 1000)
    monkeypatch.setattr(arguments.layer, "open_runtime", cupy.runtime)
    texts = ("n2c4h7w9k6r3s2-f32", "n2c4h7w9k6r3s2-f32+relu")
    x, w, packed = cupy.array(X), cupy.array(W), W.nbytes
    held = []
    for text in texts:
        for cupy.stream in (5, 6):
            tw.conv2d(x, w, activation="relu" if "relu" in text else None)
        found = {str(key[0].problem): one for key, one in plan_cache._plans.items()}[text]
        held.append(weakref.ref(found.layer))
        assert found.allocated_bytes == found.layer.allocated_bytes == 3 * 1000 + 2 * packed
        del found
    monkeypatch.setattr(cupy.runtime("cuda"), "memory_bytes", lambda: 8 * (7000 + 5 * packed), raising=False)
    first, second = (one() for one in held)
    cupy.stream = 7
    near(tw.conv2d(x, w, activation="relu").data_, expected(texts[1], X, W))
    assert second.allocated_bytes == 4 * 1000 + 3 * packed and len(plan_cache._plans) == 2, "just what may be"
    del first, second
    cupy.stream = 8
    tw.conv2d(x, w, activation="relu")
    assert held[0]() is None and held[1]() is not None and len(plan_cache._plans) == 1
    assert not plan_cache.make_room(cupy.runtime("cuda"), held[1]().plan), "it is the one to be kept"
    assert plan_cache.make_room(cupy.runtime("cuda")) and held[1]() is None
