"""A layer, two families, plans and a store that stand for real ones, for the tests of dispatch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_family import FakeFamily

from tilewright import errors
from tilewright.device import Device, for_architecture
from tilewright.dispatch import choices, dispatch
from tilewright.kernels.family import Config, Family, Param, Rule
from tilewright.kernels.untuned.reference import Reference
from tilewright.plans import plan_cache
from tilewright.plans.provenance import UNSAID, Provenance
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.record import Check, Measurement, Record, Standing
from tilewright.store import Store, shipped
from tilewright.store.record_json import read_context
from tilewright.store.sources import Sources

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
    monkeypatch.setattr("tilewright.hints.FAMILIES", (Tiles(),))
    monkeypatch.setattr(errors, "_warned", set())
    plan_cache.forget()
    yield
    plan_cache.forget()


def ranked(
    problem: Problem, device: Device, usable: list[Family], deterministic: bool, *_how: object
) -> list[Config]:
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


class Judge:
    """Stands for the worker: says what verifying a config gives, and counts."""

    def __init__(self, **outcomes: str) -> None:
        self.outcomes, self.asked = outcomes, []

    def __call__(self, problem: Problem, runtime: Any, config: Config) -> Record:
        self.asked.append(config["t"])
        outcome = self.outcomes.get(f"t{config['t']}", "correct")
        return record(config["t"], outcome=outcome, check=GOOD if outcome == "correct" else None)


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

    def ranked_of(_: Problem, device: Device, usable: list[Family], *_how: object) -> list[Config]:
        return [Config.make(family.name, {"t": 2}) for family in usable]

    monkeypatch.setattr(choices, "FAMILIES", (Tiles(), Slabs(), Reference()))
    monkeypatch.setattr(choices, "ranked_for", ranked_of)
