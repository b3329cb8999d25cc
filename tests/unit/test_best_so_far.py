"""Dispatch, where the store has no answer yet: trials of an unfinished search, or of some families alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dispatch_samples import (
    LAYER,
    RUNTIME,
    WON,
    Judge,
    box,
    choose,
    planned,
    record,
    slab,
    stage,
    two,
    winner,
)

from tilewright.dispatch import choices, once
from tilewright.plans import plan_cache
from tilewright.plans.request import Request
from tilewright.record import Search, Spent, Standing
from tilewright.store import Store
from tilewright.store.record_json import from_json, to_json

__all__ = ["box", "stage", "two"]  # fixtures

SO_FAR = f"untuned: the best so far; run `tilewright tune {LAYER}`"


def trial(t: int, us: float) -> object:
    return record(t, us, standing=Standing.TRIAL)


def test_a_trial_says_that_it_is_one(box: Store) -> None:
    box.add_all([trial(4, 50.0), trial(2, 60.0)])
    assert choose(box) == ("tiles:t=4", SO_FAR)


@pytest.mark.parametrize(("us", "taken"), ((50.0, "tiles:t=6"), (5.0, "tiles:t=4")))
def test_a_trial_is_compared_with_what_others_found(
    box: Store, monkeypatch: pytest.MonkeyPatch, us: float, taken: str
) -> None:
    """An interrupted search leaves times that say little of what it would have found."""
    judge = Judge()  # finds 10 us
    monkeypatch.setattr(choices, "verified", judge)
    box.add(trial(4, us))
    box.add_all([record(6, 8.0), record(8, 9.0)], "imported")
    assert choose(box) == (taken, SO_FAR if taken == "tiles:t=4" else "")
    assert judge.asked == [6], "the likeliest is enough"
    plan_cache.forget()
    assert choose(box)[0] == taken
    assert judge.asked == [6], "nor is it verified again"


def test_a_trial_runs_where_no_hint_can_be_verified(box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "verified", lambda *_: None)
    box.add(trial(4, 50.0))
    box.add(record(6, 8.0), "imported")
    assert choose(box) == ("tiles:t=4", SO_FAR)


def test_on_a_device_that_is_not_here_a_trial_comes_after_hints(box: Store) -> None:
    box.add(trial(4, 50.0))
    box.add(record(6, 8.0), "imported")
    found = [str(config) for config, _ in choices.candidates(Request(LAYER), RUNTIME.device, "c1", box)]
    assert found[:2] == ["tiles:t=6", "tiles:t=4"]


def test_the_winner_of_some_families_is_no_answer_for_all(box: Store, two: None) -> None:
    box.add(slab(6, 50.0, stage="final", raced="slabs"))
    assert choose(box) == ("slabs:t=6", SO_FAR)
    assert planned(LAYER, RUNTIME, box, families=("slabs",)).note == ""
    plan_cache.forget()
    box.add(record(4, 5.0, context=WON))
    box.add(slab(6, 4.0, stage="final", raced="slabs"))
    assert choose(box) == ("slabs:t=6", ""), "it is faster than the winner of a search of all"


def test_families_that_the_budget_left_untried_were_asked_for(box: Store, two: None) -> None:
    """Who tuned with a small budget gets its winner without a word; a larger one searches on."""
    box.add(slab(6, 50.0, stage="final", raced="slabs", untried="tiles", cut_s="2", cut_trials="7"))
    assert choose(box) == ("slabs:t=6", "")
    assert once.settled(Request(LAYER), RUNTIME, box) is None
    search = Search(("slabs",), Spent(2.0, 7), ("tiles",))
    assert from_json(to_json(record(4, search=search))).search == search


def test_a_guess_waits_for_the_end_of_a_search(box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process searches, its first trial is no reason to leave the model's choice."""
    clock = [100.0]
    monkeypatch.setattr(plan_cache, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    guess = planned(LAYER, RUNTIME, box)
    for found, taken in ((trial(8, 900.0), str(guess.config)), (winner(4, 10.0), "tiles:t=4")):
        box.add(found)
        clock[0] += 2 * plan_cache.RETRY_S
        assert choose(box)[0] == taken


def test_a_winner_from_elsewhere_gives_way_to_one_of_here(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(plan_cache, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(choices, "verified", Judge())
    box.add(record(6, 8.0), "imported")
    hint = planned(LAYER, RUNTIME, box)
    assert hint.note == "imported, verified here"
    clock[0] += 2 * plan_cache.RETRY_S
    assert planned(LAYER, RUNTIME, box) is hint, "what it wrote itself is no news"
    box.add(winner(4, 5.0))
    clock[0] += 2 * plan_cache.RETRY_S
    assert choose(box) == ("tiles:t=4", "")
