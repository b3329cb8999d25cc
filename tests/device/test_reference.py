"""The reference kernels against NumPy: every dtype, every part of the epilogue, on every backend here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_activation import WORDS, activated
from here import DEVICES, KERNELS

from tilewright.checking.host_reference import host_reference
from tilewright.checking.inputs import Inputs, exact_inputs, normal_inputs, stays_exact
from tilewright.checking.launcher import Launcher
from tilewright.checking.verify import Verifier
from tilewright.errors import ProblemError
from tilewright.kernels.error_bound import error_bound
from tilewright.kernels.family import Config
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.untuned.reference import numpy_conv, reference_f64
from tilewright.plans.bound_run import BoundRun
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime

REFERENCE = Config.parse("reference:v=1")
LAYER = "n2c6h9w11k10r3s2p1.2.0.1u2x1d1x2g2"
TEXTS = (
    f"{LAYER}-f32-nhwc2nchw",
    f"{LAYER}-f64-nchw2nhwc+alpha0.25+bias+add0.5+leaky0.125+maxpool3u2p1",
    *(f"{LAYER}-f64{word}" for word in WORDS),
    f"{LAYER}-f32-nhwc+bias+add+silu+avgpool2",
    f"{LAYER}-f32+alpha-2+bias+add-1+clamp-1:2+avgpool3u1",
    f"{LAYER}-f16+bias+add+relu+maxpool2",
    f"{LAYER}-f16-nhwc+clamp0:6",
    f"{LAYER}-bf16+bias+add+leaky+avgpool2u1",
    f"{LAYER}-bf16-nhwc2nchw+alpha0.1",
    f"{LAYER}-i8-nchw2nhwc+bias+add+relu+maxpool2u1p1",
    f"{LAYER}-i8",
    "n1c1h1w1k1r1s1-bf16+bias+add+silu+maxpool1",
)


def test_numpy_has_no_answer_for_an_activation_that_it_does_not_know(unknown: Epilogue) -> None:
    problem = replace(Problem.parse("n1c1h1w9k1r1s1-f32"), epilogue=unknown)
    with pytest.raises(ProblemError, match="unheard: the reference has no formula"):
        numpy_conv(problem, np.ones(problem.x_shape), np.ones(problem.w_shape))


@pytest.mark.parametrize("word", WORDS)
def test_numpys_activations_are_written_twice(word: str) -> None:
    problem = Problem.parse(f"n1c1h1w400k1r1s1-f64{word}")
    x = np.linspace(-20, 20, 400).reshape(problem.x_shape)
    y, _ = numpy_conv(problem, x, np.ones((1, 1, 1, 1)))
    np.testing.assert_allclose(y, activated(problem.epilogue, x), rtol=1e-14)


@pytest.fixture(params=DEVICES)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return open_runtime(request.param)


# NumPy is what kernels are compared with.
each_with_kernels = pytest.mark.parametrize("runtime", KERNELS, indirect=True)


def _run(runtime: Runtime, problem: Problem, data: Inputs) -> Any:
    """Run the reference as a family; return y."""
    return BoundRun.of(Plan.make(runtime, problem, REFERENCE), data.given(problem)).once()


@pytest.mark.parametrize("steps", ["", "+relu", "+bias", "+requant", "+relu+requant"])
def test_sums_wrap_as_i32_does(steps: str, runtime: Runtime) -> None:
    """Before the activation, so that a ReLU sees the wrapped sum; docs/numerics.md promises it."""
    problem = Problem.parse(f"n1c131073h1k2r1-i8{steps}")
    x, w = (np.full(shape, -128, np.int8) for shape in (problem.x_shape, problem.w_shape))
    bias = np.full(2, -(2**31), np.int32) if "bias" in steps else None
    scale = np.full(2, 2**-25, np.float32) if "requant" in steps else None
    given = {name: one for name, one in dict(x=x, w=w, bias=bias, scale=scale).items() if one is not None}
    want = {"": -2147467264, "+relu": 0, "+bias": 16384, "+requant": -64, "+relu+requant": 0}
    y = BoundRun.of(Plan.make(runtime, problem, REFERENCE), given).once()
    assert y.reshape(-1).tolist() == [want[steps]] * 2


@pytest.mark.parametrize("text", TEXTS)
def test_the_family_is_within_its_bound_and_exact_on_integers(text: str, runtime: Runtime) -> None:
    problem = Problem.parse(text)
    data = normal_inputs(problem, 3)
    y = _run(runtime, problem, data)
    ref, size = numpy_conv(problem, data.x, data.w, data.bias, data.z)
    assert error_bound(problem, 1).allows(y, ref, size).all()
    if stays_exact(problem):
        data = exact_inputs(problem, 3)
        y = _run(runtime, problem, data)
        ref, _ = numpy_conv(problem, data.x, data.w, data.bias, data.z)
        assert (y == ref.astype(y.dtype)).all()


@pytest.mark.parametrize("text", TEXTS)
@each_with_kernels
def test_the_f64_kernel_is_numpys(text: str, runtime: Runtime) -> None:
    problem = Problem.parse(text)
    verifier = Verifier(runtime, problem, 3)
    data, nothing = verifier._normal, runtime.alloc(64)
    ref, of_size = runtime.alloc(8 * problem.y_elements), runtime.alloc(8 * problem.y_elements)
    bound_to = {"bias": nothing, "z": nothing, **data.inputs, "ref": ref, "size": of_size}
    Launcher(runtime).launch(reference_f64(problem, runtime.device), bound_to)
    want, size = numpy_conv(problem, data.host.x, data.host.w, data.host.bias, data.host.z)
    assert data.size is not None
    for memory, right in ((data.ref, want), (data.size, size), (ref, want), (of_size, size)):
        found = np.empty(problem.y_shape, np.float64)
        runtime.download(memory, found)
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("text", TEXTS)
@each_with_kernels
def test_the_verifier_passes_it(text: str, runtime: Runtime) -> None:
    problem = Problem.parse(text)
    verifier = Verifier(runtime, problem, 3)
    found = verifier.check(verifier.candidate(REFERENCE), full=True)
    assert found.ok, found.reason
    assert found.exact or not stays_exact(problem)
    assert found.repeatable and found.worst <= 1


@pytest.mark.parametrize("dtype", ["f64", "f16", "f8", "i8", "q8"])
def test_the_device_makes_the_references_where_it_has_its_own_memory(dtype: str, cpu: Runtime) -> None:
    from tilewright.runtime.opencl import OpenclRuntime

    runtime = OpenclRuntime(cpu=True)
    runtime.unified = False  # as on a GPU: nothing of the host's is used in place
    problem = Problem.parse("n2c3h5w6k4r3s3p1-f32-nhwc+bias+add+maxpool2").with_dtype(dtype)
    verifier = Verifier(runtime, problem, 3)
    for data in (verifier._exact, verifier._normal):
        found, host = np.empty(problem.y_shape, np.float64), data.host
        runtime.download(data.ref, found)
        want, _ = host_reference(problem, host, sized=False)
        want = numpy_requantised(problem, want, host.scale) if problem.requantised else want
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)
    assert verifier.check(verifier.candidate(REFERENCE), full=True).ok
