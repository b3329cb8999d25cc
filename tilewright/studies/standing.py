"""How far a study is: which of its parts are done, and what there is of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.studies.study import Part, PartResult


@dataclass
class Standing:
    """What is wanted of a study, and what there is so far.

    Attributes:
        wanted: the parts to run, by their numbers.
        latest: what there is of each part, by its title.
    """

    wanted: Mapping[int, Part]
    latest: dict[str, PartResult] = field(default_factory=dict)

    def add(self, part: PartResult) -> None:
        """Keep a part as it is now."""
        self.latest[part.title] = part

    @property
    def parts(self) -> Sequence[PartResult]:
        """What there is."""
        return list(self.latest.values())

    def left(self) -> str:
        """Say how much is done; empty if all of it is."""
        found = {number: self.latest.get(part.title) for number, part in self.wanted.items()}
        done = sum(part is not None and not part.left for part in found.values())
        if done == len(found):
            return ""
        grown = [f"{_layers(part)} of part {number}" for number, part in found.items() if part and part.left]
        return ", and ".join([f"{done} of {len(found)} parts are done", *grown])


def _layers(part: PartResult) -> str:
    """Say how many layers of a part are done."""
    done = len({row.get("layer") for row in part.rows})
    return f"{done} of {done + len(part.left)} layers"
