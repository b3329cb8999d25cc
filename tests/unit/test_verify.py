"""The verifier on NumPy: what it accepts and what it refuses, with faults planted after each launch."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from verify_samples import CONFIG, OTHERS, PROBLEM, Fault, Host, apart, check

from tilewright.checking import host_reference
from tilewright.checking.device_inputs import DeviceInputs, upload
from tilewright.checking.fence import POISON, Fence
from tilewright.checking.inputs import normal_inputs, stays_exact, with_nonfinite
from tilewright.checking.launcher import Launcher
from tilewright.checking.verify import TooSlow, Verifier
from tilewright.kernels.family import Launch
from tilewright.kernels.untuned.reference import Reference, numpy_conv
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.runtime.host import NumpyRuntime

__all__ = ["apart"]  # a fixture


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
    assert found.reason == "two runs differ in 1 word of 4 bytes, but the family says it is deterministic"


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
