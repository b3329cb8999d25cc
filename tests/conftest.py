"""What tests share: a device that every machine has, and a cache of their own."""

from __future__ import annotations

import gc
import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright.runtime
from tilewright.errors import DeviceError
from tilewright.problem.activations import ACTIVATIONS, Activation
from tilewright.problem.epilogue import Epilogue
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime
from tilewright.runtime.flusher import Flusher


def pytest_configure() -> None:
    """Ctrl-C interrupts what tests start, also where a script starts tests in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: none of the processes is left with one when the others are done."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Thousands of tests live to the end: no collection of garbage looks through them again.

    Nor often through what tests keep from each other: pairs of facts by the million.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def kept_cache(pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache for tests that look at what NVRTC makes, but not at the cache: it is kept from run to run.

    A kernel has the key of its text, options and compiler. What calls the compiler, and reads its log, names
    the folder.
    """
    runtime = Path(tilewright.runtime.__file__).parent
    callers = [(runtime / f"{name}.py").read_bytes() for name in ("nvrtc", "cache", "base")]
    kept = getattr(pytestconfig, "cache", None)  # none where that plugin is left out
    folder = (kept.mkdir("nvrtc") if kept else tmp_path) / hashlib.sha256(b"".join(callers)).hexdigest()[:16]
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(folder))


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> Epilogue:
    """An activation that is in the table of words, and of which nothing else has a formula."""
    monkeypatch.setitem(ACTIVATIONS, "unheard", Activation("unheard"))
    return Epilogue(act="unheard")


@pytest.fixture
def cpu() -> Iterator[Runtime]:
    """The CPU by OpenCL, whose programs go on to be built without a header: in a fifth of the time."""
    try:
        found = open_runtime("cpu")
    except DeviceError as error:
        pytest.skip(str(error))
    if found.device.backend != "opencl":
        pytest.skip("no OpenCL here")
    before = found.programs.quick
    yield found
    after, found.programs.quick = found.programs.quick, before
    assert after == before, "a program of this test needs the header: begin it with PRELUDE"


@pytest.fixture
def hasty(cpu: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The CPU where nobody looks at the times: no need to read 400 MB before each run. Other processes do."""
    monkeypatch.setattr(cpu, "_flusher", Flusher(cpu, 1 << 20))
    return cpu


@pytest.fixture
def runtime(cpu: Runtime) -> Runtime:
    """What a test runs on, unless its module has its own."""
    return cpu
