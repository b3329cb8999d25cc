"""PoCL's cache of machine code, below ours: makes its folder, checks for disk space and damaged files."""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tilewright.errors import CompileError, StoreError
from tilewright.runtime import cache, cache_folder

# The folder of a program, which PoCL's binary of it names near its start.
_FOLDER = re.compile(rb"[A-P]{2}/[A-P]{30,60}")
_HEAD_BYTES = 4096
_USED = "/last_accessed"  # file that PoCL touches at each use of a program
_MENDED = "mended"  # file that ``mend`` touches
_UNWRITTEN_NS = 60 * 10**9  # the longest that a written file is in memory only: 30 to 35 s on Linux
_ELF = struct.Struct("<40xQ10xHH")  # 64-bit: offset of its section table, bytes of an entry, how many
_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")  # start of LLVM's files


def ready() -> None:
    """Make sure that PoCL can write what it compiles, since otherwise it ends the process.

    Its folder in our cache is made again if somebody removed it: PoCL would fail without saying why.

    Raises:
        CompileError: the disk is full.
    """
    place = Path(os.environ.get("POCL_CACHE_DIR", ""))
    with suppress(StoreError, OSError):
        if not place.is_dir() and cache_folder.is_there(place.parent):
            place.mkdir(mode=0o700)
    if why := cache_folder.full(place):
        raise CompileError(f"PoCL cannot keep what it compiles{why}")


def mend() -> None:
    """Remove truncated libraries of PoCL, which it would load, and then end the process.

    Only programs used since a minute before the last call are checked: what others wrote was on the disk by
    then, and no crash has cut it short since.
    """
    top = Path(os.environ.get("POCL_CACHE_DIR", ""))
    stamp = top / _MENDED
    with suppress(OSError):
        since = stamp.stat().st_mtime_ns - _UNWRITTEN_NS if stamp.exists() else 0
        stamp.touch(0o600)
        for program, _ in _used_since(top, since):
            with suppress(OSError):  # another process was quicker
                for path in filter(_is_short, Path(program).rglob("*.so")):
                    path.unlink(missing_ok=True)


def unlinked(since_ns: int) -> dict[str, int]:
    """Return the programs used since a time, and when, that PoCL has not linked yet (a first run does)."""
    found = {}
    with suppress(OSError):
        for program, used_ns in _used_since(Path(os.environ.get("POCL_CACHE_DIR", "")), since_ns):
            with suppress(OSError):  # another process removed it
                if not any(Path(program).rglob("*.so")):
                    found[program] = used_ns
    return found


def _used_since(top: Path, since_ns: int) -> Iterator[tuple[str, int]]:
    """Yield the programs used since a time, and when; top: PoCL's folder."""
    for program in _programs(top):
        with suppress(OSError):  # another process removed it
            used_ns = os.stat(program + _USED).st_mtime_ns
            if used_ns >= since_ns:
                yield program, used_ns


def _programs(top: Path) -> Iterator[str]:
    """Yield the folders of PoCL's programs, two levels below its own."""
    for group in os.scandir(top):
        if group.is_dir(follow_symlinks=False):
            yield from (one.path for one in os.scandir(group.path))


def drop(binary: bytes) -> bool:
    """Remove a program, identified by its binary, from PoCL's cache; return whether it was there."""
    found = _FOLDER.search(binary[:_HEAD_BYTES])
    if found is None:
        return False
    folder = Path(os.environ.get("POCL_CACHE_DIR", "")) / found[0].decode("ascii")
    with suppress(OSError):
        shutil.rmtree(folder)
        return True
    return False


def damaged() -> list[Path]:
    """Return PoCL's files below our folder that are truncated, after a crash or on a full disk.

    PoCL does not check them: a program may lack its kernels, or end the process.
    """
    return [path for path in cache.of_pocl() if _is_short(path)]


def _is_short(path: Path) -> bool:
    """Whether a file is shorter than its header says, or empty though it must not be."""
    if path.suffix not in (".so", ".bc"):
        return False
    with suppress(OSError):
        size = path.lstat().st_size
        with path.open("rb") as file:
            head = file.read(64)
        if path.suffix == ".bc":
            return not head.startswith(_BITCODE)
        if len(head) < 64 or not head.startswith(b"\x7fELF"):
            return True
        at, each, count = _ELF.unpack(head[: _ELF.size])
        return bool(head[4] == 2 and head[5] == 1 and at + each * count > size)
    return False
