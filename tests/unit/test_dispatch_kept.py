"""Dispatch: which plans are kept in memory, made anew, or evicted where there is no room."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from dispatch_samples import DEVICE, LAYER, RUNTIME, FakePlan, box, choose, planned, record, stage

from tilewright.dispatch import dispatch
from tilewright.errors import CompileError, OutOfMemory, RunError
from tilewright.hints import likeness
from tilewright.kernels.family import Config
from tilewright.plans import plan_cache
from tilewright.plans.provenance import UNSAID, Provenance
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.store import Store

__all__ = ["box", "stage"]  # fixtures


def test_a_guess_gives_way_to_a_winner_that_another_process_found(
    box: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(plan_cache, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    guess = planned(LAYER, RUNTIME, box)
    layer = dispatch.layer_plan(Request(LAYER), RUNTIME, box)
    assert layer.plan is guess
    box.add(record(4))
    clock[0] += 0.9 * plan_cache.RETRY_S
    assert planned(LAYER, RUNTIME, box) is guess, "the store is not asked in each call"
    clock[0] += 0.2 * plan_cache.RETRY_S
    assert choose(box) == ("tiles:t=4", "")
    assert dispatch.layer_plan(Request(LAYER), RUNTIME, box) is not layer
    clock[0] += 2 * plan_cache.RETRY_S
    box.add(record(6, 1.0))
    assert choose(box) == ("tiles:t=4", ""), "what is no guess stays"


def test_a_store_that_is_as_it_was_is_not_read_again(box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = [100.0], []
    monkeypatch.setattr(plan_cache, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    box.add(record(4, outcome="correctness"))
    guess = planned(LAYER, RUNTIME, box)
    best = box.best
    monkeypatch.setattr(box, "best", lambda *given: asked.append(given) or best(*given))
    for changes in (0, 0, 1, 0):
        box.add_all([record(4, problem="n1c1h1w1k1r1s1-f32")] * changes)
        for _ in range(2):
            clock[0] += 0.6 * plan_cache.RETRY_S
            assert planned(LAYER, RUNTIME, box) is guess
    assert len(asked) == 1


def test_what_was_tuned_is_forgotten_with_all_layers_alike() -> None:
    texts = (f"{LAYER}+bias", f"{LAYER}+bias+relu", str(LAYER), f"{LAYER}+relu+maxpool2", "c1h1k1r1")
    before = {text: planned(Problem.parse(text), RUNTIME) for text in texts}
    plan_cache.forget(Problem.parse(texts[0]), likeness)
    kept = [text for text in texts if planned(Problem.parse(text), RUNTIME) is before[text]]
    assert kept == list(texts[3:])


def test_what_a_failed_plan_holds_is_freed_before_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workspace may be what the next one has no room for."""
    held: list[weakref.ref[Any]] = []

    def alloc() -> None:
        try:
            raise RunError("OUT_OF_MEMORY")
        except RunError as error:
            raise OutOfMemory("no room for the second buffer") from error

    def make(runtime: Any, problem: Problem, config: Config, why: Provenance = UNSAID) -> FakePlan:
        if not held:
            workspace = FakePlan(config, UNSAID)
            held.append(weakref.ref(workspace))
            alloc()
        assert held[0]() is None
        return FakePlan(config, why)

    monkeypatch.setattr(FakePlan, "make", make)
    assert choose()[0] == "tiles:t=2"


def test_a_second_call_is_answered_from_memory(box: Store) -> None:
    box.add(record(4))
    first = planned(LAYER, RUNTIME, box)
    box.database.path.unlink()
    assert planned(LAYER, RUNTIME, box) is first
    assert planned(LAYER, RUNTIME, box, True) is not first
    assert planned(LAYER, RUNTIME) is not first
    plan_cache.forget(Problem.parse("c1h1k1r1"))
    assert planned(LAYER, RUNTIME, box) is first
    plan_cache.forget(LAYER)
    assert planned(LAYER, RUNTIME, box) is not first


def test_a_store_without_shipped_winners_has_plans_of_its_own(box: Store) -> None:
    box.add(record(4))
    first = planned(LAYER, RUNTIME, box)
    assert planned(LAYER, RUNTIME, Store(box.path)) is first
    assert planned(LAYER, RUNTIME, Store(box.path, shipped=False)) is not first


def test_a_first_use_makes_only_its_own_plan_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' plans are cached or made meanwhile; the same one is made once."""
    slow, known, fresh = (Problem.parse(f"c{c}h8k8r1") for c in (1, 2, 3))
    began, go_on = threading.Event(), threading.Event()
    first = planned(known, RUNTIME)

    def make(runtime: Any, problem: Problem, config: Config, why: Provenance = UNSAID) -> FakePlan:
        if problem == slow:
            began.set()
            assert go_on.wait(20)
        FakePlan.made.append(str(problem))
        return FakePlan(config, why)

    monkeypatch.setattr(FakePlan, "make", make)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(planned, slow, RUNTIME) for _ in range(2)]
        try:
            assert began.wait(20)
            assert pool.submit(planned, known, RUNTIME).result(20) is first
            assert pool.submit(planned, fresh, RUNTIME).result(20) is not first
        finally:
            go_on.set()
        assert waiting[0].result(20) is waiting[1].result(20) is planned(slow, RUNTIME)
    assert FakePlan.made.count(str(slow)) == 1


def test_a_plan_forgotten_while_it_is_made_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was looked up before the store changed."""

    def make(runtime: Any, problem: Problem, config: Config, why: Provenance = UNSAID) -> FakePlan:
        pool.submit(plan_cache.forget, LAYER).result(20)
        return FakePlan(config, why)

    monkeypatch.setattr(FakePlan, "make", make)
    with ThreadPoolExecutor(1) as pool:
        assert planned(LAYER, RUNTIME) is not planned(LAYER, RUNTIME)


def test_a_failure_is_tried_again() -> None:
    FakePlan.fails = {f"tiles:t={t}": CompileError("x") for t in (1, 2, 3)}
    FakePlan.fails["reference:v=1"] = CompileError("y")
    for _ in range(2):
        with pytest.raises(CompileError, match="y"):
            choose()
    FakePlan.fails = {}
    assert choose()[0] == "tiles:t=1"


def test_the_least_recently_used_plans_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "MOST_PLANS", 3)
    layers = [Problem.parse(f"c{c}h8k8r1") for c in range(1, 6)]
    plans = [planned(p, RUNTIME) for p in layers]
    assert len(plan_cache._plans) == 3
    assert planned(layers[4], RUNTIME) is plans[4]
    assert planned(layers[0], RUNTIME) is not plans[0]


def test_plans_are_evicted_where_their_workspaces_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 80 bytes of memory 10 may be workspaces; one that needs more stays until the next is made."""
    layers = [Problem.parse(f"c{c}h8k8r1") for c in range(1, 5)]
    other: Any = SimpleNamespace(device=DEVICE, compiler="c1", memory_bytes=lambda: 80)
    small, elsewhere = planned(LAYER, RUNTIME), []
    monkeypatch.setattr(FakePlan, "needs", 5)
    elsewhere += [planned(layer, other) for layer in layers[:2]]
    first, second = [planned(layer, RUNTIME) for layer in layers[:2]]
    assert planned(layers[0], RUNTIME) is first
    gone = weakref.ref(second)
    del second
    planned(layers[2], RUNTIME)
    assert gone() is None, "the one that was not used for the longest time"
    assert planned(layers[0], RUNTIME) is first
    monkeypatch.setattr(FakePlan, "needs", 50)
    large = planned(layers[3], RUNTIME)
    assert planned(layers[3], RUNTIME) is large
    assert planned(layers[0], RUNTIME) is not first
    assert planned(LAYER, RUNTIME) is small, "it has none"
    assert [planned(layer, other) for layer in layers[:2]] == elsewhere


def test_where_there_is_no_room_the_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the config that wanted it is tried once more."""
    monkeypatch.setattr(FakePlan, "needs", 4)
    before = weakref.ref(planned(Problem.parse("c1h8k8r1"), RUNTIME))
    tries = []

    def make(runtime: Any, problem: Problem, config: Config, why: Provenance = UNSAID) -> FakePlan:
        tries.append(str(config))
        if before() is not None or problem != LAYER:
            raise OutOfMemory("5 GB needed")
        return FakePlan(config, why)

    monkeypatch.setattr(FakePlan, "make", make)
    assert choose()[0] == "tiles:t=1" and "has no room" not in choose()[1]
    assert tries == ["tiles:t=1", "tiles:t=1"]
    assert plan_cache.make_room(RUNTIME) and not plan_cache.make_room(RUNTIME)
    tries.clear()
    with pytest.raises(OutOfMemory, match="5 GB"):
        planned(Problem.parse("c2h8k8r1"), RUNTIME)
    assert len(tries) == len(set(tries)), "there is nothing to evict"


@pytest.mark.parametrize("drop", [
    plan_cache.forget, lambda: plan_cache.make_room(RUNTIME),
    lambda: planned(Problem.parse("c2h8k8r1"), RUNTIME),  # one more than may be
])  # fmt: skip
def test_memory_is_freed_while_nobody_waits_for_the_lock(
    drop: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakePlan, "needs", 4)
    monkeypatch.setattr(plan_cache, "MOST_PLANS", 1)
    freed = []
    weakref.finalize(planned(LAYER, RUNTIME), lambda: freed.append(plan_cache._lock.locked()))
    drop()
    assert freed == [False]
