"""Arrays in and out: NumPy, PyTorch on the CPU, and as on a GPU with a pretended CuPy."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
import threading
import warnings
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_samples import B, F, W, X, Z, expected, near, own_cache, some
from fake_cuda import FakeCupy, cupy

import tilewright as tw
from tilewright import api, arguments, errors
from tilewright.arrays.look import look
from tilewright.arrays.use import current_stream
from tilewright.arrays.view import ArraySpec
from tilewright.checking.inputs import normal_inputs
from tilewright.dispatch import dispatch
from tilewright.dtypes import FULL, numpy_dtype
from tilewright.errors import ArrayError, OutOfMemory, RunError
from tilewright.kernels.error_bound import error_bound
from tilewright.kernels.family import Buffer, Config, Launch
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.untuned.reference import Reference, numpy_conv
from tilewright.plans import plan_cache, stream_plans
from tilewright.plans.binding import Binding
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.plans.request import Request
from tilewright.plans.streams import PER_THREAD
from tilewright.problem import DTYPES, Problem, shapes
from tilewright.runtime import host
from tilewright.runtime.base import Runtime
from tilewright.store import own
from tilewright.tuning.budget import Budget
from tilewright.tuning.events import TuneResult

__all__ = ["cupy", "own_cache"]  # fixtures

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("n2c4h7w9k6r3s2-f32", {}),
    ("n2c4h7w9k6r3s2p1-f32+bias", {"padding": 1, "bias": B}),
    ("n2c4h7w9k6r3s2p1x2u2d2x1-f32", {"padding": (1, 2), "stride": 2, "dilation": [2, 1]}),
    ("n2c4h7w9k6r3s2p0.2.1.3u3x1-f32", {"padding": (0, 2, 1, 3), "stride": (3, 1)}),
    ("n2c4h7w9k6r3s2p1.1.0.1-f32", {"padding": "same"}),
    ("n2c4h7w9k6r3s2u2-f32", {"padding": "valid", "stride": 2}),
    ("n2c4h7w9k6r3s2p1.1.0.0u2x3-f32", {"padding": "same", "stride": (2, 3)}),
    ("n2c4h7w9k6r3s2p2.2.1.1d2-f32", {"padding": "same", "dilation": 2}),
    ("n2c4h7w9k6r3s2p1-f32", {"padding": np.int64(1), "stride": np.int32(1)}),
]


@pytest.mark.parametrize("device", ["numpy", None])
@pytest.mark.parametrize(("text", "options"), CALLS, ids=[t for t, _ in CALLS])
def test_conv2d(text: str, options: dict[str, Any], device: str | None) -> None:
    near(tw.conv2d(X, W, device=device, **options), expected(text, X, W, options.get("bias")))


def test_arrays_of_kinds_that_were_there_before_are_still_looked_at() -> None:
    plan = tw.plan(tw.Problem.parse("n2c4h9w9k6r3s3p1-f32"), "cpu", config="reference:v=1")
    x, w = np.arange(2 * 4 * 81, dtype="f").reshape(2, 4, 9, 9), np.ones((6, 4, 3, 3), "f")
    packed, out = plan.pack(w), np.empty(plan.problem.y_shape, "f")
    expected = plan(x, packed, out=out).copy()
    odd = np.frombuffer(b"." + x.tobytes(), "f", offset=1).reshape(x.shape)  # of the same strides
    for given in (x, odd, x.copy()):
        for to in (None, np.empty_like(out)):
            np.testing.assert_array_equal(plan(given, packed, out=to), expected)
    shared = np.empty(x.size + out.size, "f")
    over = shared[: x.size].reshape(x.shape), shared[8 : 8 + out.size].reshape(out.shape)
    with pytest.raises(ArrayError, match="out: overlaps x in memory"):
        plan(over[0], packed, out=over[1])
    out.flags.writeable = False
    with pytest.raises(ArrayError, match="out: is read-only"):
        plan(x, packed, out=out)


EPILOGUES: list[tuple[str, dict[str, Any]]] = [
    ("+add", {"z": Z}),
    ("+bias+add0.5+relu", {"bias": B, "z": Z, "beta": 0.5, "activation": "relu"}),
    ("+alpha-0.25", {"alpha": -0.25}),
    ("+alpha0.1", {"alpha": np.float32(0.1), "beta": np.float64(1)}),
    ("+leaky0.01", {"activation": "leaky"}),
    ("+leaky0.2", {"activation": ("leaky", 0.2)}),
    ("+leaky0.2", {"activation": ["leaky", 0.2]}),
    ("+leaky0.2", {"activation": "leaky0.2"}),
    ("+leaky1e-05", {"activation": ("leaky", 1e-5)}),
    ("+silu", {"activation": "silu"}),
    ("+clamp0:6", {"activation": "relu6"}),
    ("+clamp-1:2.5", {"activation": ("clamp", -1, np.float32(2.5))}),
    ("+maxpool2", {"pool": "maxpool2"}),
    ("+maxpool3u2p1", {"pool": tw.Pool("max", 3, 2, 1)}),
    ("+bias+add+silu+avgpool2u1", {"bias": B, "z": Z, "activation": "silu", "pool": "avgpool2u1"}),
]


@pytest.mark.parametrize("device", ["numpy", None])
@pytest.mark.parametrize(("words", "options"), EPILOGUES, ids=[t for t, _ in EPILOGUES])
def test_conv2d_with_an_epilogue(words: str, options: dict[str, Any], device: str | None) -> None:
    text = f"n2c4h7w9k6r3s2-f32{words}"
    want = expected(text, X, W, options.get("bias"), options.get("z"))
    near(tw.conv2d(X, W, device=device, **options), want)
    plan = tw.plan(text, device=device or "cpu")
    near(plan(X, plan.pack(W), options.get("bias"), options.get("z")), want)


@pytest.mark.parametrize("device", ["numpy", None])
@pytest.mark.parametrize("dtype", [*DTYPES, "f8", "q8"])
def test_conv2d_of_every_dtype(dtype: str, device: str | None) -> None:
    problem = Problem.parse(f"n2c4h7w9k6r3s2p1-{dtype}-nhwc+bias+add+relu+maxpool2")
    data = normal_inputs(problem, 4)
    options = dict(z=data.z, padding=1, activation="relu", pool="maxpool2", layout="nhwc", device=device)
    options |= {} if data.scale is None else {"scale": data.scale}
    y = tw.conv2d(data.x, data.w, data.bias, **options)
    assert y.dtype == numpy_dtype(problem.dtype_out) and y.shape == problem.y_shape
    ref, size = numpy_conv(problem, data.x, data.w, data.bias, data.z)
    ref = numpy_requantised(problem, ref, data.scale) if problem.requantised else ref
    assert error_bound(problem, 1).allows(y, ref, size).all()
    out = np.empty_like(y)
    assert tw.conv2d(data.x, data.w, data.bias, out=out, **options) is out
    assert np.array_equal(out, y)


def test_residual_with_gaps_and_of_an_empty_batch() -> None:
    text = "n2c4h7w9k6r3s2-f32+add"
    wide = some(2, 6, 5, 16)
    near(tw.conv2d(X, W, z=wide[..., ::2]), expected(text, X, W, z=np.ascontiguousarray(wide[..., ::2])))
    assert tw.conv2d(X[:0], W, z=Z[:0]).shape == (0, 6, 5, 8)
    before = Z.copy()
    tw.conv2d(X, W, z=Z)
    assert np.array_equal(Z, before)


def test_inputs_that_start_anywhere() -> None:
    raw = np.zeros(X.nbytes + 1, np.uint8)[1:].view(F).reshape(X.shape)
    raw[:] = X
    near(tw.conv2d(raw, W), expected("n2c4h7w9k6r3s2-f32", X, W))


def test_same_padding_gives_as_many_outputs_as_inputs() -> None:
    for size in range(1, 9):
        for stride in range(1, 4):
            y = tw.conv2d(
                some(1, 1, size, size), some(1, 1, 3, 4), stride=stride, padding="same", device="numpy"
            )
            assert y.shape[2:] == (-(-size // stride),) * 2


def test_groups_and_nhwc() -> None:
    w = some(6, 2, 3, 3)
    near(tw.conv2d(X, w, groups=2, device="numpy"), expected("n2c4h7w9k6r3s3g2-f32", X, w))
    x = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
    near(tw.conv2d(x, W, layout="nhwc", device="numpy"), expected("n2c4h7w9k6r3s2-f32-nhwc", x, W))


def test_input_with_gaps_is_copied_on_the_cpu() -> None:
    wide = some(2, 4, 14, 18)
    for x in (
        wide[:, :, ::2, ::2],
        wide[:, :, 13::-2, ::2],
        np.asfortranarray(X),
        np.broadcast_to(X[:1], X.shape),
    ):
        near(tw.conv2d(x, W, device="numpy"), expected("n2c4h7w9k6r3s2-f32", np.ascontiguousarray(x), W))
    turned = np.ascontiguousarray(W.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
    near(tw.conv2d(X, turned, B[::-1], device="numpy"), expected("n2c4h7w9k6r3s2-f32+bias", X, W, B[::-1]))


def test_read_only_and_unaligned_inputs() -> None:
    raw = np.zeros(X.nbytes + 4, np.uint8)[4:].view(F).reshape(X.shape)
    raw[:] = X
    raw.flags.writeable = False
    near(tw.conv2d(raw, W, device="cpu"), expected("n2c4h7w9k6r3s2-f32", X, W))


def test_out_is_written_and_returned() -> None:
    out = np.full((2, 6, 5, 8), np.nan, F)
    assert tw.conv2d(X, W, out=out, device="numpy") is out
    near(out, expected("n2c4h7w9k6r3s2-f32", X, W))


def test_empty_batch() -> None:
    assert tw.conv2d(X[:0], W).shape == (0, 6, 5, 8)
    out = np.empty((0, 6, 5, 8), F)
    assert tw.conv2d(X[:0], W, out=out) is out


def test_conv2d_sees_a_filter_that_changed_in_place() -> None:
    w = W.copy()
    before = tw.conv2d(X, w)
    w *= 2
    near(tw.conv2d(X, w), 2 * before)


def test_plan() -> None:
    plan = tw.plan("n2c4h7w9k6r3s2-f32+bias", device="cpu")
    assert plan.problem == Problem.parse("n2c4h7w9k6r3s2-f32+bias") and plan.deterministic
    assert "slow" in plan.note and "reference" in repr(plan) and plan.workspace_bytes == 0
    packed = plan.pack(W)
    want = expected("n2c4h7w9k6r3s2-f32+bias", X, W, B)
    near(plan(X, packed, B), want)
    out = np.empty(want.shape, F)
    assert plan(X, packed, bias=B, out=out) is out
    near(out, want)
    assert tw.plan(plan.problem, device="cpu") is plan
    assert "n2c4h7w9k6r3s2" in repr(packed)


def test_arrays_that_fitted_let_no_others_through() -> None:
    """A layer remembers which kinds of arrays it takes; the same are not looked at again, all others are."""
    plan = tw.plan("n2c4h7w9k6r3s2p1-f32+bias", device="cpu")
    packed, out = plan.pack(W), np.empty(plan.problem.y_shape, np.float32)
    wide = np.zeros((2, 8, 7, 9), np.float32)
    wide[:, ::2] = X
    for _ in range(3):
        near(plan(X, packed, B, out=out), expected("n2c4h7w9k6r3s2p1-f32+bias", X, W, B))
        near(plan(wide[:, ::2], packed, B), out)
    for arrays, text in (
        ({"x": X.astype(np.float64)}, "dtype float64"),
        ({"x": X[:, :3]}, "shape"),
        ({"x": np.ma.masked_array(X)}, "masked"),
        ({"x": X.astype(">f4")}, "byte order"),
        ({"bias": None}, "bias: is missing"),
        ({"bias": B[:-1]}, "shape"),
        ({"out": X.copy()}, "shape"),
        ({"z": out}, "z: is given"),
    ):
        with pytest.raises(ArrayError, match=text):
            plan(**{"x": X, "packed_w": packed, "bias": B, "out": out, **arrays})
    both = np.zeros(2 * out.size, np.float32)
    x, y = both[: X.size].reshape(X.shape), both[X.size - 1 :][: out.size].reshape(out.shape)
    with pytest.raises(ArrayError, match="overlaps x"):
        plan(x, packed, B, out=y)
    out.flags.writeable = False
    with pytest.raises(ArrayError, match="read-only"):
        plan(X, packed, B, out=out)


def test_what_hides_its_type_is_no_other_arrays_measure() -> None:
    class Masked(np.ndarray):
        mask = None

    image, tensor = X.copy(), type("tensor", (), {})()
    for _ in range(2):
        assert look("x", weakref.proxy(image)).shape == X.shape
        with pytest.raises(ArrayError, match="a weakproxy was given|a .*ProxyType was given"):
            look("x", weakref.proxy(tensor))
        assert look("x", X).shape == X.shape
        with pytest.raises(ArrayError, match="masked"):
            look("x", X.view(Masked))
        with pytest.raises(ArrayError, match="dtype"):
            look("x", np.array(["a"], np.dtypes.StringDType(na_object=[])))


def test_factors_that_change_in_place_are_read_at_every_call() -> None:
    class Number:
        value = 2.0
        __hash__ = None  # type: ignore[assignment]

        def __float__(self) -> float:
            return self.value

    alpha, kept = Number(), []
    for alpha.value in (2.0, 3.0, 2.0):
        near(tw.conv2d(X, W, alpha=alpha), alpha.value * tw.conv2d(X, W))
    torch = pytest.importorskip("torch")
    alpha = torch.tensor(2.0)
    near(tw.conv2d(X, W, alpha=alpha), 2.0 * tw.conv2d(X, W))
    alpha.mul_(2.0)
    near(tw.conv2d(X, W, alpha=alpha), 4.0 * tw.conv2d(X, W))
    weakref.finalize(alpha, kept.append, "gone")
    del alpha
    gc.collect()
    assert kept == ["gone"]


def test_words_that_are_equal_are_not_the_same() -> None:
    """What is read of a call's words is remembered, but True is no stride, and (1, 1) no (1, True)."""
    for stride in (1, (1, 1)):
        assert tw.conv2d(X, W, stride=stride).shape == (2, 6, 5, 8)
    for stride in (True, 1.0, (1, True), (1, 1.0)):
        with pytest.raises(errors.ProblemError, match="stride="):
            tw.conv2d(X, W, stride=stride)  # type: ignore[arg-type]


def test_layers_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: dict[Any, Any] = {}
    monkeypatch.setattr(arguments.layer, "_problems", problems)
    monkeypatch.setattr(arguments.layer, "MOST_PROBLEMS", 2)
    for alpha in (1.0, 2.0, 3.0, 4.0):
        near(tw.conv2d(X, W, alpha=alpha), alpha * tw.conv2d(X, W))
        assert 0 < len(problems) <= 2


def test_what_is_remembered_of_arrays_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    specs: dict[Any, Any] = {}
    monkeypatch.setattr("tilewright.arrays.look._specs", specs)
    monkeypatch.setattr("tilewright.arrays.look._MOST_SPECS", 4)
    for size in range(1, 20):
        assert look("x", np.zeros(size, np.float32)).shape == (size,)
        assert len(specs) <= 4


def test_what_is_made_of_a_plan_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: workspaces and packed filters are memory of a device."""
    monkeypatch.setattr(plan_cache, "MOST_PLANS", 1)

    def made(text: str) -> weakref.ref[LayerPlan]:
        plan = tw.plan(text, device="numpy")
        assert tw.plan(text, device="numpy") is plan
        return weakref.ref(plan)

    first = made("n2c4h7w9k6r3s2-f32")
    assert first() is not None
    second = made("n2c4h7w9k6r3s2-f32+bias")
    assert first() is None and second() is not None
    tw.forget("n2c4h7w9k6r3s2-f32")
    assert second() is not None
    tw.forget("n2c4h7w9k6r3s2-f32+bias")
    assert second() is None
    third = made("n2c4h7w9k6r3s2-f32")
    tw.forget()
    assert third() is None
    with pytest.raises(tw.ProblemError, match="an int was given"):
        tw.forget(3)  # type: ignore[arg-type]


def test_a_call_that_finds_no_room_lets_go_of_other_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tw.plan("n2c4h7w9k6r3s2-f32", device="numpy")
    packed, run = plan.pack(W), Plan.run
    other = weakref.ref(tw.plan("n2c4h7w9k6r3s2-f32+bias", device="numpy"))
    monkeypatch.setattr(Plan, "allocated_bytes", 1)

    def full(self: Plan, *memories: Any, **more: Any) -> None:
        if other() is not None:
            raise OutOfMemory("no room")
        run(self, *memories, **more)

    monkeypatch.setattr(Plan, "run", full)
    near(plan(X, packed), expected("n2c4h7w9k6r3s2-f32", X, W))
    assert tw.plan("n2c4h7w9k6r3s2-f32", device="numpy") is plan
    other = weakref.ref(plan)
    with pytest.raises(OutOfMemory, match="no room"):
        plan(X, packed)


def test_a_filter_that_finds_no_room_lets_go_of_other_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, pack = tw.plan("n2c4h7w9k6r3s2-f32", device="numpy"), Plan.pack
    other = weakref.ref(tw.plan("n2c4h7w9k6r3s2-f32+bias", device="numpy"))
    monkeypatch.setattr(Plan, "allocated_bytes", 1)

    def full(self: Plan, *given: Any) -> Any:
        if other() is not None:
            raise OutOfMemory("no room")
        return pack(self, *given)

    monkeypatch.setattr(Plan, "pack", full)
    near(plan(X, plan.pack(W)), expected("n2c4h7w9k6r3s2-f32", X, W))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("filters", "needed"), [(1, "256,000,064,000,004"), (1 << 20, "268,435,523,108,868,194,304")]
)
def test_no_room_for_the_output(library: str, filters: int, needed: str) -> None:
    x, w = some(1, 1, 1, 1), np.zeros((filters, 1, 1, 1), F)
    if library == "torch":
        x, w = (pytest.importorskip("torch").from_numpy(a) for a in (x, w))
    with pytest.raises(OutOfMemory, match=f"^no room for an output of {needed} bytes on cpu$"):
        tw.conv2d(x, w, padding=4_000_000, device="numpy")


def test_no_room_for_a_copy_of_an_input() -> None:
    x, w = np.broadcast_to(F(0), (1, 1, 1 << 20, 1 << 24)), np.ones((1, 1, 1, 1), F)
    with pytest.raises(OutOfMemory, match="^no room for a copy of x of 70,368,744,177,664 bytes on cpu, "):
        tw.conv2d(x, w, stride=1 << 20, device="numpy")


@pytest.mark.parametrize("channels", [1, 1 << 12])
def test_no_room_for_a_padded_image(channels: int) -> None:
    """NumPy's path copies it, padded, however few the outputs."""
    x, w, far = np.ones((1, channels, 1, 1), F), np.ones((1, channels, 2, 2), F), 1 << 24
    with pytest.raises(OutOfMemory, match="^NumPy: no room for f64 copies of the arrays of n1c.*u16777216"):
        tw.conv2d(x, w, stride=far, padding=far, dilation=far, device="numpy")


def test_another_error_of_numpy_is_not_taken_for_too_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "numpy_sums", lambda *given: np.ones(2) + np.ones(3))
    with pytest.raises(ValueError, match="broadcast"):
        tw.conv2d(some(1, 4, 3, 3), some(4, 4, 1, 1), device="numpy")


def test_a_shipped_layer_has_a_name() -> None:
    """As on the command line, whose words are said where there is none."""
    assert shapes.as_problem("R3") == Problem.parse("n1c64h56w56k64r1s1-f32")
    assert shapes.as_problem("resnet:R3") == shapes.as_problem(" R3 ") == shapes.as_problem("R3")
    for given, told in [
        ("resnet:R10x", "suite resnet has no such layer; it has R1, "), ("r12", "did you mean R12[?]$"),
        ("R99", "not a suite, layer, shape file or problem string; suite resnet has R1, "),
        ("resnet", "a suite of several layers; give one of them: R1, "), ("n1c8h6", "missing k, r"),
    ]:  # fmt: skip
        with pytest.raises(tw.ProblemError, match=told):
            tw.plan(given, device="numpy")
    assert str(shapes.as_problem("n1c8h8w8k8r3s3p1")) == "n1c8h8w8k8r3s3p1-f32"


def test_plan_of_a_chosen_config() -> None:
    plan = tw.plan("n2c4h7w9k6r3s2-f32", device="numpy", config="reference:v=1")
    assert plan.note == "chosen by hand (not verified)" and str(plan.config) == "reference:v=1"
    near(plan(X, plan.pack(W)), expected("n2c4h7w9k6r3s2-f32", X, W))


def test_a_tune_that_finds_nothing_says_what_became_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "n2c4h7w9k6r3s2-f32"
    tried = tuple(
        tw.Record(text, "d", "direct", f"direct:t={t}", "compile", True, reason="spilled") for t in (1, 2)
    )
    monkeypatch.setattr("tilewright.dispatch.once.tune", lambda *_, **__: TuneResult(None, tried, (), 1.0, 0))
    with pytest.raises(RunError, match=f"{text}: no config was right.*2 compile: spilled.*larger"):
        tw.tune(text, "cpu")


def test_a_tune_that_finds_nothing_says_so_where_python_drops_asserts() -> None:
    code = """
import tilewright as tw
from tilewright.dispatch import once
from tilewright.tuning.events import TuneResult
once.tune = lambda *_, **__: TuneResult(None, (), (), 1.0, 0)
try:
    tw.tune("c1h1k1r1", "cpu")
except tw.RunError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=60)
    assert "no config was right" in done.stdout, done.stderr


@pytest.mark.parametrize("family", ["direct", ["direct"], ("direct",)])
def test_a_family_is_one_name_or_several(family: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.dispatch import once
    from tilewright.kernels import FAMILIES, pick

    asked: list[Any] = []

    def fake(*arguments: Any, **_: Any) -> TuneResult:
        asked.extend((arguments[2].budget, arguments[2].families))
        return TuneResult(None, (), (), 0.0, 0)

    monkeypatch.setattr(once, "tune", fake)
    with pytest.raises(RunError):
        tw.tune("c1h1k1r1", "cpu", 5, family=family)
    assert asked == [Budget(seconds=5.0), ("direct",)]
    assert [one.name for one in pick(FAMILIES, family)] == ["direct"]


def test_conv2d_chooses_among_the_families_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def asks(request: Request, *given: Any) -> Any:
        asked.append(request.families)
        return dispatch.layer_plan(Request(request.problem), *given)

    monkeypatch.setattr(api, "layer_plan", asks)
    for family, named in (("plain", ("plain",)), (["direct", "gemm"], ("direct", "gemm")), (None, ())):
        near(tw.conv2d(X, W, family=family), expected("n2c4h7w9k6r3s2-f32", X, W))
        assert asked.pop() == named


@pytest.mark.parametrize("family", ["plain", ["plain", "direct"]])
def test_plain_families_are_taken_without_kernels_too(family: Any) -> None:
    """NumPy's reference sums up the formula's own products: whoever asks for no more than that gets it."""
    near(tw.conv2d(X, W, device="numpy", family=family), expected("n2c4h7w9k6r3s2-f32", X, W))
    plan = tw.plan("n2c4h7w9k6r3s2-f32", device="numpy", family=family)
    slow = "slow: the reference kernel, since no other could be used (the numpy backend runs no kernels)"
    assert (plan.config.family, plan.note) == ("reference", slow)
    with pytest.raises(errors.ProblemError, match="direct: the numpy backend runs no kernels$"):
        tw.plan("n2c4h7w9k6r3s2-f32", device="numpy", family="direct")


def test_a_device_of_torch_is_a_selector() -> None:
    torch = pytest.importorskip("torch")
    near(tw.conv2d(X, W, device=torch.device("cpu")), tw.conv2d(X, W))
    with pytest.raises(errors.DeviceError, match="device 'meta': must be"):
        tw.plan("c1h1k1r1", torch.device("meta"))


def test_a_config_may_be_given_by_its_name(cpu: Runtime) -> None:
    plan = tw.plan("n1c4h7w6k5r3s3p1-f32+relu+maxpool2", "cpu", config="toy:shared-tile")
    assert str(plan.config) == "textbook:bh=16.bk=4.bw=16.pool=0.step=1"


def test_many_threads_share_a_plan() -> None:
    want, wrong = expected("n2c4h7w9k6r3s2-f32", X, W), []

    def work(scale: float) -> None:
        for _ in range(10):
            if not np.allclose(tw.conv2d(X * F(scale), W, device="cpu"), want * scale, 1e-4, 1e-4):
                wrong.append(scale)

    threads = [threading.Thread(target=work, args=(s,)) for s in (1.0, 2.0, 3.0, 4.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ------------------------------------------------------------------------------- PyTorch on the CPU


@pytest.mark.long
@pytest.mark.parametrize("device", ["numpy", "cpu"])
def test_a_compiled_function_may_call_it(device: str) -> None:
    """PyTorch's compiler calls it as it is: it neither warns, nor follows how a kernel is found and run."""
    torch = pytest.importorskip("torch")
    x, w = torch.from_numpy(X), torch.from_numpy(W)
    plan = tw.plan("n2c4h7w9k6r3s2-f32", device=device)
    packed = plan.pack(w)
    bound = plan.bind(x, packed)
    want = expected("n2c4h7w9k6r3s2-f32", X, W)

    def thrice(x: Any) -> Any:
        return tw.conv2d(x, w, device=device) + plan(x, packed) + bound()

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        near(torch.compile(thrice, backend="eager")(x).numpy(), 3 * want)
    # What leads to each call and what follows it, twice: it took 169 to follow them all.
    assert torch._dynamo.utils.counters["frames"]["total"] <= 30
    torch._dynamo.reset()


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, w, b = (torch.from_numpy(a) for a in (X, W, B))
    want = expected("n2c4h7w9k6r3s2p1-f32+bias", X, W, B)
    y = tw.conv2d(x, w, b, padding=1)
    assert isinstance(y, torch.Tensor) and y.is_contiguous()
    near(y.numpy(), want)
    last = torch.channels_last
    y = tw.conv2d(x.contiguous(memory_format=last), w.contiguous(memory_format=last), b, padding=1)
    assert y.is_contiguous(memory_format=last) and not y.is_contiguous()
    near(y.numpy(), want)
    out = torch.empty_like(y)
    assert tw.conv2d(x.contiguous(memory_format=last), w, b, padding=1, out=out) is out
    near(out.numpy(), want)
    near(
        tw.conv2d(x[:, :, :, ::1].transpose(2, 3).contiguous().transpose(2, 3), w, b, padding=1).numpy(), want
    )


def test_autograd_knows_that_an_output_is_written() -> None:
    """What it saved for a backward pass must not be read as if nothing had happened."""
    torch = pytest.importorskip("torch")
    x, w = torch.from_numpy(X), torch.from_numpy(W)
    out = tw.conv2d(x, w)
    grown = torch.ones_like(out, requires_grad=True) * out
    assert tw.conv2d(x, w, out=out) is out and out._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grown.sum().backward()
    with torch.inference_mode():
        near(tw.conv2d(x, w, out=torch.empty_like(out)).numpy(), out.numpy())


def test_an_output_of_a_pytorch_that_cannot_be_told_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delattr(torch.autograd.graph, "increment_version")
    x, w = torch.from_numpy(X), torch.from_numpy(W)
    near(tw.conv2d(x, w, out=torch.empty(expected("n2c4h7w9k6r3s2-f32", X, W).shape)).numpy(),
         expected("n2c4h7w9k6r3s2-f32", X, W))  # fmt: skip


def test_tensors_of_f8_and_requantised_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, w = (torch.from_numpy(a).to(torch.float8_e4m3fn) for a in (X, W))
    y = tw.conv2d(x, w, padding=1)
    assert y.dtype == torch.float16
    want = torch.nn.functional.conv2d(x.float(), w.float(), padding=1)
    assert torch.allclose(y.float(), want, rtol=2e-3, atol=2e-3)
    whole, scale = torch.from_numpy((X * 30).astype(np.int8)), torch.linspace(0.001, 0.1, 6)
    filters, shift = torch.from_numpy((W * 30).astype(np.int8)), torch.arange(-3, 3, dtype=torch.int32) * 99
    last = whole.contiguous(memory_format=torch.channels_last)
    for given in (whole, last):
        y = tw.conv2d(given, filters, shift, scale=scale, activation="relu")
        sums = torch.nn.functional.conv2d(whole.double(), filters.double(), shift.double()).relu()
        want = (sums.float() * scale.view(1, -1, 1, 1)).round().clamp(-128, 127)
        assert y.dtype == torch.int8 and torch.equal(y.float(), want)
        assert y.is_contiguous(memory_format=torch.channels_last) == (given is last)


def test_tensors_with_a_residual_in_channels_last() -> None:
    torch = pytest.importorskip("torch")
    x, w, z = (torch.from_numpy(a) for a in (X, W, Z))
    last = torch.channels_last
    want = expected("n2c4h7w9k6r3s2-f32+add+relu+maxpool2", X, W, z=Z)
    for residual in (z, z.contiguous(memory_format=last)):
        y = tw.conv2d(x.contiguous(memory_format=last), w, z=residual, activation="relu", pool="maxpool2")
        assert y.is_contiguous(memory_format=last) and y.shape == (2, 6, 2, 4)
        near(y.numpy(), want)
        near(tw.conv2d(x, w, z=residual, activation="relu", pool="maxpool2").numpy(), want)


@pytest.mark.parametrize("sizes", [(2, 4, 1, 1), (2, 1, 7, 9), (0, 4, 7, 9), (2, 1, 1, 1), (1, 1, 1, 1)])
def test_tensors_that_lie_both_ways(sizes: tuple[int, ...]) -> None:
    """A plan for nhwc takes them as (N, C, H, W), like those in channels_last, and as (N, H, W, C)."""
    torch = pytest.importorskip("torch")
    n, c, h, w = sizes
    text = f"n{n}c{c}h{h}w{w}k6r1s1-f32-nhwc+add"
    x, filters, z = (some(*shape) for shape in (sizes, (6, c, 1, 1), (n, 6, h, w)))
    want = expected(text.replace("-nhwc", ""), x, filters, z=z)
    plan = tw.plan(text, device="numpy")
    last = torch.channels_last
    given, residual = torch.from_numpy(x), torch.from_numpy(z)
    packed = plan.pack(torch.from_numpy(filters))
    as_nhwc = given.permute(0, 2, 3, 1).contiguous(), residual.permute(0, 2, 3, 1).contiguous()
    near(plan(as_nhwc[0], packed, z=as_nhwc[1]).permute(0, 3, 1, 2).numpy(), want)
    if plan.problem.x_shape == sizes:  # as nhwc, then: the shape that the plan names
        return
    for one in (given, given.contiguous(memory_format=last)):
        y = plan(one, packed, z=residual.contiguous(memory_format=last))
        assert y.is_contiguous(memory_format=last)
        near(y.numpy(), want)
        out = torch.empty_like(y)
        assert plan(one, packed, z=residual, out=out) is out
        near(out.numpy(), want)
    with pytest.raises(ArrayError, match="shape"):
        plan(given.reshape(n, h, c, w), packed, z=residual)


@pytest.mark.parametrize("sizes", [(2, 4, 4, 4), (2, 7, 9, 4)])
def test_a_declared_nhwc_is_not_turned(sizes: tuple[int, ...]) -> None:
    """Strides of channels_last make no (N, C, H, W) of what the caller calls (N, H, W, C)."""
    torch = pytest.importorskip("torch")
    plain = torch.from_numpy(some(*sizes))
    strange = plain.contiguous(memory_format=torch.channels_last)
    want = expected(f"n2c4h{sizes[1]}w{sizes[2]}k6r3s2-f32-nhwc", plain.numpy(), W)
    for x in (plain, strange):
        y = tw.conv2d(x, torch.from_numpy(W), layout="nhwc")
        assert y.is_contiguous()
        near(y.numpy(), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_dtype(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kinds = {short: getattr(torch, full) for short, full in FULL.items()}
    x, w, z, b = (torch.from_numpy(a * 8).round() for a in (X, W, Z, B))
    x, w, out = x.to(kinds[dtype]), w.to(kinds[dtype]), kinds["i32" if dtype == "i8" else dtype]
    want = torch.nn.functional.conv2d(x.double(), w.double(), b.double(), padding=1)
    want = torch.relu(want + z_of(want).double())
    for array in (x, x.contiguous(memory_format=torch.channels_last)):
        y = tw.conv2d(array, w, b.to(out), z=z_of(want).to(out), padding=1, activation="relu")
        assert y.dtype == out
        assert torch.equal(y, want.to(torch.float32).to(out) if dtype != "f64" else want)


def z_of(like: Any) -> Any:
    """Whole numbers that all dtypes have, in the shape of a tensor."""
    import torch

    return torch.arange(like.numel()).reshape(like.shape) % 100


@pytest.mark.parametrize("layout", ["", "-nhwc"])
def test_an_output_of_a_subclass_is_made_from_its_own_input(layout: str) -> None:
    """Subclasses may hand on what they know of an image, and keep it alive."""
    torch = pytest.importorskip("torch")

    class Named(torch.Tensor):  # type: ignore[misc]
        def new_empty_strided(self, *given: Any, **named: Any) -> Any:
            made = super().new_empty_strided(*given, **named)
            made.place = self.place
            return made

    plan = tw.plan(f"n2c4h7w9k6r3s2-f32{layout}", device="numpy")
    packed, order = plan.pack(torch.from_numpy(W)), torch.channels_last if layout else torch.contiguous_format
    for name in ("a", "b", "a"):
        x = torch.from_numpy(X).contiguous(memory_format=order).as_subclass(Named)
        x.place = name
        y = plan(x, packed)
        assert type(y) is Named and y.place == name and y.is_contiguous(memory_format=order)
        near(y.numpy(), expected("n2c4h7w9k6r3s2-f32", X, W))


def test_tensors_through_a_plan_of_nhwc() -> None:
    torch = pytest.importorskip("torch")
    plan = tw.plan("n2c4h7w9k6r3s2-f32-nhwc", device="numpy")
    x, packed = torch.from_numpy(X), plan.pack(torch.from_numpy(W))
    want = expected("n2c4h7w9k6r3s2-f32", X, W)
    y = plan(x.contiguous(memory_format=torch.channels_last), packed)
    near(y.numpy(), want)
    y = plan(x.permute(0, 2, 3, 1).contiguous(), packed)
    near(y.permute(0, 3, 1, 2).numpy(), want)


# ------------------------------------------------------------------------------- as on a GPU


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


def copy_unaligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the reference copy arrays that are not aligned, as mma and hopper do."""
    plain = Reference.blueprint

    def copies(family: Any, *given: Any, aligned: bool = True) -> Any:
        blueprint = plain(family, *given, aligned)
        return blueprint if aligned else replace(blueprint, workspace=(Buffer("copied", 64),))

    monkeypatch.setattr(Reference, "blueprint", copies)


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


# ------------------------------------------------------------------------------- importing


def test_names_load_what_they_need_and_no_device() -> None:
    """How long an import takes, and that it loads no GPU library, test_imports has."""
    script = (
        "import sys; import tilewright as tw; tw.__version__;"
        "bad = {m.partition('.')[0] for m in sys.modules} & {'numpy', 'sqlite3'};"
        "assert not bad, bad; import tilewright.plans.plan;"
        "assert callable(tw.plan); from tilewright.plans.plan import Plan;"
        "tw.conv2d, tw.tune, tw.Problem, tw.Store;"
        "bad = {m.partition('.')[0] for m in sys.modules} & {'torch', 'cupy', 'cuda', 'pyopencl'};"
        "assert not bad, bad; assert set(tw.__all__) <= set(dir(tw));"
        "bad = {'TYPE_CHECKING', 'annotations', 'importlib'} & set(dir(tw)); assert not bad, bad"
    )
    root = Path(tw.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", tw.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tw, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tw.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_every_public_name() -> None:
    """They read the imports, and take a name that is not among them for an object of unknown type."""
    nodes = ast.walk(ast.parse(Path(tw.__file__).read_text(encoding="utf-8")))
    seen = {one.name: node.module for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names}
    del seen["annotations"], seen["TYPE_CHECKING"]
    assert seen == {name: f"tilewright.{tw._HOMES[name]}" for name in tw.__all__}


def test_what_is_returned_has_a_public_name() -> None:
    for call in (tw.plan, tw.tune):
        assert call.__annotations__["return"] in tw.__all__, call


def test_a_store_that_cannot_be_used_is_said_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file" / "x"))
    monkeypatch.setattr(errors, "_warned", set())
    with pytest.warns(RuntimeWarning, match="nothing new is remembered: cache folder.*TILEWRIGHT_CACHE"):
        info = own.default_store().info()
    assert info.records == 0 and not Path(info.path).is_relative_to(tmp_path)
