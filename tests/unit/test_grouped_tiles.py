"""Tiles of the grouped family on a CPU for filters of one tap to few channels (``grouped_runs.cu``)."""

from __future__ import annotations

import pytest
from test_direct_cpu import AVX2, CORES

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.kernels import family_of
from tilewright.kernels.grouped.runs import LEAST_RUN, MOST_FILTERS, NEAR_BYTES, run_of, takes
from tilewright.kernels.grouped.tile import Kernel, kernel_of
from tilewright.kernels.word import word_bytes
from tilewright.problem import Problem
from tilewright.search.space import space

GROUPED = family_of("grouped")


@pytest.mark.parametrize("text", [
    "n1c64h20w20k22r1s1-f32", "n1c64h20w20k2r1s1p1-f32", "n1c64h20w20k2r1s1u2-f32",
    "n1c64h20w20k2r1s3p0x1-f32", "n1c64h20w20k2r1s1-f32-nhwc",
])  # fmt: skip
def test_other_layers_are_not_its_own(text: str) -> None:
    problem = Problem.parse(text)
    assert not takes(problem, CORES)
    planes = problem.layout_in == "nchw"
    assert kernel_of(problem, CORES, 4, 1, 1) is (Kernel.COLUMNS if planes else Kernel.IN_PLACE)


@pytest.mark.parametrize("text", [
    "n1c64h256w256k2r1s1-f32", "n3c39h37w35k15r1s1g3-f64", "n1c512h7w7k16r1s1-i8",
])  # fmt: skip
def test_runs_have_near_sums_and_leave_work_for_all_cores(text: str) -> None:
    problem, device = Problem.parse(text), CORES
    for config in space(GROUPED, problem, device).every():
        if config["v"] == 1:
            assert kernel_of(problem, device, 1, config["th"], config["tw"]) is Kernel.IN_PLACE
            continue
        run, step = run_of(problem, device, config.values), config["v"] * config["tw"]
        assert run % step == 0
        assert run == step or run * problem.kg * word_bytes(problem) <= NEAR_BYTES
        assert run < 2 * max(step, LEAST_RUN) or _items(problem, run) >= device.units


def _items(problem: Problem, run: int) -> int:
    return problem.n * problem.groups * ceil_div(problem.p * problem.q, run)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_sums_stay_in_registers(kind: str) -> None:
    """Of 16 vectors of 8 numbers of 32 bits, and of 32 of 16."""
    problem = Problem.parse(f"n1c64h64w64k6r1s1-{kind}")
    for device, vectors in ((AVX2, 16), (CORES, 32)):
        for config in space(GROUPED, problem, device).every():
            wide = config["v"] * (2 if kind == "f64" else 1) > device.lanes
            assert config["v"] == 1 or (7 * config["tw"] + 1) * (2 if wide else 1) <= vectors, config


@pytest.mark.parametrize(("device", "most"), [(AVX2, 14), (CORES, MOST_FILTERS)])
def test_more_sums_than_registers_are_left_to_the_kernel_of_columns(device: Device, most: int) -> None:
    for filters in (most, most + 1):
        problem = Problem.parse(f"n1c64h20w20k{filters}r1s1-f32")
        assert takes(problem, device) == (filters == most)
        assert next(iter(space(GROUPED, problem, device).every()), None) is not None
