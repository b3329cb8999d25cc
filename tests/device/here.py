"""Which devices are here, asked once, as tests are collected: no test is made for one that is not."""

from __future__ import annotations

from contextlib import suppress

from tilewright.device import Device
from tilewright.errors import DeviceError
from tilewright.runtime import open_runtime

ALL = ("cpu", "cuda", "numpy")


def _found() -> dict[str, Device]:
    found = {}
    for kind in ALL:
        with suppress(DeviceError):
            device = open_runtime(kind).device
            if kind != "cpu" or device.backend != "numpy":  # which stands in where there is no OpenCL
                found[kind] = device
    return found


DEVICES = _found()
KERNELS = [kind for kind in DEVICES if kind != "numpy"]  # those that run kernels
GPU = [kind for kind in DEVICES if kind == "cuda"]
EMULATED_AND_GPU = ["emulated", *GPU]  # a GPU's kernels on the CPU, and there
