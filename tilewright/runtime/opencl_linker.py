"""Checks what PoCL needs to link and load its kernels, as without it PoCL ends the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tilewright.errors import OR_NUMPY, RunError

# Files that the linker is given, where Debian and Fedora have them.
_LIBRARIES = (
    ("usr/lib/gcc/*/*/libgcc.a",),
    ("usr/lib/*/libc.so", "usr/lib64/libc.so"),
)
_TRIAL = """
import pyopencl as cl
(device, *_), = [p.get_devices() for p in cl.get_platforms() if p.name == "Portable Computing Language"]
context = cl.Context([device])
queue = cl.CommandQueue(context)
cl.Program(context, "kernel void trial() {}").build().trial(queue, (1,), None)
queue.finish()
"""
_TRIAL_S = 60.0


def require() -> bool:
    """Make sure that PoCL can load from its cache, and link; return whether it can certainly link.

    Kernels in the cache need no linker; for others ``link`` finds out before anything runs.
    Without a PATH PoCL finds no linker: it is set to the default that other programs use then.

    Raises:
        RunError: it cannot.
    """
    os.environ.setdefault("PATH", os.defpath)
    place = Path(os.environ.get("POCL_CACHE_DIR", ""))
    if place.exists() and not place.is_dir():
        raise RunError(
            f"PoCL, which compiles for the CPU, cannot keep its kernels in {place}: is no folder; remove it "
            "(if you have set POCL_CACHE_DIR, name a folder)"
        )
    if _runs_nothing(place):
        raise RunError(
            f"PoCL, which compiles for the CPU, cannot load its kernels from {place}: "
            "the disk is mounted noexec; set TILEWRIGHT_CACHE (POCL_CACHE_DIR, if you have set that) to a "
            "folder on another disk"
        )
    if all_there():
        return True
    if any(place.rglob("*.so")):
        return False
    link()
    return True


def link() -> None:
    """Test in another process whether PoCL can link a kernel.

    Raises:
        RunError: it cannot.
    """
    if said := _trial():
        raise RunError(
            f"PoCL, which compiles for the CPU, cannot link its kernels ({said}); "
            f"install a C compiler (Debian: gcc and libc6-dev){OR_NUMPY}"
        )


def _runs_nothing(place: Path) -> bool:
    """Whether programs cannot be run from a folder, which may not exist yet."""
    there = next((one for one in (place, *place.parents) if one.exists()), None)
    if there is None or not hasattr(os, "ST_NOEXEC"):
        return False
    return bool(os.statvfs(there).f_flag & os.ST_NOEXEC)


def all_there(root: Path = Path("/")) -> bool:
    """Whether all files that linking needs are in their usual places."""
    libraries = (any(any(root.glob(one)) for one in places) for places in _LIBRARIES)
    return shutil.which("ld") is not None and all(libraries)


def _trial() -> str:
    """Return why a kernel cannot be linked; empty if it can, or if that is unknown."""
    if not sys.executable:  # embedded in another program
        return ""
    command = [sys.executable, "-P", "-W", "ignore", "-c", _TRIAL]  # -P: nothing from the current folder
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr.partition("\n")[0] if done.returncode < 0 else ""
