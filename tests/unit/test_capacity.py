"""Whether a problem's arrays find room is told from sizes alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright
from tilewright.checking import room
from tilewright.errors import ProblemError
from tilewright.problem import Problem
from tilewright.runtime import capacity

LAYER = Problem.parse("n1c1024h32w32k1024r1s1-f32")  # x, w and y of 4 MiB


def runtime(unified: bool, nbytes: int, array_bytes: int = 1 << 62) -> Any:
    device = SimpleNamespace(name="the device")
    return SimpleNamespace(
        device=device, unified=unified, array_bytes=array_bytes, memory_bytes=lambda: nbytes
    )


def test_the_host_is_known_and_a_container_is_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert capacity.host_bytes() > 1 << 28
    monkeypatch.setattr(capacity, "_LIMIT", tmp_path / "max")
    for text, found in (("1000000", 1_000_000), ("max", None)):
        (tmp_path / "max").write_text(text)
        assert found is None or capacity.host_bytes() == found
    assert capacity.host_bytes() > 1 << 28


@pytest.mark.parametrize(("files", "found"), [
    ({"cpu.max": "200000 100000\n"}, 2), ({"cpu.max": "150000 100000"}, 2), ({"cpu.max": "5000 100000"}, 1),
    ({"cpu.max": "1600000 100000"}, 8), ({"cpu.max": "max 100000"}, 8), ({"cpu.max": "many"}, 8), ({}, 8),
    ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
    ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
    ({"cpu/cpu.cfs_quota_us": "300000"}, 8),
])  # fmt: skip
def test_a_container_may_have_the_time_of_fewer_cores(
    files: dict[str, str], found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(capacity, "_CGROUP", tmp_path)
    monkeypatch.setattr(capacity.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert capacity.cores() == found


@pytest.mark.parametrize(("text", "limited"), [("1000000\n", True), (str((1 << 63) - 4096), False)])
def test_an_older_container_is_smaller_too(
    text: str, limited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(text)
    monkeypatch.setattr(capacity, "_CGROUP", tmp_path)
    assert (capacity.host_bytes() == 1_000_000) == limited


def test_inputs_twice_outputs_twice_and_three_of_f64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "host_bytes", lambda: 1 << 40)
    room.require_room(LAYER, runtime(False, 48 << 20))
    with pytest.raises(ProblemError, match=r"x 4.0 MiB, w 4.0 MiB, y 4.0 MiB, .* 48.0 MiB; the device has"):
        room.require_room(LAYER, runtime(False, (48 << 20) - 1))


def test_a_cpu_has_the_host_s_copies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "host_bytes", lambda: 64 << 20)
    room.require_room(LAYER, runtime(True, 0))
    room.require_room(LAYER)
    monkeypatch.setattr(room, "host_bytes", lambda: (64 << 20) - 1)
    room.require_room(LAYER)
    with pytest.raises(ProblemError, match="this machine has 64.0 MiB of memory"):
        room.require_room(LAYER, runtime(True, 0))


def test_an_array_larger_than_a_device_takes_is_named() -> None:
    layer = Problem.parse("n1c16h64w64k8r1s1-f32")
    assert layer.operands["x"].nbytes == 256 << 10
    room.require_room(layer, runtime(True, 0, 256 << 10))
    told = r"x of shape \(1, 16, 64, 64\) has 262,144 bytes; the device takes at most 262,143 in one array"
    with pytest.raises(ProblemError, match=told):
        room.require_room(layer, runtime(True, 0, (256 << 10) - 1))


@pytest.mark.usefixtures("own_cache")
def test_it_is_refused_when_the_layer_is_planned(cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when it is called, where all that OpenCL says is that a buffer size is wrong."""
    assert cpu.array_bytes >= 128 << 20
    monkeypatch.setattr(cpu, "array_bytes", 1000)
    with pytest.raises(ProblemError, match="too large: w of shape .* at most 1,000 in one array"):
        tilewright.plan("n1c4h4w4k16r3s3p1-f32", device="cpu")
    with pytest.raises(ProblemError, match="too large: w of shape"):
        tilewright.tune("n1c4h4w4k16r3s3p1-f32", device="cpu", budget="1trials")
