"""NumPy as a device that can check and compare, with faults planted, for the tests of the verifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.checking.fence import POISON
from tilewright.checking.verify import Verifier
from tilewright.dtypes import numpy_dtype
from tilewright.kernels.family import Blueprint, Buffer, Config, Launch
from tilewright.kernels.untuned.reference import Reference
from tilewright.problem import Problem
from tilewright.runtime.base import Built, Loaded, Memory, Resources
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
