"""The GPU model's memory: a few MB are read slowly, long streams and writes use nearly all bandwidth."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from importlib.resources import as_file, files

import pytest

from tilewright.device import Device, for_architecture
from tilewright.floor import floor
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.config import Config
from tilewright.problem import Problem
from tilewright.record import Estimate
from tilewright.search import model, trials_file
from tilewright.search.ranking import rank

H100, GEMV = for_architecture("sm_90"), family_of("gemv")
SAMPLE = 500  # trials of a family
# Root mean square of log(measured / estimated) over a sample of what ran on an H100, and a tenth of it more.
OFF_BY = dict(
    direct=0.25, gemm=0.19, gemv=0.18, grouped=0.26, grouped_mma=0.13, hopper=0.20, im2col=0.35,
    kn2row=0.17, mma=0.23, narrow=0.26, planar=0.21, shifted=0.17, small=0.35, stem=0.16, strassen=0.18,
    strassen2=0.20, toeplitz=0.29, winograd=0.23, winograd4=0.16, winograd8=0.12, winograd_rows=0.25,
)  # fmt: skip


def _estimate(**changes: float) -> Estimate:
    problem = Problem.parse("n1c4096h1w1k4096r1s1-f32")
    work = GEMV.work(problem, H100, rank(problem, H100, GEMV, 1)[0][0])
    return model.gpu_estimate(H100, replace(work, **changes), model.H100)


def _memory_us(read: float, written: float = 0.0, streams: bool = False) -> float:
    sectors = dict(blocks=100, store_sectors=written / 32 / 100)
    return _estimate(dram_bytes=read + written, streams=streams, **sectors).facts["dram_us"]


def test_long_streams_are_read_at_nearly_the_bandwidth() -> None:
    whole, k = 1e9 / (H100.rates.read_gbs * 1e3), model.H100
    assert _memory_us(1e7) == pytest.approx(whole / 100 / k.memory_share)
    assert _memory_us(1e9) == pytest.approx(whole / k.stream_share, rel=0.02)
    assert _memory_us(1e7, streams=True) == pytest.approx(whole / 100 / k.stream_share)


def test_what_is_written_is_not_waited_for() -> None:
    whole, k = 1e9 / (H100.rates.read_gbs * 1e3), model.H100
    assert _memory_us(0.0, 1e7) == pytest.approx(whole / 100 / k.stream_share)
    assert _memory_us(1e7, 1e7) == pytest.approx(_memory_us(1e7) + _memory_us(0.0, 1e7))


def test_launches_that_move_data_use_the_cache_as_far_as_it_goes() -> None:
    """No cliff where they move a little more than it holds."""

    def moving_us(nbytes: float) -> float:
        return _estimate(more_launches=2, more_bytes=nbytes).terms_us["other_launches_us"]

    none, held = moving_us(0.0), moving_us(H100.l2_bytes)
    assert none == pytest.approx(2 * model.H100.launch_us)
    assert held < moving_us(1.01 * H100.l2_bytes) < none + 1.03 * (held - none)
    beyond = (moving_us(3 * H100.l2_bytes) - held) / 2
    assert beyond == pytest.approx(H100.l2_bytes / (H100.rates.read_gbs * 1e3 * model.H100.stream_share))


@pytest.mark.parametrize("kind", ["f32", "f16", "i8"])
def test_classifiers_are_foretold_without_experience(kind: str) -> None:
    """CLASS1 on an H100: 136 us in f32 (97% of the floor), 73 in f16, 39 in i8."""
    problem = Problem.parse(f"n1c25088h1w1k4096r1s1-{kind}")
    best = min(
        model.estimate(GEMV, problem, H100, config).total_us for config, _ in rank(problem, H100, GEMV, 300)
    )
    assert 1.0 < best / floor(problem, H100).us < 1.2


def test_no_more_blocks_are_held_than_a_unit_has_room_for() -> None:
    problem = Problem.parse("n1c25088h1w1k4096r1s1-f32")
    for config, _ in rank(problem, H100, GEMV, 300):
        work = GEMV.work(problem, H100, config)
        assert work.resident * work.threads <= H100.threads_per_unit
        assert work.resident * work.shared_bytes <= H100.shared_per_unit


@lru_cache(maxsize=1)
def _ran() -> tuple[Device, dict[str, list[tuple[Problem, str, float]]]]:
    """The H100, and the trials of it that ship, by family."""
    with as_file(files("tilewright") / "data" / "experience" / "h100.jsonl.gz") as path:
        device, times = trials_file.read_times(path)
    ran = defaultdict(list)
    for (problem, family), of_layer in times.items():
        ran[family] += [(problem, config, us) for config, us in of_layer.items()]
    return device, ran


@pytest.mark.parametrize("name", OFF_BY)
def test_estimates_are_as_near_to_what_ran_as_they_were(name: str) -> None:
    """A constant or a term that is changed shows here, whatever it is for."""
    (device, ran), family = _ran(), family_of(name)
    trials = sorted(ran[name], key=lambda trial: (str(trial[0]), trial[1]))
    errors = [
        math.log(us / model.estimate(family, problem, device, Config.parse(config)).total_us)
        for problem, config, us in trials[:: max(1, len(trials) // SAMPLE)]
    ]
    assert math.hypot(*errors) / math.sqrt(len(errors)) < OFF_BY[name]


def test_estimates_of_all_families_are_compared_with_what_ran() -> None:
    without = {family.name for family in FAMILIES} - set(OFF_BY)
    assert without == {"reference", "textbook"} and set(_ran()[1]) == set(OFF_BY)
