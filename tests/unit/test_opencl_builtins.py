"""PoCL builds our kernels without its header of declarations, and with it whatever else there is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tilewright.errors import CompileError
from tilewright.kernels import family_of
from tilewright.kernels.source import kernel_files
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.runtime.opencl import OpenclRuntime
from tilewright.runtime.opencl_programs import OPTIONS
from tilewright.search.ranking import rank


@pytest.fixture
def runtime(cpu: Runtime) -> Iterator[OpenclRuntime]:
    assert isinstance(cpu, OpenclRuntime)
    if not cpu.programs.quick:
        pytest.skip("no PoCL")
    yield cpu
    cpu.programs.quick = True  # others use it, too


@pytest.mark.parametrize("kind", ["f32+silu", "f16", "f8", "i8+requant"])
def test_ours_need_no_header(runtime: OpenclRuntime, kind: str) -> None:
    problem = Problem.parse(f"n1c4h6w6k8r3s3-{kind}")
    config, _ = rank(problem, runtime.device, family_of("direct"), 1)[0]
    for program in family_of("direct").blueprint(problem, runtime.device, config).programs:
        runtime.load(runtime.compile(program))
    assert runtime.programs.quick


def test_others_are_built_with_it(runtime: OpenclRuntime) -> None:
    source = "__kernel void one(__global float *y) { y[0] = sinpi(y[0]); }"
    assert [kernel.function_name for kernel in runtime.programs.of(source, OPTIONS).all_kernels()] == ["one"]
    assert not runtime.programs.quick


def test_a_fault_of_a_kernel_is_still_told(runtime: OpenclRuntime) -> None:
    with pytest.raises(CompileError, match="undeclared"):
        runtime.programs.of("__kernel void one(__global float *y) { y[0] = nowhere; }", OPTIONS)
    assert runtime.programs.quick


def test_hot_code_hands_vectors_on_by_their_address() -> None:
    """It may be compiled for AVX-512 where what it calls is not (PoCL on Zen 4): clang refuses others."""
    head = r"^(INLINE|HOT_INLINE|HOT)\s+([\w ]+?)\s*\*?(\w+)\(([^{;]*)\)\s*(?://[^\n]*)?\{"
    function = re.compile(head, re.MULTILINE)
    vector = re.compile(r"\b(vec|wide)\b(?!\s*(const\s*)?\*)(?! \w+\[)")
    texts = [path.read_text() for path in kernel_files().values()]
    found = [(text, match) for text in texts for match in function.finditer(text)]
    by_value = {m[3] for _, m in found if m[1] == "INLINE" and vector.search(f"{m[2]} y, {m[4]}")}
    assert {"finish_lanes", "vec_load"} <= by_value
    hot = {m[3]: text[m.end() : text.index("\n}\n", m.end())] for text, m in found if m[1] != "INLINE"}
    assert {"make_item", "run_block", "accumulate"} <= hot.keys()
    for name, body in hot.items():
        assert not by_value.intersection(re.findall(r"(\w+)\(", body)), name
