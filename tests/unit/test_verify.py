"""The verifier on NumPy: what it accepts and what it refuses, with faults planted after each launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.kernels.family import Blueprint, Config, Launch
from tilewright.kernels.reference import numpy_conv
from tilewright.problem import Problem
from tilewright.runtime.base import Built, Loaded, Memory, Resources
from tilewright.runtime.host import NumpyRuntime
from tilewright.tuning.fence import GUARD_BYTES, Fence
from tilewright.tuning.inputs import exact_inputs, normal_inputs, with_nonfinite
from tilewright.tuning.verify import TooSlow, Verifier

PROBLEM = Problem.parse("n1c3h5w6k4r3s3p1-f32-nhwc+bias")
CONFIG = Config.parse("reference:v=1")
Fault = Callable[[int, Any, Any], None]  # number of the run, y, x


class Host(NumpyRuntime):
    """NumPy, able to check and compare, with a fault after each run of a candidate."""

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__()
        self.fault, self.runs = fault, 0

    def compile(self, blueprint: Blueprint) -> Built:
        if blueprint.source == "reference.cu":
            return super().compile(blueprint)
        return Built("key", blueprint.source.encode(), {blueprint.launches[0].kernel: Resources()}, 0.0)

    def load(self, built: Built) -> Loaded:
        return super().load(built) if b"SIZE_N" in built.binary else Loaded(None)

    def launch(
        self, loaded: Loaded, launch: Launch, memories: Sequence[Memory], stream: int | None = None
    ) -> None:
        if launch.kernel == "check":
            _check(*memories)
        elif launch.kernel == "same":
            _same(*memories)
        else:
            super().launch(loaded, launch, memories, stream)
        if launch.kernel == "reference" and self.fault:
            y, x = memories[4], memories[0]
            self.fault(self.runs, y.owner.view(np.float32), x.owner.view(np.float32))
        self.runs += launch.kernel == "reference"


def _check(y: Memory, ref: Memory, size: Memory, limits: Memory, found: Memory) -> None:
    """Do in NumPy what check.cu does, all in the first thread."""
    got, want = y.owner.view(np.float32).astype(np.float64), ref.owner.view(np.float64)
    slope, unit, least, _ = limits.owner.view(np.float64)
    finite, good = np.isfinite(want), np.isfinite(got)
    rows = found.owner.view(np.float64).reshape(-1, 8)
    rows[:] = 0
    bound = slope * size.owner.view(np.float64) + unit * np.abs(want) + least
    both = finite & good
    error = np.abs(got[both] - want[both])
    if error.size:
        at = int((error / bound[both]).argmax())
        rows[0, :3] = (error / bound[both])[at], bound[both][at], error.max()
    rows[0, 3] = (error > bound[both]).sum()
    rows[0, 4] = (got != want.astype(np.float32))[finite].sum()
    rows[0, 5:7] = np.isnan(got[finite]).sum(), np.isinf(got[finite]).sum()
    rows[0, 7] = (good & ~finite).sum()


def _same(a: Memory, b: Memory, found: Memory) -> None:
    counts = found.owner.view(np.uint32)
    counts[:] = 0
    counts[0] = (a.owner.view(np.uint32) != b.owner.view(np.uint32)).sum()


def check(fault: Fault | None = None, level: str = "quick", **options: Any) -> tuple[Any, Verifier]:
    runtime = Host(fault)
    verifier = Verifier(runtime, PROBLEM, seed=1)
    return verifier.check(verifier.candidate(CONFIG), level, **options), verifier


def test_the_right_answer_passes_everything() -> None:
    found, verifier = check(level="full")
    assert found.ok, found.reason
    assert found.exact and found.repeatable and not verifier.spoilt
    assert 0 < found.worst <= 1
    assert found.max_error <= 1e-6
    assert found.bound > 0


def test_unwritten_elements_are_seen() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        y.view(np.uint32)[7] = 0xFFFFFFFF

    found, _ = check(fault)
    assert not found.ok
    assert "integers: 1 elements were not written or are NaN" in found.reason


def test_infinite_elements_are_seen() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        y[7] = np.inf

    assert "1 elements are infinite" in check(fault)[0].reason


def test_a_wrong_corner_is_seen() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        y[-1] += 1

    found, _ = check(fault)
    assert not found.exact
    assert "integers: 1 elements differ from the exact answer" in found.reason


def test_what_only_normal_numbers_show() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        if run > 0:
            y[:] *= np.float32(1.001)

    found, _ = check(fault)
    assert found.exact
    assert found.worst > 1
    assert "beyond the bound" in found.reason


def test_one_unit_in_the_last_place_is_not_exact() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        y[:] = np.nextafter(y, np.float32(np.inf))

    found, _ = check(fault)
    assert not found.exact and not found.ok


def test_two_runs_must_agree() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        if run == 2:
            y[3] = np.nextafter(y[3], np.float32(np.inf))

    found, _ = check(fault)
    assert not found.repeatable
    assert found.reason == "two runs differ in 1 elements, but the family says it is deterministic"


def test_two_runs_may_differ_if_the_family_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.kernels.reference import Reference

    def fault(run: int, y: Any, x: Any) -> None:
        if run == 2:
            y[3] = np.nextafter(y[3], np.float32(np.inf))

    monkeypatch.setattr(Reference, "deterministic", lambda self, config: False)
    found, _ = check(fault)
    assert found.ok
    assert not found.repeatable


def test_families_that_are_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.kernels.reference import Reference

    def fault(run: int, y: Any, x: Any) -> None:
        y[:] = np.nextafter(y, np.float32(np.inf))

    monkeypatch.setattr(Reference, "exact", False, raising=False)
    found, _ = check(fault)
    assert found.ok and not found.exact


def test_a_changed_input_is_seen_and_spoils() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        x[0] += 1

    found, verifier = check(fault)
    assert "the kernel changed x" in found.reason
    assert verifier.spoilt


def test_nan_must_stay_where_the_reference_has_it() -> None:
    def hides(run: int, y: Any, x: Any) -> None:
        y[:] = np.where(np.isfinite(y), y, 0)

    def spreads(run: int, y: Any, x: Any) -> None:
        y[:] += np.float32(0) * x.sum()

    for fault in (hides, spreads):
        assert check(fault)[0].ok
        assert "NaN and infinity in x" in check(fault, "full")[0].reason


def test_a_slow_candidate_is_given_up() -> None:
    with pytest.raises(TooSlow, match="too long"):
        check(slow_us=1e-3)


def test_each_run_is_announced() -> None:
    stages: list[str] = []
    check(level="full", stage=stages.append)
    assert stages == ["run"] * 5


@pytest.mark.parametrize("nbytes", [4, 100, 128, 4096 + 12])
def test_fence_sees_both_sides(nbytes: int) -> None:
    runtime = NumpyRuntime()
    fence = Fence(runtime)
    inside = fence.alloc(nbytes, "a thing")
    assert (inside.owner == 0xFF).all()
    assert fence.damage() == ""
    inside.owner[:] = 0  # the inside is nobody's business
    assert fence.damage() == ""
    whole = np.frombuffer(inside.owner.base, np.uint8)
    start = inside.address - whole.ctypes.data
    for offset, where in ((-1, "before the start"), (nbytes, "past the end"), (-GUARD_BYTES, "before")):
        whole[start + offset] = 0
        found = fence.damage()
        assert found.startswith(f"wrote 1 bytes {where}") and found.endswith("of a thing")
        assert fence.damage() == ""  # mended


def test_fence_guards_what_a_plan_allocates() -> None:
    fence = Fence(NumpyRuntime())
    memory = fence.guarded.alloc(64)
    assert memory.nbytes == 64
    assert fence.guarded.device.backend == "numpy"
    assert "a workspace buffer" in _touched(fence, memory)


def _touched(fence: Fence, memory: Memory) -> str:
    whole = np.frombuffer(memory.owner.base, np.uint8)
    whole[memory.address - whole.ctypes.data + 64] ^= 1
    return fence.damage()


@pytest.mark.parametrize(
    "text", ["n1c3h5w6k4r3s3p1-f32", "n1c40000h2w2k2r1s1-f32", "n1c2000000h1w1k1r1s1-f32"]
)
def test_exact_inputs_are_exact(text: str) -> None:
    problem = Problem.parse(text)
    data = exact_inputs(problem, 0)
    assert np.array_equal(data.x, np.round(data.x)) and np.any(data.x) and np.any(data.w)
    terms = problem.cg * problem.r * problem.s
    assert terms * np.abs(data.x).max() * np.abs(data.w).max() + np.abs(data.bias).max() <= 2**24
    y, _ = numpy_conv(problem, data.x, data.w, data.bias)
    assert np.array_equal(y, y.astype(np.float32))


def test_inputs_hang_on_the_seed() -> None:
    a, b, c = (normal_inputs(PROBLEM, seed) for seed in (1, 1, 2))
    assert np.array_equal(a.x, b.x) and not np.array_equal(a.x, c.x)
    assert a.x.dtype == np.float32 and a.x.shape == PROBLEM.x_shape


@pytest.mark.parametrize("size", [1, 2, 100])
def test_with_nonfinite(size: int) -> None:
    array = np.zeros((size, 1), np.float32)
    changed = with_nonfinite(array, 0)
    assert np.isnan(changed).sum() == 1
    assert np.isinf(changed).sum() == min(size - 1, 1)
    assert np.isfinite(array).all() and math.prod(changed.shape) == size
