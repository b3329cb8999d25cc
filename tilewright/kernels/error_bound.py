"""How far a correct answer may be from the reference: an a-priori bound per element.

    |y - ref| <= slope * size + unit * |ref| + least,    size = |alpha| conv(|x|, |w|) + |beta z| + |bias|

It is for numbers whose rounding errors have either sign, such as random ones: sums of terms that are all
alike may be farther off. If an answer within the bound would be rounded to infinity (an f16 ends at 65504),
infinity is correct.
Fast algorithms (``Family.plain`` is false) keep to it if all numbers are of similar size, as are those that
candidates are checked on: they mix outputs, so that a large one leaves its error in others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tilewright.arithmetic import ceil_div
from tilewright.problem import Problem

_U_F64, _U_F32 = 2.0**-53, 2.0**-24

# Of each dtype of y: unit roundoff; what its denormals may be off by (an i32 is right if it is ref);
# the number from which on rounding gives an infinity.
_OUT = {
    "f64": (_U_F64, 1e-322, math.inf),
    "f32": (_U_F32, 1e-44, 2.0**128 - 2.0**103),
    "f16": (2.0**-11, 2.0**-25, 65520.0),
    "bf16": (2.0**-8, 2.0**-134, 2.0**128 - 2.0**119),
    "i32": (0.0, 0.25, math.inf),
    "i8": (0.0, 0.25, math.inf),
}

# What a product may be off by, for its size: both factors rounded to the 11 bits of tf32; or what is left of
# them by two numbers of 11 bits each, and the product of the second two (in two of f16 fewer bits are left of
# what is 2^28 times smaller than the largest; but for a few, such numbers are not split: halves_guard.h).
_PRODUCT = {"strict": 0.0, "tf32": 2 * 2.0**-11 + 2.0**-22, "accurate": 2.0**-21}
# Tensor cores keep some 14 bits while they add up products of f8, of which a sum of f32 takes up 128 at most:
# four instructions one after the other (measured on Hopper: DeepSeek-V3, arXiv:2412.19437, section 3.3.2).
_U_F8, _CHAIN_F8 = 2.0**-13, 4

# Products of a sum from which on three products of tf32 are no less accurate than one of f32. Simulated, with
# tensor cores that cut off, beside sums one after the other: rms error 0.8 times f32's at 64, 0.5 at 256.
# Measured on an H100, beside ``direct``: 1.44 times at 72, so the simulation is trusted from 256 on only.
FEWEST_ACCURATE = 256


@dataclass(frozen=True)
class ErrorBound:
    """The coefficients of the bound; ``overflow``: the size from which y is infinite."""

    slope: float
    unit: float
    least: float
    overflow: float

    def of(self, ref: Any, size: Any) -> Any:
        """Return the bound of NumPy arrays, elementwise."""
        return self.slope * size + self.unit * abs(ref) + self.least

    def allows(self, y: Any, ref: Any, size: Any) -> Any:
        """Return for which finite ``ref`` the answer y is within the bound, elementwise."""
        import numpy as np

        y, ref = np.asarray(y, np.float64), np.asarray(ref, np.float64)
        bound = self.of(ref, size)
        with np.errstate(invalid="ignore"):
            overflown = np.isinf(y) & (y * ref > 0) & (abs(ref) + bound >= self.overflow)
            return (abs(y - ref) <= bound) | overflown


def error_bound(problem: Problem, chain: int, exact: bool = False) -> ErrorBound:
    """Return the bound of a kernel whose longest sequential chain of adds is ``chain``.

    ``exact``: of integers whose products, and sums, tf32, accurate and f8 do not round.

    Products are exact, or rounded once in an FMA, in the accumulator's precision u (f32 holds products
    of f16 and bf16 whole): |error| <= 4 sqrt(chain) u size, and more for tf32, accurate and f8 (above).
    alpha, beta z and the bias lengthen the chain by a step each. An activation stretches the error by its
    steepest slope. The maximum of a window is off by no more than the largest error in it, and its size is
    the largest there; the mean by no more than their mean, and by the steps of its own sum. The reference
    has an error of its own.
    """
    unit, least, overflow = _OUT[problem.dtype_out]
    if problem.is_integer:
        return ErrorBound(0.0, unit, least, overflow)
    u = _U_F64 if problem.dtype == "f64" else _U_F32
    more = _steps(problem)
    error = 4 * math.sqrt(chain + more) * u + 4 * math.sqrt(problem.terms + more) * _U_F64
    if not exact:
        error += _PRODUCT[problem.math]
        error += 4 * math.sqrt(_CHAIN_F8) * _U_F8 if problem.dtype == "f8" else 0.0
    return ErrorBound(_steepest(problem) * error + problem.epilogue.activation.own * u, unit, least, overflow)


def too_few(problem: Problem) -> str | None:
    """Say why tensor cores are not accurate for a problem; None if they are."""
    if problem.math == "accurate" and problem.terms < FEWEST_ACCURATE:
        return f"sums of fewer than {FEWEST_ACCURATE} products are more accurate in f32"
    return None


def too_few_at_edges(problem: Problem, fewest: int, down: bool = True) -> str | None:
    """Say why outputs at the edge would exceed the bound with minimal filtering; None if they do not.

    Minimal filtering (Winograd) mixes neighbouring outputs, so that each gets rounding errors of the others.
    The bound of an output depends on its own products alone. One that sees only padding has none, and a bound
    of 0; with fewer than ``fewest`` products the bound may be too small.

    Args:
        fewest: products from which on the bound covers the errors of neighbours.
        down: whether outputs are mixed along columns, too, not only along rows.
    """
    rows, columns = fewest_taps(problem)
    if columns == 0 or (down and rows == 0):
        return "outputs that see padding alone would have the errors of those beside them"
    least = problem.cg * max(rows, 1) * columns  # rows of padding alone are exact where rows are not mixed
    if least < fewest:
        return f"outputs at the edge that sum {least} products, not {fewest}, would have the errors of others"
    return None


def fewest_taps(problem: Problem) -> tuple[int, int]:
    """Return how many rows and columns of the filter lie on the image under any output.

    At least: with strides the last output may be further from the edge.
    """

    def fewest(pad: tuple[int, ...], size: int, taps: int, apart: int) -> int:
        beside = taps - ceil_div(max(pad), apart)
        across = taps if size > (taps - 1) * apart else size // apart  # of one that is over both edges
        return max(0, min(beside, across))

    rows = fewest(problem.pad[:2], problem.h, problem.r, problem.dilation[0])
    return rows, fewest(problem.pad[2:], problem.w, problem.s, problem.dilation[1])


def _steps(problem: Problem) -> int:
    """Count the roundings of the epilogue, one after the other."""
    e = problem.epilogue
    steps = int(e.alpha != 1.0) + 2 * e.add + e.bias + e.activation.steps
    return steps + (e.pool.size**2 if e.pool and e.pool.mode == "avg" else 0)


def _steepest(problem: Problem) -> float:
    """Return the Lipschitz constant of the activation."""
    return max(problem.epilogue.activation.steepest, problem.epilogue.slope)
