"""How much tuning may cost: seconds, trials, or everything."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real

from tilewright.arithmetic import as_integer
from tilewright.errors import BudgetError, shown
from tilewright.record import Spent

_FORM = re.compile(r"([0-9]{1,13}(?:\.[0-9]{1,6})?)\s*(s|sec|m|min|h|trials?)")
_SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_MOST_S = 1e13  # of as many digits as are read: what is written is read again


@dataclass(frozen=True)
class Budget:
    """A limit on one layer's tuning.

    The start and the references are never cut short: if they use it up, some configs are tried all the same.
    Of two limits, the one that is reached first ends the search.

    Attributes:
        seconds: everything counts, from the start to the final timing.
        trials: configs that are tried; None: as many as there is time for.

    Example:
        >>> Budget.parse("2m").seconds
        120.0
        >>> Budget.parse("50trials").trials
        50
    """

    seconds: float = math.inf
    trials: int | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.seconds, Real) and not isinstance(self.seconds, bool)
        try:
            seconds = float(self.seconds) if number else 0.0
        except OverflowError:
            seconds = 0.0
        if not seconds > 0:
            raise BudgetError(f"budget: seconds={shown(self.seconds)}: must be a number above 0")
        object.__setattr__(self, "seconds", seconds)
        trials = as_integer(self.trials)
        if self.trials is not None and (trials is None or trials < 1):
            raise BudgetError(f"budget: trials={shown(self.trials)}: must be a whole number of 1 or more")
        object.__setattr__(self, "trials", trials)

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``20s``, ``2m``, ``50trials`` or ``all``.

        Raises:
            BudgetError: if the text is none of these, or is zero.
        """
        if not isinstance(text, str):
            raise BudgetError(f"budget={shown(text)}: must be like 20s, 2m, 50trials or all")
        if text.strip().lower() == "all":
            return cls()
        match = _FORM.fullmatch(text.strip().lower())
        if not match:
            raise BudgetError(f"budget {text!r}: must be like 20s, 2m, 50trials or all")
        number, unit = match.groups()
        if float(number) == 0:
            raise BudgetError(f"budget {text!r}: must be more than zero, e.g. 20s or 50trials")
        if not unit.startswith("trial"):
            seconds = float(number) * _SECONDS[unit]
            if seconds >= _MOST_S:
                raise BudgetError(f"budget {text!r}: is too long; for no limit say all")
            return cls(seconds=seconds)
        if "." in number:
            raise BudgetError(f"budget {text!r}: trials are whole, e.g. {max(1, int(float(number)))}trials")
        return cls(trials=int(number))

    def within(self, spent: Spent | None) -> bool:
        """Whether a search that spent so much had at least this budget, or ended by itself (None)."""
        if spent is None:
            return True
        if self.trials is not None and self.trials <= spent.trials:  # whichever limit comes first ends it
            return True
        return float(f"{self.seconds:.6g}") <= spent.seconds  # as it is stored

    def __str__(self) -> str:
        trials = [f"{self.trials}trials"] if self.trials is not None else []
        seconds = [f"{_written(self.seconds)}s"] if math.isfinite(self.seconds) else []
        return " or ".join([*seconds, *trials]) or "all"


def _written(seconds: float) -> str:
    """Return seconds as ``Budget.parse`` reads them; only of what it would not accept, with an exponent."""
    text = f"{seconds:.6f}".rstrip("0").rstrip(".")
    return text if seconds < _MOST_S and math.isclose(float(text), seconds, rel_tol=1e-3) else f"{seconds:g}"
