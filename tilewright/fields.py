"""Untrusted JSON: files of it, read with errors that name them, and typed access to its fields."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from tilewright.errors import StoreError, shown
from tilewright.files import read_json

LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*")
HUGE = 1e15  # more than any time, rate or number of bytes
TINY = 1e-15  # less than any, but for 0
T = TypeVar("T")
_hints = lru_cache(maxsize=64)(get_type_hints)


def read_document(path: Path, parse: Callable[[Any], T], what: str, writers: str) -> T:
    """Read a JSON file and make values of it.

    Args:
        path: of the file.
        parse: makes them; raises StoreError where it cannot.
        what: what the file is called: "results file".
        writers: the commands that write one.

    Raises:
        StoreError: the file is missing, no JSON, has a number that is none, or is refused by ``parse``; says
            which file and why.
    """
    try:
        return parse(_finite(read_json(path)))
    except OSError as error:
        raise StoreError(f"{what} {path}: {error.strerror or error}") from None
    except ValueError:
        raise StoreError(f"{what} {path}: not JSON; want one written by {writers}") from None
    except StoreError as error:
        raise StoreError(f"{what} {path}: {error}") from None


def _finite(document: Any) -> Any:
    """Return a document that can be written again: JSON has neither NaN nor Infinity, Python reads them."""
    try:
        json.dumps(document, allow_nan=False)
    except ValueError:
        raise StoreError("holds numbers that are none, NaN or Infinity") from None
    return document


class Fields:
    """Typed access to one JSON object; every complaint names the field's path, from ``path`` on."""

    def __init__(self, data: object, path: str = "") -> None:
        if not isinstance(data, dict):
            raise StoreError(f"{path or 'the document'}: must be an object, got {shown(data)}")
        self.data: dict[str, Any] = data
        self.path = path

    def bad(self, name: str, want: str) -> StoreError:
        """Return the error that says what ``name`` must be."""
        got = f"got {shown(self.data[name])}" if name in self.data else "it is missing"
        return StoreError(f"{self._at(name)}: must be {want}, {got}")

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def only(self, *names: str) -> None:
        """Refuse fields that nobody asked for.

        Raises:
            StoreError: names the first.
        """
        for name in self.data:
            if name not in names:
                raise StoreError(f"{self.path}: unknown field {shown(name)}; known are {', '.join(names)}")

    def section(self, name: str) -> Fields:
        """Read an object."""
        if not isinstance(self.data.get(name), dict):
            raise self.bad(name, "an object")
        return Fields(self.data[name], self._at(name))

    def sections(self, name: str) -> list[Fields]:
        """Read a list of objects."""
        return [Fields(one, f"{self._at(name)}[{i}]") for i, one in enumerate(self.elements(name))]

    def elements(self, name: str) -> list[Any]:
        """Read a list, whatever is in it; of a document that was not written yet, a tuple."""
        value = self.data.get(name)
        if not isinstance(value, list | tuple):
            raise self.bad(name, "a list")
        return list(value)

    def string(self, name: str, default: str | None = None) -> str:
        """Read a text of any length; ``default``: what it is where it is missing."""
        value = self.data.get(name, default)
        if not isinstance(value, str):
            raise self.bad(name, "a text")
        return value

    def text(self, name: str, most: int = 200) -> str:
        """Read one printable line."""
        value = self.data.get(name)
        if not isinstance(value, str) or len(value) > most or not LINE.fullmatch(value):
            raise self.bad(name, f"one printable line of at most {most} characters")
        return value

    def integer(self, name: str, low: int, high: int) -> int:
        """Read an integer in a range; a boolean is none."""
        value = self.data.get(name)
        if type(value) is not int or not low <= value <= high:
            raise self.bad(name, f"an integer from {low} to {high}")
        return value

    def number(self, name: str, low: float = 0.0, high: float = HUGE) -> float:
        """Read a finite number in a range."""
        value: Any = self.data.get(name)
        if type(value) not in (int, float) or not low <= value <= high:
            raise self.bad(name, f"a number from {low:g} to {high:g}")
        return float(value)

    def figure(self, name: str) -> float:
        """Read a time, a rate or the like: 0, or what charts may divide by."""
        value = self.number(name)
        if 0.0 < value < TINY:
            raise self.bad(name, f"0, or a number from {TINY:g} to {HUGE:g}")
        return value

    def boolean(self, name: str) -> bool:
        """Read true or false."""
        value = self.data.get(name)
        if type(value) is not bool:
            raise self.bad(name, "true or false")
        return value

    def build(self, cls: type[T], any_size: Collection[str] = ()) -> T:
        """Build a flat dataclass, each value checked against the type of its field.

        Fields that are missing or null have their defaults; numbers are a ``figure``, or 0 or more for those
        of ``any_size``; what the class has not is skipped.
        """
        types = _hints(cls)  # type: ignore[arg-type]
        there = [
            one.name for one in fields(cls)  # type: ignore[arg-type]
            if self.data.get(one.name) is not None or one.default is one.default_factory is MISSING
        ]  # fmt: skip
        return cls(**{
            name: self.number(name, high=sys.float_info.max) if name in any_size
            else self._of_type(name, types[name])
            for name in there
        })  # fmt: skip

    def _of_type(self, name: str, want: object) -> Any:
        if want == Mapping[str, float | str]:
            inner = self.section(name)
            return {key: v if type(v) is str else inner.figure(key) for key, v in inner.data.items()}
        if want is int:
            return self.integer(name, 0, int(HUGE))
        return {str: self.string, bool: self.boolean}.get(want, self.figure)(name)  # type: ignore[call-overload]
