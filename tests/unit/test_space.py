"""The space of a family: its configs in order and at random, neighbours, and why there is none."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from fake_family import FakeFamily
from search_samples import DEVICE, LAYER, Sizes
from tuning_fakes import Row

from tilewright.device import Device
from tilewright.errors import EmptySpace
from tilewright.kernels import family_of
from tilewright.kernels.direct.spec import Direct
from tilewright.kernels.family import Config, Param, Rule
from tilewright.problem import Problem
from tilewright.search import space
from tilewright.search import strategies as search
from tilewright.search.space import Space


def test_a_space_remembers_so_many_answers_of_all_its_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> list[Config]:
        rng, configs = random.Random(1), []
        for _ in range(40):
            configs += [(config := legal.sample(rng)), *legal.neighbours(config)[:5]]
            held = [len(rule.answers) for rules in legal._checks for rule in rules]
            assert 0 < sum(held) <= space.REMEMBERED and len(legal._neighbours) <= space.NEIGHBOURS
        return configs

    legal = Space(Direct(), LAYER, DEVICE)
    wanted = drawn()
    monkeypatch.setattr(space, "REMEMBERED", 50)
    monkeypatch.setattr(space, "NEIGHBOURS", 2)
    legal = Space(Direct(), LAYER, DEVICE)
    assert drawn() == wanted
    assert all(config == Config.make("direct", config.values) for config in wanted)


def test_neighbours_are_one_step_away_or_two_that_go_together() -> None:
    """One size up and another down, or a size and a choice; any other option is next to a choice."""
    legal = Space(Sizes(), LAYER, DEVICE)
    at = Config.make("sizes", dict(a=2, b=4, way=0))
    found = {(one["a"], one["b"], one["way"]) for one in legal.neighbours(at)}
    one_step = {(1, 4, 0), (4, 4, 0), (2, 2, 0), (2, 8, 0), (2, 4, 1), (2, 4, 2)}
    mixed = {(a, b, way) for a, b in ((1, 4), (4, 4), (2, 2), (2, 8)) for way in (1, 2)}
    assert found == one_step | mixed | {(1, 8, 0), (4, 2, 0)}
    assert len(legal.neighbours(at)) == len(found)


class Named(Row):
    """A family of a name, some facts of which are given."""

    def __init__(self, name: str, **facts: Any) -> None:
        self.__dict__.update(facts, name=name)


class Empty(Row):
    """No config is legal; its rules check other sizes than the layer's, as Winograd's do."""

    name = "empty"

    def inner(self, problem: Problem, device: Device) -> Problem:
        return replace(problem, k=2 * problem.k)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        return (Rule("none", lambda i, problem: i > problem.k, "too small"),)


def test_a_family_is_usable_or_there_is_a_reason_why_not() -> None:
    """The reason names the layer that the user gave. What cannot be tuned is not spoken of."""
    good = Named("good")
    loose, wide = Named("loose", exact=False), Named("wide", refuses=lambda *_: "it is too wide")
    given = [Named("fixed", tunable=False), wide, Empty(), loose, good]
    accurate = replace(LAYER, math="accurate")
    reasons = {"wide": "it is too wide", "empty": f"no config of empty is legal for {accurate}"}
    found, passed = space.usable(given, accurate, DEVICE)
    assert found == [good] and passed.pop("loose").startswith("its sums are less accurate")
    assert passed == reasons
    assert space.usable(given, LAYER, DEVICE)[0] == [loose, good]


@pytest.mark.parametrize(
    ("name", "text"), [("direct", str(LAYER)), ("hopper", "n1c64h14w14k64r3s3p1-f16-nhwc")]
)
def test_of_all_that_is_near_what_is_legal_is_a_neighbour(name: str, text: str) -> None:
    """Most pairs of steps are judged by what each of the two breaks alone: here every rule is asked."""
    legal, rng = Space(family_of(name), Problem.parse(text), DEVICE), random.Random(3)
    broke_alone = 0
    for config in (legal.sample(rng) for _ in range(5)):
        base, wanted = config.values, []
        near = [(p, value) for p in legal.params for value in space._near(p, base[p.name])]
        for p, value in near:
            steps = [{p.name: value}]
            for other, second in near:
                opposite = (value > base[p.name]) != (second > base[other.name])
                if p.name < other.name and (bool(p.names) != bool(other.names) or opposite and not p.names):
                    steps.append({p.name: value, other.name: second})
            good = [step for step in steps if legal.legal({**base, **step})]
            broke_alone += bool(good) and len(good[0]) == 2
            wanted += [Config.make(name, {**base, **step}) for step in good]
        assert list(legal.neighbours(config)) == wanted
    assert broke_alone, "no step is legal only together with another"


def test_all_configs_come_once_in_the_order_of_the_space() -> None:
    sizes = [(a, b, way) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8) for way in range(3)]
    wanted = [Config.make("sizes", dict(a=a, b=b, way=way)) for a, b, way in sizes]
    strategy = search.make("all", Sizes(), LAYER, DEVICE)
    assert strategy.propose(5) + strategy.propose(100) == wanted and strategy.propose(5) == []
    kept = search.make("all", Sizes(), LAYER, DEVICE, among=wanted[30:40])
    assert kept.propose(4) + kept.propose(100) == wanted[30:40]


class Forbidden(FakeFamily):
    """Six sizes of 0 to 3, of which some pairs and triples may not meet."""

    name = "forbidden"

    def __init__(self, seed: int) -> None:
        rng, self.names = random.Random(seed), "abcdef"
        counts = [rng.choice((1, 2, 2, 3)) for _ in range(rng.choice((3, 6)))]
        self.sets = [sorted(rng.sample(self.names, count)) for count in counts]
        self.tables = [{tuple(rng.choices(range(4), k=len(one))) for _ in range(40)} for one in self.sets]

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        return tuple(Param(name, (0, 1, 2, 3), "a size") for name in self.names)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        def rule(names: list[str], table: set[tuple[int, ...]]) -> Rule:
            def holds(cf: dict[str, int]) -> bool:
                return tuple([cf[name] for name in names]) not in table

            return Rule("".join(names), holds, "they clash", " ".join(names))

        return tuple(map(rule, self.sets, self.tables))


@pytest.mark.parametrize("seed", range(30))
def test_no_config_is_passed_over_where_steps_back_are_long(seed: int) -> None:
    """Neither of all in order, nor by chance: of a few any may come."""
    family = Forbidden(seed)
    legal, names = Space(family, LAYER, DEVICE), family.names

    def good(values: tuple[int, ...]) -> bool:
        of = dict(zip(names, values, strict=True))
        rules = zip(family.sets, family.tables, strict=True)
        return not any(tuple(of[name] for name in one) in table for one, table in rules)

    wanted = [values for values in product(range(4), repeat=6) if good(values)]
    found = [tuple(config[name] for name in names) for config in legal.every()]
    assert found == wanted
    pinned = Space(family, LAYER, DEVICE, {"e": (1, 2), "f": 3})  # which are chosen first
    found = [tuple(config[name] for name in names) for config in pinned.every()]
    assert sorted(found) == [values for values in wanted if values[4] in (1, 2) and values[5] == 3]
    rng = random.Random(0)
    if not wanted:
        with pytest.raises(EmptySpace):
            legal.sample(rng)
    else:
        drawn, most = set[tuple[int, ...]](), 5000 if len(wanted) < 20 else 200
        while len(drawn) < len(wanted) and (most := most - 1):
            one = legal.sample(rng)
            drawn.add(tuple(one[name] for name in names))
        assert drawn <= set(wanted) and (len(wanted) >= 20 or len(drawn) == len(wanted))


class Thrashing(FakeFamily):
    """The first size decides whether the last may be anything, whatever ten between them are."""

    name = "thrashing"

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        return tuple(Param(f"p{place:02}", tuple(range(8)), "a size") for place in range(12))

    def rules(self, device: Device) -> tuple[Rule, ...]:
        return (Rule("first", lambda p00, p11: p00 == 3, "all others are too large"),)


def test_what_does_not_matter_is_not_changed_in_vain() -> None:
    """One after the other, 8**10 values between the two would be tried for each of the first."""
    legal = Space(Thrashing(), LAYER, DEVICE)
    for seed in range(20):
        assert legal.sample(random.Random(seed))["p00"] == 3
    assert next(legal.every())["p00"] == 3


def test_random_configs_come_once_and_the_seed_says_which() -> None:
    def drawn(seed: int, among: list[Config] | None = None) -> list[Config]:
        strategy = search.make("random", Sizes(), LAYER, DEVICE, seed, among)
        first, rest = strategy.propose(7), strategy.propose(200)
        assert len(first) == 7 and len(set(first + rest)) == len(first + rest)
        assert strategy.propose(3) == [], "none is left"
        return first + rest

    every = list(Space(Sizes(), LAYER, DEVICE).every())
    for some in (None, every[10:30]):
        assert set(drawn(1, some)) == set(some or every)
        assert drawn(1, some) == drawn(1, some) != drawn(2, some)
