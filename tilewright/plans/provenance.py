"""Why a plan has its config: the reasons as values, and their text for users."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tilewright.problem import Problem

if TYPE_CHECKING:
    from tilewright.kernels.config import Config


class Basis(StrEnum):
    """What a choice rests on. Users read these words and results files hold them: do not change them."""

    UNSAID = ""  # there was nothing to choose, or the maker of the plan knows
    STORED = "the stored winner"
    SHIPPED = "shipped"
    IMPORTED = "imported"
    OLDER = "older source"  # a winner of other kernel sources, or of another compiler
    KIN = "another device's"  # a winner of one with the same chip
    MODEL = "the model's choice"
    UNTUNED = "untuned: the model's choice"  # of a layer of which no winner is known
    UNFINISHED = "untuned: the best so far"  # of a search that did not end, or of some families alone
    ALIKE = "untuned: a winner of a layer alike"  # of one that differs in its epilogue, say: hints.alike
    ALIKE_THERE = "a winner of a layer alike"  # on a device that is not here, or where its own cannot be used
    REFERENCE = "slow: the reference kernel, since no other could be used"
    BY_HAND = "chosen by hand"
    NAMED = "named by --config"


FROM_ELSEWHERE = (Basis.SHIPPED, Basis.IMPORTED, Basis.OLDER, Basis.KIN)
GUESSED = (Basis.UNTUNED, Basis.UNFINISHED, Basis.ALIKE)


@dataclass(frozen=True)
class Replaced:
    """A winner that could not be used, and why.

    Attributes:
        no_room: there was too little memory; there may be enough at the plan's next use.
        error: the error's text.
    """

    config: Config
    no_room: bool
    error: str


@dataclass(frozen=True)
class Provenance:
    """Why a config was chosen.

    Attributes:
        basis: what the choice rests on: a winner and where that is from, the model, or the user.
        verified: whether its answer was checked on this device, or the user named it. A check takes seconds,
            because the reference is slow.
        passed: why other families could not be used.
        replaced: the winner that it replaces.
        options: command-line options of the search that would find a winner: " --deterministic".
        like: the similar layer whose winner the config is, if it is one.
        remark: what else a user should know.
    """

    basis: Basis = Basis.UNSAID
    verified: bool = True
    passed: str = ""
    replaced: Replaced | None = None
    options: str = ""
    like: str = ""
    remark: str = ""

    @property
    def had_no_room(self) -> bool:
        """Whether it replaces a stored winner for which there was no memory."""
        return self.replaced is not None and self.replaced.no_room

    def note(self, problem: Problem) -> str:
        """Return what a user should know about the choice, in one line; empty if the stored winner runs."""
        advice = f"run `tilewright tune {problem}{self.options}`" if self.basis in GUESSED else ""
        return "; ".join(filter(None, (self._whence(), advice, self._instead_of(), self.remark)))

    def told(self, problem: Problem) -> str:
        """Return the note; if it is empty, where the config comes from."""
        return self.note(problem) or self.basis.value or "nothing to choose from"

    def _whence(self) -> str:
        said = "" if self.basis is Basis.STORED else self.basis.value
        if self.basis in FROM_ELSEWHERE:
            said += ", verified here" if self.verified else " winner"
        said += f", {self.like}" if self.like else ""
        said += "" if self.verified else " (not verified)"
        return said + (f" ({self.passed})" if self.passed else "")

    def _instead_of(self) -> str:
        if self.replaced is None:
            return ""
        why = "does not fit into memory now" if self.replaced.no_room else "cannot be used"
        return f"the winner {self.replaced.config} {why}: {self.replaced.error}"


UNSAID = Provenance()
