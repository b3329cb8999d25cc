"""Devices as plain values (``device.py``), and what came with which GPU (``architectures.py``)."""

from tilewright.device.device import (
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
    "BACKENDS", "Device", "DeviceType", "Rates", "chip", "for_architecture", "parse_selector", "read_key",
]  # fmt: skip
