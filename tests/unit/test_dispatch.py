"""Dispatch: which config is taken when, what happens if it fails, and what the note says."""

from __future__ import annotations

import sqlite3
import time
import warnings
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from dispatch_samples import (
    DEVICE,
    LAYER,
    REAL_RANKED,
    RUNTIME,
    FakePlan,
    Judge,
    Tiles,
    box,
    choose,
    planned,
    record,
    stage,
    tile,
    winner,
)

from tilewright.device import Device, DeviceType, parse_selector
from tilewright.dispatch import choices
from tilewright.errors import CompileError, ConfigError, EmptySpace, OutOfMemory, RunError, StoreBusy
from tilewright.kernels.family import Family, Rule
from tilewright.plans import plan_cache
from tilewright.plans.provenance import UNSAID
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.search import ranking
from tilewright.search import strategies as search
from tilewright.store import Store, brief

__all__ = ["box", "stage"]  # fixtures


def test_the_stored_winner_is_taken_without_a_word(box: Store) -> None:
    box.add_all([record(4, 5.0), record(5, 9.0)])
    assert choose(box) == ("tiles:t=4", "")
    assert FakePlan.made == ["tiles:t=4"]


def test_the_advice_for_an_untuned_layer_asks_for_the_same() -> None:
    """Without them the command would say that the layer is known already, and the note would stay."""
    request = Request(LAYER, True, ("tiles", "plain"))
    _, why = next(choices.candidates(request, DEVICE, "c1", None, lambda config: None))
    assert f"run `tilewright tune {LAYER} --family tiles,plain --deterministic`" in why.note(LAYER)


@pytest.mark.parametrize(
    ("backend", "type", "index", "asked"),
    [
        ("cuda", "gpu", 0, ""), ("cuda", "gpu", 1, " --device cuda:1"), ("opencl", "cpu", 0, " --device cpu"),
        ("opencl", "gpu", 0, " --device opencl:0"), ("opencl", "cpu", 2, " --device opencl:2"),
    ],
)  # fmt: skip
def test_the_advice_names_the_device_that_tune_would_not_take_by_itself(
    backend: str, type: str, index: int, asked: str
) -> None:
    """A CPU's plan beside a GPU: without a device the command would tune for the GPU, and the note stay."""
    here = replace(DEVICE, backend=backend, type=DeviceType(type), index=index)
    _, why = next(choices.candidates(Request(LAYER), here, "c1", None, lambda config: None))
    assert f"run `tilewright tune {LAYER}{asked}`" in why.note(LAYER)
    if asked:
        kind, number = parse_selector(asked.split()[-1])
        assert (kind, number) == ("cpu" if asked.endswith("cpu") else backend, index)


def test_untuned_is_the_models_choice_and_says_so(box: Store) -> None:
    for at in (None, box):
        config, note = choose(at)
        assert config == "tiles:t=1" and f"tilewright tune {LAYER}" in note
        assert note.startswith("untuned: the model's choice (not verified)")


def test_an_untuned_layer_takes_the_winner_of_a_layer_alike(box: Store) -> None:
    relu, pooled = Problem.parse(f"{LAYER}+bias+relu"), Problem.parse(f"{LAYER}+relu+maxpool2")
    box.add_all([winner(4, 9.0), winner(5, 5.0), winner(7, 1.0, problem=str(pooled)), record(6, 1.0)])
    note = f"untuned: a winner of a layer alike, {LAYER} (not verified); run `tilewright tune {relu}"
    assert choose(box, relu)[0] == "tiles:t=5"
    assert planned(relu, RUNTIME, box).why.note(relu) == f"{note}`"
    assert planned(relu, RUNTIME, box, True).why.note(relu) == f"{note} --deterministic`"
    assert choose(box, relu, True)[0] == "tiles:t=4"
    FakePlan.fails = {f"tiles:t={t}": CompileError("spills") for t in (4, 5)}
    plan_cache.forget()
    config, note = choose(box, relu)
    assert config == "tiles:t=1" and note.startswith("untuned: the model's choice"), "another pool's never"


def test_what_failed_is_not_tried_again(box: Store) -> None:
    """Whether it was this layer's winner, one of a layer alike, or the model's choice."""
    relu, silu = (Problem.parse(f"{LAYER}+{act}") for act in ("relu", "silu"))
    box.add_all([winner(1, 5.0), winner(3, 5.0, problem=str(relu)), winner(1, 5.0, problem=str(silu))])
    FakePlan.fails = {f"tiles:t={t}": CompileError("spills") for t in (1, 2, 3)}
    assert choose(box)[0] == str(choices.REFERENCE)
    assert FakePlan.made == [f"tiles:t={t}" for t in (1, 3, 2)] + [str(choices.REFERENCE)]


def test_a_stored_winner_whose_config_cannot_be_read_is_passed_over(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "verified", Judge())
    box.add(record(4, 5.0, config="tiles:t=four"))
    assert choose(box)[0] == "tiles:t=1"
    elsewhere = choices.candidates(Request(LAYER), DEVICE, "c1", box)
    assert [str(config) for config, _ in elsewhere][0] == "tiles:t=1"
    box.add(record(6), "imported")
    plan_cache.forget()
    assert choose(box) == ("tiles:t=6", "imported, verified here")


def test_deterministic_only(box: Store) -> None:
    box.add(record(5, 1.0))
    assert choose(box, deterministic=True)[0] == "tiles:t=2"
    box.add(record(4, 9.0))
    plan_cache.forget()
    assert choose(box, deterministic=True)[0] == "tiles:t=4"
    assert choose(box)[0] == "tiles:t=5"


@pytest.mark.parametrize("error", [CompileError("x"), ConfigError("x"), RunError("x"), OutOfMemory("x")])
def test_what_fails_falls_to_the_next(box: Store, error: Exception) -> None:
    box.add(record(4))
    FakePlan.fails = {"tiles:t=4": error, "tiles:t=1": error, "tiles:t=2": error}
    assert choose(box)[0] == "tiles:t=3"
    assert FakePlan.made == ["tiles:t=4", "tiles:t=1", "tiles:t=2", "tiles:t=3"]


def test_a_winner_that_does_not_compile_falls_to_what_others_found(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another architecture, or after a new compiler: shared winners first, then the model."""
    judge = Judge(t6="compile")
    monkeypatch.setattr(choices, "verified", judge)
    box.add(record(4))
    box.add_all([record(6, 1.0), record(2, 2.0)], "imported")
    FakePlan.fails = {"tiles:t=4": CompileError("spills for sm_80")}
    said = "imported, verified here; the winner tiles:t=4 cannot be used: spills for sm_80"
    assert choose(box) == ("tiles:t=2", said)
    assert judge.asked == [6, 2] and FakePlan.made == ["tiles:t=4", "tiles:t=2"]


def test_a_winner_without_room_is_told_and_asked_for_again(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(plan_cache, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    box.add(record(4))
    FakePlan.fails = {"tiles:t=4": OutOfMemory("5 GB needed")}
    said = "the model's choice (not verified); the winner tiles:t=4 does not fit into memory now: 5 GB needed"
    instead = planned(LAYER, RUNTIME, box)
    assert (str(instead.config), instead.note) == ("tiles:t=1", said)
    FakePlan.made.clear()
    for now in (100.0, 100.0 + 0.9 * plan_cache.RETRY_S):
        clock[0] = now
        assert planned(LAYER, RUNTIME, box) is instead and not FakePlan.made, "not in each call"
    for _ in range(2):
        clock[0] += plan_cache.RETRY_S
        assert [planned(LAYER, RUNTIME, box) for _ in range(3)] == [instead] * 3
    assert FakePlan.made == ["tiles:t=4"] * 2
    FakePlan.fails = {}
    clock[0] += plan_cache.RETRY_S
    assert choose(box) == ("tiles:t=4", "") == choose(box)
    assert FakePlan.made == ["tiles:t=4"] * 3


def test_a_winner_without_room_is_asked_for_at_once_where_plans_were_evicted(box: Store) -> None:
    box.add(record(4))
    other = Problem.parse("c1h8k8r1")
    planned(other, RUNTIME)
    FakePlan.fails = {"tiles:t=4": OutOfMemory("5 GB needed")}
    instead = planned(LAYER, RUNTIME, box)
    FakePlan.fails = {}
    assert planned(LAYER, RUNTIME, box) is instead
    plan_cache.forget(other)
    assert choose(box) == ("tiles:t=4", "")


def test_only_a_winner_without_room_is_asked_for_again(box: Store) -> None:
    """Whatever the words of the error are."""
    box.add(record(4))
    FakePlan.fails = {"tiles:t=4": CompileError("does not fit into memory now (not verified)")}
    instead = planned(LAYER, RUNTIME, box)
    said = "the winner tiles:t=4 cannot be used: does not fit into memory now (not verified)"
    assert instead.note.endswith(said)
    FakePlan.fails = {}
    assert planned(LAYER, RUNTIME, box) is instead


def test_the_last_resort_is_the_reference(box: Store) -> None:
    FakePlan.fails = {f"tiles:t={t}": CompileError("x") for t in (1, 2, 3)}
    said = "slow: the reference kernel, since no other could be used (the last that was tried: x)"
    assert choose(box) == ("reference:v=1", said)
    groups = Problem.parse("n1c64h56w56k128r3s3p1g2-f32")
    said = "slow: the reference kernel, since no other could be used (tiles: takes no groups)"
    assert choose(box, groups) == ("reference:v=1", said)
    empty = Problem.parse("n0c64h56w56k128r3s3p1-f32")
    assert choose(box, empty) == ("reference:v=1", "")


def test_a_batch_of_0_has_nothing_to_choose_from_on_a_device_that_is_not_here(box: Store) -> None:
    empty = Request(Problem.parse("n0c64h56w56k128r3s3p1-f32"))
    assert list(choices.candidates(empty, DEVICE, "c1", box)) == [(choices.REFERENCE, UNSAID)]


def test_on_a_device_that_is_not_here_winners_come_as_they_are(box: Store) -> None:
    """All that may win, each once, and in the end the reference, which says why families were passed over."""
    box.add_all([record(4, 5.0)])
    box.add_all([record(t, 9.0 + t) for t in (2, 6, 8)], "imported")
    found = [(str(c), why.note(LAYER)) for c, why in choices.candidates(Request(LAYER), DEVICE, "c1", box)]
    model = [(f"tiles:t={t}", "the model's choice (not verified)") for t in (1, 3)]
    elsewhere = [(f"tiles:t={t}", "imported winner (not verified)") for t in (2, 6, 8)]
    slow = ("reference:v=1", "slow: the reference kernel, since no other could be used")
    assert found == [("tiles:t=4", ""), *elsewhere, *model, slow]


def test_if_nothing_works_the_need_for_memory_is_told() -> None:
    FakePlan.fails = {f"tiles:t={t}": CompileError("x") for t in (1, 3)}
    FakePlan.fails |= {"tiles:t=2": OutOfMemory("5 GB needed"), "reference:v=1": CompileError("y")}
    with pytest.raises(OutOfMemory, match="5 GB"):
        choose()


def test_a_store_that_fails_is_said_once_and_done_without(box: Store) -> None:
    box.path.unlink(missing_ok=True)
    box.path.mkdir()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert "untuned" in choose(box)[1]
        plan_cache.forget()
        assert "untuned" in choose(box)[1]
    assert len(caught) == 1 and "the store is not used" in str(caught[0].message)


def test_a_locked_store_is_waited_for_once_and_asked_again_later(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the winner, and does not change."""
    clock = [100.0]
    monkeypatch.setattr(plan_cache, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(brief, "BRIEF_S", 0.3)
    layers = LAYER, replace(LAYER, k=64), replace(LAYER, k=32)
    box.add_all(record(4, problem=str(layer)) for layer in layers)
    with closing(sqlite3.connect(box.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        start = time.monotonic()
        with pytest.warns(RuntimeWarning, match="the store is not used: .* is locked") as caught:
            assert all("untuned" in choose(box, layer)[1] for layer in layers)
        clock[0] += 1.1 * plan_cache.RETRY_S
        assert "untuned" in choose(box)[1]
        assert 0.2 < time.monotonic() - start < 2 and len(caught) == 1
    clock[0] += 1.1 * plan_cache.RETRY_S
    assert "untuned" in choose(box)[1] and len(box.records()) == 3, "others wait as long as they want"
    monkeypatch.setattr(brief, "REST_S", 0.0)
    clock[0] += 1.1 * plan_cache.RETRY_S
    assert [choose(box, layer)[0] for layer in layers] == ["tiles:t=4"] * 3


def test_a_store_that_others_only_write_to_is_read(box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brief, "BRIEF_S", 0.1)
    box.add(record(4))
    with closing(sqlite3.connect(box.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        mine = brief.briefly(box)
        with pytest.raises(StoreBusy):
            mine.add(record(2))
        assert brief.gave_up(mine) and not brief.gave_up(box) and brief.briefly(mine) is mine
        assert choose(box)[0] == "tiles:t=4"


def test_the_model_over_all_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configs of all families by their estimate."""

    def rank_all(problem: Problem, device: Device, families: list[Family], count: int) -> list[Any]:
        return [(tile(t), float(us)) for t, us in ((2, 3), (4, 4), (1, 5))]

    monkeypatch.setattr("tilewright.search.ranking.rank_all", rank_all)
    for deterministic, want in ((False, [2, 4, 1]), (True, [2, 4])):
        assert [c["t"] for c in REAL_RANKED(LAYER, DEVICE, [Tiles()], deterministic)] == want


def test_an_empty_space_is_passed_over_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "ranked_for", REAL_RANKED)
    never = Rule("never", lambda t: t > 9, "no tile is right")
    monkeypatch.setattr(Tiles, "rules", lambda self, device: (never,))
    config, note = choose()
    assert config == "reference:v=1" and f"(tiles: no config of tiles is legal for {LAYER})" in note
    with pytest.raises(EmptySpace, match="no config of tiles is legal"):
        ranking.rank(LAYER, DEVICE, Tiles(), 1)
    assert search.make("all", Tiles(), LAYER, DEVICE).propose(3) == []


def test_the_stored_winner_is_of_exactly_these_kernels(box: Store) -> None:
    box.add_all([record(2, 1.0, context={"compiler": "c0"}), record(4, 5.0)])
    found = choices.stored(Request(LAYER), RUNTIME, box)
    assert found and found.config == "tiles:t=4"
