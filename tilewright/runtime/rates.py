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
from tilewright.runtime import cache_folder


def calibrated(device: Device) -> Device:
    """Return the device with its calibrated rates, if there are any."""
    found = _kept(device, "rates")
    return device if found is None else replace(device, rates=found)


def measured(device: Device) -> Rates:
    """Return the rates that calibrations themselves measured, before any kernel exceeded them."""
    return _kept(device, "measured") or calibrated(device).rates


def _kept(device: Device, which: str) -> Rates | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, StoreError):
        document = read_json(_path(device))
        if document["device"] == device.key:
            figures = {n: float(document[which][n]) for n in ("empty_us", "read_gbs", "f32_tflops")}
            if all(0 < value < 1e9 for value in figures.values()):
                return Rates(**figures, source="calibrated")
    return None


def keep(device: Device, rates: Rates, measured: Rates | None = None) -> None:
    """Keep calibrated rates for later processes, and those ``measured`` by calibration (None: the same)."""
    document = {"rates": asdict(rates), "measured": asdict(measured or rates)}
    text = json.dumps({"device": device.key, "driver": device.driver, **document})
    try:
        path = _path(device)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        atomic_write(path, text.encode())
    except StoreError as error:
        cache_folder.forgets(error)
    except OSError as error:
        why = f"cannot keep the calibrated rates ({error.strerror}): each process calibrates again"
        cache_folder.forgets(why)


def _path(device: Device) -> Path:
    return cache_folder.folder() / "rates" / (hashlib.sha256(device.key.encode()).hexdigest()[:24] + ".json")
