"""Facts of NVIDIA's architectures: the features and rates of each.

An architecture is named as compilers do ("sm_90"); its compute capability is the number in it (90). Drivers
do not report these facts. Sources: NVIDIA's white papers of V100, A100, H100 and B200's data sheet for tensor
cores; else the CUDA programming guide's tables of compute capabilities and of arithmetic throughput.
"""

from __future__ import annotations

import re

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
# Products of f64 that the tensor cores of a unit add up a cycle, where that is more than its threads do.
_MMA_F64 = {80: 64, 90: 128}
# Rate of f64 over that of f32, with tensor cores where they take it.
_F64 = {60: 0.5, 70: 0.5, 75: 1 / 32, 80: 1.0, 90: 1.0, 100: 0.5}
_F64_OF_OTHERS = 1 / 64
_HALF_F64 = (80, 90, 100)  # f64 without tensor cores is half as fast as f32, else 1/64
# Memory in 1e9 bytes of the largest GPU: Quadro RTX 8000, A100, GH200, RTX PRO 6000.
_MOST_GB = {75: 48, 80: 80, 90: 144, 120: 96}


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


def mma_f64(capability: int) -> int:
    """Return the peak f64 products per cycle of a unit's tensor cores; 0 if its threads are as fast."""
    return _MMA_F64.get(capability, 0)


def f64_rate(capability: int) -> float:
    """Return the rate of f64 over that of f32, on tensor cores if they support f64."""
    return _F64.get(capability, _F64_OF_OTHERS)


def f64_slots(capability: int) -> int:
    """Return the issue slots of an f64 multiply-add, in those of an f32 one, without tensor cores."""
    return 2 if capability in _HALF_F64 else 64


def most_memory_bytes(capability: int) -> int:
    """Return the memory of the largest GPU of an architecture, in bytes; a very large number if unknown."""
    return _MOST_GB.get(capability, 1 << 40) * 10**9


def f32_lanes(capability: int) -> int:
    """Return the f32 multiply-adds per cycle of a unit."""
    return 64 if capability in (70, 75, 80) else 128
