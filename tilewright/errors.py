"""The errors and warnings that a user may see: each says what was given, what is wrong and what to do."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from types import FrameType

_PACKAGE = os.path.dirname(__file__) + os.sep
_BETWEEN = contextlib.contextmanager.__code__.co_filename  # calls decorated functions, in its own frames

# "error:", "error #20-D:", "ptxas error   :"; not "NVRTC_ERROR_COMPILATION:", which has no details.
_TELLS_ERROR = re.compile(r"\b(error|fatal)\b[^:]*:")


OR_NUMPY = ", or choose the device numpy, slow as it is"  # not said to who needs kernels
# What pip is told; without the index it brings gigabytes of libraries for NVIDIA's GPUs.
TORCH_CPU = "torch --index-url https://download.pytorch.org/whl/cpu"


def how_to_get(extra: str) -> str:
    """Say how to install an extra of pyproject.toml; tilewright is installed from its checkout."""
    return f"in tilewright's folder run pip install -e '.[{extra}]'"


def count(number: int, what: str) -> str:
    """Return a number with its noun: 1 layer, 2 layers."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def shortened(text: str, most: int = 100, end: str = "...") -> str:
    """Return a text of at most ``most`` characters; a longer one is cut and ends with ``end``."""
    return text if len(text) <= most else text[: most - len(end)] + end


def shown(value: object) -> str:
    """Return a value's text, short enough for an error of one line."""
    return shortened(" ".join(line.strip() for line in repr(value).splitlines()))


def printable(text: str) -> str:
    """Return a text as one line without control characters: \\x1b for an escape, a space for a line break."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else " " if one in "\t\r\n\xa0" else repr(one)[1:-1] for one in text
    )


def first_error(log: str) -> str:
    """Return the first line of a compiler's or driver's log that has an error, else its first line.

    pyopencl says some things three times, between dashes: once will do.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    told = (line for line in lines if _TELLS_ERROR.search(line))
    first = next(told, lines[0] if lines else "it failed and did not say why")
    return " - ".join(dict.fromkeys(first.split(" - ")))


class TilewrightError(Exception):
    """Base class of tilewright's errors; its text is one line for the user."""


class ProblemError(TilewrightError):
    """An invalid layer: a bad problem string, size, dtype or layout."""


class ConfigError(TilewrightError):
    """A kernel config that is malformed or breaks a named rule."""


class EmptySpace(ConfigError):
    """A kernel family without a legal config for this problem on this device.

    Only tilewright itself needs the distinction: to users it is a ConfigError.
    """


class BudgetError(TilewrightError):
    """An invalid tuning budget."""


class ArrayError(TilewrightError):
    """An array whose dtype, rank, shape, layout or device does not fit the problem."""


class DeviceError(TilewrightError):
    """A device that is absent, or that lacks a dependency."""


class CompileError(TilewrightError):
    """A kernel that the device's compiler rejected, or that spilled registers."""


class RunError(TilewrightError):
    """A kernel that failed on the device."""


class OutOfMemory(RunError):
    """The device has too little free memory; the text says how much was needed."""


class StoreError(TilewrightError):
    """A store of records that cannot be used, or a file of winners or results that is not valid."""


class StoreBusy(StoreError):
    """A store that another process held locked for longer than we waited; a later use may succeed.

    Only tilewright itself needs the distinction: to users it is a StoreError.
    """


class OutputError(TilewrightError):
    """A file that cannot be drawn or written: unknown format, missing library or no data."""


class PeerError(TilewrightError):
    """A peer that is absent or cannot run a problem; the text says why."""


def a_kind(value: object) -> str:
    """Return the kind of an argument of the wrong type: "an int", "a NumPy array", "None".

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
    """Warn the user once per ``key`` (by default the text)."""
    if (key or text) not in _warned:
        _warned.add(key or text)
        warnings.warn(text, RuntimeWarning, stacklevel=2 + _frames_of_ours())


def _frames_of_ours() -> int:
    """Count the frames up to the user's own, which a warning is to name."""
    frame: FrameType | None = sys._getframe(2)
    ours = 0
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, _BETWEEN)):
        frame, ours = frame.f_back, ours + 1
    return ours
