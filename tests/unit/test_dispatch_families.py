"""Dispatch where there are several families: which of them a search has settled, which a caller named."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from dispatch_samples import (
    LAYER,
    RUNTIME,
    WON,
    FakePlan,
    Judge,
    box,
    choose,
    planned,
    record,
    slab,
    stage,
    two,
)

from tilewright.bench import race
from tilewright.dispatch import choices, dispatch, once
from tilewright.errors import CompileError, ConfigError, OutOfMemory, ProblemError, StoreBusy
from tilewright.plans import plan_cache
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue
from tilewright.record import Standing
from tilewright.store import Store
from tilewright.tuning.budget import Budget
from tilewright.tuning.events import TuneResult
from tilewright.tuning.options import TuneOptions

__all__ = ["box", "stage", "two"]  # fixtures


def test_a_pinned_family_is_taken_however_slow(box: Store, two: None) -> None:
    box.add_all([record(4, 5.0), slab(6, 50.0)])

    def chosen(*families: str) -> str:
        return str(planned(LAYER, RUNTIME, box, families=families).config)

    assert (chosen(), chosen("slabs"), chosen("slabs", "tiles")) == ("tiles:t=4", "slabs:t=6", "tiles:t=4")
    assert chosen("reference") == "reference:v=1"
    box.clear()
    plan_cache.forget()
    assert (chosen(), chosen("slabs")) == ("tiles:t=2", "slabs:t=2")


def test_a_pinned_family_that_cannot_is_an_error_and_not_the_reference(box: Store, two: None) -> None:
    groups = Problem.parse("n1c64h56w56k128r3s3p1g2-f32")
    with pytest.raises(ProblemError, match="slabs: takes no groups"):
        planned(groups, RUNTIME, box, families=("slabs",))
    FakePlan.fails = {"slabs:t=2": CompileError("spills")}
    with pytest.raises(CompileError, match="spills"):
        planned(LAYER, RUNTIME, box, families=("slabs",))
    with pytest.raises(ConfigError, match="family 'slab': known are tiles, slabs, plain"):
        planned(LAYER, RUNTIME, box, families=("slab",))


def test_what_dispatch_verified_has_raced(box: Store, two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "verified", Judge())
    box.add(record(6, 8.0), "imported")
    assert choose(box)[0] == "tiles:t=6"
    assert race.raced(Request(LAYER), RUNTIME, box) == {"tiles": 10.0, "slabs": "not tried"}


def test_a_layer_is_settled_for_the_families_that_raced(box: Store, two: None) -> None:
    def known(*families: str) -> bool:
        return once.settled(Request(LAYER, families=families), RUNTIME, box) is not None

    assert not known()
    box.add(slab(6, 50.0, stage="trial", raced="slabs"))
    assert not known("slabs")
    box.add(slab(6, 50.0, stage="final", raced="slabs"))
    assert known("slabs") and not known() and not known("tiles")
    box.add(record(4, 5.0, context=WON | {"compiler": "c0"}))
    assert not known(), "all have raced, but with other kernels"
    box.add(record(4, 5.0, context=WON))
    assert known() and known("tiles")
    box.add(record(2, 0.1, context=WON | {"compiler": "c0"}))
    assert once.settled(Request(LAYER), RUNTIME, box) == record(4, 5.0, context=WON)
    for faster in (slab(6, 1.0, stage="final", raced="slabs"), slab(4, 0.5, stage="final", raced="slabs")):
        box.add(faster)
        assert known() and known("tiles"), "all have raced, though one of them once more"
    assert once.settled(Request(LAYER), RUNTIME, box) == faster
    box.add(replace(slab(4, 0.5), outcome="correctness"))
    assert once.settled(Request(LAYER), RUNTIME, box).config == "slabs:t=6"


def test_a_search_for_any_winner_settles_none_that_gives_the_same_bits(box: Store, two: None) -> None:
    box.add_all([record(5, 1.0, context=WON), record(4, 2.0, standing=Standing.FINALIST)])
    assert once.settled(Request(LAYER), RUNTIME, box) is not None
    assert once.settled(Request(LAYER, deterministic=True), RUNTIME, box) is None


def test_what_is_tuned_once_is_told_kept_and_shares_its_processes(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def search(*_: Any, **named: Any) -> TuneResult:
        asked.append(named)
        return TuneResult(record(4), (), (), 1.0, 0)

    monkeypatch.setattr(once, "tune", search)
    monkeypatch.setattr(once, "require_room", lambda *_: None)
    more: Any = {"progress": asked.append, "children": object()}
    once.tune_once(LAYER, RUNTIME, box, TuneOptions(), **more)
    assert asked == [{"store": box, **more}]

    def refuse() -> None:
        raise StoreBusy("read only")

    monkeypatch.setattr(box, "require_writable", refuse)
    with pytest.raises(StoreBusy):
        once.tune_once(LAYER, RUNTIME, box, TuneOptions(again=True))
    assert len(asked) == 1, "nothing is tuned that could not be kept"


def test_tuning_again_gives_plans_of_the_new_winner(
    box: Store, two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: Any, **__: Any) -> TuneResult:
        box.add(found := record(2, 1.0, context=WON))
        return TuneResult(found, (found,), (found,), 1.0, 0)

    monkeypatch.setattr(once, "tune", search)
    monkeypatch.setattr(once, "require_room", lambda *_: None)
    box.add(record(4, 5.0, context=WON))
    alike = replace(LAYER, epilogue=Epilogue(bias=True))
    before = [choose(box, layer)[0] for layer in (LAYER, alike)]
    told = [once.tune_once(LAYER, RUNTIME, box, TuneOptions(again=again)) for again in (False, True)]
    assert [one.known for one in told] == [True, False]
    assert before == ["tiles:t=4"] * 2
    assert [choose(box, layer)[0] for layer in (LAYER, alike)] == ["tiles:t=2"] * 2


def test_a_search_that_its_budget_ended_settles_no_larger_one(box: Store, two: None) -> None:
    def known(budget: str | None) -> bool:
        given = budget if budget is None else Budget.parse(budget)
        return once.settled(Request(LAYER), RUNTIME, box, given) is not None

    box.add(record(4, 5.0, context=WON | {"cut_s": "10", "cut_trials": "7"}))
    assert all(map(known, (None, "10s", "3s", "7trials", "1trials")))
    assert not any(map(known, ("10.1s", "2m", "8trials", "all")))
    box.add(record(4, 5.0, context=WON))
    assert known("all") and known("8trials"), "that search came to its end"


def test_the_race_of_the_families(box: Store, two: None) -> None:
    assert race.raced(Request(LAYER), RUNTIME, None) == {"tiles": "not tried", "slabs": "not tried"}
    for row in (record(2, 8.0), record(4, 7.0), record(4, 9.0), slab(2)):
        box.add(row)
    box.add(record(6, 1.0, context={"compiler": "c0"}))
    box.add(record(8, 1.0), "imported")
    raced = race.raced(Request(LAYER), RUNTIME, box)
    assert raced == {"tiles": 8.0, "slabs": 10.0}  # 4 took 9 us when last tried
    box.add(replace(slab(2), outcome="timeout", measurement=None))
    assert race.raced(Request(LAYER, families=("slabs",)), RUNTIME, box) == {"slabs": "none right: 1 timeout"}
    assert race.raced(Request(Problem.parse("c2h4k2r1g2")), RUNTIME, box) == {}


@pytest.mark.parametrize("what", ["no room", "busy"])
def test_what_fails_for_a_while_loses_no_winner(
    what: str, box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store does not change again: the winner is asked for once more all the same."""
    clock = [100.0]
    monkeypatch.setattr(plan_cache, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    guess = planned(LAYER, RUNTIME, box)
    box.add(record(4))

    def fail(*given: object, **named: object) -> None:
        raise OutOfMemory(what) if what == "no room" else StoreBusy(what)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(*((dispatch.Plan, "make") if what == "no room" else (box, "best")), fail)
        clock[0] += 1.1 * plan_cache.RETRY_S
        assert planned(LAYER, RUNTIME, box) is guess
    clock[0] += 1.1 * plan_cache.RETRY_S
    assert planned(LAYER, RUNTIME, box) is not guess
