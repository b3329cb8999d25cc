"""OpenCL devices that are broken, and drivers that fail: in our words, and none hides the others."""

from __future__ import annotations

import gc
import linecache
import os
import random
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright import runtime
from tilewright.device import Device
from tilewright.errors import OR_NUMPY, CompileError, DeviceError, OutOfMemory, RunError
from tilewright.kernels import family_of
from tilewright.problem import Problem
from tilewright.runtime import opencl, opencl_cache, opencl_driver, opencl_facts, opening
from tilewright.runtime.base import Built, Memory, Resources
from tilewright.runtime.opencl_facts import facts
from tilewright.runtime.opencl_programs import Programs
from tilewright.runtime.pending import Pending
from tilewright.search import model
from tilewright.search.space import sample

POCL = "Portable Computing Language"


class Error(Exception):
    """Stands for pyopencl's."""


class NoMemory(Error):
    """Stands for pyopencl's MemoryError."""


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*given: Any, **more: Any) -> Any:
        raise error

    return fail


def broken(error: Exception, unified: bool = False) -> Any:
    """A runtime whose driver fails in whatever it is asked."""
    fail = failing(error)
    flags = SimpleNamespace(READ_WRITE=1, USE_HOST_PTR=2)
    made: Any = object.__new__(opencl.OpenclRuntime)
    made.cl = SimpleNamespace(
        Error=Error, MemoryError=NoMemory, enqueue_copy=fail, enqueue_fill_buffer=fail, Buffer=fail,
        Kernel=lambda program, name: name, program_info=SimpleNamespace(BINARIES=1, KERNEL_NAMES=2),
        mem_flags=flags,
    )  # fmt: skip
    made._queue = SimpleNamespace(finish=lambda: None)
    made._in_place = flags.USE_HOST_PTR
    made._context, made._pending, made._events, made._lock = None, Pending(), [], threading.Lock()
    made.device, made.unified = SimpleNamespace(name="a device"), unified
    made.programs = object.__new__(Programs)
    made.programs.cl, made.programs._context, made.programs._name = made.cl, None, "a device"
    return made


USES: list[Callable[[Any], Any]] = [
    lambda its: its.upload(memory(its), np.zeros(4, "f")),
    lambda its: its.download(memory(its), np.zeros(4, "f")),
    lambda its: its.fill(memory(its), 0),
    lambda its: its.slice(memory(its), 128, 4),
]


def memory(its: Any) -> Memory:
    return Memory(16, 0, SimpleNamespace(get_sub_region=its.cl.enqueue_copy))


@pytest.mark.parametrize("use", USES)
def test_what_a_driver_fails_in_is_told_in_our_words(use: Callable[[Any], Any]) -> None:
    with pytest.raises(RunError, match="^a device: .*: INVALID_VALUE$"):
        use(broken(Error("INVALID_VALUE")))
    with pytest.raises(OutOfMemory, match="^a device: no room for .*: MEM_OBJECT_ALLOCATION_FAILURE$"):
        use(broken(NoMemory("MEM_OBJECT_ALLOCATION_FAILURE")))


def test_an_array_that_cannot_be_used_in_place_is_told() -> None:
    with pytest.raises(RunError, match="^a device: wrap: INVALID_HOST_PTR$"):
        broken(Error("INVALID_HOST_PTR"), unified=True).wrap(np.zeros(4, "f"))
    with pytest.raises(OutOfMemory, match="no room for 64 bytes"):
        broken(NoMemory("MEM_OBJECT_ALLOCATION_FAILURE"), unified=True).alloc(64)


def test_a_broken_device_hides_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``doctor`` asks for them all."""

    class Second:
        def __init__(self, index: int, cpu: bool) -> None:
            if index == 1:
                raise Error("clCreateContext: DEVICE_NOT_AVAILABLE\nmore")
            self.device = SimpleNamespace(backend="opencl", index=index)

    monkeypatch.setattr(opening, "_opened", {})
    monkeypatch.setattr(opencl, "OpenclRuntime", Second)
    monkeypatch.setattr(opening, "_count", lambda kind: {"opencl": 3, "numpy": 1}.get(kind, 0))
    found = runtime.list_devices()
    assert [getattr(one, "index", None) for one in found if not isinstance(one, DeviceError)] == [0, 2, 0]
    told = [str(one) for one in found if isinstance(one, DeviceError)]
    assert len(told) == 2 and "opencl:1: cannot be opened (Error: clCreateContext: DEVICE_NOT" in told[1]
    with pytest.raises(RunError, match="opencl:1: cannot be opened .*choose another device"):
        runtime.open_runtime("opencl", 1)


@pytest.mark.parametrize("name", ["POCL_CACHE_DIR", "POCL_DEVICES", "OCL_ICD_VENDORS"])
def test_what_hides_the_cpu_is_named(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """To install what is there helps nobody."""
    file = tmp_path / "file"
    file.touch()
    for other in ("POCL_DEVICES", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setattr(opening, "_opened", {})
    monkeypatch.setattr(opening, "_count", lambda kind: 1 if kind == "numpy" else 0)
    monkeypatch.setattr(opening, "_driven", failing(DeviceError("cpu:0: there is none; see doctor")))
    numpy = SimpleNamespace(device=SimpleNamespace(runs_kernels=False))
    monkeypatch.setattr(opening, "open_runtime", lambda: numpy)
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    assert "environment" not in " ".join(map(str, runtime.list_devices()))
    monkeypatch.setenv(name, str(file))
    said = [str(one) for one in runtime.list_devices() if isinstance(one, DeviceError)]
    named = f"; the environment says {name}='{file}'"
    assert said == ["cuda: the driver has no device", f"opencl: the driver has no device{named}"]
    instead = runtime.instead_of_numpy("--device")
    assert instead.startswith("cpu:0: there is none; in ") and instead.endswith(f"for a GPU{named}")


def test_what_is_wrong_with_opencl_is_told_where_numpy_will_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """To install what is there, but broken, helps nobody."""
    monkeypatch.setattr(opening, "_opened", {})
    monkeypatch.setattr(opening, "_driven", failing(DeviceError("no OpenCL: libX: cannot open; install it")))
    said = runtime.instead_of_numpy("--device")
    assert said.startswith("no OpenCL: libX: cannot open; in tilewright's folder run pip install -e ")


def test_numpy_is_not_offered_to_who_chose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"PoCL cannot link its kernels (no ld); install a C compiler{OR_NUMPY}"
    monkeypatch.setattr(opening, "open_runtime", failing(RunError(said)))
    assert runtime.instead_of_numpy("--device") == said.removesuffix(OR_NUMPY)


def test_a_host_without_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_opened", {})
    monkeypatch.setattr(opencl, "OpenclRuntime", failing(MemoryError()))
    with pytest.raises(OutOfMemory, match="^opencl:0: cannot be opened: the host has too little"):
        runtime.open_runtime("opencl", 0)


def test_a_broken_driver_hides_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pocl, other = (SimpleNamespace(name=name) for name in (POCL, "Intel(R) OpenCL"))
    good = [SimpleNamespace(type=kind, platform=of) for kind, of in ((2, pocl), (1, other), (1, pocl))]
    bad = SimpleNamespace(get_devices=failing(Error("INVALID_PLATFORM")))
    platforms = [bad, SimpleNamespace(get_devices=lambda: good)]
    fake = SimpleNamespace(
        Error=Error, get_platforms=lambda: platforms, device_type=SimpleNamespace(CPU=1)
    )
    monkeypatch.setattr(opencl_driver, "import_opencl", lambda: fake)
    assert opencl_driver.devices() == good[::-1]  # CPUs first, and PoCL's
    platforms.pop()
    with pytest.raises(DeviceError, match="no OpenCL driver: INVALID_PLATFORM; "):
        opencl_driver.devices()
    fake.get_platforms = failing(Error("PLATFORM_NOT_FOUND_KHR"))
    with pytest.raises(DeviceError, match="no OpenCL driver: PLATFORM_NOT_FOUND_KHR; "):
        opencl_driver.devices()


@pytest.mark.parametrize("removed", [True, False])
def test_a_program_without_its_kernels(removed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came of a damaged file in PoCL's cache: built again without that, where that can be told."""
    its, built = broken(Error()), list[object]()

    class Program:
        def __init__(self, context: object, source: str) -> None:
            built.append(self)

        def build(self, options: list[str]) -> Any:
            return self

        def get_info(self, what: object) -> Any:
            if what == its.cl.program_info.KERNEL_NAMES:
                return "x" if len(built) > 1 else ""
            return [b"poclbin\0AB/CDE" + b"P" * 40]

    its.cl.Program = Program
    programs = its.programs
    programs._pocl = programs._links = True
    monkeypatch.setattr(opencl_cache, "ready", lambda: None)
    monkeypatch.setattr(opencl_cache, "drop", lambda binary: removed)
    if removed:
        assert programs._built("source", ()) is built[1]
    else:
        with pytest.raises(CompileError, match="no kernels.*run tilewright cache clear"):
            programs._built("source", ())
    programs.of = lambda source, options: Program(None, source)
    with pytest.raises(CompileError, match="program lacks y; .*run tilewright cache clear"):
        its.load(Built("key", b"source", {"x": Resources(), "y": Resources()}, 0.0))
    assert its.load(Built("key", b"source", {}, 0.0)).kernels.keys() == {"x"}


def test_a_program_whose_build_finds_no_memory_is_never_freed() -> None:
    """PoCL holds its lock for ever then: who freed the program, with the error, would wait for that."""
    its, made = broken(Error()), list[weakref.ref[Any]]()

    class Program:
        def __init__(self, context: object, source: str) -> None:
            made.append(weakref.ref(self))

        def build(self, options: list[str]) -> Any:
            raise MemoryError("std::bad_alloc")

    its.cl.Program = Program
    its.programs._pocl = False
    with suppress(MemoryError):
        its.programs._built("source", ())
    gc.collect()
    assert made[0]() is not None


def test_threads_make_kernels_one_at_a_time() -> None:
    """pyopencl makes code for each: for two at once under one name, and warns of it."""
    its, inside, most = broken(Error()), list[int](), list[int]()

    def kernel(program: object, name: str) -> None:
        inside.append(1)
        time.sleep(0.01)
        most.append(len(inside))
        inside.pop()

    its.cl.Kernel = kernel
    its.programs._links = True
    its.programs.of = lambda source, options: SimpleNamespace(get_info=lambda what: "x")
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(lambda _: its.load(Built("key", b"source", {}, 0.0)), range(8)))
    assert most == [1] * 8 and all(one.kernels.keys() == {"x"} for one in loaded)


@pytest.mark.parametrize("name", ["<generated: 'pyopencl invoker for 'x'-1'>", "<pyopencl invoker for 'x'>"])
def test_the_text_of_code_that_pyopencl_makes_is_freed(name: str) -> None:
    """Old versions (2024.2) give each kernel one name: pytools warned of the second program that has it."""
    its = broken(Error())

    def kernel(program: object, one: str) -> None:
        linecache.cache[name] = 4, None, ["pass"], name

    its.cl.Kernel = kernel
    program = SimpleNamespace(get_info=lambda what: "x;y")
    assert opencl_driver.make_kernels(its.cl, program).keys() == {"x", "y"}
    assert name not in linecache.cache


def said(platform: str, **more: Any) -> Any:
    """What a driver may say of a device."""
    facts_of = dict(
        max_compute_units=4, max_clock_frequency=2000, max_work_group_size=1024, local_mem_size=65536,
        name="cpu-x", version="OpenCL 3.0 PoCL HSTR: cpu-x", opencl_c_version="OpenCL C 1.2 ",
        global_mem_cache_size=1 << 20, native_vector_width_float=8, driver_version="1",
        platform=SimpleNamespace(name=platform, version="3"),
    )  # fmt: skip
    return SimpleNamespace(**facts_of | more)


@pytest.mark.parametrize("cpu", [True, False])
def test_a_clock_that_the_driver_does_not_know(cpu: bool) -> None:
    """The model divides by it."""
    device: Device = facts(said(POCL, max_clock_frequency=0), 0, cpu)
    layer, direct = Problem.parse("n1c8h8w8k8r3s3-f32"), family_of("direct")
    config = sample(direct, layer, device, random.Random(0))
    assert model.estimate(direct, layer, device, config).total_us > 0


def test_only_pocls_compiler_is_given_its_builtin_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intel's has no such builtin: no kernel of i8 compiled there."""
    flags = opencl_facts._AVX512 | {"avx512_vnni"}
    monkeypatch.setattr(opencl_facts, "_cpu_flags", lambda: frozenset(flags))
    assert facts(said(POCL), 0, True).byte_dots and not facts(said(POCL), 0, False).byte_dots
    intel = facts(said("Intel(R) OpenCL", version="OpenCL 3.1 (Build 0)"), 0, True)
    assert not intel.byte_dots and intel.lanes == 16
    assert intel.arch == "OpenCL C 1.2"


def test_what_other_drivers_need_and_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intel's compiler crashed while it made lanes of work-items, and speaks although nothing is wrong."""
    cl, mode = pytest.importorskip("pyopencl"), "CL_CONFIG_CPU_VECTORIZER_MODE"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given, kept in ((None, "1"), ("8", "8")):
            monkeypatch.delenv(mode, raising=False) if given is None else monkeypatch.setenv(mode, given)
            opencl_driver.import_opencl()
            assert os.environ[mode] == kept
        cl.compiler_output("succeeded")
        with pytest.raises(UserWarning):
            warnings.warn("another", cl.CompilerWarning, stacklevel=1)
