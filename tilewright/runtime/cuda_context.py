"""A device's context, made current while it is needed: on any thread, with several GPUs in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tilewright.runtime import forked
from tilewright.runtime.cuda_facts import check

P = ParamSpec("P")
T = TypeVar("T")


class Context:
    """The primary context of one GPU, which PyTorch, CuPy and cuDNN use too."""

    def __init__(self, driver: Any, gpu: Any) -> None:
        """Retain it; the caller's context, if there was one, stays current."""
        self._driver = driver
        before = self._current()
        gpu.set_current()
        self._ours = self._current()
        self._address = int(self._ours)
        self.leave(before if before is not None and int(before) else None)

    def enter(self) -> Any:
        """Make it current; return the context that ``leave`` must make current again, or None.

        A thread that had no context keeps ours: that is what CUDA's own runtime does.

        Raises:
            DeviceError: this process was forked from the one that opened the device.
        """
        forked.refuse()
        before = self._current()
        address = 0 if before is None else int(before)
        if address == self._address:
            return None
        check(self._driver.cuCtxSetCurrent(self._ours))
        return before if address else None

    def leave(self, before: Any) -> None:
        """Make the caller's context current again."""
        if before is not None:
            check(self._driver.cuCtxSetCurrent(before))

    def _current(self) -> Any:
        return self._driver.cuCtxGetCurrent()[1]


class HasContext(Protocol):
    """What ``in_context`` requires of an object."""

    @property
    def context(self) -> Context:
        """The context of its device."""


Owner = TypeVar("Owner", bound=HasContext)


def in_context(method: Callable[Concatenate[Owner, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """Run a method with its device's context current, on any thread and with any caller's context."""

    @wraps(method)
    def inside(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        before = self.context.enter()
        if before is None:
            return method(self, *args, **kwargs)
        try:
            return method(self, *args, **kwargs)
        finally:
            self.context.leave(before)

    return inside


@contextmanager
def beside_captures(driver: Any) -> Iterator[None]:
    """Let this thread allocate and free while another thread records a CUDA graph.

    Otherwise both end the recording with an error, unless it was begun in a mode that allows them.
    """
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _, before = driver.cuThreadExchangeStreamCaptureMode(mode)
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


class Owned:
    """Frees device memory when nothing refers to it any more, on any thread."""

    def __init__(self, driver: Any, context: Context, address: int) -> None:
        self._driver, self.context, self._address = driver, context, address

    @in_context
    def _free(self) -> None:
        with beside_captures(self._driver):
            self._driver.cuMemFree(self._address)

    def __del__(self) -> None:
        try:  # noqa: SIM105 - at the end of a process suppress(), like the driver, may be gone before us
            self._free()
        except Exception:
            pass
