"""What families say to layers that nobody thought of: a reason, never an error of their own arithmetic."""

from __future__ import annotations

import random

import pytest

from tilewright.device import for_architecture
from tilewright.errors import ProblemError
from tilewright.kernels import FAMILIES
from tilewright.problem import Problem

PRECISIONS = ("f64", "f32", "f16", "bf16", "i8", "f8", "tf32", "accurate", "q8")


def _layers(seed: int, count: int) -> list[Problem]:
    """Random layers of odd groups, filters and strides; what no layer may have is drawn again."""
    rng, found = random.Random(seed), list[Problem]()
    while len(found) < count:
        groups = rng.choice((1, 1, 2, 3, 5, 16))
        c, k = (groups * rng.choice((1, 2, 3, 5, 8, 12, 20, 48, 60, 65)) for _ in range(2))
        h, w, r, s = (rng.choice((1, 2, 3, 7, 11, 16, 17, 33, 130)) for _ in range(4))
        up, across, down, right = (rng.choice((1, 1, 2, 3, 5)) for _ in range(4))
        pads = f"p{rng.choice((0, 1, r // 2, r - 1))}x{rng.choice((0, 1, s // 2, s + 3))}"
        text = f"n{rng.choice((1, 2, 9))}c{c}h{h}w{w}k{k}r{r}s{s}{pads}u{up}x{across}d{down}x{right}"
        try:
            problem = Problem.parse(f"{text}g{groups}-f32").with_layout(*rng.choices(("nchw", "nhwc"), k=2))
            found.append(problem.with_dtype(rng.choice(PRECISIONS)))
        except ProblemError:
            continue
    return found


@pytest.mark.parametrize("arch", ("sm_75", "sm_80", "sm_90"))
def test_every_family_takes_an_odd_layer_or_says_why_not(arch: str) -> None:
    device, refused, taken = for_architecture(arch), 0, 0
    for problem in _layers(seed=int(arch[3:]), count=2000):
        reasons = [family.refuses(problem, device) for family in FAMILIES]
        assert "" not in reasons, str(problem)
        refused += sum(reason is not None for reason in reasons)
        taken += reasons.count(None)
    assert refused > 10_000 and taken > 2_000
