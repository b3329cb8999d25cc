"""Calibrated rates of devices in the user's cache folder, one JSON file each."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

from tilewright.device import Device, Rates
from tilewright.errors import StoreError
from tilewright.files import atomic_write, read_json
from tilewright.runtime import cache


def calibrated(device: Device) -> Device:
    """Return the device with the rates that were calibrated for it, if there are any."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, StoreError):
        held = read_json(_path(device))
        if held["device"] == device.key:
            figures = {n: float(held["rates"][n]) for n in ("empty_us", "read_gbs", "f32_tflops")}
            if all(0 < value < 1e9 for value in figures.values()):
                return replace(device, rates=Rates(**figures, source="calibrated"))
    return device


def keep(device: Device, rates: Rates) -> None:
    """Keep calibrated rates for later processes."""
    text = json.dumps({"device": device.key, "driver": device.driver, "rates": asdict(rates)})
    try:
        path = _path(device)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        atomic_write(path, text.encode())
    except StoreError as error:
        cache.forgets(error)
    except OSError as error:
        cache.forgets(f"cannot keep the calibrated rates ({error.strerror}): each process calibrates again")


def _path(device: Device) -> Path:
    return cache.folder() / "rates" / (hashlib.sha256(device.key.encode()).hexdigest()[:24] + ".json")
