"""What each family shows of what it takes (``Family.examples``), for the tests that go over all families."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.device import Device
from tilewright.kernels import FAMILIES, family
from tilewright.kernels.family import Family
from tilewright.problem import Problem

# Not all specs say it themselves yet: hopper takes what mma does, but for requantised i8.
LENT = {"hopper": tuple(text for text in family("mma").examples if "-q8" not in text)}
CASES = [(one.name, text) for one in FAMILIES for text in one.examples or LENT.get(one.name, ())]


def examples(one: Family) -> list[Problem]:
    """The layers that a family shows, whatever device they are for."""
    return [Problem.parse(text) for name, text in CASES if name == one.name]


def taken(one: Family, device: Device, more: Sequence[Problem] = ()) -> list[Problem]:
    """Those that it takes on the device, its own first and then of ``more``."""
    return [problem for problem in (*examples(one), *more) if one.refuses(problem, device) is None]
