"""Searches simulated on recorded outcomes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tuning_fakes import PROBLEM, FakeWorker, Row, RowStrategy, row

from tilewright.device import Device, for_architecture
from tilewright.kernels.family import Rule
from tilewright.problem import Problem
from tilewright.record import Record
from tilewright.search.experience import Experience, Lesson
from tilewright.search.replay import Replay, mean_shares, replay
from tilewright.tuning.protocol import Job

DEVICE = for_architecture("sm_90")


def recorded(*places: int) -> list[Record]:
    worker = FakeWorker(Job(str(PROBLEM)))
    return [worker.run(row(i)) for i in places]


def go(records: list[Record], strategy: str = "all", **options: object) -> Replay | None:
    return replay(PROBLEM, DEVICE, [Row()], records, strategy, make=RowStrategy, **options)


def test_shares_grow_with_measurements() -> None:
    report = go(recorded(*range(100)), counts=(0, 1, 8, 50, 100))
    assert report and report.best_us == 40.0
    assert report.best_config == str(row(60))
    assert report.share(0) == report.share(1) == pytest.approx(0.4)
    assert report.share(8) == pytest.approx(40 / 93)
    assert report.share(50) == pytest.approx(40 / 51)
    assert report.share(100) == 1.0
    assert (report.recorded, report.measured, report.passed_over) == (100, 100, 0)


def test_no_more_are_measured_than_there_are_trials() -> None:
    """Of 40, three are proposed at a time."""
    report = go(recorded(*range(100)), counts=(40,))
    assert report and report.measured == len(RowStrategy.made[-1].told) == 40


def test_unrecorded_proposals_cost_nothing() -> None:
    report = go(recorded(10, 60), counts=(0, 1, 2))
    assert report and report.share(0) == report.share(1) == pytest.approx(40 / 90)
    assert report.share(2) == 1.0
    assert report.passed_over > 50
    told = RowStrategy.made[-1].told
    assert [r.config for r in told] == [str(row(10)), str(row(60))]


def test_failures_are_told_and_count_as_measurements() -> None:
    FakeWorker.outcomes = {0: "runtime"}
    try:
        report = go(recorded(0, 1, 60), counts=(0, 1, 2))
    finally:
        FakeWorker.outcomes = {}
    assert report and report.share(0) == pytest.approx(40 / 99)  # the first that is right
    assert report.share(1) == 0.0
    assert report.share(2) == pytest.approx(40 / 99)


def test_only_this_problem_and_family_count() -> None:
    assert go([replace(r, problem="n1c1h1w1k1r1s1-f32") for r in recorded(60, 61)]) is None
    others = [replace(r, family="other", config=f"other:i={i}") for i, r in enumerate(recorded(60, 61))]
    assert go(others) is None
    assert go([]) is None
    report = go([*others, *recorded(0, 10)])
    assert report and (report.recorded, report.best_config) == (2, str(row(10)))


class Even(Row):
    """A row that may stop at even places only, though it was tried at all of them."""

    def rules(self, device: Device) -> tuple[Rule, ...]:
        return (Rule("even", lambda i: i % 2 == 0, "as of late"),)


def test_a_search_knows_nothing_of_the_layer_itself_and_tries_what_is_legal_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a report would say how well it finds what it was told."""
    other = replace(PROBLEM, k=5)
    lessons = [Lesson(DEVICE, problem, "row", ((str(row(60)), 1.0),)) for problem in (PROBLEM, other)]
    asked: list[tuple[object, ...]] = []

    def made(name: str, family: Row, problem: Problem, device: Device, *given: Any) -> RowStrategy:
        seed, among, known = given
        asked.append((name, seed, among, [lesson.problem for lesson in known.lessons]))
        return RowStrategy(name, family, problem, device, seed)

    monkeypatch.setattr("tilewright.search.replay.shipped", lambda chip: Experience(lessons))
    monkeypatch.setattr("tilewright.search.strategies.make", made)
    gone = replace(recorded(2)[0], config="row:i=2.j=1")
    report = replay(PROBLEM, DEVICE, [Even()], [*recorded(60, 7, 10), gone], "random", (0, 8), seed=3)
    assert report and asked == [("random", 3, [row(10), row(60)], [other])] * 2


def test_a_single_right_record_says_nothing() -> None:
    assert go(recorded(60)) is None
    FakeWorker.outcomes = {0: "runtime"}
    try:
        assert go(recorded(0, 60)) is None
    finally:
        FakeWorker.outcomes = {}


def test_zero_count_alone_still_looks_at_one() -> None:
    report = go(recorded(60, 0), counts=(0,))
    assert report and report.share(0) == pytest.approx(0.4)


def test_the_last_record_of_a_config_counts() -> None:
    first, second = recorded(60, 60)
    assert second.measurement
    later = replace(second, measurement=replace(second.measurement, cold_us=44.0))
    report = go([first, *recorded(0), later])
    assert report and report.best_us == 44.0


def test_geometric_mean() -> None:
    reports = [
        Replay("p", "all", 1, 1.0, "c", ((0, 0.25), (8, 1.0)), 1, 0),
        Replay("q", "all", 1, 1.0, "c", ((0, 1.0), (8, 1.0)), 1, 0),
    ]
    assert mean_shares(reports) == {0: pytest.approx(0.5), 8: 1.0}
    assert mean_shares([Replay("p", "all", 1, 1.0, "c", ((0, 0.0),), 1, 0)]) == {0: 0.0}
