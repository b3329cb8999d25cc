"""Facts of a device from the CUDA driver and nvidia-smi."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from tilewright.device import Device, DeviceType, Rates
from tilewright.device.architectures import REGS_PER_THREAD, WARP, f32_lanes, max_cluster, tensor_macs
from tilewright.errors import RunError


def check(result: Any) -> Any:
    """Return the result of a driver call; raise RunError with the driver's name of an error."""
    status, *values = result
    if int(status):
        raise RunError(f"CUDA: {getattr(status, 'name', status)}")
    return values[0] if len(values) == 1 else tuple(values)


def facts(driver: Any, gpu: Any, index: int) -> Device:
    """Return the driver's facts of a device."""
    handle = check(driver.cuDeviceGet(index))

    def get(name: str) -> int:
        attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(driver.cuDeviceGetAttribute(attribute, handle)))

    number = 10 * get("COMPUTE_CAPABILITY_MAJOR") + get("COMPUTE_CAPABILITY_MINOR")
    # The clock is 0 if the driver does not know it; the model divides by it.
    units, ghz = get("MULTIPROCESSOR_COUNT"), get("CLOCK_RATE") / 1e6 or 1.5
    read = 2 * get("MEMORY_CLOCK_RATE") * 1e3 * get("GLOBAL_MEMORY_BUS_WIDTH") / 8 / 1e9
    return Device(
        name=str(gpu.name), backend="cuda", type=DeviceType.GPU, index=index, arch=f"sm_{number}",
        units=units, lanes=WARP, max_threads=get("MAX_THREADS_PER_BLOCK"), regs_per_thread=REGS_PER_THREAD,
        regs_per_unit=get("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        threads_per_unit=get("MAX_THREADS_PER_MULTIPROCESSOR"),
        blocks_per_unit=get("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        shared_per_block=get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_per_unit=get("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        l2_bytes=get("L2_CACHE_SIZE"), clock_ghz=ghz, max_cluster=max_cluster(number),
        driver=_driver_version(driver),
        rates=Rates(3.3, 0.9 * read if read else 500.0, units * f32_lanes(number) * 2 * ghz / 1e3, "default"),
        tensor_macs=tensor_macs(number),
    )  # fmt: skip


def _driver_version(driver: Any) -> str:
    """Return the installed driver's version, as nvidia-smi shows it if there is one."""
    smi = _query("driver_version", 0)
    version = int(check(driver.cuDriverGetVersion()))
    return smi[0] if smi else f"CUDA {version // 1000}.{version % 1000 // 10}"


def clocks(gpu: Any) -> dict[str, str]:
    """Return clocks and power, if there is an nvidia-smi."""
    names = "clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.draw,power.limit"
    values = _query(names, gpu.pci_bus_id)
    return dict(zip(names.replace(".", "_").split(","), values, strict=False))


def _query(names: str, which: Any) -> list[str]:
    tool = shutil.which("nvidia-smi")
    if not tool:
        return []
    command = [tool, f"--query-gpu={names}", "--format=csv,noheader", f"--id={which}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return [part.strip() for part in done.stdout.strip().split(",")] if done.returncode == 0 else []
