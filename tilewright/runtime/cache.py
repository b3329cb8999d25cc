"""Compiled kernels in the user's cache folder, up to a limit. A bad entry is a miss; nothing is unpickled."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from tilewright.errors import StoreError, warn_once
from tilewright.files import atomic_write, left_aside
from tilewright.runtime.base import Built, Resources

SCHEMA = 1
POCL = "pocl"  # the folder of its own, below ours
_FIX = "set TILEWRIGHT_CACHE to a folder of your own"
_MAX_BYTES = 64 << 20
_LIMIT_MIB = 1024  # of compiled kernels, unless TILEWRIGHT_CACHE_MIB says otherwise
_TRIMS = "00"  # what a key ends in, a hash: one kernel in 256 trims, so that few writes look at every file
LEAST_FREE = 4 << 20  # bytes: drivers keep kernels there too, and say little where they cannot, or abort


def folder() -> Path:
    """Return tilewright's cache folder, made with mode 0700 if need be.

    It is ``$TILEWRIGHT_CACHE`` if set, else the place the operating system gives for caches.

    Raises:
        StoreError: it is a symlink, belongs to someone else, others can write to it, or it cannot
            be made; or it is below the home of a user who has none.
    """
    given = os.environ.get("TILEWRIGHT_CACHE")
    try:
        path = Path(given or _usual()).expanduser().absolute()
    except RuntimeError:
        what = f"{given}: there is no such home folder" if given else "of a user who has no home folder"
        raise StoreError(f"cache folder {what}; {_FIX}") from None
    return secure_folder(path)


def _usual() -> str:
    """Return the operating system's place for caches; a RuntimeError says that there is no home folder."""
    import platformdirs

    return platformdirs.user_cache_dir("tilewright", appauthor=False)


def writable_folder() -> Path:
    """Return the cache folder; where nothing can be written to it, with a warning, ``scratch``."""
    try:
        path = folder()
        if os.access(path, os.W_OK):
            if not (why := full(path)):
                return path
            warn_once(f"compiled kernels are not kept{why.replace(';', ':', 1)}", "no room for kernels")
            return scratch()
        forgets(f"cache folder {path}: no permission to write; {_FIX}")
    except StoreError as error:
        forgets(error)
    return scratch()


@lru_cache(maxsize=1)
def scratch() -> Path:
    """Return a folder of this process, removed at its end; a forked child uses it and leaves it there.

    Raises:
        StoreError: there is no room for temporary files either.
    """
    try:
        path = Path(tempfile.mkdtemp(prefix="tilewright-"))
    except OSError as error:
        raise StoreError(f"no folder can be written to, not even for a while: {error}; {_FIX}") from error
    atexit.register(_remove, path, os.getpid())
    return path


def _remove(path: Path, owner: int) -> None:
    """Remove the scratch folder at the end of the process that made it, not of one forked from that."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


def is_there(path: Path) -> bool:
    """Whether a path is our cache folder or ``scratch``, which is made again if somebody removed it.

    Raises:
        StoreError: it cannot be made, or is not ours alone.
    """
    if scratch.cache_info().currsize and path == scratch():
        secure_folder(path, "scratch folder")
        return True
    return path == folder()


def no_room() -> str:
    """Say, behind an error, that the disk of the cache folder is full; empty where it is not."""
    with contextlib.suppress(StoreError):
        return full(folder())
    return ""


def full(path: Path) -> str:
    """Say, behind an error, that the disk of a folder for compiled kernels is full; empty where it is not."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(path).free < LEAST_FREE:
            return f"; the disk of the cache folder {path} is full; {_FIX} on another disk"
    return ""


def forgets(why: object) -> None:
    """Warn that nothing can be kept in the cache folder: once, whatever comes up first."""
    warn_once(f"nothing new is remembered: {why}", "nothing new is remembered")


def secure_folder(path: Path, what: str = "cache folder", fix: str = _FIX) -> Path:
    """Make a folder with mode 0700, or check that nobody else can put files there; ``fix``: the way out.

    Raises:
        StoreError: it is no folder, a link, not ours, or open to others.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
    except FileExistsError:
        raise StoreError(f"{what} {path}: is a file; {fix}") from None
    except OSError as error:
        raise StoreError(f"{what} {path}: {error.strerror or error}; {fix}") from error
    if stat.S_ISLNK(info.st_mode):
        raise StoreError(f"{what} {path}: is a symbolic link, which is not followed; {fix}")
    if hasattr(os, "getuid") and info.st_uid != os.getuid():
        raise StoreError(f"{what} {path}: belongs to another user; {fix}")
    if hasattr(os, "getuid") and info.st_mode & 0o022:
        raise StoreError(f"{what} {path}: others can write to it; {fix}")
    return path


def kernels() -> list[Path]:
    """Return the compiled kernels below our folder."""
    return list(folder().joinpath("kernels").glob("*.bin"))


def of_pocl() -> list[Path]:
    """Return what PoCL keeps below our folder: files, then the folders they are in. No link is followed."""
    top = folder() / POCL
    if top.is_symlink():
        return []
    return [Path(at, name) for at, dirs, files in os.walk(top, topdown=False) for name in (*files, *dirs)]


def nbytes(paths: list[Path]) -> int:
    """Return the bytes of the files among paths; what another process has removed meanwhile has none."""
    total = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            total += 0 if path.is_dir() else path.lstat().st_size
    return total


def clear() -> int:
    """Remove every compiled kernel, and what PoCL keeps of it; return the number of kernels.

    What killed writers left goes, too.
    A process that runs meanwhile goes on: what it has loaded stays, what it has not is compiled again.

    Raises:
        StoreError: a file cannot be removed.
    """
    found = kernels()
    for path in (*found, *left_aside(folder() / "kernels"), *of_pocl()):
        try:
            if path.is_dir() and not path.is_symlink():
                with contextlib.suppress(OSError):  # there is something new in it
                    path.rmdir()
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cache clear: {path}: {error.strerror}") from None
    return len(found)


def limit_bytes() -> int:
    """Return the bytes that compiled kernels may take, what PoCL keeps of them included.

    They are ``$TILEWRIGHT_CACHE_MIB`` MiB if it is set, else 1024 MiB.
    """
    given = os.environ.get("TILEWRIGHT_CACHE_MIB", "")
    if given and not re.fullmatch("[0-9]{1,9}", given):
        warn_once(f"TILEWRIGHT_CACHE_MIB={given}: expected a number of MiB like 4096; {_LIMIT_MIB} is used")
        given = ""
    return int(given or _LIMIT_MIB) << 20


def trim() -> None:
    """Remove what killed writers left, and what was used longest ago, to be within ``limit_bytes``.

    Other processes may read, write and trim meanwhile: what vanishes under a reader is compiled again.
    """
    for path in left_aside(folder() / "kernels"):
        with contextlib.suppress(OSError):
            path.unlink()
    entries = sorted(_entries())
    excess = sum(size for _, size, _ in entries) - limit_bytes()
    for _, size, path in entries:
        if excess <= 0:
            return
        with contextlib.suppress(OSError):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        excess -= size


def _entries() -> list[tuple[float, int, Path]]:
    """Return when each kernel of ours, and each program of PoCL's, was used, its bytes and its path."""
    theirs = folder() / POCL
    found: dict[Path, tuple[float, int]] = {}
    for file in (*kernels(), *of_pocl()):
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            info = file.lstat()
            if stat.S_ISDIR(info.st_mode):
                continue
            path = file  # or the folder of a program, two below PoCL's, in which each use touches a file
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
    """Return the binary of a key from the cache, else build it and keep it."""
    found = read(key)
    if found is None:
        found = build()
        write(found)
    return found


def read(key: str) -> Built | None:
    """Return the entry of a key; None if there is none or it is not intact."""
    try:
        path = _entry(key)
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        with contextlib.suppress(OSError):  # a folder that takes no files, or another process was quicker
            os.utime(path)  # trimming asks when it was last used
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


def write(built: Built) -> None:
    """Keep a binary: written aside, then renamed, so that no one ever reads half of it."""
    head = {"key": built.key, "digest": hashlib.sha256(built.binary).hexdigest()}
    resources = {name: asdict(r) for name, r in built.resources.items()}
    line = json.dumps({**head, "schema": SCHEMA, "resources": resources}).encode()
    try:
        path = _entry(built.key)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        atomic_write(path, line + b"\n" + built.binary)
        if built.key.endswith(_TRIMS):
            trim()
    except StoreError as error:
        forgets(error)
    except OSError as error:
        forgets(f"cannot write the cache of compiled kernels ({error.strerror}): each run compiles again")


def _entry(key: str) -> Path:
    return folder() / "kernels" / f"{key}.bin"


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
