"""What a family's answer hangs on is in its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright import sources
from tilewright.sources import source_key, source_keys


def test_source_key_holds_kernel_spec_and_compiler() -> None:
    assert source_key("reference", "a") == source_keys(["reference"], "a")["reference"]
    assert len({source_key("reference", "a"), source_key("reference", "b"), source_key("none", "a")}) == 3


def test_a_familys_files_are_all_in_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("f.cu", "f_cpu.py", "f_gpu.h", "other.cu", "fx.py", "shared.py", "more.py", "moved.cu"):
        (tmp_path / name).write_text("one")
    (tmp_path / "f.py").write_text("from tilewright.kernels import (\n    family,\n    shared,\n)\n")
    (tmp_path / "shared.py").write_text('from tilewright.kernels.more import Thing\nSOURCE = "moved.cu"\n')
    monkeypatch.setattr(sources.resources, "files", lambda package: tmp_path)
    monkeypatch.setattr(sources, "kernel_key", lambda name: (tmp_path / name).read_text())
    source_key.cache_clear()
    seen = {source_key("f")}
    changes = {
        "more.py": 1,
        "moved.cu": 1,
        "shared.py": 1,
        "f.cu": 1,
        "f.py": 1,
        "f_cpu.py": 1,
        "f_gpu.h": 1,
        "other.cu": 0,
        "fx.py": 0,
    }
    for name, counts in changes.items():
        (tmp_path / name).write_text("two")
        source_key.cache_clear()
        assert (source_key("f") not in seen) == counts, name
        seen.add(source_key("f"))
    source_key.cache_clear()
