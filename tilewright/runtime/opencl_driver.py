"""What we need of pyopencl beyond its own: its environment, devices of its drivers, kernels of a program."""

from __future__ import annotations

import linecache
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.errors import DeviceError, how_to_get
from tilewright.runtime import cache, cache_folder, opencl_cache
from tilewright.runtime.capacity import cores
from tilewright.runtime.opencl_facts import is_pocl

# PoCL's other way, a copy of the code for each work-item, gave wrong answers after a barrier (PoCL 3.0).
_METHOD = "POCL_WORK_GROUP_METHOD", "loops"
# Intel's compiler makes lanes of work-items, though kernels have vectors; it crashed on some (2026.2).
_NO_LANES = "CL_CONFIG_CPU_VECTORIZER_MODE", "1"
# What PoCL's compiler reads beside the source: it makes other code of it.
_CODE = (
    "POCL_BINARY_SPECIALIZE_WG", "POCL_EXTRA_BUILD_FLAGS", "POCL_FORCE_PARALLEL_OUTER_LOOP",
    "POCL_FULL_REPLICATION_THRESHOLD", "POCL_WILOOPS_MAX_UNROLL_COUNT", "POCL_WORK_GROUP_METHOD",
    "POCL_WORK_GROUP_SPECIALIZATION",
)  # fmt: skip

_making = threading.Lock()  # of kernels: code that pyopencl makes for two at once has one name, and it warns
# Of that code: names in linecache, which keeps them for ever. Older versions give each kernel one name.
_THEIR_TEXTS = "<generated: 'pyopencl invoker", "<pyopencl invoker"


def import_opencl() -> Any:
    """Import pyopencl, with PoCL's cache below our cache folder.

    Raises:
        DeviceError: pyopencl is not installed or finds no OpenCL loader.
    """
    if not os.environ.get("POCL_CACHE_DIR"):
        # Where PoCL cannot write, or told of a folder "", it would hide its devices and not say why.
        os.environ["POCL_CACHE_DIR"] = str(cache_folder.writable_folder() / cache.POCL)
        opencl_cache.mend()  # children have the folder named: once is enough
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # the cache of compiled kernels is ours
    os.environ.setdefault(*_METHOD)
    os.environ.setdefault(*_NO_LANES)
    if cores() < (os.cpu_count() or 0):  # of these PoCL knows nothing
        os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(cores()))
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError(f"no OpenCL: {error}; {how_to_get('opencl')}") from error
    # Intel's compiler says "succeeded" of each program.
    warnings.filterwarnings("ignore", "Non-empty compiler output", pyopencl.CompilerWarning)
    return pyopencl


def told() -> str:
    """Return the user's environment settings of PoCL's compiler, ``NAME='value'``; empty if none are set."""
    given = [(name, os.environ[name]) for name in _CODE if name in os.environ]
    return " ".join(f"{name}={value!a}" for name, value in given if (name, value) != _METHOD)


def devices() -> list[Any]:
    """Return all OpenCL devices, CPUs first, and of those PoCL's, whose kernels the tests check.

    Raises:
        DeviceError: there is no OpenCL or no driver.
    """
    cl = import_opencl()
    found: list[Any] = []
    failed: Exception | None = None
    try:
        with _deaf_threads():
            for platform in cl.get_platforms():
                try:
                    found += platform.get_devices()
                except cl.Error as error:  # a driver that is broken is no reason to do without the others
                    failed = error
    except cl.Error as error:
        failed = error
    if failed is not None and not found:
        raise DeviceError(
            f"no OpenCL driver: {failed}; {how_to_get('opencl')}, or install your vendor's"
        ) from failed
    return sorted(found, key=lambda d: (not d.type & cl.device_type.CPU, not is_pocl(d)))


@contextmanager
def _deaf_threads() -> Iterator[None]:
    """Shield threads started here, and their child processes, from Ctrl-C, which is for the main thread.

    PoCL's threads start a linker for each kernel: a terminal would stop it together with us, and PoCL abort.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def make_kernels(cl: Any, program: Any) -> dict[str, Any]:
    """Make new kernels of a program, by name; one thread at a time.

    Each by itself: those of ``all_kernels`` are never freed, nor is their program (pyopencl 2026.1).
    """
    with _making:
        names = program.get_info(cl.program_info.KERNEL_NAMES)
        kernels = {name: cl.Kernel(program, name) for name in names.split(";") if name}
        for name in tuple(linecache.cache):
            if name.startswith(_THEIR_TEXTS):
                linecache.cache.pop(name, None)
        return kernels
