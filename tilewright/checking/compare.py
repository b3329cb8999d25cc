"""Answers compared on the device that gave them: with a reference, and with one another."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from tilewright.checking.launcher import Launcher
from tilewright.kernels.blueprint import Launch
from tilewright.kernels.error_bound import ErrorBound
from tilewright.kernels.untuned import tools
from tilewright.problem import Problem
from tilewright.runtime.base import Memory

_BIG = 1e300


@dataclass(frozen=True)
class Comparison:
    """What the check kernel found over all elements.

    Attributes:
        worst: largest error / bound.
        bound: the bound there.
        max_error: largest |y - ref|.
        over: errors beyond their bound.
        unequal: elements that are not the reference, rounded.
        nan: NaN where the reference is a number; elements that were never written are NaN.
        inf: infinities where the reference is a number that does not round to one.
        missed: numbers where the reference is NaN or infinite; in strict math also NaN for an infinity, or an
            infinity for NaN or for the other infinity.
    """

    worst: float
    bound: float
    max_error: float
    over: int
    unequal: int
    nan: int
    inf: int
    missed: int

    @property
    def misplaced(self) -> int:
        """Elements that are finite where the reference is not, or vice versa, or another non-finite value."""
        return self.nan + self.inf + self.missed


def compare(
    launcher: Launcher, problem: Problem, y: Memory, ref: Memory, size: Memory, bound: ErrorBound
) -> Comparison:
    """Compare y with a reference, by the bound of the answer's error at each size."""
    import numpy as np

    runtime = launcher.runtime
    blueprint = tools.check(problem, runtime.device)
    rows = np.empty((_threads(blueprint.launches[0]), tools.CHECK_FIGURES), np.float64)
    limits, found = launcher.put(np.array(astuple(bound), np.float64)), runtime.alloc(rows.nbytes)
    launcher.launch(blueprint, dict(y=y, ref=ref, size=size, limits=limits, found=found))
    runtime.download(found, rows)
    worst, there, _ = rows[rows[:, 0].argmax(), :3].tolist()
    counts = rows[:, 3:].sum(axis=0)
    return Comparison(min(worst, _BIG), there, float(rows[:, 2].max()), *(int(n) for n in counts))


def differences(launcher: Launcher, problem: Problem, a: Memory, b: Memory) -> int:
    """Count the words in which two outputs differ."""
    import numpy as np

    runtime = launcher.runtime
    blueprint = tools.same(problem, runtime.device)
    counts = np.empty(_threads(blueprint.launches[0]), np.uint32)
    found = runtime.alloc(counts.nbytes)
    launcher.launch(blueprint, dict(a=a, b=b, found=found))
    runtime.download(found, counts)
    return int(counts.sum(dtype=np.int64))


def _threads(launch: Launch) -> int:
    return math.prod(launch.grid) * math.prod(launch.block)
