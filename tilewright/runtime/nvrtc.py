"""NVRTC: compiles kernels to machine code for any architecture, with or without a GPU."""

from __future__ import annotations

import io
import re
import threading
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any

from tilewright.device.architectures import capability
from tilewright.errors import CompileError, DeviceError, first_error, how_to_get
from tilewright.kernels.blueprint import Blueprint
from tilewright.kernels.source import full_source
from tilewright.runtime import cache
from tilewright.runtime.base import Built, Resources

_IMPORTING = threading.Lock()  # threads that import cuda.core at once see it half made
_FUNCTION = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_LOST = re.compile(r"\(C75\d\d\)[^\n]*(?:serialized|ignored)[^\n]*")  # wgmma one by one, setmaxnreg ignored
_FAULTS = {  # of a kernel, of which a compiler only warns
    "an offset would wrap round": re.compile(r"[^\n]*#61-D: integer operation result is out of range"),
    "two headers disagree": re.compile(r"[^\n]*#47-D: incompatible redefinition of macro[^\n]*"),
}
_FIGURES = {
    "registers": re.compile(r"Used (\d+) registers"),
    "shared": re.compile(r"(\d+) bytes smem"),
    "stack": re.compile(r"(\d+) bytes cumulative stack size"),
}


def import_core() -> Any:
    """Import cuda.core under either of its names.

    Raises:
        DeviceError: it is not installed.
    """
    try:
        with _IMPORTING:
            import cuda.core as core

            if hasattr(core, "Program"):
                return core
            import cuda.core.experimental as early  # before 0.5

            return early
    except ImportError as error:
        raise DeviceError(f"no cuda.core: {error}; {how_to_get('cuda')}") from error


@lru_cache(maxsize=1)
def compiler() -> str:
    """Return the compiler's name and version: ``nvrtc 13.0.88``, or ``nvrtc 13.0`` if no more is known.

    Raises:
        DeviceError: NVRTC is not installed.
    """
    import_core()
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # the loader has errors of its own
        raise DeviceError(f"no NVRTC: {error}; {how_to_get('cuda')}") from error
    return f"nvrtc {_in_full(major, minor)}"


def _in_full(major: int, minor: int) -> str:
    """Return NVRTC's version with its patch level, which is known if pip installed it."""
    from importlib import metadata

    for name in ("nvidia-cuda-nvrtc", f"nvidia-cuda-nvrtc-cu{major}"):
        with suppress(metadata.PackageNotFoundError):
            found = str(metadata.version(name))
            if found.startswith(f"{major}.{minor}."):
                return found
    return f"{major}.{minor}"


def compile_cuda(blueprint: Blueprint, arch: str, spills: bool = False) -> Built:
    """Compile a blueprint for an architecture such as sm_90, through the cache. Needs no GPU.

    Raises:
        CompileError: refused, or a kernel keeps registers or arrays in local memory without ``spills``
            (such a kernel is correct, but slow).
        DeviceError: no NVRTC.
    """
    if not capability(arch):
        raise CompileError(f"architecture {arch!r}: must look like sm_90")
    arch = blueprint.target(arch)
    source = full_source(blueprint)
    options = (f"registers={blueprint.max_registers}", "std=c++17", "O3")
    key = cache.key_of(source, options, compiler(), arch)
    built = cache.compiled(key, lambda: _build(key, source, arch, blueprint.max_registers))
    for name, used in built.resources.items():
        if used.local_bytes and not spills:
            raise CompileError(
                f"{name} for {arch}: {used.local_bytes} bytes of a thread spilled to local memory "
                f"({used.registers} registers used); take a smaller tile"
            )
    return built


def _build(key: str, source: str, arch: str, max_registers: int) -> Built:
    core = import_core()
    options = core.ProgramOptions(
        arch=arch, std="c++17", ptxas_options=["-v"], max_register_count=max_registers or None,
        no_cache=True,  # a program from the cache of NVRTC comes without the log of registers
    )  # fmt: skip
    log = io.StringIO()
    start = time.perf_counter()
    try:
        code = core.Program(source, "c++", options).compile("cubin", logs=log)
    except Exception as error:
        raise CompileError(f"{arch}: {first_error(str(error))}") from error
    if lost := _LOST.search(log.getvalue()):
        raise CompileError(f"{arch}: {lost[0]}")
    for fault, warning in _FAULTS.items():
        if found := warning.search(log.getvalue()):
            raise CompileError(f"{arch}: {found[0]}: {fault}; this is a fault of the kernel")
    resources = read_log(log.getvalue())
    if not resources:
        raise CompileError(f"{arch}: NVRTC reports no registers; install a newer nvidia-cuda-nvrtc")
    return Built(key, bytes(code.code), resources, time.perf_counter() - start)


def read_log(log: str) -> dict[str, Resources]:
    """Parse registers, local and shared memory of every kernel from the assembler's log."""
    parts = _FUNCTION.split(log)
    return {name: _resources(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _resources(text: str) -> Resources:
    figures = {name: re.search(pattern, text) for name, pattern in _FIGURES.items()}
    value = {name: int(match[1]) if match else 0 for name, match in figures.items()}
    frame = _FRAME.search(text)
    spilled = max(map(int, frame.groups())) if frame else 0
    return Resources(
        registers=value["registers"], local_bytes=max(spilled, value["stack"]), shared_bytes=value["shared"]
    )
