"""The activations, one row each: everything about them except their formulas (docs/new_activation.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Activation:
    """A function of one number.

    Attributes:
        word: its name, which follows a ``+`` in a problem string.
        numbers: names of the numbers that follow the word, at most two: ``low`` and ``high`` of an Epilogue.
        default: its one number if none is written; None: all must be written.
        short: an abbreviation, and the text that it stands for.
        like: its names in other libraries; errors suggest the word for them.
        steepest: its Lipschitz constant; a number named slope may be larger.
        steps: sequential roundings of its argument.
        own: further roundings, in units of the accumulator's roundoff times the size of the argument.
        whole: whether it maps integers to integers, if its own numbers are integers.
        exact: whether a kernel gives the same bits as the reference for exact sums.
    """

    word: str
    numbers: tuple[str, ...] = ()
    default: float | None = None
    short: tuple[str, str] | None = None
    like: tuple[str, ...] = ()
    steepest: float = 1.0
    steps: int = 0
    own: int = 0
    whole: bool = False
    exact: bool = True

    @property
    def counts(self) -> tuple[int, ...]:
        """How many numbers may follow the word."""
        return (len(self.numbers),) if self.default is None else (0, len(self.numbers))

    @property
    def forms(self) -> tuple[str, ...]:
        """How it is written in a problem string: relu6, clamp<low>:<high>."""
        numbers = ":".join(f"<{name}>" for name in self.numbers)
        return (*(self.short or ())[:1], self.word + (numbers if self.default is None else f"[{numbers}]"))

    @property
    def taken(self) -> str:
        """How it is given in Python: "leaky" or ("leaky", slope)."""
        ways = [f'"{self.short[0]}"'] if self.short else []
        ways += [f'"{self.word}"'] if 0 in self.counts else []
        ways += [f'("{self.word}", {", ".join(self.numbers)})'] if self.numbers else []
        return " or ".join(ways)


_ROWS = (
    Activation("", whole=True),
    Activation("relu", whole=True),
    Activation("leaky", ("slope",), default=0.01, like=("leakyrelu", "lrelu"), steps=1),
    # Its own roundings: OpenCL's exp has 6, its quotient 5, the sum 1.
    Activation("silu", like=("swish",), steepest=1.1, own=16, exact=False),
    Activation("clamp", ("low", "high"), short=("relu6", "clamp0:6"), like=("hardtanh", "clip"), whole=True),
)
ACTIVATIONS = {row.word: row for row in _ROWS}  # a kernel's ACT is the place of a word here; "": none
SHORT = dict(row.short for row in _ROWS if row.short)


def meant(text: str) -> str | None:
    """Return the word for a name with other capitals, or from another library; None: there is none."""
    name = text.lower().replace("_", "")
    words = [word for row in _ROWS[1:] for word in (row.word, *(row.short or ())[:1])]
    also = {name: row.word for row in _ROWS for name in row.like}
    found = name if name in words else also.get(name)
    return found if found != text else None
