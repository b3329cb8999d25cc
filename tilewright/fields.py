"""Untrusted JSON: reading files, with errors that name them, and typed access to fields."""

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
HUGE = 1e15  # above any time, rate or number of bytes
TINY = 1e-15  # below any of them but 0
T = TypeVar("T")
_hints = lru_cache(maxsize=64)(get_type_hints)


def read_document(path: Path, parse: Callable[[Any], T], what: str, writers: str) -> T:
    """Read and parse a JSON file.

    Args:
        path: of the file.
        parse: turns the document into a value; raises StoreError if it is invalid.
        what: what the file is called: "results file".
        writers: the commands that write one.

    Raises:
        StoreError: the file is missing, is not JSON, has a NaN or an infinity, or ``parse`` rejects it; says
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
    """Return a document unless it has NaN or Infinity: JSON has neither, but Python reads them."""
    try:
        json.dumps(document, allow_nan=False)
    except ValueError:
        raise StoreError("holds numbers that are none, NaN or Infinity") from None
    return document


class Fields:
    """Typed access to one JSON object; each error names the field's full path, which starts at ``path``."""

    def __init__(self, data: object, path: str = "") -> None:
        if not isinstance(data, dict):
            raise StoreError(f"{path or 'the document'}: must be an object, got {shown(data)}")
        self.data: dict[str, Any] = data
        self.path = path

    def bad(self, name: str, want: str) -> StoreError:
        """Return an error that says what ``name`` must be."""
        got = f"got {shown(self.data[name])}" if name in self.data else "it is missing"
        return StoreError(f"{self._at(name)}: must be {want}, {got}")

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def only(self, *names: str) -> None:
        """Refuse unknown fields.

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
        """Read a list of anything; in a document that is not from a file it may be a tuple."""
        value = self.data.get(name)
        if not isinstance(value, list | tuple):
            raise self.bad(name, "a list")
        return list(value)

    def string(self, name: str, default: str | None = None) -> str:
        """Read a text of any length; ``default`` replaces a missing one."""
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
        """Read an integer in a range; a boolean is refused."""
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
        """Read a time, a rate or the like: 0, or large enough for charts to divide by."""
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
        """Build a flat dataclass; each value is checked against the type of its field.

        Fields that are missing or null get their defaults. Numbers are read as a ``figure``; those of
        ``any_size`` need only be 0 or more. Keys that the class does not have are skipped.
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
