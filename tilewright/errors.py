"""The errors and warnings a user can meet: each says what was given, what was wrong and what to do."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from types import FrameType

_PACKAGE = os.path.dirname(__file__) + os.sep
_BETWEEN = contextlib.contextmanager.__code__.co_filename  # calls what we decorate, in frames of its own

# "error:", "error #20-D:", "ptxas error   :"; not "NVRTC_ERROR_COMPILATION:", which says nothing more.
_TELLS_ERROR = re.compile(r"\berror\b[^:]*:")


def how_to_get(extra: str) -> str:
    """Say how to install what an extra of pyproject.toml names; tilewright is installed from its checkout."""
    return f"in tilewright's folder run pip install -e '.[{extra}]'"


def count(number: int, what: str) -> str:
    """A number of things: 1 layer, 2 layers."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def shortened(text: str, most: int = 100, end: str = "...") -> str:
    """A text of bearable length; ``end``: what a longer one ends with instead."""
    return text if len(text) <= most else text[: most - len(end)] + end


def shown(value: object) -> str:
    """A value as part of one line of bearable length."""
    return shortened(" ".join(line.strip() for line in repr(value).splitlines()))


def printable(text: str) -> str:
    """A text as one line that steers no terminal: an escape is shown as \\x1b, a line break as a space."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else " " if one in "\t\r\n\xa0" else repr(one)[1:-1] for one in text
    )


def first_error(log: str) -> str:
    """Return the first line of a compiler's or driver's words that tells an error, else the first of all."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    told = (line for line in lines if _TELLS_ERROR.search(line))
    return next(told, lines[0] if lines else "it failed and did not say why")


class TilewrightError(Exception):
    """Base of all errors of tilewright; its text is one line for a person."""


class ProblemError(TilewrightError):
    """A layer that is not well formed: a bad problem string, size, dtype or layout."""


class ConfigError(TilewrightError):
    """A kernel config that is malformed or breaks a named legality rule."""


class EmptySpace(ConfigError):
    """A kernel family of which no config keeps every rule for this problem on this device.

    Told apart within tilewright alone: for its users it is a ConfigError.
    """


class BudgetError(TilewrightError):
    """A tuning budget that cannot be read."""


class ArrayError(TilewrightError):
    """An array whose dtype, rank, shape, layout or device does not fit the problem."""


class DeviceError(TilewrightError):
    """A device that is not there, or a dependency that is missing for it."""


class CompileError(TilewrightError):
    """A kernel that the device's compiler refused, or that spilled registers."""


class RunError(TilewrightError):
    """A kernel that failed on the device."""


class OutOfMemory(RunError):
    """The device has too little free memory; the text says how much was needed."""


class StoreError(TilewrightError):
    """A store of records that cannot be used, or a file of winners or results that is not valid."""


class StoreBusy(StoreError):
    """A store that another process has for longer than we waited; the next use may find it free.

    Told apart within tilewright alone: for its users it is a StoreError.
    """


class OutputError(TilewrightError):
    """A file that cannot be drawn or written: a format or a library that is not there, nothing to show."""


class PeerError(TilewrightError):
    """A peer that is absent or cannot run a problem; the text says why."""


def a_kind(value: object) -> str:
    """Say what was given where something else is taken: "an int", "a NumPy array", "None".

    Example:
        >>> a_kind(3), a_kind("x"), a_kind(None)
        ('an int', 'a str', 'None')
    """
    name = type(value).__name__
    if value is None:
        return "None"
    if name == "ndarray":
        name = "NumPy array"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


_warned: set[str] = set()


def warn_once(text: str, key: str | None = None) -> None:
    """Warn the user, the first time only that ``key`` (by default the text) comes up."""
    if (key or text) not in _warned:
        _warned.add(key or text)
        warnings.warn(text, RuntimeWarning, stacklevel=2 + _frames_of_ours())


def _frames_of_ours() -> int:
    """Count the frames between the caller and the user's own, which a warning is to name."""
    frame: FrameType | None = sys._getframe(2)
    ours = 0
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, _BETWEEN)):
        frame, ours = frame.f_back, ours + 1
    return ours
