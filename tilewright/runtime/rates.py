"""Calibrated rates of devices in the user's cache folder, one JSON file each."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, replace

from tilewright.device import Device, Rates
from tilewright.errors import StoreError
from tilewright.files import read_json
from tilewright.runtime import cache_folder

_PART = "rates"  # of the cache folder


def calibrated(device: Device) -> Device:
    """Return the device with its calibrated rates, if there are any."""
    found = _kept(device, "rates")
    return device if found is None else replace(device, rates=found)


def measured(device: Device) -> Rates:
    """Return the rates that calibrations themselves measured, before any kernel exceeded them."""
    return _kept(device, "measured") or calibrated(device).rates


def _kept(device: Device, which: str) -> Rates | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, StoreError):
        document = read_json(cache_folder.folder() / _PART / _name(device))
        if document["device"] == device.key:
            figures = {n: float(document[which][n]) for n in ("empty_us", "read_gbs", "f32_tflops")}
            if all(0 < value < 1e9 for value in figures.values()):
                return Rates(**figures, source="calibrated")
    return None


def keep(device: Device, rates: Rates, measured: Rates | None = None) -> None:
    """Keep calibrated rates for later processes, and those ``measured`` by calibration (None: the same)."""
    document = {"rates": asdict(rates), "measured": asdict(measured or rates)}
    text = json.dumps({"device": device.key, "driver": device.driver, **document})
    what, loss = "keep the calibrated rates", "each process calibrates again"
    cache_folder.keep(_PART, _name(device), text.encode(), what, loss)


def _name(device: Device) -> str:
    return hashlib.sha256(device.key.encode()).hexdigest()[:24] + ".json"
