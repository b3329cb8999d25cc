"""Which answers of other libraries count as right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.checking.deviation import _LIMITS, Deviation, deviation
from tilewright.checking.inputs import normal_inputs
from tilewright.dtypes import numpy_dtype
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.problem import Problem
from tilewright.problem.activations import ACTIVATIONS, Activation
from tilewright.problem.epilogue import Epilogue


def of_tf32(a: Any) -> Any:
    """Cut off to the 11 bits of tf32."""
    return (a.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def sums(kept: str) -> Callable[[Any], Any]:
    """Round products to a dtype, and each sum of them, one after the other."""
    dtype = numpy_dtype(kept)

    def total(products: Any) -> Any:
        y = np.zeros(products.shape[:-1], dtype)
        for i in range(products.shape[-1]):
            y = (y + products[..., i].astype(dtype)).astype(dtype)
        return y

    return total


@pytest.mark.parametrize(
    ("dtype", "way", "right"),
    [
        ("f64", "f64", True), ("f64", "f32", False),
        ("f32", "f32", True), ("f32", "tf32", False), ("f32-accurate", "tf32", False),
        ("f32-tf32", "tf32", True), ("f32-tf32", "bf16", False),
        ("f16", "f32", True), ("f16", "f16", False), ("bf16", "f32", True), ("bf16", "bf16", False),
    ],
)  # fmt: skip
def test_the_arithmetic_of_a_dtype_is_told_from_a_coarser_one(dtype: str, way: str, right: bool) -> None:
    problem = Problem.parse(f"n1c2304h8w8k8r1s1-{dtype}")
    data = normal_inputs(problem, 3)
    truth, _ = numpy_conv(problem, data.x, data.w, data.bias, data.z)
    x, w = (of_tf32(a) if way == "tf32" else a for a in (data.x, data.w))
    wide = np.float64 if dtype == "f64" else np.float32
    products = np.einsum("nchw,kcrs->nkhwc", x.astype(wide), w.astype(wide))
    y = sums("f32" if way == "tf32" else way)(products).astype(numpy_dtype(problem.dtype_out))
    found = deviation(y, truth)
    assert (found.wrong(problem) == "") == right, found


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("n1c64h5w6k4r1s1-f32", 8.0), ("n1c16h5w6k4r2s2-f16", 8.0),
        ("n1c64h5w6k4r1s1-f64+alpha-2+bias", 17.0), ("n1c64h5w6k4r1s1-bf16+add-4", 12.0),
        ("n1c64h5w6k4r1s1-f32-tf32+leaky-3", 24.0), ("n1c64h5w6k4r1s1-f32+leaky0.25", 8.0),
        ("n1c64h5w6k4r1s1-f8+clamp-9:70", 8.0),
    ],
)  # fmt: skip
def test_errors_are_of_the_size_of_an_output(text: str, size: float) -> None:
    _is_of_size(Problem.parse(text), size)


def test_any_activation_with_a_slope_stretches_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACTIVATIONS, "bent", Activation("bent", ("slope",)))
    layer = Problem.parse("n1c64h5w6k4r1s1-f32")
    for low, size in ((-3.0, 24.0), (0.5, 8.0)):
        _is_of_size(replace(layer, epilogue=Epilogue(act="bent", low=low)), size)


def _is_of_size(problem: Problem, size: float) -> None:
    """Errors of all elements together, and the largest of one alone."""
    rms, one = _LIMITS[problem.precision]

    def wrong(most: float, mean: float) -> bool:
        return bool(Deviation(1000, 0, 9, most * one * size, 1000 * (mean * rms * size) ** 2).wrong(problem))

    assert not wrong(0.999, 0.999)
    assert wrong(1.001, 0.0) and wrong(0.0, 1.001)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_one_element_that_is_wrong_or_not_finite_is_seen(dtype: str) -> None:
    problem = Problem.parse(f"n1c16h1w1000k300r1s1-{dtype}")
    truth = np.zeros(problem.y_shape)
    for bad, told in ((4.0, "of an output's size"), (np.nan, "1 element not"), (np.inf, "1 element not")):
        y = truth.astype(numpy_dtype(dtype))
        y[0, -1, 0, -1] = bad
        assert told in deviation(y, truth).wrong(problem)
    assert deviation(truth.astype(numpy_dtype(dtype)), truth).wrong(problem) == ""
    assert "of shape (300," in deviation(truth[0], truth).wrong(problem)


def test_whole_numbers_are_equal_or_wrong() -> None:
    problem = Problem.parse("n1c16h1w10k30r1s1-i8")
    truth = np.full(problem.y_shape, 1000.0)
    y = truth.astype(np.int32)
    assert deviation(y, truth).wrong(problem) == ""
    y[0, 3] += 1
    assert deviation(y, truth).wrong(problem) == "10 of 300 sums of whole numbers differ"
