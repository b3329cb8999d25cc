"""The error of an answer whose order of summation is unknown, as of another library's, computed on the host.

It is compared with the errors of ordinary arithmetic in its dtype; ``compare`` uses an a-priori bound.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import count
from tilewright.problem import Problem

Array = NDArray[Any]

_PART = 1 << 18  # elements that are compared at once
_SQUARED = (1e-15, 1e15)  # largest errors whose squares f32 can add up

# Of the size of one output: the rms error that honest arithmetic stays below, and the largest error of one
# element. In f32: sums in any order, Winograd included, but not products in TF32 (3e-4), bf16 or f16; in f64
# not f32; in f16 and bf16 each step of an epilogue may round, but sums may not be kept in the dtype.
_LIMITS = {"f64": (1e-13, 2e-12), "f32": (5e-5, 1e-3), "f16": (1e-3, 1e-2), "bf16": (8e-3, 8e-2)}
# In tf32 factors may be cut off, not only rounded; accurate is no worse than f32; f8 adds up in some 14 bits.
_LIMITS |= {"tf32": (1.5e-3, 1e-2), "accurate": _LIMITS["f32"], "f8": (2e-3, 2e-2)}


@dataclass(frozen=True)
class Deviation:
    """How an answer differs from the truth; elements whose error is not finite count as lost.

    If both are the same infinity there is no error.

    Attributes:
        size: elements, lost ones too.
        lost: those whose error is not finite: NaN, or never written.
        differing: those with an error that is not 0.
        most: the largest error, in units of y.
        squares: the sum of the errors' squares.
        misshapen: how the answer's shape is another one; empty if it is not.
    """

    size: int = 0
    lost: int = 0
    differing: int = 0
    most: float = 0.0
    squares: float = 0.0
    misshapen: str = ""

    def __add__(self, other: Deviation) -> Deviation:
        """Take both together."""
        return Deviation(
            self.size + other.size, self.lost + other.lost, self.differing + other.differing,
            max(self.most, other.most), self.squares + other.squares,
        )  # fmt: skip

    def wrong(self, problem: Problem) -> str:
        """Say how an answer exceeds the errors of arithmetic in its dtype; empty if it does not."""
        if self.misshapen or not self.size:
            return self.misshapen
        if self.lost:
            return f"{count(self.lost, 'element')} not finite or not written"
        if problem.is_integer:
            return f"{self.differing} of {self.size} sums of whole numbers differ" if self.differing else ""
        most_rms, most_of_one = _LIMITS[problem.precision]
        size = _size(problem)
        rms, most = math.sqrt(self.squares / self.size) / size, self.most / size
        if rms > most_rms or most > most_of_one:
            what = f"error {rms:.1e} rms, {most:.1e} at most, of an output's size"
            return f"{what}; {problem.precision} stays below {most_rms:.0e}, {most_of_one:.0e}"
        return ""


def deviation(y: Array, truth: Array) -> Deviation:
    """Compare an answer with the truth, in parts that fit a cache, side by side."""
    if y.shape != truth.shape:
        return Deviation(misshapen=f"of shape {y.shape}, not {truth.shape}")
    y, truth = y.reshape(-1), truth.reshape(-1)
    parts = [slice(start, start + _PART) for start in range(0, y.size, _PART)]
    with ThreadPoolExecutor() as pool:
        return sum(pool.map(lambda part: _of_part(y[part], truth[part]), parts), Deviation())


def _of_part(y: Array, truth: Array) -> Deviation:
    if all(array.dtype.kind in "fV" and array.dtype.itemsize <= 4 for array in (y, truth)):  # V: bf16
        return _in_f32(y, truth) or _in_f64(y, truth)
    return _in_f64(y, truth)


def _in_f32(y: Array, truth: Array) -> Deviation | None:
    """Compare floats of at most 4 bytes; None if an error, or the sum of the squares, needs f64.

    f32 represents each of them. The difference of two within a factor of two of each other is exact in f32,
    others are right to 24 bits: far more than the limits need.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.subtract(y, truth, dtype=np.float32)
    np.abs(error, out=error)
    most = float(error.max())
    if most and not _SQUARED[0] <= most <= _SQUARED[1]:  # NaN too
        return None
    return Deviation(y.size, 0, int(np.count_nonzero(error != 0)), most, float(np.dot(error, error)))


def _in_f64(y: Array, truth: Array) -> Deviation:
    """Compare numbers of any kind."""
    y, truth = y.astype(np.float64), truth.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(y == truth, 0.0, np.abs(y - truth))
    finite = np.isfinite(error)
    kept = error if finite.all() else error[finite]
    return Deviation(
        y.size, y.size - kept.size, int(np.count_nonzero(kept)), float(kept.max(initial=0.0)),
        float(np.dot(kept, kept)),
    )  # fmt: skip


def _size(problem: Problem) -> float:
    """Return the standard deviation of the activation's argument, or a little more, for normal inputs.

    A slope above 1 multiplies it.
    """
    e = problem.epilogue
    return max(1.0, e.slope) * (abs(e.alpha) * math.sqrt(problem.terms) + abs(e.beta) + e.bias)
