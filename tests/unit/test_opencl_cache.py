"""PoCL's part of the cache: what of it is damaged, and a disk that is full."""

from __future__ import annotations

import os
import shutil
import struct
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright import errors
from tilewright.cli import main
from tilewright.errors import CompileError
from tilewright.runtime import cache, cache_folder, opencl_cache

pytestmark = pytest.mark.usefixtures("own_cache")
PROGRAM = "AB/" + "CDEFGHIJ" * 5


def elf(nbytes: int) -> bytes:
    """A library whose table of sections ends after so many bytes."""
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q10xHH", nbytes - 2 * 64, 64, 2)
    return head + bytes(64 - len(head)) + bytes(nbytes - 64)


def kept(name: str, content: bytes) -> Path:
    """A file of PoCL's."""
    path = cache_folder.folder() / cache.POCL / PROGRAM / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_what_is_cut_short_is_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POCL_CACHE_DIR", str(cache_folder.folder()))  # nothing is mended
    for name, content in [
        ("program.bc", b"BC\xc0\xde..."), ("whole.so", elf(400)), ("longer.so", elf(400) + b"..."),
        ("last_accessed", b""),
    ]:  # fmt: skip
        kept(name, content)
    assert opencl_cache.damaged() == []
    short = {"short.so": elf(400)[:-1], "head.so": elf(400)[:20], "none.so": b"", "x.bc": b""}
    made = {kept(name, content) for name, content in short.items()}
    assert {*opencl_cache.damaged()} == made
    assert main(["doctor"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 damaged files of compiled kernels: run tilewright cache clear" in said


def test_what_is_cut_short_is_removed_where_it_was_used_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCL_CACHE_DIR", str(cache_folder.folder() / cache.POCL))
    opencl_cache.mend()  # there is no folder yet
    whole, used = kept("direct/1-1-1/whole.so", elf(400)), kept("last_accessed", b"")

    def cut_short() -> bool:
        """Whether a file that is cut short is removed."""
        short = kept("direct/1-1-1/short.so", elf(400)[:-1])
        opencl_cache.mend()
        assert whole.exists()
        return not short.exists()

    assert cut_short()
    os.utime(used, (time.time() - 40,) * 2)
    assert cut_short(), "it may have been in memory only, when the machine went down"
    os.utime(used, (1, 1))
    assert not cut_short()
    used.touch()
    assert cut_short()


def test_a_program_is_removed_by_its_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCL_CACHE_DIR", str(cache_folder.folder() / cache.POCL))
    there = kept("program.bc", b"")
    assert not opencl_cache.drop(b"poclbin of another form") and there.exists()
    assert opencl_cache.drop(b"poclbin\0\1\2" + PROGRAM.encode() + b"\0") and not there.parent.exists()
    assert not opencl_cache.drop(PROGRAM.encode()), "another process was quicker"


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL ends the process where it cannot write: a temporary folder may have room."""
    monkeypatch.setattr(errors, "_warned", set())
    place = cache_folder.folder()
    monkeypatch.setenv("POCL_CACHE_DIR", str(place / cache.POCL))
    opencl_cache.ready()
    free = {place: 100 << 10, place / cache.POCL: 100 << 10}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free.get(path, 1 << 40)))
    with pytest.raises(CompileError, match=f"the cache folder {place / cache.POCL} is full; set TILEW"):
        opencl_cache.ready()
    with pytest.warns(RuntimeWarning, match="^compiled kernels are not kept: the disk of the cache folder"):
        assert cache_folder.writable_folder() == cache_folder.scratch()
    monkeypatch.setenv("POCL_CACHE_DIR", str(cache_folder.scratch()))
    opencl_cache.ready()
    assert os.path.isdir(cache_folder.scratch())
