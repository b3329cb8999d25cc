"""The cache of compiled kernels: private, atomic, and a damaged entry is a miss."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tilewright import errors
from tilewright.errors import StoreError
from tilewright.runtime import cache
from tilewright.runtime.base import Built, Resources

BUILT = Built("a" * 64, b"\x7fELF\n\x00 code", {"k": Resources(40, 0, 128, 256)}, 1.5)


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(errors, "_warned", set())


def _entry() -> Path:
    return cache.folder() / "kernels" / f"{BUILT.key}.bin"


def test_what_is_written_is_read() -> None:
    assert cache.read(BUILT.key) is None
    cache.write(BUILT)
    found = cache.read(BUILT.key)
    assert found is not None
    assert (found.binary, found.resources, found.compile_s) == (BUILT.binary, BUILT.resources, 0.0)
    assert found.registers == 40


def test_folder_is_private() -> None:
    assert stat.S_IMODE(cache.folder().stat().st_mode) == 0o700
    cache.write(BUILT)
    assert stat.S_IMODE(_entry().stat().st_mode) & 0o077 == 0
    assert [p.name for p in _entry().parent.iterdir()] == [_entry().name]


def test_builds_once() -> None:
    calls = []

    def build() -> Built:
        calls.append(1)
        return BUILT

    assert cache.compiled(BUILT.key, build).compile_s == 1.5
    assert cache.compiled(BUILT.key, build).compile_s == 0.0
    assert len(calls) == 1


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"not json\ncode", b'["list"]\nx', b'{"schema":1}\nx'])
def test_damaged_entry_is_a_miss_and_is_warned_of_once(damage: bytes) -> None:
    for turn in range(2):
        cache.write(BUILT)
        _entry().write_bytes(damage)
        if turn == 0:
            with pytest.warns(RuntimeWarning, match="damaged"):
                assert cache.read(BUILT.key) is None
        else:
            assert cache.read(BUILT.key) is None
        assert not _entry().exists()


def test_changed_byte_is_a_miss() -> None:
    cache.write(BUILT)
    data = bytearray(_entry().read_bytes())
    data[-1] ^= 1
    _entry().write_bytes(bytes(data))
    with pytest.warns(RuntimeWarning):
        assert cache.read(BUILT.key) is None


def test_entry_of_another_key_is_a_miss() -> None:
    cache.write(BUILT)
    other = "b" * 64
    os.rename(_entry(), _entry().with_name(f"{other}.bin"))
    with pytest.warns(RuntimeWarning):
        assert cache.read(other) is None


def test_symlinks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write(BUILT)
    target = tmp_path / "elsewhere"
    os.rename(_entry(), target)
    _entry().symlink_to(target)
    with pytest.warns(RuntimeWarning):
        assert cache.read(BUILT.key) is None
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "link"))
    with pytest.raises(StoreError, match="symbolic link"):
        cache.folder()


def test_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    cache.folder().chmod(0o777)
    with pytest.raises(StoreError, match="others can write"):
        cache.folder()


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(StoreError, match="TILEWRIGHT_CACHE"):
        cache.folder()
    monkeypatch.setenv("TILEWRIGHT_CACHE", "~nobody at all/x")
    with pytest.raises(StoreError, match="~nobody at all/x: there is no such home"):
        cache.folder()


@pytest.mark.parametrize("changed", range(4))
def test_key_changes_with_everything(changed: int) -> None:
    parts: list[object] = ["source", ("-O3",), "nvrtc 13.0", "sm_90"]
    base = cache.key_of(*parts)  # type: ignore[arg-type]
    parts[changed] = ("-O2",) if changed == 1 else "other"
    assert cache.key_of(*parts) != base  # type: ignore[arg-type]


def test_what_pocl_keeps_is_counted_and_cleared(tmp_path: Path) -> None:
    cache.write(BUILT)
    elsewhere = tmp_path / "elsewhere"
    (deep := cache.folder() / "pocl" / "AB" / "CD" / "kernel").mkdir(parents=True)
    elsewhere.mkdir()
    for file in (deep / "kernel.so", deep.parent / "program.bc", elsewhere / "other"):
        file.write_bytes(bytes(100))
    (deep / "link").symlink_to(elsewhere)
    assert 200 <= cache.nbytes(cache.of_pocl()) < 400
    (deep / "kernel.so").unlink()
    assert cache.nbytes([deep / "kernel.so"]) == 0, "another process was quicker"
    assert cache.clear() == 1 and cache.clear() == 0
    assert cache.kernels() == cache.of_pocl() == []
    (cache.folder() / "pocl").rmdir()
    (cache.folder() / "pocl").symlink_to(elsewhere)
    assert cache.of_pocl() == [] and cache.clear() == 0
    assert (elsewhere / "other").exists()
