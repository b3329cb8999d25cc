"""What came with which architecture, and what a device says of its own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tilewright.device import ARCHITECTURES, Device, DeviceType, architectures, for_architecture
from tilewright.device.architectures import MMA_E4M3, MMA_SYNC, TENSOR_I8, capability


@pytest.mark.parametrize(
    ("arch", "number"),
    [("sm_90", 90), ("sm_90a", 90), ("sm_120", 120), ("sm_9", 0), ("sm_90 -x", 0), ("gfx90a", 0), ("", 0)],
)
def test_capability_of_a_name(arch: str, number: int) -> None:
    assert capability(arch) == number


def test_a_device_knows_what_it_is() -> None:
    gpu = for_architecture("sm_90")
    assert (gpu.is_gpu, gpu.is_cuda, gpu.capability) == (True, True, 90)
    other = replace(gpu, backend="opencl")  # whatever its compiler calls it
    assert (other.is_gpu, other.is_cuda, other.capability) == (True, False, 0)
    core = replace(other, type=DeviceType.CPU, lanes=16, arch="znver3-v16")
    assert (core.is_gpu, core.is_cuda, core.capability) == (False, False, 0)


def test_a_type_is_written_where_lanes_do_not_tell_it() -> None:
    """Files of devices as there are have none, and are read."""
    gpu = for_architecture("sm_90")
    wave = replace(gpu, backend="opencl", lanes=64)
    core = replace(wave, type=DeviceType.CPU, lanes=16)
    assert ["type" in one.facts for one in (gpu, wave, core)] == [False, True, False]
    assert all(Device.of(json.loads(json.dumps(one.facts))) == one for one in (gpu, wave, core))
    assert wave.is_gpu and not wave.orders_blocks and core.orders_blocks


def test_facts_follow_the_architecture() -> None:
    assert [for_architecture(arch).max_cluster for arch in ARCHITECTURES] == [1, 1, 8, 8]
    assert architectures.tensor_products(70) == architectures.tensor_products(TENSOR_I8) == 512
    assert architectures.tensor_products(61) == architectures.tensor_macs(TENSOR_I8) == 0
    for number in (MMA_SYNC, 86, MMA_E4M3, 90, 100, 120):  # mma.sync reaches no more than there is
        assert 0 < architectures.tensor_macs(number) <= architectures.tensor_products(number)
    assert architectures.f64_rate(80) == 1 > architectures.f64_rate(86)
    assert architectures.f64_slots(90) == 2 < architectures.f64_slots(120)
