"""Why a plan has the config it has: values to decide by, and the one place that puts them into words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tilewright.kernels.family import Config
from tilewright.problem import Problem


class Origin(StrEnum):
    """Where a config comes from, in the words that users read and results files hold: change none."""

    UNSAID = ""  # nothing to choose, or whoever made the plan knows
    STORED = "the stored winner"
    SHIPPED = "shipped"
    IMPORTED = "imported"
    OLDER = "older source"  # a winner of other kernel sources, or of another compiler
    KIN = "another device's"  # a winner of one with the same chip
    MODEL = "the model's choice"
    UNTUNED = "untuned: the model's choice"  # of a layer of which no winner is known
    REFERENCE = "slow: the reference kernel, since no other could be used"
    BY_HAND = "chosen by hand"
    NAMED = "named by --config"


FROM_ELSEWHERE = (Origin.SHIPPED, Origin.IMPORTED, Origin.OLDER, Origin.KIN)


@dataclass(frozen=True)
class Missed:
    """A winner that could not be used, and the error that said so.

    Attributes:
        no_room: there was too little memory, and there may be enough at the plan's next use.
    """

    config: Config
    no_room: bool
    error: str


@dataclass(frozen=True)
class Why:
    """Why a config was taken.

    Attributes:
        origin: where it comes from.
        verified: whether its answer was checked here, or whoever named it answers for it. A check takes
            seconds, since the reference is slow.
        passed: why other families could not be used.
        missed: the winner whose place it takes.
        remark: what else a user should know.
    """

    origin: Origin = Origin.UNSAID
    verified: bool = True
    passed: str = ""
    missed: Missed | None = None
    remark: str = ""

    def note(self, problem: Problem) -> str:
        """Say what a user should know of the choice in one line; empty where the stored winner runs."""
        advice = f"run `tilewright tune {problem}`" if self.origin is Origin.UNTUNED else ""
        return "; ".join(filter(None, (self._whence(), advice, self._instead_of(), self.remark)))

    def told(self, problem: Problem) -> str:
        """Say it where the stored winner is named too."""
        return self.note(problem) or self.origin.value or "nothing to choose from"

    def _whence(self) -> str:
        said = "" if self.origin is Origin.STORED else self.origin.value
        if self.origin in FROM_ELSEWHERE:
            said += ", verified here" if self.verified else " winner"
        said += "" if self.verified else " (not verified)"
        return said + (f" ({self.passed})" if self.passed else "")

    def _instead_of(self) -> str:
        if self.missed is None:
            return ""
        why = "has no room now" if self.missed.no_room else "cannot be used"
        return f"the winner {self.missed.config} {why}: {self.missed.error}"


UNSAID = Why()
