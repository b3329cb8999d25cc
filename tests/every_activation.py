"""Every activation there is, as words of problem strings, and a second formula of each to compare with.

Add a new one's formula here (docs/new_activation.md); what tests it reads this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.problem.activations import ACTIVATIONS
from tilewright.problem.epilogue import Epilogue

_NUMBERS = ("", "0.125", "-1:6")
WORDS = [f"+{name}{_NUMBERS[len(one.numbers)]}" for name, one in ACTIVATIONS.items() if name]


def activated(e: Epilogue, v: Any) -> Any:
    """Compute an activation of NumPy's numbers in their own precision; NaN stays NaN."""
    low, high = (v.dtype.type(number) for number in (e.low, e.high))
    formulas = {
        "": lambda: v,
        "relu": lambda: np.where(v < 0, 0, v),
        "leaky": lambda: np.where(v < 0, v * low, v),
        "silu": lambda: v / (1 + np.exp(-v)),
        "clamp": lambda: v.clip(low, high),
    }
    with np.errstate(all="ignore"):
        return formulas[e.act]()
