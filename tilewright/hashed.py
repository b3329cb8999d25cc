"""Values that are looked up often: a frozen dataclass works out its hash once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def hashed_once(cls: type[T]) -> type[T]:
    """Decorate a frozen dataclass: a search asks often for a config's hash, each call for a layer's.

    It is pickled without its hash, which is good in its own process only.
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
