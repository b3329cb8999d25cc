"""Devices as plain values (``device.py``), and what came with which GPU (``architectures.py``)."""

from tilewright.device.device import Device, Kind, Rates, chip, for_architecture, parse_selector

__all__ = ["Device", "Kind", "Rates", "chip", "for_architecture", "parse_selector"]
