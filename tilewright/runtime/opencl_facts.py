"""What OpenCL says of a device."""

from __future__ import annotations

from typing import Any

from tilewright.device import Device, Rates


def facts(device: Any, index: int, cpu: bool) -> Device:
    """Read what OpenCL says of a device.

    A CPU core stands for a unit and a vector element for a lane; its vector registers (32 with
    512-bit vectors, else 16) times their elements stand for the registers of a thread.
    """
    lanes = _lanes(device) if cpu else 32
    registers = (32 if lanes >= 16 else 16) * lanes if cpu else 255
    units, ghz = int(device.max_compute_units), device.max_clock_frequency / 1e3
    peak = units * lanes * 4 * ghz / 1e3  # two fused multiply-adds a cycle, two flops each
    most, shared = int(device.max_work_group_size), int(device.local_mem_size)
    return Device(
        name=_name(device), backend="opencl", index=index, arch=_arch(device), units=units,
        lanes=max(lanes, 1), max_threads=most, regs_per_thread=registers,
        regs_per_unit=registers if cpu else 65536,
        threads_per_unit=1 if cpu else 1024, blocks_per_unit=1 if cpu else 16,
        shared_per_block=shared, shared_per_unit=shared, l2_bytes=int(device.global_mem_cache_size),
        clock_ghz=ghz, max_cluster=1, driver=f"{device.platform.version} {device.driver_version}",
        rates=Rates(empty_us=20.0, read_gbs=5.0 * units, f32_tflops=max(peak, 1e-3), source="default"),
    )  # fmt: skip


def _lanes(device: Any) -> int:
    """Return the f32 elements of a vector register that the compiler uses.

    PoCL reports what the CPU can do; its LLVM may know an older CPU only (Zen 3 for a Zen 4).
    """
    lanes = int(device.native_vector_width_float)
    old = any(cpu in str(device.version) for cpu in ("znver1", "znver2", "znver3", "haswell", "broadwell"))
    return min(lanes, 8) if old else lanes


def _name(device: Any) -> str:
    """Return the processor's name without PoCL's prefix."""
    return str(device.name).removeprefix("pthread-").removeprefix("cpu-").strip()


def _arch(device: Any) -> str:
    """Return the instruction set that PoCL compiles for, or the OpenCL C version."""
    _, host, tail = str(device.version).rpartition("HSTR: ")
    if not host:
        return str(device.opencl_c_version)
    return f"{tail.removeprefix('pthread-').removeprefix('cpu-')}-v{_lanes(device)}"
