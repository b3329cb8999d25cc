"""The names of a problem's dtypes in NumPy, PyTorch and CuPy: float64 float32 float16 bfloat16 int8 int32
float8_e4m3fn.

NumPy has no bfloat16 and no float8: these are from the package ml_dtypes, imported when needed.
"""

from __future__ import annotations

from typing import Any

FULL = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "i32": "int32",
    "f8": "float8_e4m3fn",
}
SHORT = {full: short for short, full in FULL.items()}


def name_of(dtype: object) -> str:
    """Return the full name of a library's dtype: ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def numpy_dtype(short: str) -> Any:
    """Return the NumPy dtype of ``f32``, ``bf16``, …"""
    import numpy as np

    if short in ("bf16", "f8"):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, FULL[short]))
    return np.dtype(FULL[short])
