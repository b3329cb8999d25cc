"""Records and a kernel family for the tests of the store and of what is shared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_family import FakeFamily

from tilewright import errors
from tilewright.device import Device, for_architecture
from tilewright.kernels.family import Config, Param, Rule
from tilewright.problem import Problem
from tilewright.record import Check, Measurement, Record
from tilewright.store import Store, shipped
from tilewright.store.record_json import read_context
from tilewright.store.sources import Sources

LAYER = "n1c64h56w56k128r3s3p1-f32"
DEVICE = for_architecture("sm_90")
H100 = DEVICE.key
GOOD = Check(True, 1e-6, 1e-5, 0.1, True, True)


class Tiles(FakeFamily):
    """A family to share configs of: t is 1, 2 or 4; t = 4 needs 128 units; u = 1 uses atomics."""

    name = "tiles"

    def refuses(self, problem: Problem, device: Device) -> str | None:
        return "takes no groups" if problem.groups > 1 else None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        return (Param("t", (1, 2, 4), "tile"), Param("u", (0, 1), "atomics"))

    def rules(self, device: Device) -> tuple[Rule, ...]:
        return (Rule("wide tiles", lambda t, device: t < 4 or device.units >= 128, "t = 4 needs 128 units"),)

    def deterministic(self, config: Config) -> bool:
        return config["u"] == 0


@pytest.fixture(autouse=True)
def families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.store.store.FAMILIES", (Tiles(),))
    monkeypatch.setattr(shipped, "FAMILIES", (Tiles(),))
    monkeypatch.setattr("tilewright.hints.FAMILIES", (Tiles(),))
    monkeypatch.setattr(errors, "_warned", set())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return folder / "records.sqlite"


def record(config: str = "tiles:t=1.u=0", us: float = 10.0, **changes: Any) -> Record:
    """A record; "context" of the changes is as a store has it."""
    made = read_context(changes.pop("context", {"compiler": "c1"}))
    base = Record(
        LAYER,
        H100,
        "tiles",
        config,
        "correct",
        True,
        GOOD,
        Measurement(us, 0.1, 30),
        **made,
    )
    found = replace(base, **changes)
    return Sources([Tiles()], DEVICE, found.versions.compiler).signed(found)


KERNELS = Sources([Tiles()], DEVICE, "c1")


def best(box: Store, **options: Any) -> str | None:
    found = box.best(LAYER, H100, **{"sources": KERNELS, **options})
    return found.config if found else None
