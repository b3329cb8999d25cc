"""The verifier on arrays that are not aligned; the fences around what is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from verify_samples import CONFIG, OTHERS, PROBLEM, Host, apart, check, off, unwritten

from tilewright.checking.fence import GUARD_BYTES, Fence
from tilewright.checking.verify import Verifier
from tilewright.errors import OutOfMemory
from tilewright.kernels.family import Buffer
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Memory
from tilewright.runtime.host import NumpyRuntime

__all__ = ["apart"]  # a fixture


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
