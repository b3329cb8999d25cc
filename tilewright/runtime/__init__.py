"""Devices to run on: CUDA, OpenCL (CPUs through PoCL), NumPy."""

from tilewright.runtime.base import Built, Loaded, Memory, Resources, Runtime
from tilewright.runtime.opening import instead_of_numpy, list_devices, open_runtime

__all__ = [
    "Built", "Loaded", "Memory", "Resources", "Runtime", "instead_of_numpy", "list_devices", "open_runtime",
]  # fmt: skip
