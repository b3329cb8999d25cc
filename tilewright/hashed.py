"""For frozen dataclasses that are looked up often: the hash is computed once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def hashed_once(cls: type[T]) -> type[T]:
    """Decorate a frozen dataclass so that it caches its hash, for configs in a search and layers in calls.

    Pickling leaves the hash out: it is valid in one process only.
    """
    worked_out = cls.__hash__

    def __hash__(self: Any) -> int:  # noqa: N807
        known = self.__dict__
        if "_hash" not in known:
            known["_hash"] = worked_out(self)
        found: int = known["_hash"]
        return found

    def __getstate__(self: Any) -> dict[str, Any]:  # noqa: N807
        return {field.name: getattr(self, field.name) for field in fields(self)}

    cls.__hash__, cls.__getstate__ = __hash__, __getstate__  # type: ignore[method-assign]
    return cls
