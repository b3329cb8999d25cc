"""Tensors of PyTorch, on the CPU, in and out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from api_samples import B, W, X, Z, expected, near, own_cache, some

import tilewright as tw
from tilewright.dtypes import FULL
from tilewright.errors import ArrayError
from tilewright.problem import DTYPES

__all__ = ["own_cache"]  # a fixture


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
