"""Compiled kernels in the user's cache folder, up to a limit. A bad entry is a miss; nothing is unpickled."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tilewright.errors import StoreError, warn_once
from tilewright.files import left_aside
from tilewright.runtime.base import Built, Resources
from tilewright.runtime.cache_folder import folder, keep

SCHEMA = 1
POCL = "pocl"  # PoCL's folder, below ours
GUESSES = "guesses"  # likewise, the folder of the model's choices: see dispatch/kept_guesses.py
_MAX_BYTES = 64 << 20
_LIMIT_MIB = 1024  # of compiled kernels, unless TILEWRIGHT_CACHE_MIB says otherwise
_TEMPORARY = "tempfile"  # how the names of files begin that PoCL has while it compiles
_MAKING_S = 60.0  # after which PoCL has compiled and linked a kernel
_TRIMS = "00"  # end of a key (a hash) whose write trims: one in 256, so that few writes look at every file


def kernels() -> list[Path]:
    """Return the files of compiled kernels in our folder."""
    return list(folder().joinpath("kernels").glob("*.bin"))


def _guesses() -> list[Path]:
    return list(folder().joinpath(GUESSES).glob("*.json"))


def _aside() -> list[Path]:
    return [path for part in ("kernels", GUESSES) for path in left_aside(folder() / part)]


def of_pocl() -> list[Path]:
    """Return PoCL's files below our folder, then the folders they are in. No link is followed."""
    top = folder() / POCL
    if top.is_symlink():
        return []
    return [Path(at, name) for at, dirs, files in os.walk(top, topdown=False) for name in (*files, *dirs)]


def nbytes(paths: list[Path]) -> int:
    """Return the bytes of the files among paths; those that another process removed meanwhile count as 0."""
    total = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            total += 0 if path.is_dir() else path.lstat().st_size
    return total


def clear() -> int:
    """Remove all compiled kernels, PoCL's files, and guesses; return the number of kernels.

    Files that killed writers left are removed, too. Other processes can go on: kernels that they have loaded
    stay, others are compiled again.

    Raises:
        StoreError: a file cannot be removed.
    """
    found = kernels()
    pocls = [path for path in of_pocl() if not _being_made(path)]  # a removed file makes its folder new
    for path in (*found, *_guesses(), *_aside(), *pocls):
        try:
            if path.is_dir() and not path.is_symlink():
                with contextlib.suppress(OSError):  # a folder with something new in it
                    path.rmdir()
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cache clear: {path}: {error.strerror}") from None
    return len(found)


def _being_made(path: Path) -> bool:
    """Whether it is a new folder or temporary file of PoCL's, which ends its process if that is gone."""
    with contextlib.suppress(FileNotFoundError):
        info = path.lstat()
        new = time.time() - info.st_mtime < _MAKING_S
        return new and (stat.S_ISDIR(info.st_mode) or path.name.startswith(_TEMPORARY))
    return False


def limit_bytes() -> int:
    """Return the most bytes of compiled kernels, including PoCL's files.

    It is ``$TILEWRIGHT_CACHE_MIB`` MiB if that is set, else 1024 MiB.
    """
    given = os.environ.get("TILEWRIGHT_CACHE_MIB", "")
    if given and not re.fullmatch("[0-9]{1,9}", given):
        warn_once(f"TILEWRIGHT_CACHE_MIB={given}: expected a number of MiB like 4096; {_LIMIT_MIB} is used")
        given = ""
    return int(given or _LIMIT_MIB) << 20


def trim() -> None:
    """Remove files that killed writers left, then the least recently used, to stay within ``limit_bytes``.

    Other processes may read, write and trim meanwhile: what a reader finds missing is compiled again.
    """
    for path in _aside():
        with contextlib.suppress(OSError):
            path.unlink()
    entries = sorted(_entries())
    excess = sum(size for _, size, _ in entries) - limit_bytes()
    theirs, new = folder() / POCL, time.time() - _MAKING_S
    for last, size, path in entries:
        if excess <= 0:
            return
        if last > new and path.is_relative_to(theirs):
            continue  # it may still be made, by a process that ends if it is gone
        with contextlib.suppress(OSError):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        excess -= size


def _entries() -> list[tuple[float, int, Path]]:
    """Return for each of our files, and each of PoCL's programs: when it was used, its bytes and its path."""
    theirs = folder() / POCL
    found: dict[Path, tuple[float, int]] = {}
    for file in (*kernels(), *_guesses(), *of_pocl()):
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            info = file.lstat()
            if stat.S_ISDIR(info.st_mode):
                continue
            path = file  # or a program's folder, two below PoCL's, in which each use touches a file
            if file.is_relative_to(theirs):
                path = theirs.joinpath(*file.relative_to(theirs).parts[:2])
            last, size = found.get(path, (0.0, 0))
            found[path] = max(last, info.st_mtime), size + info.st_size
    return [(last, size, path) for path, (last, size) in found.items()]


def key_of(source: str, options: tuple[str, ...], compiler: str, arch: str) -> str:
    """Return the key of a binary: a hash of everything that changes it."""
    text = json.dumps([SCHEMA, source, options, compiler, arch])
    return hashlib.sha256(text.encode()).hexdigest()


def compiled(key: str, build: Callable[[], Built]) -> Built:
    """Return the binary of a key from the cache; if there is none, build it and keep it."""
    found = read(key)
    if found is None:
        found = build()
        write(found)
    return found


def read(key: str) -> Built | None:
    """Return the entry of a key; None if there is none or it is not intact."""
    try:
        path = folder() / "kernels" / f"{key}.bin"
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            # Of no more bytes than there are: Python first makes room for as many as are asked for.
            data = file.read(min(os.fstat(file.fileno()).st_size, _MAX_BYTES))
        used(path)
    except (FileNotFoundError, StoreError):
        return None
    except OSError as error:
        warn_once(f"cannot read the cache of compiled kernels ({error.strerror}): compiling again")
        return None
    built = _decode(key, data)
    if built is None:
        warn_once(f"a damaged entry in the cache of compiled kernels was dropped: {path.name}")
        with contextlib.suppress(OSError):
            path.unlink()
    return built


def used(path: Path) -> None:
    """Note that a file was used now: trimming asks. Not in a folder that takes no files, or if it is gone."""
    with contextlib.suppress(OSError):
        os.utime(path)


def write(built: Built) -> None:
    """Keep a binary: written to a temporary file and renamed, so that nobody reads half of it."""
    head = {"key": built.key, "digest": hashlib.sha256(built.binary).hexdigest()}
    resources = {name: asdict(r) for name, r in built.resources.items()}
    data = json.dumps({**head, "schema": SCHEMA, "resources": resources}).encode() + b"\n" + built.binary
    what, loss = "write the cache of compiled kernels", "each run compiles again"
    if keep("kernels", f"{built.key}.bin", data, what, loss) and built.key.endswith(_TRIMS):
        with contextlib.suppress(OSError):  # of a file that may not be looked at
            trim()


def _decode(key: str, data: bytes) -> Built | None:
    line, _, binary = data.partition(b"\n")
    try:
        head = json.loads(line)
        if head["schema"] != SCHEMA or head["key"] != key:
            return None
        if head["digest"] != hashlib.sha256(binary).hexdigest():
            return None
        resources = {str(name): Resources(**r) for name, r in head["resources"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Built(key, binary, resources, 0.0)
