"""NumPy arrays in and out of conv2d and of plans; what a call says of families, configs and tunes."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from api_samples import B, F, W, X, Z, expected, near, own_cache, some

import tilewright as tw
from tilewright import api, errors
from tilewright.checking.inputs import normal_inputs
from tilewright.dispatch import dispatch
from tilewright.dtypes import numpy_dtype
from tilewright.errors import ArrayError, RunError
from tilewright.kernels.error_bound import error_bound
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans.request import Request
from tilewright.problem import DTYPES, Problem, shapes
from tilewright.runtime.base import Runtime
from tilewright.tuning.budget import Budget
from tilewright.tuning.events import TuneResult

__all__ = ["own_cache"]  # a fixture

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
