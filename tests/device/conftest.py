"""What tests of a GPU have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import DeviceError
from tilewright.runtime import open_runtime


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A GPU, and a cache of the test's own; skips the test where there is none."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    try:
        open_runtime("cuda")
    except DeviceError as error:
        pytest.skip(str(error))
