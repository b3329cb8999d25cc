"""The GPU model's main memory: a few MB come slowly, long streams at nearly all of the bandwidth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.device import for_architecture
from tilewright.floor import floor
from tilewright.kernels import family_of
from tilewright.problem import Problem
from tilewright.search import model
from tilewright.search.ranking import rank

H100, GEMV = for_architecture("sm_90"), family_of("gemv")


def _memory_us(nbytes: float, streams: bool = False) -> float:
    problem = Problem.parse("n1c4096h1w1k4096r1s1-f32")
    work = GEMV.work(problem, H100, rank(problem, H100, GEMV, 1)[0][0])
    changed = replace(work, dram_bytes=nbytes, streams=streams)
    return model.gpu_estimate(H100, changed, model.H100).facts["dram_us"]


def test_long_streams_are_read_at_nearly_the_bandwidth() -> None:
    whole = 1e9 / (H100.rates.read_gbs * 1e3)
    assert _memory_us(1e7) == pytest.approx(whole / 100 / 0.592)
    assert _memory_us(1e9) == pytest.approx(whole / 0.95, rel=0.02)
    assert _memory_us(1e7, streams=True) == pytest.approx(whole / 100 / 0.95)


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
