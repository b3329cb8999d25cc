"""What tests share: a device that every machine has, and a cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import DeviceError
from tilewright.problem.activations import ACTIVATIONS, Activation
from tilewright.problem.epilogue import Epilogue
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime
from tilewright.runtime.flusher import Flusher


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: none of the processes is left with one when the others are done."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> Epilogue:
    """An activation that is in the table of words, and of which nothing else has a formula."""
    monkeypatch.setitem(ACTIVATIONS, "unheard", Activation("unheard"))
    return Epilogue(act="unheard")


@pytest.fixture
def cpu() -> Runtime:
    """The CPU by OpenCL."""
    try:
        found = open_runtime("cpu")
    except DeviceError as error:
        pytest.skip(str(error))
    if found.device.backend != "opencl":
        pytest.skip("no OpenCL here")
    return found


@pytest.fixture
def hasty(cpu: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The CPU where nobody looks at the times: no need to read 400 MB before each run. Other processes do."""
    monkeypatch.setattr(cpu, "_flusher", Flusher(cpu, 1 << 20))
    return cpu


@pytest.fixture
def runtime(cpu: Runtime) -> Runtime:
    """What a test runs on, unless its module has its own."""
    return cpu
