"""``tilewright doctor``: what is installed, what is missing, and how to install it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tilewright import __version__
from tilewright.cli import options, outputs
from tilewright.cli.screen import emit
from tilewright.device import Device
from tilewright.errors import TORCH_CPU, TilewrightError, count, how_to_get
from tilewright.report.table import Table

# Distribution: its use, and the extra that installs it.
PACKAGES = {
    "pyopencl": ("the CPU and other OpenCL devices", "opencl"),
    "pocl-binary-distribution": ("an OpenCL driver for the CPU", "opencl"),
    "cuda-core": ("NVIDIA GPUs", "cuda"),
    "nvidia-cuda-nvrtc": ("the CUDA compiler", "cuda"),
    "torch": ("peers oneDNN and PyTorch", "torch"),
    "onnxruntime": ("peer ONNX Runtime", "onnx"),
    "onnx": ("peer ONNX Runtime", "onnx"),
    "nvidia-cudnn-frontend": ("peer cuDNN, all engines", "cudnn"),
    "matplotlib": ("plots", "plot"),
}


SOURCES = {"default": "guessed, not calibrated yet"}  # what is said of rates (Rates.source)


def doctor(json_file: options.JsonFile = None) -> None:
    """Show which devices, libraries and peers are found.

    For what is missing it says what to install.
    """
    outputs.check({"--json": json_file})
    from tilewright.runtime import list_devices

    devices = list_devices()
    document: dict[str, Any] = {
        "tilewright": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _installed(name) for name in PACKAGES},
        "devices": [_device_facts(device) for device in devices],
        "peers": _peers(next((d for d in devices if isinstance(d, Device)), None)),
        "cache": _cache(),
    }
    emit(Table("", ("what", "found"), tuple(_rows(document)), words=True), document, json_file)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _device_facts(device: Any) -> dict[str, Any]:
    if not isinstance(device, Device):
        return {"absent": " ".join(str(device).split())}
    names = ("name", "backend", "index", "arch", "units", "lanes", "driver")
    rates = device.rates
    figures = {"read_gbs": rates.read_gbs, "f32_tflops": rates.f32_tflops, "empty_us": rates.empty_us}
    return {name: getattr(device, name) for name in names} | {"rates": figures, "rates_from": rates.source}


def _peers(device: Device | None) -> dict[str, str]:
    """For each peer for this kind of device: "ready", or why it is absent."""
    if device is None:
        return {}
    from tilewright.peers import applicable

    found = {peer.name: peer.absent(device) or "ready" for peer in applicable(device)}
    return {name: state.removeprefix(f"{name}: ") for name, state in found.items()}


def _cache() -> str:
    """Return the path of the cache; or why it cannot be written, or which part of it is damaged."""
    from tilewright.runtime.cache_folder import folder
    from tilewright.runtime.opencl_cache import damaged
    from tilewright.store import Store

    try:
        Store().info()
    except TilewrightError as error:
        return f"not usable: {error}"
    if not os.access(folder(), os.W_OK):
        return f"{folder()}: read-only: what it holds is used, nothing new is stored"
    if short := damaged():
        files = count(len(short), "damaged file")
        return f"{folder()}: {files} of compiled kernels: run tilewright cache clear"
    return str(folder())


def _get(name: str, extra: str, devices: list[dict[str, Any]]) -> str:
    """How to install a package; the usual build of PyTorch is gigabytes of libraries for NVIDIA's GPUs."""
    if name == "torch" and not any(facts.get("backend") == "cuda" for facts in devices):
        return f"pip install {TORCH_CPU}"
    return how_to_get(extra)


def _rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [(name, str(document[name])) for name in ("tilewright", "python", "system", "cache")]
    for name, found in document["packages"].items():
        use, extra = PACKAGES[name]
        rows.append((name, found or f"not installed ({use}): {_get(name, extra, document['devices'])}"))
    for facts in document["devices"]:
        if "absent" in facts:
            rows.append(("device", facts["absent"]))
            continue
        rates, source = facts["rates"], facts["rates_from"]
        rows.append((
            f"device {facts['backend']}:{facts['index']}",
            f"{facts['name']}, {facts['arch']}, "
            f"{count(facts['units'], 'unit')} of {count(facts['lanes'], 'lane')}; "
            f"{rates['read_gbs']:.4g} GB/s, {rates['f32_tflops']:.4g} TFLOP/s f32 "
            f"({SOURCES.get(source, source)}); "
            f"{facts['driver']}",
        ))  # fmt: skip
    return rows + [(f"peer {name}", state) for name, state in document["peers"].items()]
