"""Device facts and calibrated rates, as plain values, and datasheets of some GPUs; needs no backend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from tilewright.device.architectures import (
    MAX_THREADS,
    REGS_PER_THREAD,
    REGS_PER_UNIT,
    WARP,
    capability,
    max_cluster,
    tensor_macs,
)
from tilewright.errors import DeviceError, shown

BACKENDS = ("cuda", "opencl", "numpy")
_KB, _MB = 1 << 10, 1 << 20
_KEY = re.compile(rf"({'|'.join(BACKENDS)})/(.+)/([^/]*)/([0-9]{{1,6}})")
_SELECTOR = re.compile(r"(cpu|cuda|opencl|numpy)(?::([0-9]{1,4}))?")


@dataclass(frozen=True)
class Rates:
    """Speeds of one device; ``tilewright calibrate`` measures them.

    Attributes:
        empty_us: device-event time of a kernel that does nothing.
        read_gbs: cold read bandwidth of main memory, 1e9 bytes/s.
        f32_tflops: peak of independent f32 multiply-adds, 1e12 flop/s, 2 flops each.
        source: of the two rates: "datasheet", "calibrated" (measured here), "measured" (on such a device) or
            "default" (a guess).
    """

    empty_us: float
    read_gbs: float
    f32_tflops: float
    source: str = "datasheet"

    @property
    def empty_from(self) -> str:
        """The source of ``empty_us``: without a calibration a guess, since no datasheet has it."""
        return self.source if self.source == "calibrated" else "default"


class DeviceType(StrEnum):
    """What a device is, whatever its backend."""

    GPU = "gpu"
    CPU = "cpu"


@dataclass(frozen=True)
class Device:
    """What is known of one device without touching it.

    On a CPU a unit is a core, a lane is an f32 element of a vector, and the registers of a thread are the
    elements of all vector registers.

    Attributes:
        name: the vendor's name for it.
        backend: "cuda", "opencl" or "numpy".
        type: whether lanes are threads of a warp, or elements of a CPU's vectors.
        index: number of the device within its backend.
        arch: "sm_90" for CUDA; the OpenCL C target otherwise.
        units: multiprocessors, or CPU cores.
        lanes: threads of a warp; on a CPU, f32 elements of a vector.
        max_threads: most threads of a block.
        regs_per_thread: most 32-bit registers of a thread.
        regs_per_unit: 32-bit registers of a unit.
        threads_per_unit: most resident threads of a unit.
        blocks_per_unit: most resident blocks of a unit.
        shared_per_block: most bytes of shared memory of a block.
        shared_per_unit: bytes of shared memory of a unit.
        l2_bytes: the last cache before main memory.
        clock_ghz: highest clock of the units.
        max_cluster: most blocks of a portable cluster (1: no clusters).
        driver: version of the driver or platform.
        rates: measured speeds.
        tensor_macs: f16 multiply-accumulates per cycle of a unit's tensor cores with ``mma.sync``; twice as
            many for i8. 0: no tensor cores, or without the instructions of sm_80.
        byte_dots: whether a CPU's vectors add products of bytes, four to a sum of 32 bits (AVX-512 VNNI).
    """

    name: str
    backend: str
    type: DeviceType
    index: int
    arch: str
    units: int
    lanes: int
    max_threads: int
    regs_per_thread: int
    regs_per_unit: int
    threads_per_unit: int
    blocks_per_unit: int
    shared_per_block: int
    shared_per_unit: int
    l2_bytes: int
    clock_ghz: float
    max_cluster: int
    driver: str
    rates: Rates
    tensor_macs: int = 0
    byte_dots: bool = False

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Device:
        """Build a device from the ``facts`` of one.

        Raises:
            KeyError: there are no "rates", or no "lanes".
            TypeError: a field is missing or unknown.
        """
        known = DeviceType(facts["type"]) if "type" in facts else _usual(facts["lanes"])
        return cls(**{**facts, "type": known, "rates": Rates(**facts["rates"])})

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values, as stored in files; the type only if it does not follow from ``lanes``."""
        found = asdict(self)
        if self.type is _usual(self.lanes):
            del found["type"]
        return found

    @property
    def selector(self) -> str:
        """What ``--device`` calls it."""
        if self.backend == "opencl" and self.type is DeviceType.CPU and self.index == 0:
            return "cpu"
        return f"{self.backend}:{self.index}"

    @property
    def key(self) -> str:
        """What identifies the device in the store: name, architecture, unit count."""
        return f"{self.backend}/{self.name}/{self.arch}/{self.units}"

    @property
    def chip(self) -> str:
        """A key shared by devices that differ only in memory and clock."""
        return chip(self.key)

    @property
    def is_gpu(self) -> bool:
        """Whether lanes are threads of a warp, not elements of a CPU's vectors."""
        return self.type is DeviceType.GPU

    @property
    def is_cuda(self) -> bool:
        """Whether kernels are CUDA C++, not OpenCL C or NumPy."""
        return self.backend == "cuda"

    @property
    def runs_kernels(self) -> bool:
        """Whether a driver compiles and runs kernels; NumPy computes answers without any."""
        return self.backend != "numpy"

    @property
    def has_shuffles(self) -> bool:
        """Whether lanes of a warp can read each other's registers; OpenCL C 1.2 cannot express it."""
        return self.is_cuda

    @property
    def orders_blocks(self) -> bool:
        """Whether a block sees what another one of the launch wrote before it incremented an atomic counter.

        CUDA's fences guarantee it, and on a CPU those of the compiler. OpenCL C 1.2 does not: its
        ``mem_fence`` orders the accesses of one work-item, its atomics order nothing, and the L1 caches of
        many GPUs are not coherent.
        """
        return self.is_cuda or not self.is_gpu

    @property
    def capability(self) -> int:
        """The compute capability of a CUDA device, times ten: 90 for sm_90; 0 for all others."""
        return capability(self.arch) if self.is_cuda else 0


def _usual(lanes: int) -> DeviceType:
    """The type that a device with so many lanes has by default."""
    return DeviceType.GPU if lanes == WARP else DeviceType.CPU


class DeviceKey(NamedTuple):
    """The parts of a ``Device.key``."""

    backend: str
    name: str
    arch: str
    units: int


def read_key(key: str) -> DeviceKey | None:
    """Parse a ``Device.key``; None if it is not one."""
    found = _KEY.fullmatch(key)
    return DeviceKey(found[1], found[2], found[3], int(found[4])) if found else None


def chip(key: str) -> str:
    """Return the chip that a ``Device.key`` names: for CUDA the key without the device's name, else the key.

    GPUs of the same architecture and number of units are one chip with different memory and clocks (H100 SXM,
    H200, GH200). A winner on one is likely to win on another, so it is a hint to be verified there.
    """
    found = read_key(key)
    return f"cuda/{found.arch}/{found.units}" if found and found.backend == "cuda" else key


def _gpu(
    arch: str, read_gbs: float, f32_tflops: float, rates_from: str = "datasheet", **others: Any
) -> Device:
    """Return a GPU by its datasheet; ``others`` are facts that its architecture does not decide."""
    number = capability(arch)
    return Device(
        backend="cuda", type=DeviceType.GPU, index=0, arch=arch, lanes=WARP, max_threads=MAX_THREADS,
        regs_per_thread=REGS_PER_THREAD, regs_per_unit=REGS_PER_UNIT, max_cluster=max_cluster(number),
        driver="none", rates=Rates(3.3, read_gbs, f32_tflops, rates_from),
        tensor_macs=tensor_macs(number), **others,
    )  # fmt: skip


_DATASHEETS = (
    _gpu(
        "sm_75", name="NVIDIA T4", units=40, threads_per_unit=1024, blocks_per_unit=16,
        shared_per_block=64 * _KB, shared_per_unit=64 * _KB, l2_bytes=4 * _MB, clock_ghz=1.59, read_gbs=320,
        f32_tflops=8.1,
    ),
    _gpu(
        "sm_80", name="NVIDIA A100", units=108, threads_per_unit=2048, blocks_per_unit=32,
        shared_per_block=163 * _KB, shared_per_unit=164 * _KB, l2_bytes=40 * _MB, clock_ghz=1.41,
        read_gbs=1555, f32_tflops=19.5,
    ),
    _gpu(
        "sm_90", name="NVIDIA H100 80GB HBM3", units=132, threads_per_unit=2048, blocks_per_unit=32,
        shared_per_block=227 * _KB, shared_per_unit=228 * _KB, l2_bytes=50 * _MB, clock_ghz=1.98,
        read_gbs=3050, f32_tflops=65.0, rates_from="measured",
    ),
    _gpu(
        "sm_120", name="NVIDIA RTX PRO 6000", units=188, threads_per_unit=1536, blocks_per_unit=24,
        shared_per_block=99 * _KB, shared_per_unit=100 * _KB, l2_bytes=128 * _MB, clock_ghz=2.6,
        read_gbs=1792, f32_tflops=125.0,
    ),
)  # fmt: skip
ARCHITECTURES = {gpu.arch: gpu for gpu in _DATASHEETS}  # to compile for where no GPU is present


def for_architecture(arch: str) -> Device:
    """Return a datasheet Device for ``arch``, one of ARCHITECTURES, with no GPU present.

    Raises:
        DeviceError: the architecture is unknown.
    """
    if arch not in ARCHITECTURES:
        known = f"known are {', '.join(ARCHITECTURES)}"
        raise DeviceError(f"architecture {arch!r}: {known}; a GPU that is here needs none: --device cuda")
    return ARCHITECTURES[arch]


def parse_selector(text: object) -> tuple[str | None, int]:
    """Parse ``cpu``, ``cuda``, ``cuda:1``, ``opencl:0`` or ``numpy`` into the arguments of ``open_runtime``.

    None gives (None, 0), which leaves the choice to the runtime. A ``torch.device`` is accepted too.

    Raises:
        DeviceError: it is not a selector.
    """
    if text is None:
        return None, 0
    if type(text).__module__ == "torch" and type(text).__name__ == "device":
        text = str(text)
    if not isinstance(text, str):
        raise DeviceError(f"device={shown(text)}: must be text: cpu, cuda, cuda:N, opencl:N or numpy")
    match = _SELECTOR.fullmatch(text.strip())
    if not match:
        raise DeviceError(f"device {text!r}: must be cpu, cuda, cuda:N, opencl:N or numpy")
    return match[1], int(match[2] or 0)
