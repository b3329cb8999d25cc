"""Facts of a device from OpenCL."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilewright.device import Device, DeviceType, Rates
from tilewright.device.architectures import WARP

_UNKNOWN_GHZ = 2.0  # a guess: the clock of a server's cores when all are busy, or a little less
_AVX512 = {"avx512f", "avx512vl", "avx512bw", "avx512dq"}


def is_pocl(device: Any) -> bool:
    """Whether a device is one of PoCL's."""
    return str(device.platform.name) == "Portable Computing Language"


def facts(device: Any, index: int, cpu: bool) -> Device:
    """Return OpenCL's facts of a device.

    A CPU core counts as a unit and a vector element as a lane; its vector registers (32 with 512-bit vectors,
    else 16) times their elements count as the registers of a thread.
    """
    lanes = _lanes(device) if cpu else WARP
    registers = (32 if lanes >= 16 else 16) * lanes if cpu else 255
    # 0 if the driver does not know the clock, as PoCL in many virtual machines; the model divides by it.
    units, ghz = int(device.max_compute_units), device.max_clock_frequency / 1e3 or _UNKNOWN_GHZ
    peak = units * min(lanes, 8) * 4 * ghz / 1e3  # 16 multiply-adds per cycle, as of most cores with AVX
    most, shared = int(device.max_work_group_size), int(device.local_mem_size)
    return Device(
        name=_name(device), backend="opencl", type=DeviceType.CPU if cpu else DeviceType.GPU, index=index,
        arch=_arch(device), units=units, lanes=lanes, max_threads=most, regs_per_thread=registers,
        regs_per_unit=registers if cpu else 65536,
        threads_per_unit=1 if cpu else 1024, blocks_per_unit=1 if cpu else 16,
        shared_per_block=shared, shared_per_unit=shared, l2_bytes=int(device.global_mem_cache_size),
        clock_ghz=ghz, max_cluster=1, driver=f"{device.platform.version} {device.driver_version}",
        # By a builtin of PoCL's compiler: Intel's refuses it.
        byte_dots=cpu and is_pocl(device) and lanes >= 16 and "avx512_vnni" in _cpu_flags(),
        rates=Rates(empty_us=20.0, read_gbs=5.0 * units, f32_tflops=max(peak, 1e-3), source="default"),
    )  # fmt: skip


def _lanes(device: Any) -> int:
    """Return the f32 elements of the widest vector that the CPU has.

    The compiler may use narrower ones by default: PoCL's LLVM may only know an older CPU (Zen 3 for a Zen 4);
    kernels that gain from AVX-512 request it themselves, see ``kernels/direct/direct_cpu.h``.
    """
    lanes, flags = max(1, int(device.native_vector_width_float)), _cpu_flags()
    if not flags:
        return lanes
    return max(lanes, 16) if flags >= _AVX512 else min(lanes, 8)


def _name(device: Any) -> str:
    """Return the processor's name without PoCL's prefix."""
    return str(device.name).removeprefix("pthread-").removeprefix("cpu-").strip()


def _arch(device: Any) -> str:
    """Return the instruction set that PoCL compiles for, or the OpenCL C version."""
    _, host, tail = str(device.version).rpartition("HSTR: ")
    if not host:
        return str(device.opencl_c_version).strip()
    return f"{tail.removeprefix('pthread-').removeprefix('cpu-')}-v{_lanes(device)}"


@lru_cache(maxsize=1)
def _cpu_flags() -> frozenset[str]:
    """Return the CPU's instruction sets as reported by Linux; none on other systems."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()
