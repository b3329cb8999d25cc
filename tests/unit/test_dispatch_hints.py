"""Dispatch: what won elsewhere is verified here before it runs."""

from __future__ import annotations

import pytest
from dispatch_samples import DEVICE, LAYER, FakePlan, Judge, box, choose, record, stage, winner

from tilewright.dispatch import choices
from tilewright.errors import StoreBusy
from tilewright.plans import plan_cache
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.store import Store

__all__ = ["box", "stage"]  # fixtures


def test_a_hint_is_verified_once_then_trusted(box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge()
    monkeypatch.setattr(choices, "verified", judge)
    box.add(record(6, context={"compiler": "old"}))
    assert choose(box) == ("tiles:t=6", "older source, verified here")
    plan_cache.forget()
    assert choose(box) == ("tiles:t=6", "")
    assert judge.asked == [6]


def test_an_import_that_fails_here_is_never_run(box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(t6="correctness", t4="compile")
    monkeypatch.setattr(choices, "verified", judge)
    box.add_all([record(6, 1.0), record(4, 2.0)], "imported")
    assert "untuned" in choose(box)[1]
    assert judge.asked == [6, 4] and FakePlan.made == ["tiles:t=1"]
    plan_cache.forget()
    assert "untuned" in choose(box)[1]
    assert judge.asked == [6, 4], "what failed once is not tried again"


@pytest.mark.parametrize("outcome", ["runtime", "timeout"])
def test_what_ran_out_of_memory_or_time_is_tried_again(
    box: Store, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    judge = Judge(t6=outcome)
    monkeypatch.setattr(choices, "verified", judge)
    box.add(record(6, 1.0), "imported")
    assert "untuned" in choose(box)[1]
    plan_cache.forget()
    judge.outcomes = {}
    assert choose(box) == ("tiles:t=6", "imported, verified here")


def test_an_import_that_breaks_a_rule_is_not_even_tried(box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge()
    monkeypatch.setattr(choices, "verified", judge)
    strange = [record(9, 1.0), record(1, 1.0, config="tiles:x=1"), record(1, 1.0, config="nonsense")]
    box.add_all(
        [*strange, record(1, 1.0, config="reference:v=1", family="reference"), record(8, 5.0)], "imported"
    )
    assert choose(box)[0] == "tiles:t=8"
    assert judge.asked == [8]


def test_at_most_two_hints_are_verified(box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(t2="correctness", t4="correctness", t6="correctness")
    monkeypatch.setattr(choices, "verified", judge)
    box.add_all([record(t, float(t)) for t in (2, 4, 6)], "imported")
    choose(box)
    assert judge.asked == [2, 4]


def test_a_hint_that_nobody_verified_may_be_the_models_choice(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tile 1, which the model likes best, is the third hint; then the first, and no worker is to be had."""
    monkeypatch.setattr(choices, "verified", Judge(t4="correctness", t6="correctness"))
    box.add_all([record(4, 1.0), record(6, 2.0), record(1, 3.0)], "imported")
    assert choose(box)[0] == "tiles:t=1"
    monkeypatch.setattr(choices, "verified", lambda *_: None)
    box.clear()
    box.add(record(1), "imported")
    plan_cache.forget()
    assert choose(box)[0] == "tiles:t=1"


def test_without_a_worker_nothing_is_held_against_a_hint(box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "verified", lambda *_: None)
    box.add(record(4), "imported")
    assert "untuned" in choose(box)[1]
    assert len(box.records()) == 1


def test_who_wants_the_same_bits_each_time_gets_no_hint_that_turns_out_to_give_others(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "verified", lambda *_: record(4, deterministic=False))
    box.add(record(4), "imported")
    assert choose(box, deterministic=True)[0] == "tiles:t=2"
    monkeypatch.setattr(choices, "verified", lambda *_: record(5))
    box.clear()
    box.add(record(5), "imported")
    plan_cache.forget()
    assert choose(box) == ("tiles:t=5", "imported, verified here")


def test_who_wants_the_same_bits_each_time_gets_no_winner_of_a_layer_alike_that_gives_others(
    box: Store,
) -> None:
    """Nor one that this layer may not have: its record, made by hand, says other things than its family."""
    for t, words in ((5, "+silu"), (9, "+bias"), (6, "+bias+silu")):
        box.add(winner(t, 1.0, deterministic=True, problem=f"{LAYER}{words}"))

    def alike(deterministic: bool) -> list[str]:
        request = Request(Problem.parse(f"{LAYER}+relu"), deterministic)
        found = list(choices.candidates(request, DEVICE, "c1", box, lambda config: None))
        return sorted(str(config) for config, why in found if why.like)

    assert (alike(True), alike(False)) == (["tiles:t=6"], ["tiles:t=5", "tiles:t=6"])


def test_a_hint_that_was_verified_runs_though_it_cannot_be_remembered(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "verified", Judge())
    box.add(record(4), "imported")

    def fail(*given: object) -> None:
        raise StoreBusy("another process writes")

    monkeypatch.setattr(box, "add", fail)
    with pytest.warns(RuntimeWarning, match="the store cannot be written: another process writes"):
        assert choose(box) == ("tiles:t=4", "imported, verified here")
