"""The numbers of an epilogue: validated, as bits for a kernel, and as decimals for a problem string."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from tilewright.errors import ProblemError, shown

_NO_NUMBERS = ("b", "c", "S", "U")  # kinds of NumPy's dtypes: truth values, complex numbers, texts
_MOST = 3e38  # the largest f32, rounded down: every dtype takes the same numbers


def finite(name: str, value: object) -> float:
    """Return a number as a float; -0 becomes 0, so that equal values have equal texts.

    Raises:
        ProblemError: it is no number, or not finite.
    """
    none = isinstance(value, (bool, str, bytes, bytearray)) or _kind(value) in _NO_NUMBERS
    try:
        number = math.nan if none else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) < _MOST:
        raise ProblemError(f"{name}={shown(value)}: must be a finite number, less than {_MOST:g} in size")
    return number + 0.0


def truth(name: str, value: object) -> bool:
    """Return True or False, of Python or NumPy.

    Raises:
        ProblemError: it is something else.
    """
    if not isinstance(value, bool) and not (_kind(value) == "b" and getattr(value, "shape", None) == ()):
        raise ProblemError(f"{name}={shown(value)}: must be True or False")
    return bool(value)


def _kind(value: object) -> str:
    """Return the kind of NumPy's dtype of a value, "" where it has none; NumPy need not be there."""
    return str(getattr(getattr(value, "dtype", None), "kind", ""))


def f32(value: float) -> float:
    """Return a number rounded to f32, never -0."""
    return float(struct.unpack("f", struct.pack("f", value))[0]) + 0.0


def bits32(value: float) -> int:
    """Return the bits of a number rounded to f32."""
    return int(struct.unpack("I", struct.pack("f", value))[0])


def bits64(value: float) -> int:
    """Return the bits of an f64 as a signed integer, which every compiler accepts."""
    return int(struct.unpack("q", struct.pack("d", value))[0])


def text32(value: float) -> str:
    """Return the shortest decimal that is this number in f32."""
    return _shortest(value, 9, lambda text: f32(float(text)) == f32(value))


def text64(value: float) -> str:
    """Return the shortest decimal that is this number in f64."""
    return _shortest(value, 17, lambda text: float(text) == value)


def _shortest(value: float, digits: int, same: Callable[[str], bool]) -> str:
    texts = (f"{value:.{count}g}".replace("e+", "e") for count in range(1, digits + 1))
    return min(filter(same, texts), key=len)
