"""One point of a family's space, and its text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tilewright.errors import ConfigError, shortened
from tilewright.hashed import hashed_once

MAX_VALUE = 99_999_999  # of a parameter: some are as large as an extent of a layer, 2^24


@hashed_once
@dataclass(frozen=True)
class Config:
    """One point of a family's space; ``direct:bh=1.bk=8.…`` is its one-line text.

    Attributes:
        family: the family's name.
        items: its parameters, (name, value) each, in the order of their names, as ``make`` sorts them.
    """

    family: str
    items: tuple[tuple[str, int], ...]

    @classmethod
    def make(cls, family: str, values: Mapping[str, int]) -> Config:
        """Build a config with its parameters in a fixed order."""
        return cls(family, tuple(sorted(values.items())))

    @cached_property
    def values(self) -> dict[str, int]:
        """The parameters by name."""
        return dict(self.items)

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    def __str__(self) -> str:
        return self.family + ":" + ".".join(f"{name}={value}" for name, value in self.items)

    @classmethod
    def parse(cls, text: str) -> Config:
        """Read the text form, ``family:name=value.name=value``.

        Raises:
            ConfigError: names the part that could not be read.
        """
        if not isinstance(text, str):
            raise _unreadable(text, "must be text like family:name=value.name=value")
        family, colon, body = text.strip().partition(":")
        if not colon or not _NAME.fullmatch(family):
            raise _unreadable(text, "must look like family:name=value.name=value")
        values: dict[str, int] = {}
        for part in body.split(".") if body else ():
            read = _setting(part)
            if not read or read[0] in values:
                raise _unreadable(text, f"cannot read {shortened(part, 80)!r}, want name=integer, once")
            values[read[0]] = read[1]
        return cls.make(family, values)


_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SETTING = re.compile(rf"([a-z][a-z0-9_]*)=([0-9]{{1,{len(str(MAX_VALUE))}}})")


@lru_cache(maxsize=4096)
def _setting(text: str) -> tuple[str, int] | None:
    """Read ``name=value``; thousands of configs are made of a few hundred."""
    match = _SETTING.fullmatch(text)
    return (match[1], int(match[2])) if match else None


def _unreadable(text: object, why: str) -> ConfigError:
    return ConfigError(f"config {shortened(repr(text), 300)}: {why}")
