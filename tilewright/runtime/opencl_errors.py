"""Turns pyopencl's errors into ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tilewright.device import Device
from tilewright.errors import OutOfMemory, RunError

P = ParamSpec("P")
T = TypeVar("T")


class UsesOpencl(Protocol):
    """What is required of a runtime: pyopencl and its device."""

    cl: Any
    device: Device


Owner = TypeVar("Owner", bound=UsesOpencl)


def in_words(runtime: UsesOpencl, what: str, error: Exception) -> RunError:
    """Return our error for one of pyopencl's; note that a driver may allocate memory only on first use."""
    if isinstance(error, runtime.cl.MemoryError):
        return OutOfMemory(f"{runtime.device.name}: no room for {what}: {error}")
    return RunError(f"{runtime.device.name}: {what}: {error}")


def in_our_words(method: Callable[Concatenate[Owner, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """Make a method raise RunError or OutOfMemory where pyopencl raises its own errors."""

    @wraps(method)
    def inside(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except self.cl.Error as error:
            raise in_words(self, method.__name__.strip("_"), error) from error

    return inside
