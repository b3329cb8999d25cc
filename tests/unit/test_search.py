"""The search's choice of what to measure next: the error's model, diversity, shares of families."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from search_samples import DEVICE, LAYER, PARAMS, SIZES, Sizes, TwoKinds, point, ranked
from tuning_fakes import PROBLEM, outcome

from tilewright.kernels.direct.spec import Direct
from tilewright.kernels.family import Config
from tilewright.record import Outcome
from tilewright.search import correction, ranking
from tilewright.search import strategies as search
from tilewright.search.correction import COMMON, NOISE, OWN
from tilewright.search.experience import Experience
from tilewright.search.places import ROWS, coordinates, distances
from tilewright.search.space import Space


def choose(
    fresh: Sequence[Config], measured: dict[Config, float], count: int = 1, waiting: Sequence[Config] = (),
    estimates: dict[Config, float] | None = None,
) -> list[Config]:  # fmt: skip
    best = min(measured.values(), default=math.inf)
    known = estimates or {}
    return correction.choose(
        PARAMS, fresh, lambda c: known.get(c, 100.0), measured, waiting, best, count
    )[0]


def test_the_models_best_comes_first() -> None:
    estimates = {point(1): 30.0, point(8): 20.0, point(64): 40.0}
    assert choose(list(estimates), {}, estimates=estimates) == [point(8)]
    assert choose([], {}) == []


def test_a_second_choice_is_no_twin_of_the_first() -> None:
    """All expect the same: what is far from the first is more uncertain, so it may gain more."""
    fresh = [point(size) for size in SIZES]
    first, second = choose(fresh, {}, count=2)
    assert (first, second) == (point(1), point(128))
    assert choose(fresh[1:], {}, waiting=[point(1)]) == [point(128)]  # waiting counts as chosen


def test_a_batch_is_chosen_as_one_by_one() -> None:
    """What is chosen counts as waiting does: both are as good as measured, to all that is uncertain."""
    fresh = [point(size, kind) for size in SIZES for kind in range(3)]
    measured = {point(1): 90.0, point(16, 2): 100.0, point(128, 1): 95.0}
    left = [config for config in fresh if config not in measured]
    batch, chosen = choose(left, measured, count=6), list[Config]()
    for _ in batch:
        fresh_ones = [config for config in left if config not in chosen]
        chosen += choose(fresh_ones, measured, waiting=chosen)
    assert batch == chosen


def test_configs_like_a_fast_one_are_expected_to_be_fast() -> None:
    fresh = [point(2), point(32), point(64)]
    assert choose(fresh, {point(1): 80.0, point(128): 120.0}) == [point(2)]
    assert choose(fresh, {point(1): 120.0, point(128): 80.0}) == [point(64)]


def walk() -> Any:
    """The strategy of docs/search.md."""
    page = Path(__file__).parents[2] / "docs" / "search.md"
    block = re.search(r"^```python\n([^`]*^class Walk.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    assert block
    found: dict[str, Any] = {}
    exec(block[1], found)
    return found["Walk"]


def test_a_strategy_of_ones_own_is_one_more_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the documentation goes on from the fastest; in a replay it keeps to what was recorded."""
    monkeypatch.setitem(search.STRATEGIES, "walk", walk())
    one, other = (search.make("walk", Sizes(), LAYER, DEVICE, seed=5) for _ in range(2))
    first = one.propose(4)
    assert first == other.propose(4) and len({*first}) == 4
    for place, config in enumerate(first):
        one.tell(outcome(config, [math.inf, 7.0, 5.0, 9.0][place], LAYER))
    near = Space(Sizes(), LAYER, DEVICE).neighbours(first[2])
    second = one.propose(2)
    assert {*second} <= {*near} - {*first} and len(second) == 2
    some = list(Space(Sizes(), LAYER, DEVICE).every())[:9]
    kept = search.make("walk", Sizes(), LAYER, DEVICE, among=some)
    assert {*kept.propose(5), *kept.propose(5)} == {*some} and kept.propose(5) == []
    assert search.make("walk", Sizes(), LAYER, DEVICE, among=[]).propose(5) == []


def test_failures_are_known_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set's order is another in every process: which of two as good comes first would be chance."""
    strategy, told = search.make("model", Direct(), LAYER, DEVICE, seed=1), list[Config]()
    for config in strategy.propose(8):
        strategy.tell(outcome(config, None, LAYER))
        told.append(config)
    known: list[Config] = []
    monkeypatch.setattr(search, "choose", lambda p, f, e, measured, *_: (known.extend(measured) or [], 0.0))
    strategy.propose(8)
    assert known == told


def test_what_is_known_when_the_next_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own proposals and winners from elsewhere, but of other families only how fast they are."""
    chosen: list[tuple[list[Config], dict[Config, float], list[Config], float]] = []

    def choose(_: Any, fresh: Any, expected: Any, known: Any, waiting: Any, best: float, count: int) -> Any:
        assert all(expected(config) > 0.0 for config in (*fresh, *known, *waiting))
        chosen.append((fresh, dict(known), waiting, best))
        return fresh[:count], 0.0

    strategy = search.make("model", Direct(), LAYER, DEVICE, seed=1)
    first = strategy.propose(4)
    legal = Space(Direct(), LAYER, DEVICE)
    elsewhere = next(config for config in legal.neighbours(first[0]) if config not in first)
    times = {first[0]: 9.0, elsewhere: 8.0, Config.make("gemm", dict(tk=4)): 5.0}
    strategy.tell(replace(outcome(elsewhere, 4.0, LAYER), config="no config"))
    for config, time_us in times.items():
        strategy.tell(outcome(config, time_us, LAYER))
    monkeypatch.setattr(search, "choose", choose)
    second = strategy.propose(4)
    (near, *known), (fresh, *later) = chosen
    assert known == [{first[0]: 9.0, elsewhere: 8.0}, first[1:], 4.0]
    assert later == [{first[0]: 9.0, elsewhere: 8.0}, first[1:] + second[:2], 4.0]
    assert not {*near, *fresh} & {*first, elsewhere}
    steps = {*legal.neighbours(first[0]), *legal.neighbours(elsewhere)}
    assert set(near) == steps - {*first, elsewhere} and second[:2] == near[:2]


def test_the_time_of_a_wrong_answer_is_nothing_to_improve_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalist that the full check refused keeps its time; a search that goes on is told of it."""
    told: list[tuple[Any, ...]] = []
    strategy = search.make("model", Direct(), LAYER, DEVICE, seed=1)
    (config,) = strategy.propose(1)
    strategy.tell(replace(outcome(config, 5.0, LAYER), outcome=Outcome.WRONG))
    monkeypatch.setattr(search, "choose", lambda *asked: (told.append(asked) or [], 0.0))
    strategy.propose(1)
    ((_, _, expected, known, _, best_us, _),) = told  # no steps from it, only the model's order
    assert known == {config: search.FAILED * expected(config)} and best_us == math.inf


def test_what_the_search_never_looked_at_may_have_won_elsewhere() -> None:
    """Winners of other devices and sources are tried, and told, whether the model thinks of them or not."""
    strategy, rng = search.make("model", Direct(), LAYER, DEVICE, among=[]), random.Random(3)
    right, failed = (Space(Direct(), LAYER, DEVICE).sample(rng) for _ in range(2))
    strategy.tell(outcome(right, 5.0, LAYER))
    strategy.tell(outcome(failed, None, LAYER))
    assert strategy.propose(4) == [] and right != failed


def test_steps_are_taken_from_the_four_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, pools = search.make("model", Direct(), LAYER, DEVICE, seed=1), list[list[Config]]()
    first = strategy.propose(6)
    for config, time_us in zip(first, (20.0, 19.0, 18.0, 17.0, 16.0, 15.0), strict=True):
        strategy.tell(outcome(config, time_us, LAYER))
    monkeypatch.setattr(search, "choose", lambda params, fresh, *_: (pools.append(fresh) or [], 0.0))
    strategy.propose(2)
    legal = Space(Direct(), LAYER, DEVICE)
    assert set(pools[0]) == {near for config in first[2:] for near in legal.neighbours(config)} - {*first}


def test_the_gain_is_that_of_the_best_proposed_last(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, gains = search.make("model", Direct(), LAYER, DEVICE, seed=1), iter((0.3, 0.1, 0.0, 0.2))
    assert strategy.gain() == math.inf, "unknown"
    strategy.tell(outcome(strategy.propose(1)[0], 5.0, LAYER))
    monkeypatch.setattr(search, "choose", lambda *_: ([], next(gains)))
    assert [strategy.propose(2) or strategy.gain() for _ in range(2)] == [0.3, 0.2]


def test_the_gain_expected_is_the_mean_of_what_is_faster_than_the_best() -> None:
    """Of log(time), which is normal: here its integral over all that it may be."""
    best, estimate = 90.0, {point(1): 90.0, point(4): 95.0}

    def gain(best_us: float, measured: dict[Config, float], waiting: Sequence[Config] = ()) -> float:
        return correction.choose(PARAMS, [point(4)], estimate.__getitem__, measured, waiting, best_us, 1)[1]

    _, (variance,), _ = correction._given(PARAMS, [point(4)], [point(1)], np.zeros(1))
    logs = np.log(95.0) + np.sqrt(variance) * np.linspace(-10.0, 10.0, 20_001)
    density = np.exp(-0.5 * np.linspace(-10.0, 10.0, 20_001) ** 2) / math.sqrt(2.0 * math.pi)
    wanted = 1e-3 * np.sum(np.maximum(math.log(best) - logs, 0.0) * density)
    assert 0.01 < wanted < 0.2 and gain(best, {point(1): 90.0}) == pytest.approx(wanted, rel=1e-6)
    assert gain(best, {}, [point(1)]) == pytest.approx(wanted, rel=1e-6), "as if it were measured"
    assert gain(95.0, {}, [point(1)]) == pytest.approx(wanted, rel=1e-6), "what waits may be the best"
    assert gain(math.inf, {}) == math.inf, "unknown without a best time"
    fresh = [point(4), point(8)]
    one, both = (correction.choose(PARAMS, fresh, lambda _: 95.0, {}, [], 90.0, n)[1] for n in (1, 2))
    assert one == both > 0.0, "the first of several has most to gain"
    assert correction.choose(PARAMS, [], estimate.__getitem__, {point(1): 90.0}, [], 90.0, 1) == ([], 0.0)


def test_of_many_that_are_measured_the_fastest_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work grows with the cube of their number."""
    fast, slow = {point(4): 9.0, point(8): 10.0}, {point(128): 50.0, point(64): 40.0}

    def gain(measured: dict[Config, float]) -> float:
        return correction.choose(PARAMS, [point(32)], lambda _: 10.0, measured, [], 9.0, 1)[1]

    assert gain(slow | fast) != gain(fast)
    monkeypatch.setattr(correction, "MOST", 2)
    assert gain(slow | fast) == gain(fast) > 0.0


def test_local_search_takes_only_steps_from_the_best() -> None:
    strategy = search.make("local", Direct(), LAYER, DEVICE, seed=1)
    (first,) = strategy.propose(1)
    strategy.tell(outcome(first, 5.0, LAYER))
    legal = Space(Direct(), LAYER, DEVICE)
    assert set(strategy.propose(5)) <= set(legal.neighbours(first))


def test_distances_are_sums_over_coordinates() -> None:
    """Also of more rows than are looked at together, and of coordinates that all have in common."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2 * ROWS + 5, 4)), rng.normal(size=(7, 4))
    a[:, 2] = b[:, 2] = 3.0
    np.testing.assert_allclose(distances(a, b), np.abs(a[:, None] - b[None]).sum(axis=2), rtol=1e-12)
    assert distances(a[:0], b).shape == (0, 7) and distances(a, b[:0]).shape == (len(a), 0)
    assert distances(a[:0], b[:0]).shape == (0, 0)


def test_choices_are_all_equally_unlike() -> None:
    places = coordinates(PARAMS, [point(1, 0), point(1, 1), point(1, 2)])
    apart = {float(abs(places[i] - places[j]).sum()) for i in range(3) for j in range(i)}
    assert apart == {1.0}


def test_posterior_is_that_of_the_normal_distribution() -> None:
    """One measurement: the textbook's two-variable conditional."""
    import numpy as np

    error, variance, _ = correction._given(PARAMS, [point(4)], [point(1)], np.array([0.2]))
    prior, shared = COMMON**2 + OWN**2 + NOISE**2, COMMON**2 + OWN**2 * math.exp(-2 / 4)
    assert error[0] == pytest.approx(shared / prior * 0.2)
    assert variance[0] == pytest.approx(prior - shared**2 / prior)


def test_search_learns_from_times_and_failures_and_never_repeats() -> None:
    family = Direct()
    seen: list[Config] = []
    rng = random.Random(3)
    strategy = search.make("model", family, LAYER, DEVICE, seed=1)
    for size in (8, 8, 16):
        batch = strategy.propose(size)
        assert len(batch) == size
        seen += batch
        for config in batch:
            time_us = None if rng.random() < 0.2 else rng.uniform(5.0, 50.0)
            strategy.tell(outcome(config, time_us, LAYER))
    assert len(set(seen)) == len(seen)
    again = search.make("model", family, LAYER, DEVICE, seed=1)
    assert again.propose(8) == seen[:8]


def test_after_failures_only_the_search_goes_elsewhere() -> None:
    """The first 8 fail, and are near-twins; the next is not the model's next, which is one more."""
    order = [config for config, _ in ranked()]
    strategy = search.make("model", Direct(), LAYER, DEVICE, among=order)
    for config in order[:8]:
        strategy.tell(outcome(config, None, LAYER))
    (found,) = strategy.propose(1)
    assert found != order[8]
    params = ranking.ModelRanking(Space(Direct(), LAYER, DEVICE), random.Random(0), order).space.params
    places = coordinates(params, [found, order[8], *order[:8]])
    apart = [abs(places[2:] - place).sum(axis=1).min() for place in places[:2]]
    assert apart[0] > apart[1]


def test_one_at_a_time_climbs_as_often_as_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    choose = search.ModelGuided._choose

    def noted(self: search.ModelGuided, pool: list[Config], count: int) -> list[Config]:
        asked.append(count)
        return choose(self, pool, count)

    strategy = search.make("model", Direct(), LAYER, DEVICE, seed=1)
    strategy.tell(outcome(strategy.propose(1)[0], 5.0, LAYER))
    monkeypatch.setattr(search.ModelGuided, "_choose", noted)
    for size in (1, 1, 1, 1, 8):
        assert len(strategy.propose(size)) == size
    assert asked == [0, 1, 1, 0, 0, 1, 1, 0, 4, 4]  # steps from the best, then of the model's order


def test_a_replayed_search_keeps_to_what_is_given() -> None:
    some = [config for config, _ in ranked()[:40]]
    strategy = search.make("model", Direct(), LAYER, DEVICE, among=some)
    assert strategy.promise_us() == ranked()[0][1]
    found = strategy.propose(8)
    strategy.tell(outcome(found[3], 5.0, LAYER))
    found += strategy.propose(40)
    assert set(found) == set(some) and len(found) == 40
    assert search.make("model", Direct(), LAYER, DEVICE, among=[]).promise_us() == math.inf


@pytest.mark.parametrize("pins", (None, {"meet": 0}))
def test_the_best_of_each_kind_is_climbed_from(
    pins: dict[str, int | tuple[int, ...]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is pinned comes first in a space, and is no choice."""

    def estimate(family: Any, problem: Any, device: Any, config: Config) -> Any:
        steps = config["i"] + config["j"] + config["k"]
        return SimpleNamespace(total_us=285.0 - 3.0 * steps if config["kind"] else 17.0 + 0.05 * steps)

    monkeypatch.setattr("tilewright.search.model.estimate", estimate)
    for seed in range(3):
        rng, known = random.Random(seed), Experience()
        looked = ranking.ModelRanking(Space(TwoKinds(), PROBLEM, DEVICE, pins), rng, None, known)
        looked.deepen()
        assert looked.order()[0]["kind"] == 1, "15 at best; of the other kind 17"


def test_what_is_pinned_comes_first_and_keeps_its_names() -> None:
    params = Space(TwoKinds(), PROBLEM, DEVICE, {"meet": 1, "i": (7, 5)}).params
    assert [param.name for param in params] == ["i", "meet", "kind", "j", "k"]
    assert [(param.values, param.names) for param in params[:2]] == [((5, 7), ()), ((1,), ("there",))]


def test_a_preview_is_of_what_was_looked_at_for_the_promise() -> None:
    strategy = search.make("model", Direct(), LAYER, DEVICE)
    looked = ranking.ModelRanking(Space(Direct(), LAYER, DEVICE), random.Random(0))
    looked.glance()
    found = strategy.preview(8)
    assert len(set(found)) == 8 and set(found) <= set(looked.seen) and strategy.gain() > 0.0
    assert not set(found) & set(strategy.propose(40)), "none twice"
    assert search.make("random", Direct(), LAYER, DEVICE).preview(8) == []
