"""The model's choices of a layer: those of its order that are tried in turn until one compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.device import Device
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem

# Their places in the order. Neighbours are much alike: if the first few spill registers, so may the next
# hundred.
GUESSES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)

Guess = Callable[[Problem, Device, Sequence[Family], bool], list[Config]]


def guesses(
    problem: Problem, device: Device, families: Sequence[Family], deterministic: bool
) -> list[Config]:
    """Return the choices over all families on a device, which need not be here; a second's work."""
    from tilewright.search.ranking import rank_all

    sure = {family.name: family.deterministic for family in families}
    found = rank_all(problem, device, families, len(GUESSES))
    ranked = [config for config, _ in found if not deterministic or sure[config.family](config)]
    return [ranked[place] for place in GUESSES if place < len(ranked)]
