"""Device facts and calibrated rates: plain values that the model may read, no backend."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.errors import DeviceError


@dataclass(frozen=True)
class Rates:
    """Speeds of one device; ``tilewright calibrate`` measures them.

    Attributes:
        empty_us: device-event time of a kernel that does nothing.
        read_gbs: cold read bandwidth of main memory, 1e9 bytes/s.
        f32_tflops: peak of independent f32 multiply-adds, 1e12 flops/s, 2 each.
        source: "datasheet", "calibrated", or "default": a guess.
    """

    empty_us: float
    read_gbs: float
    f32_tflops: float
    source: str = "datasheet"


@dataclass(frozen=True)
class Device:
    """What is known of one device without touching it.

    Of a CPU a unit is a core, a lane an f32 element of a vector, and the registers of a thread are the
    elements of all vector registers.

    Attributes:
        name: the vendor's name of it.
        backend: "cuda", "opencl" or "numpy".
        index: number of the device within its backend.
        arch: "sm_90" for CUDA; the OpenCL C target otherwise.
        units: multiprocessors, or CPU cores.
        lanes: threads of a warp; f32 elements of a vector on a CPU.
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
        tensor_macs: f16 multiply-accumulates a cycle of the tensor cores of a unit, by ``mma.sync``; of i8
            twice as many. 0: there are none, or not with the instructions of sm_80.
    """

    name: str
    backend: str
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

    @property
    def is_gpu(self) -> bool:
        """Whether its lanes are threads of warps; else it is a CPU, of cores with vectors."""
        return self.lanes == 32

    @property
    def key(self) -> str:
        """What identifies the device in the store: name, architecture, unit count."""
        return f"{self.backend}/{self.name}/{self.arch}/{self.units}"


_KB = 1024
_SELECTOR = re.compile(r"(cpu|cuda|opencl|numpy)(?::(\d{1,4}))?")

# Datasheet facts of architectures to compile for where no GPU is present
# (CUDA programming guide, table of technical specifications per compute capability).
ARCHITECTURES = {
    # arch: (name, units, threads/unit, blocks/unit, shared/block KB, shared/unit KB, L2 MB, GHz,
    #        cluster, read GB/s, f32 TFLOP/s)
    "sm_80": ("NVIDIA A100", 108, 2048, 32, 163, 164, 40, 1.41, 1, 1555, 19.5),
    "sm_90": ("NVIDIA H100 80GB HBM3", 132, 2048, 32, 227, 228, 50, 1.98, 8, 3050, 65.0),
    "sm_120": ("NVIDIA RTX PRO 6000", 188, 1536, 24, 99, 100, 128, 2.6, 8, 1792, 125.0),
}


# ``Device.tensor_macs``, of datasheets. ``mma.sync`` reaches 63% of the 2048 of sm_90 (R. Luo et al.,
# "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", arXiv:2402.13499).
_TENSOR_MACS = {"sm_80": 1024, "sm_90": 1290, "sm_100": 1024}  # of all others 512


def tensor_macs(arch: str) -> int:
    """Return ``Device.tensor_macs`` of a CUDA architecture."""
    number = int(re.sub(r"\D", "", arch) or 0)
    return _TENSOR_MACS.get(arch, 512 if number >= 80 else 0)


def for_architecture(arch: str) -> Device:
    """Return a datasheet Device for ``arch`` (sm_80, sm_90, sm_120), with no GPU present."""
    if arch not in ARCHITECTURES:
        raise DeviceError(f"architecture {arch!r}: known are {', '.join(ARCHITECTURES)}")
    name, units, threads, blocks, block_kb, unit_kb, l2, ghz, cluster, gbs, tf = ARCHITECTURES[arch]
    return Device(
        name=name, backend="cuda", index=0, arch=arch, units=units, lanes=32, max_threads=1024,
        regs_per_thread=255, regs_per_unit=65536, threads_per_unit=threads,
        blocks_per_unit=blocks, shared_per_block=block_kb * _KB, shared_per_unit=unit_kb * _KB,
        l2_bytes=l2 * _KB * _KB, clock_ghz=ghz, max_cluster=cluster, driver="none",
        rates=Rates(empty_us=3.3, read_gbs=gbs, f32_tflops=tf),
        tensor_macs=tensor_macs(arch),
    )  # fmt: skip


def parse_selector(text: object) -> tuple[str | None, int]:
    """Read ``cpu``, ``cuda``, ``cuda:1``, ``opencl:0`` or ``numpy`` into (kind, index).

    None is (None, 0), which leaves the choice to the runtime.

    Raises:
        DeviceError: it is no selector.
    """
    if text is None:
        return None, 0
    if not isinstance(text, str):
        raise DeviceError(f"device={text!r}: must be text: cpu, cuda, cuda:N, opencl:N or numpy")
    match = _SELECTOR.fullmatch(text.strip())
    if not match:
        raise DeviceError(f"device {text!r}: must be cpu, cuda, cuda:N, opencl:N or numpy")
    return match[1], int(match[2] or 0)
