"""Programs of an OpenCL device: built from source, where PoCL compiles each once, and loaded."""

from __future__ import annotations

import ctypes
import hashlib
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any

from tilewright.errors import CompileError, RunError, first_error
from tilewright.runtime import cache_folder, opencl_cache, opencl_linker
from tilewright.runtime.base import Built, Loaded, Resources
from tilewright.runtime.opencl_builtins import quick
from tilewright.runtime.opencl_driver import make_kernels, told
from tilewright.runtime.opencl_facts import is_pocl

OPTIONS = ("-cl-std=CL1.2", "-w")  # strict f32: never -cl-fast-relaxed-math
_KEPT = 32  # programs that need not be built again: even from its cache PoCL takes 0.1 s for one
_DAMAGED = "PoCL's cache is damaged: run tilewright cache clear"


class Programs:
    """Builds programs for one device, and keeps the last ones.

    Attributes:
        quick: whether they are built without PoCL's header of declarations: until one needs it.
        compiler: name and version of what builds them.
    """

    _named: tuple[str, ...] = ()  # options by which PoCL's own cache tells what else its compiler was told

    def __init__(self, cl: Any, context: Any, device: Any, name: str) -> None:
        """Build nothing yet; ``name``: of the device, for errors."""
        self.cl, self._context, self._device, self._name = cl, context, device, name
        self._pocl = is_pocl(device)
        if self._pocl:  # it ends the process if a context is freed that had a damaged program
            _keep_for_ever(context)
        self.quick = self._pocl
        self.of = lru_cache(maxsize=_KEPT)(self._of)  # the program of a source and options
        self._links, self._since_ns = not self._pocl or opencl_linker.require(), time.time_ns()
        self._refused: dict[str, int] = {}  # programs that could not be linked, and when each was asked for
        beside = told() if self._pocl else ""
        self.compiler = " ".join(filter(None, (device.platform.version, device.driver_version, beside)))
        if beside:
            self._named = (f"-DTOLD={hashlib.sha256(beside.encode()).hexdigest()}",)

    @property
    def options(self) -> tuple[str, ...]:
        """What the compiler is told."""
        return (*OPTIONS, *self._named)

    def build(self, key: str, source: str) -> Built:
        """Build; the driver's own cache keeps the machine code.

        Raises:
            CompileError: the compiler refuses the source.
        """
        start = time.perf_counter()
        names = list(make_kernels(self.cl, self.of(source, self.options)))
        most = int(self._device.max_work_group_size)
        resources = {name: Resources(max_threads=most) for name in names}
        return Built(key, source.encode(), resources, time.perf_counter() - start)

    def load(self, built: Built) -> Loaded:
        """Build again, unless ``build`` just did; quick if it is in the driver's cache.

        Raises:
            CompileError: a file in that cache is damaged.
            RunError: PoCL cannot link what it compiled.
        """
        program = self.of(built.binary.decode(), self.options)
        self._see_linked()
        kernels = make_kernels(self.cl, program)
        if missing := ", ".join(sorted(built.resources.keys() - kernels)):
            raise CompileError(f"{self._name}: a compiled program lacks {missing}; {_DAMAGED}")
        return Loaded(program, kernels)

    def _of(self, source: str, options: tuple[str, ...]) -> Any:
        if self.quick:
            with suppress(self.cl.Error):
                return self._built(*quick(source, options))
        try:
            program = self._built(source, options)
        except self.cl.Error as error:
            said = f"{first_error(str(error))}{cache_folder.no_room()}"
            raise CompileError(f"{self._name}: {said}") from error
        self.quick = False
        return program

    def _built(self, source: str, options: tuple[str, ...]) -> Any:
        """Build; if the program lacks its kernels, a file in PoCL's cache is damaged: drop it and retry."""
        for _ in range(2):
            if self._pocl:
                opencl_cache.ready()
            try:
                program = self.cl.Program(self._context, source).build(options=list(options))
            except MemoryError as error:
                _keep_for_ever(error.__traceback__)
                raise
            if not self._pocl or make_kernels(self.cl, program):
                return program
            if not opencl_cache.drop(program.get_info(self.cl.program_info.BINARIES)[0]):
                break
        raise CompileError(f"{self._name}: a compiled program has no kernels; {_DAMAGED}")

    def _see_linked(self) -> None:
        """Make sure that PoCL has linked or can link what was built since the last call.

        Raises:
            RunError: it cannot; other programs can still be used.
        """
        if self._links or opencl_cache.unlinked(self._since_ns).items() <= self._refused.items():
            return
        try:
            opencl_linker.link()
        except RunError:
            self.of.cache_clear()  # who asks for it again is told again
            self._refused = opencl_cache.unlinked(self._since_ns)  # the trial's own among them
            raise
        self._links = True


def _keep_for_ever(what: object) -> None:
    """Never free an object, not even when the process ends.

    PoCL holds the lock of a program whose build runs out of memory: who frees the program, which is in the
    frames of the error, waits for that lock without end.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(what))
