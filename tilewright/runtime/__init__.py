"""Devices to run on: CUDA, OpenCL (CPUs through PoCL), NumPy."""

from tilewright.runtime.opening import instead_of_numpy, list_devices, open_runtime

__all__ = ["instead_of_numpy", "list_devices", "open_runtime"]
