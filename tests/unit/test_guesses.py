"""The model's choices for an untuned layer: found by a look at all families, and kept."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tilewright.device import for_architecture
from tilewright.dispatch.kept_guesses import ranked_for
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.direct.spec import Direct
from tilewright.problem import Problem
from tilewright.runtime import cache
from tilewright.search import ranking
from tilewright.search.space import Space, usable

H100 = for_architecture("sm_90")
LAYER = Problem.parse("n2c48h20w20k72r3s3p1-f32")
KINDS = usable(FAMILIES, LAYER, H100)[0]
SMALL = [family_of("textbook")]  # soon ranked


@pytest.fixture(autouse=True)
def _alone(own_cache: None) -> None:
    """A cache of its own."""


def kept() -> list[Path]:
    return list((cache.folder() / cache.GUESSES).iterdir())


def never(*_: Any) -> Any:
    raise AssertionError("ranked again")


def test_choices_are_kept_for_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ranked_for(LAYER, H100, KINDS)
    sure = ranked_for(LAYER, H100, KINDS, deterministic=True)
    assert len(kept()) == 2 and len(found) > 8
    monkeypatch.setattr(ranking, "rank_all", never)
    assert ranked_for(LAYER, H100, KINDS) == found and ranked_for(LAYER, H100, KINDS, True) == sure
    assert all(family_of(config.family).deterministic(config) for config in sure)
    for asked in ((LAYER, for_architecture("sm_80"), KINDS), (LAYER, H100, KINDS[:1])):
        with pytest.raises(AssertionError, match="ranked again"):
            ranked_for(*asked)


BROKEN = ("", "{}", "[1]", '{"key": 1}', '{"key": "KEY", "configs": [1]}', '{"key": "KEY", "configs": ["x"]}')


@pytest.mark.parametrize("text", BROKEN)
def test_what_cannot_be_read_is_ranked_again(text: str) -> None:
    found = ranked_for(LAYER, H100, SMALL)
    (path,) = kept()
    path.write_text(text.replace("KEY", path.stem))
    assert ranked_for(LAYER, H100, SMALL) == found
    assert json.loads(path.read_text())["configs"] == [str(config) for config in found]


class Elsewhere(Direct):
    """A family of a user's own."""


def test_of_families_from_elsewhere_nothing_is_kept() -> None:
    assert ranked_for(LAYER, H100, [Elsewhere()])
    assert not (cache.folder() / cache.GUESSES).exists()


def test_trimming_removes_what_was_used_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    for kinds in (SMALL, KINDS[1:2]):
        ranked_for(LAYER, H100, kinds)
        for path in kept():
            os.utime(path, (1e9, 1e9))
    ranked_for(LAYER, H100, SMALL)
    (last,) = [path for path in kept() if path.stat().st_mtime > 1e9]
    monkeypatch.setattr(cache, "limit_bytes", lambda: last.stat().st_size)
    cache.trim()
    assert kept() == [last]


def test_clearing_the_cache_removes_them() -> None:
    ranked_for(LAYER, H100, SMALL)
    cache.clear()
    assert not kept()


def test_a_folder_that_takes_nothing_does_not_stop_it() -> None:
    path = cache.folder() / cache.GUESSES
    path.write_text("a file")
    assert ranked_for(LAYER, H100, SMALL) and path.read_text() == "a file"


LOOKED_AT = (
    *(str(LAYER), "n1c64h56w56k64r3s3p1-f16-nhwc", "n1c256h14w14k1024r1s1-i8-nhwc"),
    "n1c96h28w28k96r3s3p1g96-f32",
)


@pytest.mark.parametrize("text", LOOKED_AT)
def test_the_short_look_finds_what_the_long_one_does(text: str) -> None:
    problem = Problem.parse(text)
    kinds = usable(FAMILIES, problem, H100)[0]
    short = ranking.rank_all(problem, H100, kinds, 13)
    best_us = min(ranking.rank(problem, H100, kind, 1)[0][1] for kind in kinds)
    assert short[0][1] <= 1.05 * best_us
    assert [us for _, us in short] == sorted(us for _, us in short)


def test_a_family_that_is_far_behind_is_looked_at_more_briefly() -> None:
    def looked(known_us: float) -> ranking.ModelRanking:
        one = ranking.ModelRanking(Space(family_of("direct"), LAYER, H100), random.Random(0))
        one.glance(known_us)
        return one

    close, far = looked(1e9), looked(0.001)
    assert len(far.seen) < len(close.seen) and set(far.seen) < set(close.seen)
    assert far.glance() == min(far.seen.values()), "it promises what it has seen"
