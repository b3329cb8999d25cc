"""The activations, one row each: all that is known of one but its formula (docs/new_activation.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Activation:
    """A function of one number.

    Attributes:
        word: its name, in a problem string behind a ``+``.
        numbers: what the numbers behind the word are, two at most: ``low`` and ``high`` of an Epilogue.
        default: its one number where none is written; None: all must be.
        short: another word, and the text that it stands for.
        like: names that it has elsewhere, of which it is said that this one is meant.
        steepest: it takes an error at most so many times as large; a number named slope may be steeper.
        steps: roundings that its argument goes through, one after the other.
        own: roundings to the accumulator beyond these, as parts of the size of its argument.
        whole: whether it makes whole numbers of whole numbers, where its own are whole.
        exact: whether a kernel gives the bits of the reference, of sums that are exact.
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
        """How many numbers may be written behind the word."""
        return (len(self.numbers),) if self.default is None else (0, len(self.numbers))

    @property
    def forms(self) -> tuple[str, ...]:
        """How it is written: relu6, clamp<low>:<high>."""
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
    """Return the word that a name in other letters, or of elsewhere, stands for; None: there is none."""
    name = text.lower().replace("_", "")
    words = [word for row in _ROWS[1:] for word in (row.word, *(row.short or ())[:1])]
    also = {name: row.word for row in _ROWS for name in row.like}
    found = name if name in words else also.get(name)
    return found if found != text else None
