"""What is remembered from call to call, and let go of where there is no room."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from api_samples import B, F, W, X, expected, near, own_cache, some

import tilewright as tw
from tilewright import arguments, errors
from tilewright.arrays.look import look
from tilewright.errors import ArrayError, OutOfMemory
from tilewright.plans import plan_cache
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.runtime import host

__all__ = ["own_cache"]  # a fixture


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
    with pytest.raises(OutOfMemory, match=f"^no room for an output of {needed} bytes on cpu: ."):
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
