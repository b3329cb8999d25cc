"""How families share what is tried, by what they promise and by what they reach."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from search_samples import DEVICE, LAYER, TwoKinds
from tuning_fakes import PROBLEM, Row, RowStrategy, outcome, row

from tilewright.kernels.direct.spec import Direct
from tilewright.kernels.family import Config
from tilewright.search import ranking
from tilewright.search import strategies as search
from tilewright.search.experience import Experience
from tilewright.search.proposals import PATIENCE, Proposals, batch_size
from tilewright.search.space import Space


def test_few_trials_come_in_small_batches() -> None:
    """A search of 60 learns from the outcomes of at least eleven batches before the last."""
    asked = {trials: batch_size(trials) for trials in (0, 5, 23, 24, 60, 95, 96, 5000)}
    assert asked == {0: 1, 5: 1, 23: 1, 24: 2, 60: 5, 95: 7, 96: 8, 5000: 8}
    assert batch_size(None) == 8 and batch_size(None, 3) == batch_size(60, 3) == 3


class Promising(RowStrategy):
    """A strategy of a family by another name, that promises a time."""

    def __init__(self, family: str, promise: float) -> None:
        super().__init__("all", Row(), PROBLEM, DEVICE)
        self.family, self._promise = family, promise

    def propose(self, count: int) -> list[Config]:
        return [Config(self.family, config.items) for config in super().propose(count)]

    def promise_us(self, known_us: float = math.inf) -> float:
        return self._promise


def counts(configs: list[Config]) -> dict[str, int]:
    return {name: sum(c.family == name for c in configs) for name in ("slow", "fast", "odd")}


def test_families_share_by_what_they_promise_then_by_what_they_reach() -> None:
    strategies = [Promising("slow", 20.0), Promising("fast", 10.0)]
    proposals = Proposals(dict(zip(["slow", "fast"], strategies, strict=True)), lambda config: True)
    first = proposals.next(17)
    assert first[0].family == "fast"  # the family that promises most is asked first
    assert counts(first) == {"slow": 1, "fast": 16, "odd": 0}  # (10 / 20) ** 4 of the other's share
    proposals.tell(outcome(Config("slow", row(0).items), 10.0))
    assert counts(proposals.next(16)) == {"slow": 8, "fast": 8, "odd": 0}
    proposals.tell(outcome(Config("fast", row(0).items), 20.0))
    assert counts(proposals.next(17)) == {"slow": 16, "fast": 1, "odd": 0}


def test_families_share_alike_however_few_are_asked_for() -> None:
    """One at a time, what is left over is owed: else all were the fastest family's."""
    for size in (1, 2, 3, 17):
        times = {"slow": 20.0, "fast": 10.0, "odd": 12.0}
        proposals = Proposals({name: Promising(name, us) for name, us in times.items()}, lambda config: True)
        found = [config for _ in range(51 // size) for config in proposals.next(size)]
        weights = {"slow": 1 / 16, "fast": 1.0, "odd": (10 / 12) ** 4}
        for name, count in counts(found).items():
            assert abs(count - len(found) * weights[name] / sum(weights.values())) < 1.0, (size, name)
    nothing = {name: Promising(name, math.inf) for name in ("odd", "fast", "slow")}
    proposals = Proposals(nothing, lambda config: True)
    assert counts([proposals.next(1)[0] for _ in range(6)]) == {"slow": 2, "fast": 2, "odd": 2}


@pytest.mark.parametrize("fast", [1, 2, 3, 8, 12])
def test_a_family_is_asked_once_before_it_has_waited_for_long(fast: int) -> None:
    """Though it is nearly FAR behind: a search is complete only when each has had a turn."""
    strategies = {f"fast{i}": Promising(f"fast{i}", 10.0 + i / 10) for i in range(fast)}
    strategies["slow"] = Promising("slow", 49.0)
    proposals = Proposals(strategies, lambda config: True)
    found = [proposals.next(1)[0].family for _ in range(60)]
    assert found.count("slow") == 1 and found.index("slow") < PATIENCE


def test_what_promises_most_so_far_may_be_compiled_while_the_others_look() -> None:
    strategies = [Promising("odd", 5.0), Promising("slow", 20.0), Promising("fast", 10.0)]
    for count in (2, 0):
        named = dict(zip(["odd", "slow", "fast"], strategies, strict=True))
        proposals = Proposals(named, lambda config: True)
        early = []
        while not proposals.looked:
            early.append([config.family for config in proposals.look(count)])
        assert early == [["fast"] * count, [], ["odd"] * count], "those for few layers, last, come first"
    assert [proposals.best_us(Config(name, ())) for name in ("odd", "slow", "fast")] == [5.0, 20.0, 10.0]
    proposals.tell(outcome(Config("fast", row(0).items), 3.0))
    assert proposals.best_us(Config("fast", ())) == 3.0
    unseen = Proposals({"odd": Promising("odd", 5.0)}, lambda config: True)
    assert unseen.best_us(Config("odd", ())) == 0.0, "what won elsewhere does not wait"
    assert Proposals({"odd": Promising("odd", math.inf)}, lambda config: True).look(2) == []


def test_who_promises_most_at_a_peek_looks_first() -> None:
    """Nothing of a family that is far behind is compiled meanwhile."""

    class Peeking(Promising):
        def peek_us(self) -> float:
            return 2.0 * self._promise

        def promise_us(self, known_us: float = math.inf) -> float:
            known.append(known_us)
            return self._promise

    known: list[float] = []
    strategies = {name: Peeking(name, us) for name, us in (("slow", 20.0), ("fast", 5.0), ("odd", 10.0))}
    proposals = Proposals(strategies, lambda config: True)
    early = [[config.family for config in proposals.look(2)] for _ in strategies]
    assert proposals.looked and early == [["fast"] * 2, [], []]
    assert known == [math.inf, 5.0, 5.0], "the others need not look closely"


def test_families_that_promise_nearly_as_much_have_a_share_of_what_is_compiled_first() -> None:
    """The model may be wrong about which is the fastest."""
    strategies = {name: Promising(name, us) for name, us in (("slow", 20.0), ("fast", 12.0), ("odd", 10.0))}
    proposals = Proposals(strategies, lambda config: True)
    early = [[config.family for config in proposals.look(8)] for _ in strategies]
    assert early == [["odd"] * 8, ["fast"] * 4, []]  # 8 (10 / 12) ** 4, 8 (10 / 20) ** 4


def test_a_peek_is_the_beginning_of_a_glance() -> None:
    peeked, glanced = (
        ranking.ModelRanking(Space(Direct(), LAYER, DEVICE), random.Random(0)) for _ in range(2)
    )
    first = peeked.peek()
    few = len(peeked.seen)
    assert first == peeked.peek() == min(peeked.seen.values()) and few < ranking.FIRST
    assert search.make("model", Direct(), LAYER, DEVICE).peek_us() == first
    assert peeked.glance() == glanced.glance() <= first
    assert peeked.seen == glanced.seen and peeked.order()[0] == glanced.order()[0] and few < len(peeked.seen)


def test_a_search_looks_no_further_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In proportion to what is asked for, and only so far in all; not beyond what it is kept to."""

    def looked(*counts: int, among: list[Config] | None = None) -> tuple[list[int], list[int]]:
        samples, beams, glances = list[int](), list[int](), list[bool]()
        space = Space(TwoKinds(), PROBLEM, DEVICE)
        ranked = ranking.ModelRanking(space, random.Random(0), among, Experience())
        monkeypatch.setattr(ranked, "glance", lambda: glances.append(not samples))
        monkeypatch.setattr(ranked, "_sample", samples.append)
        monkeypatch.setattr(ranked, "climb", beams.append)
        for count in counts:
            ranked.deepen(count)
        assert glances[0], "a glance comes first"
        return samples, beams

    (first, second, third, last), beams = looked(1, 2, 1000, 1000)
    assert (first, second) == (ranking.EACH, 2 * ranking.EACH)
    assert beams[:2] == [ranking.CLIMBS, 2 * ranking.CLIMBS]
    assert first + second + third == ranking.SAMPLES - ranking.FIRST and last == 0
    assert sum(beams) == ranking.ROUNDS * ranking.BEAM and max(beams) == ranking.BEAM
    samples, beams = looked(1000, among=[])
    assert sum(samples) == sum(beams) == 0


def test_what_a_strategy_proposed_first_is_not_proposed_again_as_a_winner() -> None:
    won = [row(i) for i in (50, 0, 1, 51)]
    proposals = Proposals({"row": RowStrategy("all", Row(), PROBLEM, DEVICE)}, lambda config: True, won)
    found = [*proposals.next_hints(1), *proposals.look(2)]
    while batch := proposals.next(4):
        found += batch
    assert len(found) == len(set(found)) == 100 and found[0] == row(50)


def test_a_family_waits_for_faster_ones_so_long_and_no_longer() -> None:
    strategies = [Promising("odd", math.inf), Promising("slow", 40.0), Promising("fast", 10.0)]
    names = ["odd", "slow", "fast"]

    def order(proposals: Proposals) -> list[str]:
        return sorted(names, key=lambda name: proposals.best_us(Config(name, ())))

    for untried, waits in ((), True), (("slow",), False):
        proposals = Proposals(dict(zip(names, strategies, strict=True)), lambda config: True, untried=untried)
        while not proposals.looked:
            proposals.look(0)
        assert order(proposals) == ["odd", *(["fast", "slow"] if waits else ["slow", "fast"])], untried
        for place in range(30):
            proposals.tell(outcome(Config("fast", row(place).items), 10.0))
        assert order(proposals) == ["odd", "slow", "fast"], "its first trial is due"
        proposals.tell(outcome(Config("slow", row(0).items), 40.0))
        assert order(proposals) == ["odd", "fast", "slow"]


def test_a_family_that_promises_much_is_hopeful_until_it_is_measured() -> None:
    strategies = [Promising("slow", 20.0), Promising("fast", 10.0)]
    proposals = Proposals(dict(zip(["slow", "fast"], strategies, strict=True)), lambda config: True)
    assert proposals.hopeful(1.0) and proposals.look(0) == [] and proposals.hopeful(1.0), "one has not looked"
    assert proposals.look(0) == [] and not proposals.hopeful(1.0)
    proposals.tell(outcome(Config("slow", row(0).items), 13.0))
    assert proposals.hopeful(13.0) and not proposals.hopeful(12.0)
    proposals.tell(replace(outcome(Config("fast", row(0).items), 0.0), measurement=None))
    assert proposals.hopeful(13.0), "what failed is no measure of what it promises"
    proposals.tell(outcome(Config("fast", row(1).items), 14.0))
    assert not proposals.hopeful(13.0)


def test_the_best_time_of_a_family_stays_when_others_of_it_are_slower() -> None:
    proposals = Proposals({"fast": Promising("fast", 10.0)}, lambda config: True)
    proposals.look(0)
    for place, time_us in enumerate((8.0, 7.0, 9.0, None)):
        proposals.tell(outcome(Config("fast", row(place).items), time_us))
    assert proposals.best_us(Config("fast", ())) == 7.0


def test_a_search_gains_what_its_most_hopeful_family_may() -> None:
    strategies = {name: Promising(name, 10.0) for name in ("slow", "fast", "odd")}
    for strategy, gain in zip(strategies.values(), (0.1, 0.3, 0.2), strict=True):
        strategy.gains = [gain]
    assert Proposals(strategies, lambda config: True).gain() == 0.3
    assert Proposals({}, lambda config: True).gain() == 0.0


def test_a_family_that_is_used_up_is_no_longer_hopeful() -> None:
    short = Promising("fast", 10.0)
    short._rest = iter(range(2))
    proposals = Proposals({"slow": Promising("slow", 20.0), "fast": short}, lambda config: True)
    assert not [proposals.look(0), proposals.look(0)][1]
    proposals.tell(outcome(Config("slow", row(90).items), 20.0))
    found = [config for config in proposals.next(8) if config.family == "fast"]
    assert len(found) == 2
    for config in found:
        assert proposals.hopeful(20.0), "one is not tried yet"
        proposals.tell(outcome(config, None))
    assert not proposals.hopeful(20.0)


def test_a_family_that_promises_nothing_gets_an_equal_share() -> None:
    strategies = [Promising("odd", math.inf), Promising("fast", 10.0)]
    proposals = Proposals(dict(zip(["odd", "fast"], strategies, strict=True)), lambda config: True)
    assert counts(proposals.next(8)) == {"slow": 0, "fast": 4, "odd": 4}


def test_what_won_elsewhere_takes_turns_with_what_is_proposed() -> None:
    elsewhere = [Config("elsewhere", row(i).items) for i in range(6)]
    proposals = Proposals({"fast": Promising("fast", 10.0)}, lambda config: True, elsewhere)
    assert [c.family for c in proposals.next_hints(2)] == ["elsewhere"] * 2
    later = [c.family for c in proposals.next(2) + proposals.next(4) + proposals.next(4)]
    assert later == ["fast"] * 2 + ["elsewhere"] * 2 + ["fast"] * 2 + ["elsewhere"] * 2 + ["fast"] * 2
    one_by_one = Proposals({"fast": Promising("fast", 10.0)}, lambda config: True, elsewhere)
    assert [one_by_one.next(1)[0].family for _ in range(4)].count("elsewhere") <= 2
    some = Proposals({"fast": Promising("fast", 10.0)}, lambda config: config["i"] % 2 == 1, elsewhere)
    assert some.next_hints(9) == elsewhere[1::2], "of those that are wanted"
    ahead = Proposals({"fast": Promising("fast", 10.0)}, lambda config: True, elsewhere)
    assert len(ahead.next_hints(3)) == 3 and [c.family for c in ahead.next(1)] == ["fast"]


def test_a_family_that_was_left_untried_is_asked_first_and_once() -> None:
    strategies = {name: Promising(name, us) for name, us in (("slow", 20.0), ("fast", 10.0))}
    proposals = Proposals(strategies, lambda config: True, untried=("slow",))
    assert [proposals.next(1)[0].family for _ in range(3)] == ["slow", "fast", "fast"]


def test_winners_from_elsewhere_are_all_tried_when_nothing_else_is_left() -> None:
    short = Promising("fast", 10.0)
    short._rest = iter(range(1))
    elsewhere = [Config("elsewhere", row(i).items) for i in range(6)]
    proposals, found = Proposals({"fast": short}, lambda config: True, elsewhere), list[Config]()
    while batch := proposals.next(1):
        found += batch
    assert found == [Config("fast", row(0).items), *elsewhere]


def test_a_search_is_complete_without_families_that_are_far_behind() -> None:
    times = {"fast": 10.0, "odd": 50.0, "slow": 51.0}
    proposals = Proposals({name: Promising(name, us) for name, us in times.items()}, lambda config: True)
    assert proposals.due == {"fast", "odd", "slow"} and len(proposals.next(4)) == 4
    assert proposals.due == {"fast", "odd"}
    while not proposals.looked:
        proposals.look(0)
    for place in range(30):
        proposals.tell(outcome(Config("fast", row(place).items), 10.0))
    waiting = [proposals.best_us(Config(name, ())) for name in times]
    assert waiting == [10.0, 0.0, 51.0], "nor is one of them tried before faster ones, however long it waits"
