"""A layer, its configs in the model's order, and configs of a fake family, for the tests of the search."""

from __future__ import annotations

from functools import cache

from tuning_fakes import Row

from tilewright.device import Device, for_architecture
from tilewright.kernels.direct.spec import Direct
from tilewright.kernels.family import Config, Param, Rule
from tilewright.problem import Problem
from tilewright.search import ranking

DEVICE = for_architecture("sm_90")
LAYER = Problem.parse("n1c64h14w14k64r3s3p1-f32")
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
PARAMS = (Param("size", SIZES, "a size"), Param("kind", (0, 1, 2), "a choice", ("a", "b", "c")))


@cache
def ranked() -> list[tuple[Config, float]]:
    """The model's order of a layer: it takes seconds, and tests only read it."""
    return ranking.rank(LAYER, DEVICE, Direct(), 400)


def point(size: int, kind: int = 0) -> Config:
    return Config.make("fake", {"size": size, "kind": kind})


class Sizes(Direct):
    """Two sizes and a choice, and no rules."""

    name = "sizes"

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        sizes = tuple(Param(name, (1, 2, 4, 8), name) for name in "ab")
        return (*sizes, Param("way", (0, 1, 2), "way", ("one", "two", "three")))

    def rules(self, device: Device) -> tuple[Rule, ...]:
        return ()


class TwoKinds(Row):
    """Of one kind all are good, of the other only what is far from where most, and the others' best, are."""

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        steps = tuple(range(31))
        kind = Param("kind", (0, 1), "how", names=("even", "steep"))
        meet = Param("meet", (0, 1), "where shares meet", names=("here", "there"))
        return (kind, *(Param(name, steps, "steps") for name in ("i", "j", "k")), meet)
