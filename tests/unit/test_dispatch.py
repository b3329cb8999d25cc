"""Dispatch: which config is taken when, what happens if it fails, and what the note says."""

from __future__ import annotations

import sqlite3
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_family import FakeFamily

from tilewright import errors
from tilewright.bench import race
from tilewright.device import Device, DeviceType, for_architecture, parse_selector
from tilewright.dispatch import choices, dispatch, once
from tilewright.errors import (
    CompileError,
    ConfigError,
    EmptySpace,
    OutOfMemory,
    ProblemError,
    RunError,
    StoreBusy,
)
from tilewright.kernels.family import Config, Family, Param, Rule
from tilewright.kernels.untuned.reference import Reference
from tilewright.plans import plan_cache
from tilewright.plans.provenance import UNSAID, Provenance
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue
from tilewright.record import Check, Measurement, Record, Standing
from tilewright.search import ranking
from tilewright.search import strategies as search
from tilewright.store import Store, brief, shipped
from tilewright.store.hints import likeness
from tilewright.store.record_json import read_context
from tilewright.store.sources import Sources
from tilewright.tuning.budget import Budget
from tilewright.tuning.events import TuneResult
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.protocol import Job

LAYER = Problem.parse("n1c64h56w56k128r3s3p1-f32")
DEVICE = for_architecture("sm_90")
RUNTIME: Any = SimpleNamespace(device=DEVICE, compiler="c1", memory_bytes=lambda: 80)
GOOD = Check(True, 1e-6, 1e-5, 0.1, True, True)
REAL_RANKED = choices.ranked_for


def planned(
    problem: Problem, runtime: Any, store: Store | None = None, deterministic: bool = False,
    families: tuple[str, ...] = (),
) -> Any:  # fmt: skip
    """Return the plan of a layer, a FakePlan in most tests."""
    return dispatch.layer_plan(Request(problem, deterministic, families), runtime, store).plan


class Tiles(FakeFamily):
    """Tiles of 1 to 9; an odd one uses atomics; 9 breaks a rule."""

    name = "tiles"

    def refuses(self, problem: Problem, device: Device) -> str | None:
        return "takes no groups" if problem.groups > 1 else None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        return (Param("t", tuple(range(1, 10)), "tile"),)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        return (Rule("small", lambda t: t < 9, "t < 9"),)

    def deterministic(self, config: Config) -> bool:
        return config["t"] % 2 == 0


class FakePlan:
    """Stands for Plan: notes what was made, and fails as told."""

    device, problem = DEVICE, LAYER
    made: list[str] = []
    fails: dict[str, Exception] = {}
    needs = 0

    def __init__(self, config: Config, why: Provenance) -> None:
        self.config, self.why, self.note, self.allocated_bytes = config, why, why.note(LAYER), self.needs

    @classmethod
    def make(cls, runtime: Any, problem: Problem, config: Config, why: Provenance = UNSAID) -> FakePlan:
        cls.made.append(str(config))
        if str(config) in cls.fails:
            raise cls.fails[str(config)]
        return cls(config, why)


@pytest.fixture(autouse=True)
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    FakePlan.made, FakePlan.fails = [], {}
    monkeypatch.setattr(choices, "FAMILIES", (Tiles(),))
    monkeypatch.setattr(dispatch, "Plan", FakePlan)
    monkeypatch.setattr(choices, "ranked_for", ranked)
    monkeypatch.setattr("tilewright.store.store.FAMILIES", (Tiles(),))
    monkeypatch.setattr(shipped, "FAMILIES", (Tiles(),))
    monkeypatch.setattr("tilewright.store.hints.FAMILIES", (Tiles(),))
    monkeypatch.setattr(errors, "_warned", set())
    plan_cache.forget()
    yield
    plan_cache.forget()


def ranked(problem: Problem, device: Device, usable: list[Family], deterministic: bool) -> list[Config]:
    return [tile(t) for t in (1, 2, 3) if usable and (t % 2 == 0 or not deterministic)]


@pytest.fixture
def box(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache" / "records.sqlite")


def tile(t: int) -> Config:
    return Config.make("tiles", {"t": t})


def record(t: int, us: float = 10.0, **changes: Any) -> Record:
    base = Record(
        str(LAYER), DEVICE.key, "tiles", str(tile(t)), "correct", t % 2 == 0, GOOD, Measurement(us, 0.1, 30),
        **read_context(changes.pop("context", {"compiler": "c1"})),
    )  # fmt: skip
    found = replace(base, **changes)
    return Sources((Tiles(), Slabs()), DEVICE, found.versions.compiler).signed(found)


def winner(t: int, us: float, **changes: Any) -> Record:
    return record(t, us, standing=Standing.WINNER, **changes)


def choose(
    box: Store | None = None, problem: Problem = LAYER, deterministic: bool = False
) -> tuple[str, str]:
    plan = planned(problem, RUNTIME, box, deterministic)
    return str(plan.config), plan.note


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


class Judge:
    """Stands for the worker: says what verifying a config gives, and counts."""

    def __init__(self, **outcomes: str) -> None:
        self.outcomes, self.asked = outcomes, []

    def __call__(self, problem: Problem, runtime: Any, config: Config) -> Record:
        self.asked.append(config["t"])
        outcome = self.outcomes.get(f"t{config['t']}", "correct")
        return record(config["t"], outcome=outcome, check=GOOD if outcome == "correct" else None)


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


def test_without_a_worker_nothing_is_held_against_a_hint(box: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "verified", lambda *_: None)
    box.add(record(4), "imported")
    assert "untuned" in choose(box)[1]
    assert len(box.records()) == 1


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


def test_winners_from_elsewhere_are_verified_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the references are there; where these cannot be made, nothing is said of the config."""
    told: list[Any] = []

    class Child:
        def __init__(self, job: Job) -> None:
            told.append((job.problem, job.backend, job.index))

        def __enter__(self) -> Child:
            return self

        def __exit__(self, *error: object) -> None:
            told.append("ended")

        def prepare(self) -> None:
            told.append("prepared")
            if len(told) > 5:
                raise RunError("no memory for the references")

        def run(self, config: Config, full: bool = False) -> Record:
            told.append((config, full))
            return record(4)

    monkeypatch.setattr("tilewright.tuning.worker.Worker", Child)
    there: Any = SimpleNamespace(device=replace(DEVICE, index=1))
    assert choices.verified(LAYER, there, tile(4)) == record(4)
    assert told == [(str(LAYER), "cuda", 1), "prepared", (tile(4), True), "ended"]
    with pytest.warns(RuntimeWarning, match="not used: no memory for the references"):
        assert choices.verified(LAYER, there, tile(4)) is None
    assert told[-1] == "ended"


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


def test_the_stored_winner_is_of_exactly_these_kernels(box: Store) -> None:
    box.add_all([record(2, 1.0, context={"compiler": "c0"}), record(4, 5.0)])
    found = choices.stored(Request(LAYER), RUNTIME, box)
    assert found and found.config == "tiles:t=4"


WON = {"compiler": "c1", "stage": "final", "raced": "tiles slabs"}


class Slabs(Tiles):
    """Another family; of its own name alone."""

    name = "slabs"


def slab(t: int, us: float = 10.0, **context: str) -> Record:
    config = str(Config.make("slabs", {"t": t}))
    return record(t, us, family="slabs", config=config, context={"compiler": "c1", **context})


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two families; the model knows of both, likes the first better."""

    def ranked_of(_: Problem, device: Device, usable: list[Family], deterministic: bool) -> list[Config]:
        return [Config.make(family.name, {"t": 2}) for family in usable]

    monkeypatch.setattr(choices, "FAMILIES", (Tiles(), Slabs(), Reference()))
    monkeypatch.setattr(choices, "ranked_for", ranked_of)


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
