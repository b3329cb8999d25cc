"""A GPU's context is current while it is needed, and the caller's own one afterwards."""

from __future__ import annotations

import sys
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.errors import DeviceError, OutOfMemory, RunError
from tilewright.runtime import forked
from tilewright.runtime.base import Memory, Runtime
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.cuda_context import Context, Owned, in_context

OURS, NONE, OTHER = 0xA0, 0, 0xB0
NO_DRIVER = {"wrap", "compile", "slice", "versions", "stream", "prepared"}  # prepared calls launch, later


class Driver:
    """Stands for the driver's bindings: the calling thread's context, and whose memory was freed where."""

    def __init__(self, current: int) -> None:
        self.current, self.sets = current, 0
        self.freed: list[tuple[int, int]] = []

    def cuCtxGetCurrent(self) -> tuple[int, int]:  # noqa: N802
        return 0, self.current

    def cuCtxSetCurrent(self, context: int) -> tuple[int]:  # noqa: N802
        self.current, self.sets = context, self.sets + 1
        return (0,)

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    capture_mode = "global"

    def cuThreadExchangeStreamCaptureMode(self, mode: str) -> tuple[int, str]:  # noqa: N802
        before, self.capture_mode = self.capture_mode, mode
        return 0, before

    def cuMemFree(self, address: int) -> tuple[int]:  # noqa: N802
        self.freed.append((address, self.current))
        return (0,)


def opened(driver: Any) -> Context:
    return Context(driver, SimpleNamespace(set_current=lambda: setattr(driver, "current", OURS)))


class Device:
    def __init__(self, context: Context, driver: Driver) -> None:
        self.context, self.driver = context, driver

    @in_context
    def where(self, fail: bool = False) -> int:
        """Say which context is current."""
        if fail:
            raise ValueError
        return self.driver.current


@pytest.mark.parametrize(("before", "after"), [(NONE, OURS), (OURS, OURS), (OTHER, OTHER)])
def test_the_callers_context_is_left_as_it_was(before: int, after: int) -> None:
    driver = Driver(before)
    context = opened(driver)
    assert driver.current == after
    driver.current = before
    device = Device(context, driver)
    assert device.where() == OURS
    assert driver.current == after
    with pytest.raises(ValueError):
        device.where(fail=True)
    assert driver.current == after


def test_nothing_is_set_where_ours_is_current_already() -> None:
    driver = Driver(OURS)
    device = Device(opened(driver), driver)
    sets = driver.sets
    device.where()
    assert driver.sets == sets


def test_memory_is_freed_in_its_own_context() -> None:
    driver = Driver(OTHER)
    memory = Owned(driver, opened(driver), 64)
    del memory
    assert driver.freed == [(64, OURS)] and driver.current == OTHER
    assert driver.capture_mode == "global", "as it was before"


class Status(IntEnum):
    """Some of the driver's own."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


def test_too_little_memory_is_told_from_other_errors() -> None:
    driver: Any = Driver(OURS)
    driver.CUresult, driver.cuMemGetInfo = Status, lambda: (Status.CUDA_SUCCESS, 1024, 4096)
    runtime: Any = object.__new__(CudaRuntime)
    runtime.context, runtime._driver, runtime.device = opened(driver), driver, SimpleNamespace(name="GPU")
    driver.cuMemAlloc = lambda nbytes: (Status.CUDA_ERROR_OUT_OF_MEMORY, 0)
    with pytest.raises(OutOfMemory, match=r"^GPU: no room for 5,000 bytes; 1,024 of 4,096 are free$"):
        runtime.alloc(5000)
    driver.cuMemAlloc = lambda nbytes: (Status.CUDA_ERROR_ILLEGAL_ADDRESS, 0)
    with pytest.raises(RunError, match="^CUDA: CUDA_ERROR_ILLEGAL_ADDRESS$") as found:
        runtime.alloc(5000)
    assert not isinstance(found.value, OutOfMemory)
    driver.cuMemAlloc = lambda nbytes: (Status.CUDA_SUCCESS, 4096 + nbytes)
    assert runtime.alloc(0).address == 4100, "never nothing"


@pytest.mark.parametrize("recording", [False, True])
def test_memory_that_pytorch_keeps_for_no_array_is_asked_back(
    recording: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that serves a network may have all of a GPU reserved, and none of it in use."""
    driver, kept, modes = Driver(OURS), [4096], list[str]()
    driver.CUresult, driver.cuMemGetInfo = Status, lambda: (Status.CUDA_SUCCESS, 0, 4096)  # type: ignore[attr-defined]
    driver.cuMemAlloc = lambda nbytes: (  # type: ignore[attr-defined]
        (Status.CUDA_ERROR_OUT_OF_MEMORY, 0) if kept else (Status.CUDA_SUCCESS, 64)
    )
    runtime: Any = object.__new__(CudaRuntime)
    runtime.context, runtime._driver, runtime.device = opened(driver), driver, SimpleNamespace(name="GPU")
    cuda = SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: recording,
        empty_cache=lambda: (kept.clear(), modes.append(driver.capture_mode)),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())  # half imported
    if recording:
        with pytest.raises(OutOfMemory):
            runtime.alloc(5000)
        assert kept
    else:
        assert runtime.alloc(5000).address == 64
        assert modes == ["relaxed"], "another thread may be recording a graph"


def test_new_memory_is_set_to_0_while_another_thread_records() -> None:
    """On a stream of its own, and nothing else is waited for."""
    driver: Any = Driver(OURS)
    done: list[tuple[object, ...]] = []
    driver.cuMemsetD8Async = lambda *given: (done.append((*given, driver.capture_mode)), (0,))[1]
    driver.cuStreamSynchronize = lambda stream: (done.append((stream, driver.capture_mode)), (0,))[1]
    runtime: Any = object.__new__(CudaRuntime)
    runtime.context, runtime._driver, runtime._stream = opened(driver), driver, 0
    runtime._quiet = SimpleNamespace(handle=7)
    runtime.zero(Memory(12, 64, 64))
    assert done == [(64, 0, 12, 7, "relaxed"), (7, "relaxed")] and driver.capture_mode == "global"
    runtime.finish(2)
    assert done[2:] == [(2, "relaxed")] and driver.capture_mode == "global"


def test_every_method_of_the_runtime_that_touches_the_driver_does_so() -> None:
    methods = {name for name in vars(Runtime) if not name.startswith("_")} - NO_DRIVER
    methods -= set(Runtime.__annotations__)
    assert methods >= {"load", "alloc", "launch", "timed"}
    assert [name for name in methods if not hasattr(vars(CudaRuntime)[name], "__wrapped__")] == []


def test_a_forked_child_is_refused_whatever_it_asks_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(NONE)
    device = Device(opened(driver), driver)
    monkeypatch.setattr(forked, "_refuses", True)
    with pytest.raises(DeviceError, match="spawn"):
        device.where()
    assert driver.sets == 0
