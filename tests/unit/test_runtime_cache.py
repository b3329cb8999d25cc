"""The cache of compiled kernels: private, atomic, within its limit; a damaged entry is a miss."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright import errors
from tilewright.errors import StoreError
from tilewright.runtime import cache, cache_folder
from tilewright.runtime.base import Built, Resources

BUILT = Built("a" * 64, b"\x7fELF\n\x00 code", {"k": Resources(40, 0, 128, 256)}, 1.5)


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(errors, "_warned", set())


def _entry() -> Path:
    return cache_folder.folder() / "kernels" / f"{BUILT.key}.bin"


def test_what_is_written_is_read() -> None:
    assert cache.read(BUILT.key) is None
    cache.write(BUILT)
    found = cache.read(BUILT.key)
    assert found is not None
    assert (found.binary, found.resources, found.compile_s) == (BUILT.binary, BUILT.resources, 0.0)
    assert found.registers == 40


def test_an_entry_is_read_without_room_for_the_largest() -> None:
    cache.write(BUILT)
    assert cache.read(BUILT.key)
    tracemalloc.start()
    try:
        assert cache.read(BUILT.key)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_folder_is_private() -> None:
    assert stat.S_IMODE(cache_folder.folder().stat().st_mode) == 0o700
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
        cache_folder.folder()


@pytest.mark.parametrize("mode", (0o777, 0o720, 0o702))
def test_folder_that_others_can_write_is_refused(mode: int, tmp_path: Path) -> None:
    cache_folder.folder().chmod(mode)
    with pytest.raises(StoreError, match="others can write"):
        cache_folder.folder()


def test_a_relative_folder_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", f"relative-{tmp_path.name}")
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert cache_folder.folder().parent == tmp_path / "one"
    monkeypatch.setenv("TILEWRIGHT_CACHE", f"another-{tmp_path.name}")
    (tmp_path / "another").rmdir()
    with pytest.raises(StoreError, match=f"another-{tmp_path.name}: the current folder is gone"):
        cache_folder.folder()


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(StoreError, match="TILEWRIGHT_CACHE"):
        cache_folder.folder()
    monkeypatch.setenv("TILEWRIGHT_CACHE", "~nobody at all/x")
    with pytest.raises(StoreError, match="~nobody at all/x: there is no such home"):
        cache_folder.folder()


@pytest.mark.parametrize("changed", range(4))
def test_key_changes_with_everything(changed: int) -> None:
    parts: list[object] = ["source", ("-O3",), "nvrtc 13.0", "sm_90"]
    base = cache.key_of(*parts)  # type: ignore[arg-type]
    parts[changed] = ("-O2",) if changed == 1 else "other"
    assert cache.key_of(*parts) != base  # type: ignore[arg-type]


def test_what_pocl_keeps_is_counted_and_cleared(tmp_path: Path) -> None:
    cache.write(BUILT)
    elsewhere = tmp_path / "elsewhere"
    (deep := cache_folder.folder() / "pocl" / "AB" / "CD" / "kernel").mkdir(parents=True)
    elsewhere.mkdir()
    for file in (deep / "kernel.so", deep.parent / "program.bc", elsewhere / "other"):
        file.write_bytes(bytes(100))
    (deep / "link").symlink_to(elsewhere)
    assert 200 <= cache.nbytes(cache.of_pocl()) < 400
    (deep / "kernel.so").unlink()
    assert cache.nbytes([deep / "kernel.so"]) == 0, "another process was quicker"
    used(cache_folder.folder() / "pocl", ago_s=3600)
    assert cache.clear() == 1 and cache.clear() == 0
    assert cache.kernels() == cache.of_pocl() == []
    (cache_folder.folder() / "pocl").rmdir()
    (cache_folder.folder() / "pocl").symlink_to(elsewhere)
    assert cache.of_pocl() == [] and cache.clear() == 0
    assert (elsewhere / "other").exists()


def key_of(number: int) -> str:
    return f"{number:02x}" * 32


def used(path: Path, ago_s: int) -> Path:
    """A file, or a folder with all that is in it, that was last used a while ago."""
    for one in (path, *path.rglob("*")):
        os.utime(one, (time.time() - ago_s,) * 2)
    return path


def kept(number: int, ago_s: int) -> Path:
    """A compiled kernel of 100 kB."""
    cache.write(Built(key_of(number), bytes(100_000), {}, 0.0))
    return used(cache_folder.folder() / "kernels" / f"{key_of(number)}.bin", ago_s)


def kept_by_pocl(name: str, ago_s: int) -> Path:
    """A program of PoCL's, with all it has: 300 kB."""
    program = cache_folder.folder() / "pocl" / name[:2] / name[2:]
    (program / "kernel" / "8-1-1").mkdir(parents=True)
    for file in ("program.bc", "last_accessed", "kernel/8-1-1/kernel.so"):
        (program / file).write_bytes(bytes(100_000))
    return used(program, ago_s)


def test_what_pocl_is_making_is_not_cleared() -> None:
    """It ends its process if a folder, or what it gives the linker, is gone."""
    kept_by_pocl("made", ago_s=0)
    top = cache_folder.folder() / "pocl"
    for name, ago_s in {"tempfile_a.so.o": 0, "tempfile_b.so.o": 3600}.items():
        (top / name).touch()
        used(top / name, ago_s)
    cache.clear()
    assert [path.name for path in top.rglob("*") if path.is_file()] == ["tempfile_a.so.o"]
    assert (top / "ma" / "de" / "kernel" / "8-1-1").is_dir()
    used(top, ago_s=3600)
    cache.clear()
    assert cache.of_pocl() == []


def test_what_was_used_longest_ago_is_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_MIB", "1")
    oldest, read, young = kept(1, 900), kept(2, 800), kept(3, 50)
    old, touched = kept_by_pocl("ABC", 700), kept_by_pocl("ABD", 600)
    assert cache.read(key_of(2)) is not None
    (touched / "last_accessed").touch()  # as PoCL does
    cache.trim()
    assert all(path.exists() for path in (oldest, read, young, old, touched)), "all within 1 MiB"
    more = kept_by_pocl("XYZ", 10)
    cache.trim()
    assert not oldest.exists() and not old.exists()
    assert all(path.exists() for path in (read, young, touched, more))
    assert (touched / "kernel" / "8-1-1" / "kernel.so").exists(), "a program goes whole or stays whole"
    assert cache.nbytes([*cache.kernels(), *cache.of_pocl()]) <= cache.limit_bytes()


def test_few_writes_look_for_what_to_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_MIB", "0")
    looked = []
    monkeypatch.setattr(cache, "trim", lambda: looked.append(1))
    for number in range(256):
        kept(number, 0)
        cache.read(key_of(number))
    assert len(looked) == 1


def test_a_write_trims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_MIB", "1")
    old = [kept(number, 100) for number in range(1, 12)]
    assert cache.read(kept(0, 0).stem) is not None
    assert sum(path.exists() for path in old) == 9


KILLED = """
import os, pathlib, sys
from tilewright.files import atomic_write
os.replace = lambda *_: os.kill(os.getpid(), 9)
atomic_write(pathlib.Path(sys.argv[1]), b"half")
"""


@pytest.mark.parametrize("remove", [cache.trim, cache.clear])
def test_what_a_killed_writer_left_is_removed_after_an_hour(remove: Callable[[], object]) -> None:
    path = kept(1, ago_s=0)
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", KILLED, str(path)]).returncode == -9
    old, new = path.parent.glob(".new-*")
    used(old, ago_s=3700)
    remove()
    assert not old.exists() and new.exists()


def test_links_are_not_followed_in_trimming(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "other").write_bytes(bytes(2 << 20))
    (cache_folder.folder() / "pocl" / "AB").mkdir(parents=True)
    (cache_folder.folder() / "pocl" / "AB" / "link").symlink_to(elsewhere)
    kept(1, 0).with_name("link.bin").symlink_to(elsewhere / "other")
    monkeypatch.setenv("TILEWRIGHT_CACHE_MIB", "0")
    cache.trim()
    assert (elsewhere / "other").exists() and cache.read(key_of(1)) is None


@pytest.mark.parametrize("given", ["1G", "-1", "0.5", " ", "9" * 5000])
def test_a_limit_that_is_no_number_is_told_once(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_MIB", given)
    with pytest.warns(RuntimeWarning, match=f"TILEWRIGHT_CACHE_MIB={given}: expected .* 1024 is used"):
        assert cache.limit_bytes() == 1 << 30
    assert cache.limit_bytes() == 1 << 30
    monkeypatch.setenv("TILEWRIGHT_CACHE_MIB", "")
    assert cache.limit_bytes() == 1 << 30


# A kernel of 100 kB is asked for again and again while two others do the same and trim: 40 make 4 MB.
SHARING = """
import random, sys, warnings
from tilewright.runtime import cache, cache_folder
from tilewright.runtime.base import Built
warnings.simplefilter("error")
built = 0
for _ in range(400):
    key = f"{random.randrange(40):02x}" * 32
    def build():
        global built
        built += 1
        return Built(key, key.encode() * 1600, {}, 0.0)
    assert cache.compiled(key, build).binary == key.encode() * 1600
    random.randrange(8) or cache.trim()
cache.trim()
print(built)
"""


def test_processes_share_it_while_it_is_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_MIB", "1")
    running = [subprocess.Popen([sys.executable, "-c", SHARING], stdout=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate(timeout=120)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    assert all(int(text) > 0 for text in said)
    assert 0 < cache.nbytes(cache.kernels()) <= 1 << 20
