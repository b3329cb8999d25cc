"""What PoCL needs to link its kernels and to load them; where it is missing, PoCL ends the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tilewright.errors import RunError

# What the linker is told to take, where Debian and Fedora have it.
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
    """See to it that PoCL can load from its cache, and link; return whether it can link for sure.

    A cache that holds kernels serves without a linker; ``link`` tells before anything else runs.
    Where no PATH is set, PoCL finds no linker: it is set to where other programs look then.

    Raises:
        RunError: it cannot.
    """
    os.environ.setdefault("PATH", os.defpath)
    place = Path(os.environ.get("POCL_CACHE_DIR", ""))
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
    """Try in another process whether PoCL can link a kernel.

    Raises:
        RunError: it cannot.
    """
    if said := _trial():
        raise RunError(
            f"PoCL, which compiles for the CPU, cannot link its kernels ({said}); "
            "install a C compiler (Debian: gcc and libc6-dev), or choose the device numpy, slow as it is"
        )


def _runs_nothing(place: Path) -> bool:
    """Whether a folder, which may have to be made, is where no program may be run."""
    there = next((one for one in (place, *place.parents) if one.exists()), None)
    if there is None or not hasattr(os, "ST_NOEXEC"):
        return False
    return bool(os.statvfs(there).f_flag & os.ST_NOEXEC)


def all_there(root: Path = Path("/")) -> bool:
    """Whether all is in its usual place."""
    libraries = (any(any(root.glob(one)) for one in places) for places in _LIBRARIES)
    return shutil.which("ld") is not None and all(libraries)


def _trial() -> str:
    """Say why a kernel cannot be linked; empty where it can, or where nobody can tell."""
    if not sys.executable:  # within another program
        return ""
    command = [sys.executable, "-W", "ignore", "-c", _TRIAL]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr.partition("\n")[0] if done.returncode < 0 else ""
