"""Which layers each family refuses, by ``refusals.txt``; of what it takes there is a legal config."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from test_rules import DEVICES

from tilewright.kernels import family_of
from tilewright.problem import Problem
from tilewright.search.space import sample


def cases() -> Iterator[tuple[str, str, str, str]]:
    """Yield device, family, layer and a part of the reason of each line of the table."""
    table = (Path(__file__).parent / "refusals.txt").read_text()
    for part in table.split("\n\n")[1:]:  # after what says how to read it
        head, *lines = part.strip().split("\n")
        where, *families = head.split()
        for line in lines:
            layer, _, why = line.partition("  #")[0].strip().partition(" ")
            yield from ((where, family, layer, why.strip()) for family in families)


@pytest.mark.parametrize(("where", "family", "layer", "why"), list(cases()))
def test_a_family_refuses_what_it_does_not_take(where: str, family: str, layer: str, why: str) -> None:
    device, kind, problem = DEVICES[where], family_of(family), Problem.parse(layer)
    if why:
        assert why in str(kind.refuses(problem, device))
    else:
        kind.check(problem, device, sample(kind, problem, device, Random(1)))
