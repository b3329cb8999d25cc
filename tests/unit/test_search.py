"""The search's choice of what to measure next: the error's model, diversity, shares of families."""

from __future__ import annotations

import _ctypes
import math
import os
import random
import re
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits
from tuning_fakes import PROBLEM, Row, RowStrategy, outcome, row

from tilewright.device import Device, for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.direct.spec import Direct
from tilewright.kernels.family import Config, Param, Rule
from tilewright.problem import Problem
from tilewright.record import Outcome
from tilewright.search import correction, ranking, space
from tilewright.search import strategies as search
from tilewright.search.correction import COMMON, NOISE, OWN
from tilewright.search.experience import Bias, Experience, Lesson
from tilewright.search.places import ROWS, coordinates, distances
from tilewright.search.proposals import PATIENCE, Proposals, batch_size
from tilewright.search.space import Space

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


def test_the_search_thinks_on_one_core() -> None:
    """Beside compilers that keep all cores busy, threads of linear algebra wait for each other in turns."""
    within: list[int] = []

    def estimate(config: Config) -> float:
        within.extend(blas_threads())
        return 100.0

    with several_blas_threads():
        correction.choose(PARAMS, [point(2), point(64)], estimate, {point(1): 90.0}, [], 90.0, 2)
        assert within and set(within) == {1}
        assert set(blas_threads()) == {2}


SIDE_BY_SIDE = """
import threading
import numpy  # whose linear algebra it is
from threadpoolctl import threadpool_info, threadpool_limits
from tilewright.search.correction import on_one_core

def threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

def first():
    with on_one_core():
        entered.set()
        leave.wait(10)
    done.wait(10)  # it lives on, with whatever it holds

def second():
    with on_one_core():
        print(threads())

entered, leave, done = (threading.Event() for _ in range(3))
print(threads())
one, other = threading.Thread(target=first), threading.Thread(target=second)
one.start()
entered.wait(10)
other.start()
leave.set()
other.join()
print(threads())
done.set()
"""


def test_searches_side_by_side_give_the_cores_back() -> None:
    """Whoever comes second waits until the first is done, and what the first limits is free again then."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", SIDE_BY_SIDE]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    before, within, after = said.splitlines()
    if before != "[2]":
        pytest.skip(f"no BLAS whose threads can be set: {before}")
    assert (within, after) == ("[1]", "[2]")


BADLY_NAMED = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
from tilewright.search.correction import on_one_core
with on_one_core():
    print("searches")
"""


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        (b"j\xe9r", {}),
        (b"j\xc3\xa9r", {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),
    ],
)  # fmt: skip
def test_a_loaded_file_whose_name_cannot_be_read_stops_no_search(
    name: bytes, environment: dict[str, str], tmp_path: Path
) -> None:
    """PoCL loads kernels from the cache folder, whose name threadpoolctl could not read: the name is not
    UTF-8, or the locale is not.
    """
    folder = os.fsencode(tmp_path) + b"/" + name
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("a file system of UTF-8 alone")
    library = os.fsdecode(shutil.copy(os.fsencode(_ctypes.__file__), folder))
    command = [sys.executable, "-c", BADLY_NAMED, library]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.stdout == "searches\n", done.stderr


def test_what_other_layers_taught_is_worked_out_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    config, within, solve = ranked()[0][0], list[int](), np.linalg.solve
    lesson = Lesson(DEVICE, replace(LAYER, c=32), "direct", ((str(config), 10.0),))
    monkeypatch.setattr(np.linalg, "solve", lambda *given: within.extend(blas_threads()) or solve(*given))
    with several_blas_threads():
        assert len(Bias(Direct(), LAYER, DEVICE, [lesson]).expected_us([config])) == 1
        assert within and set(within) == {1}
        assert set(blas_threads()) == {2}


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@contextmanager
def several_blas_threads() -> Iterator[None]:
    """As on a machine of several cores."""
    with threadpool_limits(2, "blas"):
        if set(blas_threads()) != {2}:
            pytest.skip("no BLAS whose threads can be set")
        yield


def test_a_search_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its space remembers is tens of megabytes for each layer that is not tuned."""
    spaces: list[weakref.ref[Space]] = []

    class Noted(Space):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            spaces.append(weakref.ref(self))

    monkeypatch.setattr(ranking, "Space", Noted)
    assert ranking.rank(LAYER, DEVICE, Direct(), 10)
    assert len(spaces) == 1 and spaces[0]() is None


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


class Sizes(Direct):
    """Two sizes and a choice, and no rules."""

    name = "sizes"

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        sizes = tuple(Param(name, (1, 2, 4, 8), name) for name in "ab")
        return (*sizes, Param("way", (0, 1, 2), "way", ("one", "two", "three")))

    def rules(self, device: Device) -> tuple[Rule, ...]:
        return ()


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


class TwoKinds(Row):
    """Of one kind all are good, of the other only what is far from where most, and the others' best, are."""

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        steps = tuple(range(31))
        kind = Param("kind", (0, 1), "how", names=("even", "steep"))
        meet = Param("meet", (0, 1), "where shares meet", names=("here", "there"))
        return (kind, *(Param(name, steps, "steps") for name in ("i", "j", "k")), meet)


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
