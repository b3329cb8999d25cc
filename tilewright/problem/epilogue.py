"""What a kernel does to its sums before it stores them: y = pool(act(alpha * conv + beta * z + bias)).

In a problem string each step is a word with a ``+`` before it, in this order:
``alpha0.5``, ``bias``, ``add`` (or ``add0.5``), an activation, a pool.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.arithmetic import with_ints
from tilewright.errors import ProblemError, shortened, shown
from tilewright.problem.activations import ACTIVATIONS, SHORT, Activation, meant
from tilewright.problem.numbers import bits32, bits64, f32, finite, text32, text64, truth

POOLS = ("max", "avg")
NUMBERS = ("alpha", "beta", "low", "high")
MAX_POOL = 64
_NAMES = tuple(ACTIVATIONS)[1:]
*_FIRST, _LAST = (f"+{form}" for name in _NAMES for form in ACTIVATIONS[name].forms)
WORDS = f"""\
  +alpha<number>  +bias  +add[<number>]
  {", ".join(_FIRST)} or {_LAST}
  +maxpool<size>[u<stride>][p<pad>] or +avgpool<size>[u<stride>]"""
ORDER = "alpha, bias, add, an activation, a pool"
_ADDED_LATE = "For z added behind an activation or a pool: leave +add out, and add z to y"

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
_WORD = re.compile(
    rf"(?P<name>alpha|bias|add|{'|'.join(_NAMES)})(?P<a>{_NUMBER})?(?::(?P<b>{_NUMBER}))?"
    r"|(?P<pool>max|avg)pool(?P<size>[0-9]{1,4})(?:u(?P<stride>[0-9]{1,4}))?(?:p(?P<pad>[0-9]{1,4}))?"
)
_FORMS = {form.split("<")[0].strip("+[]"): form for form in re.findall(r"\+[a-z0-9]+[^ ,\n]*", WORDS)}
_COUNTS = dict(alpha=(1,), bias=(0,), add=(0, 1)) | {name: ACTIVATIONS[name].counts for name in _NAMES}


@dataclass(frozen=True)
class Pool:
    """A max or average pool.

    Padding has no values: a window uses only what lies inside the image. Rows and columns at the end
    that do not fill a window are dropped.

    Attributes:
        mode: "max" or "avg".
        size: rows, and columns, of a window: from 1 to 64.
        stride: rows, and columns, from one window to the next: from 1 to 64; None: the size.
        pad: of a max pool, rows and columns of padding on every side: at most half the size.

    Raises:
        ProblemError: one of them is out of range, or an average pool is padded.

    Example:
        >>> str(Pool("max", 3, 2, 1)), str(Pool("avg", 7))
        ('maxpool3u2p1', 'avgpool7')
    """

    mode: str
    size: int
    stride: int = None  # type: ignore[assignment]  # as it may be given; it always is a number
    pad: int = 0

    def __post_init__(self) -> None:
        if self.stride is None:
            object.__setattr__(self, "stride", self.size)
        for name in ("size", "stride", "pad"):
            object.__setattr__(self, name, with_ints(getattr(self, name)))
        must = f"must be a max or avg pool, size and stride from 1 to {MAX_POOL}"
        numbers = self.size, self.stride, self.pad
        known = isinstance(self.mode, str) and self.mode in POOLS
        if not known or not all(type(value) is int for value in numbers):
            raise ProblemError(f"Pool({', '.join(map(shown, (self.mode, *numbers)))}): {must}")
        if not (1 <= self.size <= MAX_POOL and 1 <= self.stride <= MAX_POOL and self.pad >= 0):
            raise ProblemError(f"{self}: {must}")
        if self.pad and (self.mode != "max" or self.pad > self.size // 2):
            raise ProblemError(f"{self}: only max pools can be padded, by at most half their size")

    def out(self, extent: int) -> int:
        """Windows along one side of an image of ``extent`` values."""
        return (extent + 2 * self.pad - self.size) // self.stride + 1

    def __str__(self) -> str:
        stride = f"u{self.stride}" if self.stride != self.size else ""
        return f"{self.mode}pool{self.size}{stride}" + (f"p{self.pad}" if self.pad else "")


@dataclass(frozen=True)
class Epilogue:
    """What is done to the convolution's sum: scale, bias, residual, activation, pool.

    Its numbers are below 3e38 in magnitude. A Problem rounds them to f32, unless its dtype is f64.

    Attributes:
        alpha: factor of the convolution.
        bias: whether a bias, one number for each output channel, is added.
        beta: factor of the residual z, which has the shape of the convolution; 0: there is no z.
        act: a word of ``ACTIVATIONS``, "" for none.
        low, high: the activation's numbers, in this order; 0 if it has none.
        pool: the pool; None: there is none.

    Example:
        >>> str(Epilogue.parse(["bias", "relu", "maxpool2"]))
        '+bias+relu+maxpool2'
    """

    alpha: float = 1.0
    bias: bool = False
    beta: float = 0.0
    act: str = ""
    low: float = 0.0
    high: float = 0.0
    pool: Pool | None = None

    def __post_init__(self) -> None:
        for name in NUMBERS:
            object.__setattr__(self, name, finite(name, getattr(self, name)))
        object.__setattr__(self, "bias", truth("bias", self.bias))
        if not isinstance(self.act, str) or self.act not in ACTIVATIONS:
            raise ProblemError(f"activation {shown(self.act)}: must be one of {', '.join(_NAMES)}")
        if not isinstance(self.pool, Pool | None):
            raise ProblemError(f"pool={shown(self.pool)}: must be a Pool, e.g. Pool('max', 2, 2), or None")
        numbers = self.activation.numbers
        if numbers == ("low", "high") and self.low > self.high:
            raise ProblemError(f"{self.act}{self._numbers(text64)}: low is above high; swap them")
        if any((self.low, self.high)[len(numbers) :]):
            raise ProblemError(f"low={self.low}, high={self.high}: do not fit act={self.act!r}; {_taken()}")
        if self.alpha == 0.0:
            raise ProblemError("alpha=0: would discard the convolution; use a factor that is not 0")

    def __bool__(self) -> bool:
        return self != NOTHING

    @property
    def activation(self) -> Activation:
        """The table row of its activation."""
        return ACTIVATIONS[self.act]

    @property
    def slope(self) -> float:
        """The magnitude of the slope among its activation's numbers; 0: there is none."""
        return abs(self.low) if self.activation.numbers == ("slope",) else 0.0

    @property
    def add(self) -> bool:
        """Whether a residual z is added."""
        return self.beta != 0.0

    @property
    def keeps_integers(self) -> bool:
        """Whether integers stay integers, as i8 layers require."""
        mean = self.pool is not None and self.pool.mode == "avg"
        whole = self.activation.whole and not self.activation.numbers
        return self.alpha == 1.0 and self.beta in (0.0, 1.0) and whole and not mean

    @property
    def exact(self) -> bool:
        """Whether results on small integers are exact, so that answers can be compared bit by bit."""
        powers = all(math.frexp(f)[0] in (0.0, 0.5, -0.5) for f in (self.alpha, self.beta))
        if self.pool is not None and self.pool.mode == "avg":  # a sum of what the activation gave
            integers = self.activation.whole and self.low.is_integer() and self.high.is_integer()
            return powers and integers and math.frexp(self.pool.size)[0] == 0.5
        return powers and self.activation.exact

    def rounded(self) -> Epilogue:
        """Return it with its numbers rounded to f32.

        Raises:
            ProblemError: a factor is 0 in f32.
        """
        near = {name: f32(getattr(self, name)) for name in NUMBERS}
        if self.add and near["beta"] == 0.0:
            beta = text64(self.beta)
            raise ProblemError(f"+add{beta}: beta={beta} is 0 in f32; use a larger one, or leave z out")
        if near["alpha"] == 0.0:
            raise ProblemError(f"alpha={text64(self.alpha)}: is 0 in f32; use a larger one")
        return replace(self, **near)  # type: ignore[arg-type]

    def defines(self, dtype: str) -> dict[str, int]:
        """Return the defines of ``epilogue.h``; numbers travel as the bits of an f64, or else of an f32."""
        bits = bits64 if dtype == "f64" else bits32
        pool = self.pool or Pool("max", 1, 1)
        return dict(
            ALPHA=bits(self.alpha), SCALED=int(self.alpha != 1.0), BIAS=int(self.bias),
            BETA=bits(self.beta), ADD=int(self.add),
            ACT=list(ACTIVATIONS).index(self.act), ACT_LOW=bits(self.low), ACT_HIGH=bits(self.high),
            POOL=0 if self.pool is None else 1 + POOLS.index(pool.mode), POOL_SIZE=pool.size,
            POOL_STRIDE=pool.stride, POOL_PAD=pool.pad,
        )  # fmt: skip

    def __str__(self) -> str:
        return self.text("f64")

    def text(self, dtype: str) -> str:
        """Return its words, with the shortest decimals that give the same numbers in f64 (or else f32)."""
        write = text64 if dtype == "f64" else text32
        words = [f"alpha{write(self.alpha)}"] if self.alpha != 1.0 else []
        words += ["bias"] if self.bias else []
        words += ["add" + (write(self.beta) if self.beta != 1.0 else "")] if self.add else []
        words += [self.act + self._numbers(write)] if self.act else []
        words += [str(self.pool)] if self.pool else []
        return "".join("+" + word for word in words)

    def _numbers(self, write: Callable[[float], str]) -> str:
        """Return its activation's numbers, as they are written."""
        return ":".join(map(write, (self.low, self.high)[: len(self.activation.numbers)]))

    @classmethod
    def parse(cls, words: Sequence[str]) -> Epilogue:
        """Read the words of a problem string, without their ``+``.

        Raises:
            ProblemError: a word is unknown, malformed or out of order; the error names it.
        """
        values: dict[str, object] = {}
        last = -1
        for word in words:
            place, new = _read(word)
            if place <= last:
                late = f". {_ADDED_LATE}" if "beta" in new and "beta" not in values else ""
                raise ProblemError(
                    f"+{_shown(word)}: given twice or out of order; the order is {ORDER}{late}"
                )
            last = place
            values |= new
        return cls(**values)  # type: ignore[arg-type]


def _read(word: str) -> tuple[int, dict[str, object]]:
    """Return the place of a word in the order, and the fields that it sets."""
    match = _WORD.fullmatch(SHORT.get(word, word))
    if match is None:
        raise ProblemError(_why_unreadable(word))
    if match["pool"]:
        size = int(match["size"])
        return 4, {"pool": Pool(match["pool"], size, int(match["stride"] or size), int(match["pad"] or 0))}
    name, a, b = match["name"], match["a"], match["b"]
    given = (a is not None) + (b is not None)
    if given not in _COUNTS[name]:
        counts = " or ".join(map(str, _COUNTS[name]))
        raise ProblemError(f"+{_shown(word)}: takes {counts} number{'' if counts.endswith('1') else 's'}")
    if name in ACTIVATIONS:
        low = float(a) if a is not None else ACTIVATIONS[name].default or 0.0
        return 3, {"act": name, "low": low, "high": float(b or 0.0)}
    if name == "bias":
        return 1, {"bias": True}
    value = finite(name, float(a)) if a is not None else 1.0
    if value == 0.0:
        raise ProblemError(f"+{_shown(word)}: the factor must not be 0")
    return (0, {"alpha": value}) if name == "alpha" else (2, {"beta": value})


def _why_unreadable(word: str) -> str:
    """Say what is wrong with a word that has no known form."""
    if not word:
        return "a + with no word behind it"
    if _is_infinite(word):
        return f"+{_shown(word)}: needs a finite number"
    form = next((form for name, form in _FORMS.items() if word.startswith(name)), None)
    if form and "<" in form and "-" not in word:
        return f"+{_shown(word)}: must be written {form}"
    known = ", ".join([*_COUNTS, *SHORT, "maxpool", "avgpool", "requant (of i8)"])
    known_as = meant(word) or meant(re.split("[^A-Za-z_]", word)[0])
    known += f"; did you mean +{known_as}?" if known_as else ""
    hint = " (the dtype and layout come before the first +)" if "-" in word else ""
    return f"+{_shown(word)}: unknown word{hint}; known are {known}"


def _taken() -> str:
    """Say which activations take which numbers: clamp takes both, leaky takes low, the others neither."""
    what = {1: "takes low", 2: "takes both"}
    counted = sorted(_NAMES, key=lambda name: -len(ACTIVATIONS[name].numbers))
    told = [f"{name} {what[count]}" for name in counted if (count := len(ACTIVATIONS[name].numbers))]
    return ", ".join([*told, "the others neither"])


def _is_infinite(word: str) -> bool:
    """Whether a word would be valid if its numbers were finite."""
    match = _WORD.fullmatch(re.sub("nan|inf(inity)?", "1", word, flags=re.IGNORECASE))
    return match is not None and any(_COUNTS.get(match["name"], ()))


def _shown(word: str) -> str:
    """Return a word, shortened, for an error of one line."""
    return repr(shortened(word, 80))[1:-1]


NOTHING = Epilogue()
