"""Calibration on a pretended device: the best shape, the best run, the best of all times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright import errors
from tilewright.device import ARCHITECTURES, Device, DeviceType, for_architecture
from tilewright.errors import DeviceError
from tilewright.kernels.untuned import tools
from tilewright.measuring import calibrate as calibration
from tilewright.measuring.calibrate import calibrate
from tilewright.runtime import cache_folder, rates
from tilewright.runtime.host import NumpyRuntime

GPU = for_architecture("sm_90")
CPU = replace(GPU, backend="opencl", type=DeviceType.CPU, units=4, lanes=16, max_cluster=1)


class Pretended:
    """A runtime whose launches take as long as is said, the first runs longer."""

    def __init__(self, device: Device = GPU, slowdown: float = 1.0) -> None:
        self.device, self.slowdown, self.runs, self.last = device, slowdown, 0, ""
        self.times: dict[str, float] = {"empty": 4.0, "flush": 104.0, "multiply_add": 504.0}

    def compile(self, blueprint: Any) -> Any:
        return dict(blueprint.defines)

    def load(self, built: Any) -> Any:
        return built

    def alloc(self, nbytes: int) -> Any:
        return SimpleNamespace(nbytes=nbytes)

    def fill(self, memory: Any, byte: int) -> None:
        assert byte == 0

    def launch(self, loaded: Any, launch: Any, memories: list[Any]) -> None:
        assert len(memories) == len(launch.args)
        wide = loaded.get("CHAINS") == 4 and launch.grid[0] == 8 * self.device.units
        self.last = "best" if wide else launch.kernel

    def synchronize(self) -> None: ...

    def timed(self, run: Any) -> float:
        run()
        self.runs += 1
        us = 4.0 + 300.0 * self.slowdown if self.last == "best" else self.times[self.last]
        return us * (1.5 if self.runs < 4 else 1.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(calibration, "_SECONDS", 0.0)
    yield


def test_the_fastest_shape_counts_and_the_empty_kernel_is_taken_off() -> None:
    runtime: Any = Pretended()
    found = calibrate(runtime)
    (best,) = [
        peak.flops for peak in tools.peaks(GPU)
        if (dict(peak.blueprint.defines)["CHAINS"], peak.blueprint.launches[0].grid[0]) == (4, 8 * GPU.units)
    ]  # fmt: skip
    assert (found.empty_us, found.source) == (4.0, "calibrated")
    assert found.read_gbs == pytest.approx(calibration.READ_BYTES / 100.0 / 1e3, rel=1e-3)
    assert found.f32_tflops == pytest.approx(best / 300.0 / 1e6, rel=1e-3)
    assert rates.calibrated(GPU).rates == found == runtime.device.rates


def test_the_best_of_all_times_counts_unless_it_is_forgotten() -> None:
    best = calibrate(Pretended())  # type: ignore[arg-type]
    busy: Any = Pretended(slowdown=1.4)
    assert calibrate(busy) == best == busy.device.rates
    slow = calibrate(busy, anew=True)
    assert slow.f32_tflops == pytest.approx(best.f32_tflops / 1.4, rel=1e-3)
    assert calibrate(Pretended()) == best  # type: ignore[arg-type]


def test_what_was_measured_is_remembered_beside_what_kernels_made_of_it() -> None:
    best = calibrate(Pretended())  # type: ignore[arg-type]
    raised = replace(best, f32_tflops=1.2 * best.f32_tflops)
    rates.keep(GPU, raised, rates.measured(GPU))
    busy: Any = Pretended(slowdown=1.4)
    assert calibrate(busy) == raised and rates.measured(GPU) == best
    slow = calibrate(busy, anew=True)
    assert slow.f32_tflops < best.f32_tflops and rates.measured(GPU) == slow == rates.calibrated(GPU).rates


def kept(device: Device) -> Path:
    """Return the file of a device's rates."""
    return cache_folder.folder() / "rates" / rates._name(device)


def test_rates_that_cannot_be_kept_are_told_and_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(errors, "_warned", set())
    (tmp_path / "rates").touch()
    runtime: Any = Pretended()
    with pytest.warns(RuntimeWarning, match="cannot keep the calibrated rates"):
        assert calibrate(runtime) == runtime.device.rates
    (tmp_path / "rates").unlink()
    kept(GPU).mkdir(parents=True)  # what is written aside cannot take its place
    monkeypatch.setattr(errors, "_warned", set())
    with pytest.warns(RuntimeWarning, match="cannot keep the calibrated rates"):
        rates.keep(GPU, GPU.rates)
    assert list((tmp_path / "rates").iterdir()) == [kept(GPU)], "nothing is left behind"


@pytest.mark.parametrize("damage", ["", "[]", "{}", "[" * 100_000])
def test_damaged_rates_are_none(damage: str) -> None:
    rates.keep(GPU, GPU.rates)
    kept(GPU).write_text(damage)
    assert rates.calibrated(GPU) == GPU


class OneCoreTaken(Pretended):
    """A CPU one of whose cores does something else: what waits for all of them takes 1.4 times as long."""

    def launch(self, loaded: Any, launch: Any, memories: list[Any]) -> None:
        super().launch(loaded, launch, memories)
        taken = launch.kernel == "multiply_add" and launch.grid[0] > 1
        self.last = "taken" if taken else launch.kernel

    def timed(self, run: Any) -> float:
        self.times["taken"] = 4.0 + 1.4 * 500.0
        return super().timed(run)


def test_a_core_that_is_taken_does_not_lower_the_peak() -> None:
    found = calibrate(OneCoreTaken(CPU))  # type: ignore[arg-type]
    most = max(peak.flops for peak in tools.peaks(CPU))
    assert found.f32_tflops == pytest.approx(most / 500.0 / 1e6, rel=1e-3)
    assert found.read_gbs == pytest.approx(calibration.CPU_READ_BYTES / 100.0 / 1e3, rel=1e-3)


class ByWork(Pretended):
    """A CPU whose cores take 500 us for a unit's share of a shape: a block of it, or several."""

    def launch(self, loaded: Any, launch: Any, memories: list[Any]) -> None:
        super().launch(loaded, launch, memories)
        if launch.kernel == "multiply_add":
            block = loaded["CHAINS"] * loaded["TURNS"] * loaded["ROUNDS"] / (1 << 21)
            self.times["multiply_add"] = 4.0 + 500.0 * block * -(-launch.grid[0] // self.device.units)
            self.last = "multiply_add"


def test_one_core_counts_for_all_where_each_has_one_block() -> None:
    """A block of a shape with several for each core is less than a core's share."""
    found = calibrate(ByWork(CPU))  # type: ignore[arg-type]
    most = max(peak.flops for peak in tools.peaks(CPU))
    assert found.f32_tflops == pytest.approx(most / 500.0 / 1e6, rel=0.01)


@pytest.mark.parametrize(
    "times", [{"flush": 1.0}, {"flush": 4.0}, {"multiply_add": 3.0}, {"empty": 0.0}, {"empty": -1.0}]
)
def test_times_that_make_no_sense_are_refused(times: dict[str, float]) -> None:
    odd: Any = Pretended()
    odd.times |= times
    with pytest.raises(DeviceError, match="in other use"):
        calibrate(odd)
    assert rates.calibrated(GPU).rates.source != "calibrated"


def test_numpy_has_no_rates() -> None:
    with pytest.raises(DeviceError, match="NumPy runs no kernels"):
        calibrate(NumpyRuntime())


@pytest.mark.parametrize("later", [3.0, 5.0])
def test_the_least_time_of_an_empty_kernel_counts(later: float) -> None:
    calibrate(Pretended())  # type: ignore[arg-type]
    again: Any = Pretended()
    again.times["empty"] = later
    assert calibrate(again).empty_us == min(4.0, later)


@pytest.mark.parametrize("device", [GPU, CPU, replace(CPU, lanes=8), replace(CPU, lanes=4)])
def test_every_shape_does_the_same_work(device: Device) -> None:
    shapes = tools.peaks(device)
    assert len(shapes) >= 2
    for shape in shapes:
        d, (launch,) = dict(shape.blueprint.defines), shape.blueprint.launches
        each = d["VECTOR"] * d["CHAINS"] * d["TURNS"] * d["ROUNDS"]
        assert shape.flops == 2 * launch.grid[0] * launch.block[0] * each
        assert d["VECTOR"] * (d["CHAINS"] + 1) <= tools.PEAK_FLOATS
        assert d["VECTOR"] <= max(device.lanes, 4) and d["ROUNDS"] > 16
    widest = max(dict(shape.blueprint.defines)["VECTOR"] for shape in shapes)
    alike = {round(s.flops / dict(s.blueprint.defines)["VECTOR"] * widest, -8) for s in shapes}
    assert max(alike) <= 1.01 * min(alike)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_blocks_of_a_gpu_run_at_once(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    device = for_architecture(arch)
    for shape in tools.peaks(device):
        (found,) = compile_cuda(shape.blueprint, arch).resources.values()
        blocks, threads = shape.blueprint.launches[0].grid[0] // device.units, 256
        assert found.local_bytes == 0
        assert -(-found.registers // 8) * 8 * threads * blocks <= device.regs_per_unit
        assert threads * blocks <= device.threads_per_unit
