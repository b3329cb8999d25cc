"""Which configs each family refuses, rule by rule.

``rules.txt`` has a legal config at a time, and steps from it. Each step breaks the rule that it is listed
under, and no other: without that rule, or with a looser one, the config would be legal. Steps listed as
``legal`` break none: they are as far as one may go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_direct_cpu import CORES

from tilewright.device import for_architecture
from tilewright.errors import ConfigError
from tilewright.kernels import family_of
from tilewright.kernels.config import Config
from tilewright.problem import Problem

H100 = for_architecture("sm_90")
DEVICES = {arch: for_architecture(arch) for arch in ("sm_75", "sm_80", "sm_90", "sm_120")}
DEVICES |= {"cpu": CORES, "opencl": replace(H100, backend="opencl")}


def cases() -> Iterator[tuple[str, str, str, dict[str, list[str]]]]:
    """Yield device, layer and config of each part of the table, and steps by the rules that they break."""
    table = (Path(__file__).parent / "rules.txt").read_text()
    for part in table.split("\n\n")[1:]:  # after what says how to read it
        head, config, *lines = part.strip().split("\n")
        where, layer = head.split()
        yield where, layer, config, {rule: taken for rule, *taken in map(str.split, lines)}


CASES = list(cases())


@pytest.mark.parametrize(("where", "layer", "text", "steps"), CASES)
def test_a_step_breaks_one_rule_alone(where: str, layer: str, text: str, steps: dict[str, list[str]]) -> None:
    config, problem, device = Config.parse(text), Problem.parse(layer), DEVICES[where]
    kind = family_of(config.family)
    kind.check(problem, device, config)
    facts = {"problem": kind.inner(problem, device), "device": device}
    for rule, taken in steps.items():
        for step in taken:
            changed = Config.make(kind.name, config.values | Config.parse(f"{kind.name}:{step}").values)
            known = facts | changed.values
            broken = [one.name for one in kind.rules(device) if not one.allows(known)]
            assert broken == [] if rule == "legal" else set(broken) == {rule}, step
            if rule != "legal":
                with pytest.raises(ConfigError, match=f"breaks rule '{rule}'"):
                    kind.check(problem, device, changed)
