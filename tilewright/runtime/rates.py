"""Calibrated rates of devices in the user's cache folder, one JSON file each."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from tilewright.device import Device, Rates
from tilewright.errors import StoreError
from tilewright.runtime import cache


def calibrated(device: Device) -> Device:
    """Return the device with the rates that were calibrated for it, if there are any."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, StoreError):
        held = json.loads(_path(device).read_text(encoding="utf-8"))
        if held["device"] == device.key:
            figures = {n: float(held["rates"][n]) for n in ("empty_us", "read_gbs", "f32_tflops")}
            if all(0 < value < 1e9 for value in figures.values()):
                return replace(device, rates=Rates(**figures, source="calibrated"))
    return device


def keep(device: Device, rates: Rates) -> None:
    """Keep calibrated rates for later processes."""
    path = _path(device)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    number, aside = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        json.dump({"device": device.key, "driver": device.driver, "rates": asdict(rates)}, file)
    os.replace(aside, path)


def _path(device: Device) -> Path:
    return cache.folder() / "rates" / (hashlib.sha256(device.key.encode()).hexdigest()[:24] + ".json")
