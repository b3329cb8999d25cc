"""The floor: counts against a loop by hand, the peak of each dtype, and rates that a kernel outdoes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from test_problem import problems

from tilewright.device import DeviceType, Rates, for_architecture
from tilewright.floor import floor, floor_us, least_bytes, least_flops, peak_tflops
from tilewright.measuring.calibrate import outdone
from tilewright.problem import DTYPE_BYTES, Problem
from tilewright.runtime import rates

H100 = for_architecture("sm_90")
CORES = Rates(2.0, 20.0, 0.4, "calibrated")
CPU = replace(H100, backend="opencl", type=DeviceType.CPU, lanes=16, rates=CORES)
LAYER = Problem.parse("n1c64h56w56k64r3s3p1-f32")


def test_long_images_are_counted_exactly_and_at_once() -> None:
    """The model of a family asks for each of thousands of configs, while a user or a budget waits."""
    layer = Problem.parse("n1c512h1w2000000k512r1s3u2-f16")
    start = time.perf_counter()
    for _ in range(1000):
        assert least_bytes(layer, CPU) == layer.bytes - 2 * layer.c  # the last column is read by no output
    assert time.perf_counter() - start < 5.0


def test_long_filters_are_counted_exactly_and_at_once() -> None:
    """As many pairs of a tap and an output, however many taps there are."""
    taps = 1 << 24
    start = time.perf_counter()
    layer = Problem.parse(f"n1c2h1w{taps}k2r1s{taps}p0x2-f32")  # five outputs, two of them on either rim
    assert least_flops(layer) == 2 * 2 * 2 * (5 * taps - 2 * 2 - 2 * 1)
    assert least_bytes(layer, CPU) == layer.bytes
    layer = Problem.parse(f"n1c2h1w{taps}k2r1s{taps // 4}u2d3-f32")
    assert least_flops(layer) == layer.flops  # there is no padding
    assert least_bytes(layer, CPU) == layer.bytes - 2 * 4 * 2  # the second place, and the last but one
    assert time.perf_counter() - start < 2.0


@settings(max_examples=60)
@given(problems())
def test_what_lies_in_the_image_counts_once(problem: Problem) -> None:
    pr, products, touched = problem, 0, set()
    for p in range(pr.p):
        for q in range(pr.q):
            for r in range(pr.r):
                for s in range(pr.s):
                    h = p * pr.stride[0] + r * pr.dilation[0] - pr.pad[0]
                    w = q * pr.stride[1] + s * pr.dilation[1] - pr.pad[2]
                    if 0 <= h < pr.h and 0 <= w < pr.w:
                        products, _ = products + 1, touched.add((h, w))
    assert least_flops(pr) == 2 * pr.n * pr.k * pr.cg * products <= pr.flops
    x_bytes = pr.n * pr.c * len(touched) * DTYPE_BYTES[pr.dtype]
    if products:
        assert least_bytes(pr, CPU) == pr.bytes - pr.x_bytes + x_bytes
        assert least_bytes(pr, H100) == least_bytes(pr, CPU) - pr.y_bytes  # its cache has room for y


@pytest.mark.parametrize(("dtype", "gpu", "cpu"), [
    ("f64", 1.0, 0.5), ("f32", 1.0, 1.0), ("f16", 1070.5 / 65, 1.0), ("bf16", 1070.5 / 65, 1.0),
    ("i8", 2141 / 65, 4.0),
])  # fmt: skip
def test_each_dtype_has_its_own_peak(dtype: str, gpu: float, cpu: float) -> None:
    assert peak_tflops(H100, dtype) == pytest.approx(65.0 * gpu, rel=1e-3)
    assert peak_tflops(CPU, dtype) == pytest.approx(0.4 * cpu)
    problem = LAYER.with_dtype(dtype)
    assert floor(problem, CPU).arithmetic_us == pytest.approx(least_flops(problem) / 0.4e6 / cpu)


def test_gpus_without_tensor_cores_multiply_i8_by_dot4_and_f16_as_f32() -> None:
    old = replace(H100, arch="sm_61")
    assert (peak_tflops(old, "i8"), peak_tflops(old, "f16")) == (4 * 65.0, 65.0)
    assert peak_tflops(replace(H100, arch="sm_120"), "f64") == pytest.approx(65.0 / 64)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    rates.keep(CPU, CPU.rates)
    return SimpleNamespace(device=CPU)


def test_a_kernel_that_beats_the_floor_raises_the_rates(runtime: Any) -> None:
    least = floor_us(LAYER, CPU)
    assert outdone(runtime, LAYER, 1.2 * least) == least and runtime.device is CPU
    fast = 0.8 * least
    assert outdone(runtime, LAYER, fast) == pytest.approx(fast) == floor_us(LAYER, runtime.device)
    assert rates.calibrated(CPU).rates == runtime.device.rates  # for later processes
    assert runtime.device.rates.read_gbs == CPU.rates.read_gbs and runtime.device.rates.f32_tflops > 0.48


def test_rates_are_raised_so_far_and_no_further(runtime: Any) -> None:
    """However often: of a layer that takes as long as an empty kernel, nothing is left to divide by."""
    measured, reads = CPU.rates, Problem.parse("n1c4096h1w1k4096r1s1-f32")
    for problem in (LAYER, reads, LAYER, reads):
        least = floor(problem, CPU)
        for share in (1e-6, 0.6):
            outdone(runtime, problem, least.empty_us + share * (least.us - least.empty_us))
    raised = runtime.device.rates
    assert raised.f32_tflops == pytest.approx(1.3 * measured.f32_tflops)
    assert raised.read_gbs == pytest.approx(1.3 * measured.read_gbs)
    later = SimpleNamespace(device=rates.calibrated(CPU))  # a process that comes later
    assert later.device.rates == raised and rates.measured(CPU) == measured
    assert outdone(later, LAYER, CPU.rates.empty_us + 1e-6) == floor_us(LAYER, later.device)  # type: ignore[arg-type]
    assert later.device.rates == raised


def test_fewer_multiplications_prove_nothing(runtime: Any) -> None:
    fast = 0.8 * floor_us(LAYER, CPU)
    assert outdone(runtime, LAYER, fast, 16 / 36) > fast and runtime.device is CPU


def test_memory_and_f64_are_raised_too(runtime: Any) -> None:
    reads, wide = Problem.parse("n1c4096h1w1k4096r1s1-f32"), LAYER.with_dtype("f64")
    for problem in (reads, wide):
        fast = 0.9 * floor_us(problem, runtime.device)
        assert outdone(runtime, problem, fast) == pytest.approx(fast)
    assert runtime.device.rates.read_gbs > 22 and runtime.device.rates.f32_tflops > 0.44


def test_times_that_say_nothing_of_the_rates_leave_them(runtime: Any) -> None:
    """Of a device that was never calibrated; or shorter than what an empty kernel takes."""
    never = SimpleNamespace(device=replace(CPU, rates=replace(CORES, source="datasheet")))
    least = floor_us(LAYER, CPU)
    assert outdone(never, LAYER, 0.8 * least) == least and never.device.rates.source == "datasheet"  # type: ignore[arg-type]
    for us in (CORES.empty_us, 0.5 * CORES.empty_us):
        assert outdone(runtime, LAYER, us) == least and runtime.device is CPU


def test_what_datasheets_say_stays(runtime: Any) -> None:
    gpu = SimpleNamespace(device=replace(H100, rates=replace(H100.rates, source="calibrated")))
    for dtype in ("f16", "tf32", "accurate"):
        problem = Problem.parse(f"n8c64h56w56k64r3s3p1-{dtype}")
        fast = floor(problem, H100).empty_us + 0.9 * floor(problem, H100).arithmetic_us
        outdone(gpu, problem, fast)  # type: ignore[arg-type]
        assert gpu.device.rates.f32_tflops == H100.rates.f32_tflops, dtype
    f32 = Problem.parse("n8c64h56w56k64r3s3p1-f32")
    fast = floor(f32, H100).empty_us + 0.9 * floor(f32, H100).arithmetic_us
    assert outdone(gpu, f32, fast) == pytest.approx(fast)  # type: ignore[arg-type]
    assert gpu.device.rates.f32_tflops > 1.1 * H100.rates.f32_tflops, "f32 is measured there, too"
