"""PoCL builds our kernels without its header of declarations, and with it whatever else there is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright.errors import CompileError, DeviceError
from tilewright.kernels import family
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.runtime.opencl import OPTIONS, OpenclRuntime
from tilewright.tuning.search import rank


@pytest.fixture
def runtime() -> Iterator[OpenclRuntime]:
    try:
        found = open_runtime("cpu")
    except DeviceError as error:
        pytest.skip(str(error))
    assert isinstance(found, OpenclRuntime)
    if not found.quick:
        pytest.skip("no PoCL")
    yield found
    found.quick = True  # others use it, too


@pytest.mark.parametrize("text", [f"n1c4h6w6k8r3s3-{kind}" for kind in ("f32+silu", "f16", "i8+requant")])
def test_ours_need_no_header(runtime: OpenclRuntime, text: str) -> None:
    problem = Problem.parse(text)
    kind = family("adapted" if problem.requantised else "direct")
    config, _ = rank(problem, runtime.device, kind, 1)[0]
    for program in kind.blueprint(problem, runtime.device, config).programs:
        runtime.load(runtime.compile(program))
    assert runtime.quick


def test_others_are_built_with_it(runtime: OpenclRuntime) -> None:
    source = "__kernel void one(__global float *y) { y[0] = sinpi(y[0]); }"
    assert [kernel.function_name for kernel in runtime._program(source, OPTIONS).all_kernels()] == ["one"]
    assert not runtime.quick


def test_a_fault_of_a_kernel_is_still_told(runtime: OpenclRuntime) -> None:
    with pytest.raises(CompileError, match="undeclared"):
        runtime._program("__kernel void one(__global float *y) { y[0] = nowhere; }", OPTIONS)
    assert runtime.quick
