"""Devices as plain values (``device.py``), and facts of NVIDIA's architectures (``architectures.py``)."""

from tilewright.device.device import (
    ARCHITECTURES,
    BACKENDS,
    Device,
    DeviceType,
    Rates,
    chip,
    for_architecture,
    parse_selector,
    read_key,
)

__all__ = [
    "ARCHITECTURES", "BACKENDS", "Device", "DeviceType", "Rates", "chip", "for_architecture",
    "parse_selector", "read_key",
]  # fmt: skip
