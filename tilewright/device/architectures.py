"""Facts of NVIDIA's architectures: the features and rates of each, and the datasheets of some GPUs.

An architecture is named as compilers do ("sm_90"); its compute capability is the number in it (90). Drivers
do not report these facts. Sources: NVIDIA's white papers of V100, A100, H100 and B200's data sheet for tensor
cores; else the CUDA programming guide's tables of compute capabilities and of arithmetic throughput.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WARP = 32  # threads

# The first compute capability that has it.
TENSOR_I8 = 75  # tensor cores as Turing's, of f16 and i8
MMA_SYNC = 80  # the products of mma.sync that kernels use; bf16 and tf32
MMA_E4M3 = 89  # mma.sync of e4m3; before, f8 is widened to f16
CLUSTERS = 90
CHAINED = 90  # a launch may overlap the one before it
WGMMA = 90  # and no other: wgmma is of sm_90a alone

MAX_CLUSTER = 8  # blocks of a portable cluster
REGS_PER_THREAD, REGS_PER_UNIT, MAX_THREADS = 255, 65536, 1024

_NAME = re.compile(r"sm_([0-9]{2,3})[a-z]?")
# Products of f16 or bf16 that the tensor cores of a unit add up in f32 a cycle, of i8 twice as many; all with
# dense operands.
_TENSOR = {70: 512, 80: 1024, 87: 1024, 90: 2048, 100: 4096, 103: 4096}
# The same by mma.sync. It reaches 63% of the 2048 of sm_90 (R. Luo et al., "Benchmarking and Dissecting the
# Nvidia Hopper GPU Architecture via Microbenchmarking", arXiv:2402.13499).
_MMA_SYNC = {80: 1024, 90: 1290, 100: 1024}
_OF_OTHERS = 512  # of either
# Rate of f64 over that of f32, with tensor cores where they take it.
_F64 = {60: 0.5, 70: 0.5, 75: 1 / 32, 80: 1.0, 90: 1.0, 100: 0.5}
_F64_OF_OTHERS = 1 / 64
_HALF_F64 = (80, 90, 100)  # f64 without tensor cores is half as fast as f32, else 1/64


@dataclass(frozen=True)
class Gpu:
    """Datasheet facts of one GPU, as ``Device`` has them.

    Attributes:
        name: the vendor's name for it.
        units: its SMs.
        threads_per_unit, blocks_per_unit: most that are resident on an SM.
        shared_per_block_kb, shared_per_unit_kb: most shared memory of a block and of an SM, in KB (2^10).
        l2_mb: its L2 cache, in MB (2^20).
        clock_ghz: the boost clock.
        read_gbs: bandwidth of its memory, 1e9 bytes/s.
        f32_tflops: 1e12 flops/s of f32 multiply-adds, 2 flops each.
    """

    name: str
    units: int
    threads_per_unit: int
    blocks_per_unit: int
    shared_per_block_kb: int
    shared_per_unit_kb: int
    l2_mb: int
    clock_ghz: float
    read_gbs: float
    f32_tflops: float


# Those to compile for where no GPU is present.
ARCHITECTURES = {
    "sm_75": Gpu(
        name="NVIDIA T4", units=40, threads_per_unit=1024, blocks_per_unit=16, shared_per_block_kb=64,
        shared_per_unit_kb=64, l2_mb=4, clock_ghz=1.59, read_gbs=320, f32_tflops=8.1,
    ),
    "sm_80": Gpu(
        name="NVIDIA A100", units=108, threads_per_unit=2048, blocks_per_unit=32, shared_per_block_kb=163,
        shared_per_unit_kb=164, l2_mb=40, clock_ghz=1.41, read_gbs=1555, f32_tflops=19.5,
    ),
    "sm_90": Gpu(
        name="NVIDIA H100 80GB HBM3", units=132, threads_per_unit=2048, blocks_per_unit=32,
        shared_per_block_kb=227, shared_per_unit_kb=228, l2_mb=50, clock_ghz=1.98, read_gbs=3050,
        f32_tflops=65.0,
    ),
    "sm_120": Gpu(
        name="NVIDIA RTX PRO 6000", units=188, threads_per_unit=1536, blocks_per_unit=24,
        shared_per_block_kb=99, shared_per_unit_kb=100, l2_mb=128, clock_ghz=2.6, read_gbs=1792,
        f32_tflops=125.0,
    ),
}  # fmt: skip


def capability(arch: str) -> int:
    """Return the compute capability of an architecture, times ten; 0 if it is not one of NVIDIA's."""
    match = _NAME.fullmatch(arch)
    return int(match[1]) if match else 0


def max_cluster(capability: int) -> int:
    """Return the most blocks of a portable cluster; 1 without clusters."""
    return MAX_CLUSTER if capability >= CLUSTERS else 1


def tensor_products(capability: int) -> int:
    """Return the peak f16 products per cycle of a unit's tensor cores; 0 without tensor cores."""
    return _TENSOR.get(capability, _OF_OTHERS if capability >= TENSOR_I8 else 0)


def tensor_macs(capability: int) -> int:
    """Return ``Device.tensor_macs``: the products by ``mma.sync``; 0 if kernels cannot use it."""
    return _MMA_SYNC.get(capability, _OF_OTHERS if capability >= MMA_SYNC else 0)


def f64_rate(capability: int) -> float:
    """Return the rate of f64 over that of f32, on tensor cores if they support f64."""
    return _F64.get(capability, _F64_OF_OTHERS)


def f64_slots(capability: int) -> int:
    """Return the issue slots of an f64 multiply-add, in those of an f32 one, without tensor cores."""
    return 2 if capability in _HALF_F64 else 64


def f32_lanes(capability: int) -> int:
    """Return the f32 multiply-adds per cycle of a unit."""
    return 64 if capability in (70, 75, 80) else 128
