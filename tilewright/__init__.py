"""Finds, verifies and runs the fastest convolution kernel for one layer on one device.

``conv2d`` computes a layer, ``tune`` searches for its fastest kernel, and ``plan`` prepares a layer that runs
often. ``import tilewright as tw`` loads no GPU library: each public name is loaded when it is first used.

Example:
    >>> import numpy as np, tilewright as tw
    >>> x = np.ones((1, 3, 8, 8), np.float32)
    >>> w = np.ones((4, 3, 3, 3), np.float32)
    >>> tw.conv2d(x, w, padding=1).shape
    (1, 4, 8, 8)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.api import LayerPlan, conv2d, forget, plan, plan_all, tune
    from tilewright.device import Device
    from tilewright.errors import (
        ArrayError,
        BudgetError,
        CompileError,
        ConfigError,
        DeviceError,
        OutOfMemory,
        OutputError,
        PeerError,
        ProblemError,
        RunError,
        StoreError,
        TilewrightError,
    )
    from tilewright.kernels.config import Config
    from tilewright.plans.bound_call import BoundCall
    from tilewright.plans.packed import Packed
    from tilewright.problem import Problem
    from tilewright.problem.epilogue import Epilogue, Pool
    from tilewright.record import Check, Measurement, Record
    from tilewright.store import Store
    from tilewright.tuning.budget import Budget
    from tilewright.tuning.events import TuneResult

__version__ = "0.1.0"

# The module of each public name.
_HOMES = {
    **dict.fromkeys(("LayerPlan", "conv2d", "forget", "plan", "plan_all", "tune"), "api"),
    **dict.fromkeys(("Epilogue", "Pool"), "problem.epilogue"),
    **dict.fromkeys(("Check", "Measurement", "Record"), "record"),
    **dict.fromkeys((
        "ArrayError", "BudgetError", "CompileError", "ConfigError", "DeviceError", "OutOfMemory",
        "OutputError", "PeerError", "ProblemError", "RunError", "StoreError", "TilewrightError",
    ), "errors"),
    "BoundCall": "plans.bound_call", "Budget": "tuning.budget", "Packed": "plans.packed",
    "Config": "kernels.config", "Device": "device", "Problem": "problem", "Store": "store",
    "TuneResult": "tuning.events",
}  # fmt: skip

__all__ = [
    "ArrayError", "BoundCall", "Budget", "BudgetError", "Check", "CompileError", "Config", "ConfigError",
    "Device", "DeviceError", "Epilogue", "LayerPlan", "Measurement", "OutOfMemory", "OutputError", "Packed",
    "PeerError", "Pool", "Problem", "ProblemError", "Record", "RunError", "Store", "StoreError",
    "TilewrightError", "TuneResult", "conv2d", "forget", "plan", "plan_all", "tune",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Load a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"tilewright.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING", "annotations", "importlib"})
