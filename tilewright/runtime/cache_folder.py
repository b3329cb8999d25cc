"""The user's cache folder: where it is, whether only the user can write to it, what replaces it if not."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import stat
import tempfile
from functools import lru_cache
from pathlib import Path

from tilewright.errors import StoreError, warn_once
from tilewright.files import atomic_write

_FIX = "set TILEWRIGHT_CACHE to a folder of your own"
LEAST_FREE = 4 << 20  # bytes: drivers keep kernels there too, and fail without a reason, or abort, with less


def folder() -> Path:
    """Return tilewright's cache folder, made with mode 0700 if need be.

    It is ``$TILEWRIGHT_CACHE`` if set, else the operating system's usual place for caches.

    Raises:
        StoreError: it is a symlink, belongs to someone else, others can write to it, or it cannot
            be made; or it would be in the home folder of a user who has none.
    """
    given = os.environ.get("TILEWRIGHT_CACHE")
    try:
        path = _absolute(given or _usual())
    except RuntimeError:
        what = f"{given}: there is no such home folder" if given else "of a user who has no home folder"
        raise StoreError(f"cache folder {what}; {_FIX}") from None
    except OSError as error:
        what = f"{given}: the current folder is gone ({error.strerror})"
        raise StoreError(f"cache folder {what}; {_FIX}") from None
    return secure_folder(path)


@lru_cache(maxsize=8)
def _absolute(path: str) -> Path:
    """Return the folder that a path named at its first use: the same one wherever the process goes."""
    return Path(path).expanduser().absolute()


def inherited() -> dict[str, str]:
    """Return the environment in which a child has our cache folder, wherever we have gone since we had it."""
    given = os.environ.get("TILEWRIGHT_CACHE")
    with contextlib.suppress(OSError, RuntimeError):  # there is none: the child says so, too
        return {"TILEWRIGHT_CACHE": str(_absolute(given))} if given else {}
    return {}


def _usual() -> str:
    """Return the operating system's place for caches; raises RuntimeError if there is no home folder."""
    import platformdirs

    return platformdirs.user_cache_dir("tilewright", appauthor=False)


def writable_folder() -> Path:
    """Return the cache folder; if it cannot be written to, warn and return ``scratch``."""
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
    """Return a temporary folder of this process, removed at its end; a forked child shares it and keeps it.

    Raises:
        StoreError: no temporary folder can be made either.
    """
    try:
        path = Path(tempfile.mkdtemp(prefix="tilewright-"))
    except OSError as error:
        raise StoreError(f"no folder can be written to, not even for a while: {error}; {_FIX}") from error
    atexit.register(_remove, path, os.getpid())
    return path


def _remove(path: Path, owner: int) -> None:
    """Remove the scratch folder at the end of the process that made it, but not of its forked children."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


def is_there(path: Path) -> bool:
    """Whether a path is our cache folder or ``scratch``; it is made again if somebody removed it.

    Raises:
        StoreError: it cannot be made, or is not ours alone.
    """
    if scratch.cache_info().currsize and path == scratch():
        secure_folder(path, "scratch folder")
        return True
    return path == folder()


def no_room() -> str:
    """Return text to append to an error if the disk of the cache folder is full; else an empty string."""
    with contextlib.suppress(StoreError):
        return full(folder())
    return ""


def full(path: Path) -> str:
    """Return text to append to an error if the disk of a kernel folder is full; else an empty string."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(path).free < LEAST_FREE:
            return f"; the disk of the cache folder {path} is full; {_FIX} on another disk"
    return ""


def keep(part: str, name: str, data: bytes, what: str = "", loss: str = "") -> bool:
    """Write a file in a part of the cache folder; return whether that could be done.

    If not, warn that one cannot ``what``, and what that means: the ``loss``; without them be silent.
    """
    try:
        path = folder() / part / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        atomic_write(path, data)
        return True
    except (OSError, StoreError) as error:
        if what:
            forgets(f"cannot {what} ({error.strerror}): {loss}" if isinstance(error, OSError) else error)
        return False


def forgets(why: object) -> None:
    """Warn that nothing can be kept in the cache folder: only once, with the first reason."""
    warn_once(f"nothing new is remembered: {why}", "nothing new is remembered")


def secure_folder(path: Path, what: str = "cache folder", fix: str = _FIX, given: bool = False) -> Path:
    """Make a folder with mode 0700, or check that nobody else can put files there.

    ``given``: for a file that a user named. Then our group may write there, as many systems have it, and
    anybody where files of others cannot be replaced, as in /tmp.

    Raises:
        StoreError: it is no folder, a link, not ours, or open to others; ``fix`` is the advice given.
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
    if given and info.st_mode & stat.S_ISVTX:
        return path
    if hasattr(os, "getuid") and info.st_uid != os.getuid():
        raise StoreError(f"{what} {path}: belongs to another user; {fix}")
    if hasattr(os, "getuid") and info.st_mode & (0o002 if given else 0o022):
        raise StoreError(f"{what} {path}: others can write to it; {fix}")
    return path
