"""Typed access to untrusted JSON: every field is checked, and an error names its path."""

from __future__ import annotations

import re
from typing import Any

from tilewright.errors import StoreError, shown

LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*")
HUGE = 1e15  # more than any time, rate or number of bytes


class Fields:
    """Typed access to one JSON object; every complaint names the field's path."""

    def __init__(self, data: object, path: str) -> None:
        if not isinstance(data, dict):
            raise StoreError(f"{path}: must be an object, got {shown(data)}")
        self.data: dict[str, Any] = data
        self.path = path

    def bad(self, name: str, want: str) -> StoreError:
        """Return the error that says what ``name`` must be."""
        got = f"got {shown(self.data[name])}" if name in self.data else "it is missing"
        return StoreError(f"{self.path}.{name}: must be {want}, {got}")

    def only(self, *names: str) -> None:
        """Refuse fields that nobody asked for."""
        for name in self.data:
            if name not in names:
                raise StoreError(f"{self.path}: unknown field {shown(name)}; known are {', '.join(names)}")

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

    def boolean(self, name: str) -> bool:
        """Read true or false."""
        value = self.data.get(name)
        if type(value) is not bool:
            raise self.bad(name, "true or false")
        return value
