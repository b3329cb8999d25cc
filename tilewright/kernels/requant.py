"""Requantised sums: the kernel's additional argument and define (epilogue.h), and requant.h in NumPy."""

from __future__ import annotations

from typing import Any

from tilewright.problem import Problem


def scale_operand(problem: Problem) -> tuple[str, ...]:
    """Return the last argument of a kernel that requantises: the scale of each channel."""
    return ("scale",) * problem.requantised


def requant_defines(problem: Problem) -> dict[str, int]:
    """Return the define that turns requantisation on."""
    return dict(REQUANT=1) if problem.requantised else {}


def numpy_requantised(problem: Problem, sums: Any, scale: Any) -> Any:
    """Return clamp(round(scale[k] * sums)), in the dtype of the sums, for whole sums in y's layout.

    NaN, such as 0 times an infinity, gives -128.
    """
    import numpy as np

    sums = np.asarray(sums)
    scale = np.asarray(scale, np.float32).reshape((-1, 1, 1) if problem.layout_out == "nchw" else (-1,))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = sums.astype(np.float32) * scale
    kept = np.where(np.isnan(scaled), np.float32(-128), np.clip(np.rint(scaled), -128, 127))
    return kept.astype(sums.dtype)
