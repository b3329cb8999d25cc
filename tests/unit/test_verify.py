"""The verifier on NumPy: what it accepts and what it refuses, with faults planted after each launch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_activation import WORDS, activated

from tilewright.checking import host_reference
from tilewright.checking.compare import compare, differences
from tilewright.checking.device_inputs import DeviceInputs, upload
from tilewright.checking.fence import GUARD_BYTES, POISON, Fence
from tilewright.checking.inputs import exact_inputs, normal_inputs, stays_exact, with_nonfinite
from tilewright.checking.launcher import Launcher
from tilewright.checking.verify import TooSlow, Verifier
from tilewright.dtypes import numpy_dtype
from tilewright.errors import OutOfMemory
from tilewright.kernels.error_bound import ErrorBound, error_bound
from tilewright.kernels.family import Blueprint, Buffer, Config, Launch
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.untuned.reference import Reference, numpy_conv, numpy_pool
from tilewright.plans.plan import Plan
from tilewright.problem import DTYPES, Problem
from tilewright.runtime.base import Built, Loaded, Memory, Resources, Runtime
from tilewright.runtime.host import NumpyRuntime

PROBLEM = Problem.parse("n1c3h5w6k4r3s3p1-f32-nhwc+bias")
CONFIG = Config.parse("reference:v=1")
Fault = Callable[[int, Any, Any], None]  # number of the run, y, x


class Host(NumpyRuntime):
    """NumPy, able to check and compare, with a fault after each run of a candidate."""

    def __init__(self, fault: Fault | None = None, problem: Problem = PROBLEM) -> None:
        super().__init__()
        self.fault, self.runs = fault, 0
        self.dtype, self.dtype_out = numpy_dtype(problem.stored), numpy_dtype(problem.dtype_out)

    def compile(self, blueprint: Blueprint, spills: bool = False) -> Built:
        if blueprint.source == "reference.cu":
            return super().compile(blueprint)
        return Built("key", blueprint.source.encode(), {blueprint.launches[0].kernel: Resources()}, 0.0)

    def load(self, built: Built) -> Loaded:
        return Loaded(None) if built.binary.endswith(b".cu") else super().load(built)

    def launch(
        self, loaded: Loaded, launch: Launch, memories: Sequence[Memory], stream: int | None = None
    ) -> None:
        if launch.kernel == "check":
            _check(memories[0].owner.view(self.dtype_out), *memories[1:])
        elif launch.kernel == "same":
            _same(*memories)
        else:
            super().launch(loaded, launch, memories, stream)
        if launch.kernel in ("reference", "pool") and self.fault:
            first, last = memories[0], memories[-2 if launch.args[-1] == "scale" else -1]
            self.fault(self.runs, last.owner.view(self.dtype_out), first.owner.view(self.dtype))
        self.runs += launch.kernel in ("reference", "pool")


def _check(y: Any, ref: Memory, size: Memory, limits: Memory, found: Memory) -> None:
    """Do in NumPy what check.cu does, all in the first thread."""
    got, want = y.astype(np.float64), ref.owner.view(np.float64)
    slope, unit, least, overflow = limits.owner.view(np.float64)
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
    with np.errstate(all="ignore"):
        rows[0, 4] = (y != want.astype(y.dtype))[finite].sum()
    overflown = np.isinf(got) & (np.sign(got) == np.sign(want)) & (np.abs(want) + bound >= overflow)
    rows[0, 5:7] = np.isnan(got[finite]).sum(), (np.isinf(got) & ~overflown)[finite].sum()
    unlike = (np.isnan(got) != np.isnan(want)) | (np.isinf(want) & (got != want))
    rows[0, 7] = ((good | unlike) & ~finite).sum()


def _same(a: Memory, b: Memory, found: Memory) -> None:
    counts = found.owner.view(np.uint32)
    counts[:] = 0
    counts[0] = (a.owner.view(np.uint16) != b.owner.view(np.uint16)).sum()


def check(
    fault: Fault | None = None, full: bool = False, problem: Problem = PROBLEM, **options: Any
) -> tuple[Any, Verifier]:
    runtime = Host(fault, problem)
    verifier = Verifier(runtime, problem, seed=1)
    return verifier.check(verifier.candidate(CONFIG), full, **options), verifier


OTHERS = (
    "n1c3h5w6k4r3s3p1-f64-nhwc+bias+add0.5+leaky0.25",
    "n1c3h5w6k4r3s3p1-f16-nhwc+add+relu",
    "n1c3h5w6k3r3s3p1-bf16+alpha0.5+bias+add+maxpool3u2p1",
    "n1c3h5w6k4r3s3p1-f32+alpha0.3+add+silu+avgpool2",
    "n1c3h5w6k4r3s3p1-i8+bias+add+relu+maxpool2",
    "n1c3h5w6k4r3s3p1-i8+bias+relu+requant",
)


@pytest.mark.parametrize("text", OTHERS)
def test_many_images_are_referenced_a_few_at_a_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_reference, "_PART_BYTES", 2000)
    problem = replace(Problem.parse(text), n=7)
    host = normal_inputs(problem, 1)
    y, size = host_reference.host_reference(problem, host, sized=True)
    wanted = numpy_conv(problem, host.x, host.w, host.bias, host.z)
    assert np.array_equal(y, wanted[0]) and np.array_equal(size, wanted[1])
    assert np.array_equal(host_reference.host_reference(problem, host, sized=False)[0], y)


@pytest.mark.parametrize("text", OTHERS)
def test_every_dtype_and_epilogue(text: str) -> None:
    problem = Problem.parse(text)
    found, _ = check(full=True, problem=problem)
    assert found.ok, found.reason
    assert found.repeatable and found.worst <= 1
    assert found.exact or not stays_exact(problem)

    def wrong(run: int, y: Any, x: Any) -> None:
        y[3] = y[3] + y.dtype.type(1)

    found, _ = check(wrong, problem=problem)
    assert not found.ok
    assert ("integers: 1 element unlike" if stays_exact(problem) else "1 element beyond") in found.reason


@pytest.mark.parametrize("text", OTHERS)
def test_unwritten_elements_of_every_dtype_are_seen(text: str) -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        y.view(np.uint8)[: y.itemsize] = POISON

    reason = check(fault, problem=Problem.parse(text))[0].reason
    assert ("1 element unlike" if "-i8" in text else "1 element not written") in reason


@pytest.mark.parametrize("name", ["bias", "z"])
def test_a_changed_residual_or_bias_is_seen(name: str) -> None:
    problem = Problem.parse(OTHERS[1] if name == "z" else OTHERS[0])
    verifier = Verifier(Host(None, problem), problem, seed=1)
    candidate = verifier.candidate(CONFIG)
    memory = verifier._normal.inputs[name]
    memory.owner.view(verifier.runtime.dtype_out)[0] += 1  # type: ignore[attr-defined]
    assert f"the kernel changed {name}" in verifier.check(candidate, full=True).reason


def test_reading_past_an_input_is_seen_though_it_is_multiplied_by_0() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        y[5] += 0 * np.lib.stride_tricks.as_strided(x, (x.size + 1,))[x.size]

    assert "integers: 1 element not written, or NaN" in check(fault)[0].reason


@pytest.mark.parametrize("kind", ["f8", "tf32", "accurate"])
def test_a_lost_product_is_seen_though_the_epilogue_rounds(kind: str) -> None:
    """Of normal numbers it is within the bound: sums of f8 and tf32 are that inexact."""
    problem = Problem.parse(f"n1c512h5w6k4r3s3p1-{kind}+silu")
    assert check(problem=problem)[0].ok

    def fault(run: int, y: Any, x: Any) -> None:
        if run == 0:
            y[y.argmax()] -= 4

    reason = check(fault, problem=problem)[0].reason
    assert reason.startswith("integers: 1 element beyond the bound of exact sums")


def test_nan_and_infinity_lie_in_the_first_and_last_tap_of_a_filter() -> None:
    found = with_nonfinite(np.ones((4, 3, 5, 7), np.float32), 0, corners=True)
    (nan,), (infinity,) = np.argwhere(np.isnan(found)), np.argwhere(np.isinf(found))
    assert list(nan[2:]) in ([0, 0], [4, 6]) and list(infinity[2:]) in ([0, 0], [4, 6])
    assert list(nan[2:]) != list(infinity[2:])
    one = with_nonfinite(np.ones((1, 1, 1, 1), np.float32), 0, corners=True)
    assert np.isnan(one).all()


def test_writing_past_the_residual_is_seen() -> None:
    problem = Problem.parse(OTHERS[1])
    verifier = Verifier(Host(None, problem), problem, seed=1)
    z = verifier._normal.inputs["z"]
    np.frombuffer(z.owner.base, np.uint8)[z.address - z.owner.base.ctypes.data + z.nbytes] = 0
    assert "wrote 1 byte past the end of z" in verifier.check(verifier.candidate(CONFIG)).reason


class Discrete(Host):
    """A device that computes its own references, as a GPU does."""

    def __init__(self, fault: Fault | None = None, problem: Problem = PROBLEM) -> None:
        super().__init__(fault, problem)
        self.unified = False


@pytest.mark.parametrize("text", OTHERS)
def test_a_device_computes_its_own_references(text: str) -> None:
    problem = Problem.parse(text)
    host = normal_inputs(problem, 1)
    here, there = (
        upload(Launcher(kind(None, problem)), problem, host, Fence(NumpyRuntime()), sized=True)
        for kind in (Host, Discrete)
    )
    for one, other in ((here.ref, there.ref), (here.size, there.size)):
        assert one and other and np.array_equal(one.owner.view(np.float64), other.owner.view(np.float64))


@pytest.mark.parametrize("text", OTHERS)
def test_nothing_of_an_earlier_answer_is_left_when_a_candidate_runs(text: str, apart: None) -> None:
    """Else an element that is not written has the right answer of whoever ran before."""
    problem, before = Problem.parse(text), list[bool]()

    class Watched(Host):
        def launch(self, loaded: Any, launch: Launch, memories: Any, stream: int | None = None) -> None:
            if launch.kernel == "reference" and "ref" not in launch.args and not problem.epilogue.pool:
                before.append(bool((memories[launch.args.index("y")].owner == POISON).all()))
            super().launch(loaded, launch, memories, stream)

    verifier = Verifier(Watched(None, problem), problem)
    for _ in range(2):
        assert verifier.check(verifier.candidate(CONFIG), full=True).ok
    assert all(before) and len(before) == (0 if problem.epilogue.pool else 8 if problem.is_integer else 12)


def test_infinity_is_right_where_f16_overflows() -> None:
    problem = Problem.parse("n1c3h5w6k4r3s3p1-f16+alpha65536")
    found, verifier = check(problem=problem)
    assert found.ok and found.exact, found.reason
    y = np.empty(problem.y_shape, np.float16)
    verifier.runtime.download(verifier._y, y)
    assert np.isinf(y).any() and not np.isinf(y).all()

    def opposite(run: int, y: Any, x: Any) -> None:
        y[np.isinf(y)] *= -1

    assert "elements infinite" in check(opposite, problem=problem)[0].reason

    def largest(run: int, y: Any, x: Any) -> None:
        y[y == np.inf] = np.float16(65504)

    assert not check(largest, problem=problem)[0].ok


def test_the_right_answer_passes_everything() -> None:
    found, verifier = check(full=True)
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
    assert "integers: 1 element not written, or NaN" in found.reason


def test_infinite_elements_are_seen() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        y[7] = np.inf

    assert "1 element infinite" in check(fault)[0].reason


def test_a_wrong_corner_is_seen() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        y[-1] += 1

    found, _ = check(fault)
    assert not found.exact
    assert "integers: 1 element unlike the exact answer" in found.reason


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
    assert found.reason == "two runs differ in 1 element, but the family says it is deterministic"


def test_two_runs_may_differ_if_the_family_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        if run == 2:
            y[3] = np.nextafter(y[3], np.float32(np.inf))

    monkeypatch.setattr(Reference, "deterministic", lambda self, config: False)
    found, _ = check(fault)
    assert found.ok
    assert not found.repeatable


def test_families_that_are_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_nan_must_stay_where_the_reference_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def hides(run: int, y: Any, x: Any) -> None:
        y[:] = np.where(np.isfinite(y), y, 0)

    def spreads(run: int, y: Any, x: Any) -> None:
        y[:] += np.float32(0) * x.sum()

    def adds_one(run: int, y: Any, x: Any) -> None:
        if not np.isfinite(y).all():
            y[np.flatnonzero(np.isfinite(y))[0]] = np.nan

    for fault in (hides, spreads, adds_one):
        assert check(fault)[0].ok
        assert "NaN and infinity in x" in check(fault, full=True)[0].reason
    monkeypatch.setattr(Reference, "plain", False)
    assert check(spreads, full=True)[0].ok, "the family does not sum the formula's own products"


def test_an_infinity_must_keep_its_sign_and_not_be_nan() -> None:
    def turns(run: int, y: Any, x: Any) -> None:
        y[:] = np.where(np.isinf(y), -y, y)

    def spoils(run: int, y: Any, x: Any) -> None:
        y[:] = np.where(np.isinf(y), np.float32(np.nan), y)

    for fault in (turns, spoils):
        assert check(fault)[0].ok
        assert "NaN and infinity in x" in check(fault, full=True)[0].reason


def test_writing_past_what_holds_the_nan_spoils_too() -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        if run == 3:
            x.base[x.ctypes.data - x.base.ctypes.data + x.nbytes] = 0

    found, verifier = check(fault, full=True)
    assert found.reason == "wrote 1 byte past the end of x"
    assert verifier.spoilt


def test_a_slow_candidate_is_given_up() -> None:
    with pytest.raises(TooSlow, match="too long"):
        check(slow_us=1e-3)


@pytest.mark.parametrize("late", [{0}, {1}, {0, 1}])
def test_a_host_may_be_late_once(late: set[int]) -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        time.sleep(0.4 * (run in late))

    with pytest.raises(TooSlow) if len(late) > 1 else nullcontext():
        check(fault, slow_us=200_000)


def test_a_slow_candidate_that_changes_an_input_spoils() -> None:
    """Else the next one, which is innocent, would be blamed for it."""

    def fault(run: int, y: Any, x: Any) -> None:
        x[0] += 1

    for planted in (None, fault):
        verifier = Verifier(Host(planted), PROBLEM, seed=1)
        with pytest.raises(TooSlow):
            verifier.check(verifier.candidate(CONFIG), slow_us=1e-3)
        assert verifier.spoilt == (planted is not None)


def test_each_run_is_announced() -> None:
    stages: list[str] = []
    check(full=True, stage=stages.append)
    assert stages == ["run"] * 3 + ["reference", "run"] * 2 + ["compile", "inputs"]


@pytest.mark.parametrize("full", [False, True])
def test_an_answer_that_is_wrong_is_looked_at_no_further(full: bool) -> None:
    """Another reference takes longer than all that is known by then."""

    def fault(run: int, y: Any, x: Any) -> None:
        y[-1] += 1

    stages: list[str] = []
    assert not check(fault, full, stage=stages.append)[0].ok
    assert stages == ["run"] * 3 + ["inputs"]


def test_the_host_looks_through_the_inputs_in_a_stage_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has little time on a GPU; large inputs take a host seconds, whatever the candidate."""
    stages, looked = ["none"], list[str]()
    changed = DeviceInputs.changed

    def seen(self: DeviceInputs, runtime: Runtime) -> str:
        looked.append(stages[-1])
        return changed(self, runtime)

    monkeypatch.setattr(DeviceInputs, "changed", seen)
    check(full=True, stage=stages.append)
    with pytest.raises(TooSlow):
        check(slow_us=1e-3, stage=stages.append)
    assert looked == ["inputs"] * 4


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference kernel is another program where arrays are not aligned."""
    plain = Reference.blueprint

    def blueprint(family: Any, *given: Any, aligned: bool = True) -> Any:
        found = plain(family, *given, aligned)
        return found if aligned else replace(found, workspace=(*found.workspace, Buffer("copied", 64)))

    monkeypatch.setattr(Reference, "blueprint", blueprint)


def off(run: int, y: Any, x: Any) -> None:
    """A fault where arrays are not aligned."""
    if y.ctypes.data % 16:
        assert y.ctypes.data % 16 == y.itemsize
        y[2] += 1


def unwritten(run: int, y: Any, x: Any) -> None:
    """An element that is not written where arrays are not aligned."""
    if y.ctypes.data % 16:
        y.view(np.uint8)[: y.itemsize] = POISON


@pytest.mark.parametrize("text", OTHERS)
def test_what_runs_on_arrays_that_are_not_aligned_is_checked_too(text: str, apart: None) -> None:
    problem, stages = Problem.parse(text), list[str]()
    found, _ = check(full=True, problem=problem, stage=stages.append)
    assert found.ok and stages[-4:] == ["compile", "inputs", "run", "inputs"], found.reason
    assert check(off, problem=problem)[0].ok, "in a full check only"
    for fault in (off, unwritten):
        found, verifier = check(fault, full=True, problem=problem)
        assert "arrays that are not aligned: 1 element not within the bound" in found.reason
        assert not verifier.spoilt


def test_what_runs_there_is_freed_before_the_candidate_is_timed(apart: None) -> None:
    verifier = Verifier(Host(), PROBLEM)
    candidate = verifier.candidate(CONFIG)
    before = candidate.plan.allocated_bytes
    assert verifier.check(candidate, full=True).ok
    assert candidate.plan.allocated_bytes == before


def test_inputs_are_not_aligned_there_either(apart: None) -> None:
    places: list[tuple[int, int]] = []
    check(lambda run, y, x: places.append((x.ctypes.data % 16, y.ctypes.data % 16)), full=True)
    assert places[-1] == (4, 4) and set(places[:-1]) == {(0, 0)}


def test_it_may_not_write_beside_them(apart: None) -> None:
    def fault(run: int, y: Any, x: Any) -> None:
        if y.ctypes.data % 16:
            whole = np.frombuffer(y.base, np.uint8)
            whole[y.ctypes.data - whole.ctypes.data - 1] = 0

    found, verifier = check(fault, full=True)
    assert found.reason == "wrote 1 byte before the start of y" and verifier.spoilt


def test_what_cannot_be_made_for_other_arrays_is_no_fault(
    apart: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Plan, buffer: Buffer) -> Memory:
        raise OutOfMemory("no room")

    verifier = Verifier(Host(None, PROBLEM), PROBLEM, seed=1)
    candidate = verifier.candidate(CONFIG)
    monkeypatch.setattr(Plan, "_alloc", refuse)
    assert verifier.check(candidate, full=True).ok


@pytest.mark.parametrize("shift", [0, 1, 4])
@pytest.mark.parametrize("nbytes", [4, 100, 128, 4096 + 12])
def test_fence_sees_both_sides(nbytes: int, shift: int) -> None:
    runtime = NumpyRuntime()
    fence = Fence(runtime)
    inside = fence.alloc(nbytes, "a thing", shift)
    assert (inside.owner == 0xFF).all()
    assert fence.damage() == ""
    inside.owner[:] = 0  # the inside is nobody's business
    assert fence.damage() == ""
    whole = np.frombuffer(inside.owner.base, np.uint8)
    start = inside.address - whole.ctypes.data
    guards = (-1, "before the start"), (-GUARD_BYTES, "before the start"), (nbytes, "past the end")
    for offset, where in (*guards, (nbytes + GUARD_BYTES - 1, "past the end")):
        whole[start + offset] = 0
        found = fence.damage()
        assert found.startswith(f"wrote 1 byte {where}") and found.endswith("of a thing")
        assert fence.damage() == ""  # mended
    assert not inside.owner.any()


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


EXACT = {  # and the unit that all sums are whole multiples of, the mean of a window among them
    "n1c3h5w6k4r3s3p1-f32": 1, "n1c40000h2w2k2r1s1-f32": 1, "n1c2000000h1w1k1r1s1-f32": 1,
    "n1c3h9w9k4r3s3-f32+alpha0.125+bias+add-4+clamp-9:70+avgpool4": 2**-7,
    "n1c9h4w4k4r3s3-f16+bias+add": 1, "n1c9h4w4k4r3s3-bf16+relu+maxpool2": 1,
    "n1c9h4w4k4r3s3-f64+alpha0.0001220703125+add+avgpool2": 2**-15,
    "n1c99h4w4k4r3s3-i8+bias+add+relu": 1,
}  # fmt: skip


@pytest.mark.parametrize("text", EXACT)
def test_exact_inputs_are_exact(text: str) -> None:
    problem, unit = Problem.parse(text), EXACT[text]
    assert stays_exact(problem)
    data = exact_inputs(problem, 0)
    assert (data.z is None) == (not problem.epilogue.add)
    for array in (data.x, data.w, data.bias) + ((data.z,) if problem.epilogue.add else ()):
        wide = array.astype(np.float64)
        assert np.array_equal(wide, np.round(wide)) and np.any(wide)
    y, size = numpy_conv(problem, data.x, data.w, data.bias, data.z)
    bits = {"f64": 53, "i8": 31}.get(problem.dtype, 24)
    assert size.max() / unit <= 2**bits
    assert np.array_equal(y / unit, np.round(y / unit))


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("n1c131072h2w2k1r1s1-f32", 8), ("n1c131072h2w2k1r1s1-f32+avgpool2", 5),
        ("n1c131072h2w2k1r1s1-f32+maxpool2", 8), ("n1c262144h1w1k1r1s1-f32", 8),
        ("n1c262144h1w1k1r1s1-f32+add", 7), ("n1c262144h1w1k1r1s1-f32+bias", 7),
        ("n1c400000h1w1k1r1s1-f32", 6), ("n1c131072h2w2k1r1s1-f32+alpha-1+avgpool2", 5),
        ("n1c131072h2w2k1r1s1-f32+add-4+avgpool2", 5), ("n1c100000h1w1k1r1s1-f32+alpha4+bias", 6),
        ("n1c100000h1w1k1r1s1-f32+alpha4+add", 6), ("n1c12h1w1k1r1s1-f32+add9.5367431640625e-07", 1),
    ],
)  # fmt: skip
def test_integers_are_as_large_as_all_sums_stay_exact(text: str, most: int) -> None:
    """Sums of ``most`` squared, and all that is added, times a window of four, are at most 2^24."""
    problem = Problem.parse(text)
    assert abs(exact_inputs(problem, 0).x).max() == most and stays_exact(problem)


@pytest.mark.parametrize("text", [
    "n1c3h5w6k4r3s3-f32+silu", "n1c3h5w6k4r3s3-f32+add0.3", "n1c3h5w6k4r3s3-f32+avgpool3",
    "n1c3h5w6k4r3s3-f32+alpha1e-9+add", "n1c3h5w6k4r3s3-f32+alpha9.5367431640625e-07+add16+avgpool2",
    "n1c16000000h2w2k1r2s2-f32",
])  # fmt: skip
def test_what_cannot_stay_exact_is_known(text: str) -> None:
    problem = Problem.parse(text)
    assert not stays_exact(problem)
    if problem.x_elements < 1e6:
        assert abs(exact_inputs(problem, 0).x).max() >= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_have_the_dtypes_of_the_problem(dtype: str) -> None:
    problem = Problem.parse(f"n1c3h5w6k4r3s3p1-{dtype}+add")
    for data in (normal_inputs(problem, 1), exact_inputs(problem, 1)):
        assert data.x.dtype == data.w.dtype == numpy_dtype(dtype)
        assert data.z is not None and data.bias.dtype == data.z.dtype == numpy_dtype(problem.dtype_out)
        assert (data.x.shape, data.z.shape) == (problem.x_shape, problem.z_shape)
    x = normal_inputs(problem, 1).x
    assert np.unique(x).size > 40
    assert np.array_equal(x, x.astype(np.float32)) == (dtype != "f64"), "f64 has factors of 53 bits"


@pytest.mark.parametrize(("channels", "most"), [(66_000, 127), (67_000, 63), (400_000, 31)])
def test_i8_numbers_are_as_large_as_their_sums_fit_an_i32(channels: int, most: int) -> None:
    data = normal_inputs(Problem.parse(f"n1c{channels}h1w1k1r1s1-i8"), 1)
    assert data.x.min() == data.w.min() == -most and data.x.max() == data.w.max() == most


@pytest.mark.parametrize("channels", [1, 16, 512, 67_000])
def test_sums_fill_an_i8_and_a_few_are_beyond_it(channels: int) -> None:
    """Of answers that are nearly all 0, or nearly all as large as can be, many wrong ones look right."""
    problem = Problem.parse(f"n1c{channels}h1w2k64r1s1-q8")
    data = normal_inputs(problem, 1)
    sums, _ = numpy_conv(problem, data.x, data.w, data.bias, data.z)
    y = abs(numpy_requantised(problem, sums, data.scale).astype(np.int64))
    assert 35 < np.median(y) < 75 and 0 < (y >= 127).mean() < 0.25


def rounded_chain(values: Any, dtype: Any) -> Any:
    """Sum one after the other, rounding each time."""
    total = np.zeros(values.shape[:-1], dtype)
    for i in range(values.shape[-1]):
        total = (total + values[..., i].astype(dtype)).astype(dtype)
    return total


@pytest.mark.parametrize("words", [
    "", "+bias+add-3", "+alpha0.3+bias+leaky-2", *WORDS, "+add+silu+avgpool3u1", "+clamp-1:1+maxpool3u2p1",
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_the_bound_holds_for_a_naive_sum(dtype: str, words: str) -> None:
    problem = Problem.parse(f"n1c50h8w8k9r1s1-{dtype}{words}")
    data, e = normal_inputs(problem, 2), problem.epilogue
    acc = np.float64 if dtype == "f64" else np.float32
    x, w, bias = (a.astype(acc) for a in (data.x, data.w, data.bias))
    v = rounded_chain(np.einsum("nchw,kcrs->nkhwc", x, w), acc) * acc(e.alpha)
    v = v + acc(e.beta) * data.z.astype(acc) if data.z is not None else v
    v = v + bias.reshape(-1, 1, 1) if e.bias else v
    v = activated(e, v)
    assert v.dtype == acc
    ref, size = numpy_conv(problem, data.x, data.w, data.bias, data.z)
    y = numpy_pool(problem, v, v)[0].astype(numpy_dtype(dtype))
    limits = error_bound(problem, 50)
    assert limits.allows(y, ref, size).all()
    assert not limits.allows(y + 4 * limits.of(ref, size) + 1e-3, ref, size).any()


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


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("kind", "unlike"), [("f32", 5), ("f16", 5), ("f64", 5), ("f32-tf32", 1), ("f32-accurate", 1)]
)
def test_what_is_not_finite_is_compared_by_its_kind_in_strict(kind: str, unlike: int, cpu: Runtime) -> None:
    """By the kernel itself; three answers are right, and one is a number, which is wrong in any math."""
    problem = Problem.parse(f"n1c1h1w9k1r1s1-{kind}")
    y = np.array([INF, -INF, NAN, -INF, INF, NAN, INF, 1.0, 0.0], numpy_dtype(problem.dtype_out))
    ref = np.array([INF, -INF, NAN, INF, -INF, INF, NAN, 1.0, INF])
    launcher = Launcher(cpu)
    given = launcher.put(y), launcher.put(ref), launcher.put(np.ones(9))
    figures = compare(launcher, problem, *given, error_bound(problem, 1))
    assert (figures.missed, figures.nan, figures.inf, figures.unequal) == (unlike, 0, 0, 0)


def test_the_kernel_counts_what_is_wrong_and_how(cpu: Runtime) -> None:
    """Bounds are 0.75 here. From 65520 on an f16 is infinite, which is right there if the sign is."""
    problem, limits = Problem.parse("n1c1h1w8k1r1s1-f16"), ErrorBound(0.5, 0.0, 0.25, 65520.0)
    y = np.array([2.0, 2.75, 3.0, 1.0, INF, -INF, INF, NAN], np.float16)
    ref = np.array([2.0, 2.0, 2.0, 2.0, 65519.5, 65519.5, 60000.0, 1.0])
    launcher = Launcher(cpu)
    given = launcher.put(y), launcher.put(ref), launcher.put(np.ones(8))
    found = compare(launcher, problem, *given, limits)
    assert (found.over, found.unequal, found.nan, found.inf, found.missed) == (2, 7, 1, 2, 0)
    assert (found.worst, found.bound, found.max_error) == (1 / 0.75, 0.75, 1.0)


def test_an_error_of_any_size_is_a_finite_multiple_of_its_bound(cpu: Runtime) -> None:
    """Records are JSON, which has no infinity."""
    problem, launcher = Problem.parse("n1c1h1w1k1r1s1-f64"), Launcher(cpu)
    one, zero = launcher.put(np.ones(1)), launcher.put(np.zeros(1))
    found = compare(launcher, problem, one, zero, zero, error_bound(problem, 1))
    assert found.over == 1 and 1e100 < found.worst < math.inf


def test_few_threads_look_at_all_elements(cpu: Runtime) -> None:
    problem, launcher = Problem.parse("n1c1h1w10007k1r1s1-f32"), Launcher(cpu)
    zeros, ones, ref = (launcher.put(np.full(10007, n, t)) for n, t in ((0, "f4"), (1, "f4"), (0, "f8")))
    assert compare(launcher, problem, ones, ref, ref, error_bound(problem, 1)).over == 10007
    assert differences(launcher, problem, zeros, ones) == 10007
