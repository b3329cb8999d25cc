"""What families say to layers that nobody thought of: a reason, never an error of their own arithmetic."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from check_random import layers

from tilewright.device import for_architecture
from tilewright.kernels import FAMILIES


@pytest.mark.parametrize("arch", ("sm_75", "sm_80", "sm_90"))
def test_every_family_takes_an_odd_layer_or_says_why_not(arch: str) -> None:
    device, refused, taken = for_architecture(arch), 0, 0
    for problem in islice(layers(random.Random(int(arch[3:])), cpu=False), 2000):
        reasons = [family.refuses(problem, device) for family in FAMILIES]
        assert "" not in reasons, str(problem)
        refused += sum(reason is not None for reason in reasons)
        taken += reasons.count(None)
    assert refused > 10_000 and taken > 2_000
