"""OpenCL as a process meets it: a cache that goes while it runs, a fork, threads."""

from __future__ import annotations

import linecache
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import RunError
from tilewright.kernels.untuned.reference import reference_f64
from tilewright.problem import Problem
from tilewright.runtime import opencl_linker
from tilewright.runtime.base import Runtime

USED = """
import os, shutil
import numpy as np
import tilewright as tw

def conv(stride):
    x, w = np.ones((1, 2, 5, 5), "f"), np.ones((3, 2, 3, 3), "f")
    return tw.conv2d(x, w, stride=stride, device="cpu")[0, :, 0, 0].tolist()

assert conv(1) == [18.0] * 3
"""


def run(code: str, tmp_path: Path, cache: str = "cache", used: str = USED, **more: str) -> None:
    """Run code after a layer was computed, in a process with a cache of its own; ``more``: environment."""
    pytest.importorskip("pyopencl")
    environment = {name: value for name, value in os.environ.items() if name != "POCL_CACHE_DIR"}
    environment["TILEWRIGHT_CACHE"] = str(tmp_path / cache)
    environment |= {"TMPDIR": str(tmp_path)} | more
    command = [sys.executable, "-W", "ignore", "-c", used + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def cache_of_used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a process that computed a layer."""
    folder = tmp_path_factory.mktemp("used")
    run("", folder)
    return folder / "cache"


@pytest.fixture
def used_before(cache_of_used: Path, tmp_path: Path) -> None:
    """The layer was computed before: what is compiled for it takes most of a process's time."""
    shutil.copytree(cache_of_used, tmp_path / "cache")


def test_the_cache_may_be_cleared_meanwhile(tmp_path: Path) -> None:
    run(
        """
from tilewright.cli import main
plan = tw.plan("n1c2h5w5k3r3s3-f32", device="cpu")
assert main(["cache", "info"]) == main(["cache", "clear", "--yes"]) == 0
left = [name for _, _, files in os.walk(os.environ["POCL_CACHE_DIR"]) for name in files]
assert all(name.startswith("tempfile") for name in left)
assert plan(np.ones((1, 2, 5, 5), "f"), plan.pack(np.ones((3, 2, 3, 3), "f"))).max() == 18
assert conv(2) == [18.0] * 3
""",
        tmp_path,
    )


def test_what_pocls_compiler_is_told_makes_other_kernels(tmp_path: Path) -> None:
    """Of a limit to unrolling PoCL's own cache knows nothing; a value may be any text."""
    run(
        """
from tilewright.kernels import family_of
from tilewright.problem import Problem
from tilewright.runtime.opencl import OpenclRuntime
from tilewright.runtime.opencl_cache import _FOLDER

def compiled():
    cpu = OpenclRuntime(cpu=True)
    problem = Problem.parse("n1c2h5w5k3r3s3-f32")
    config = tw.plan(problem, device="cpu").config
    built = cpu.compile(family_of(config.family).blueprint(problem, cpu.device, config))
    binary = cpu.load(built).module.get_info(cpu.cl.program_info.BINARIES)[0]
    return cpu.compiler, built.key, _FOLDER.search(binary)[0]

plain = compiled()
assert "POCL_W" not in plain[0] and compiled() == plain, "what we set ourselves is nothing else"
os.environ["POCL_WILOOPS_MAX_UNROLL_COUNT"] = "4"
more = compiled()
assert more[0] == plain[0] + " POCL_WILOOPS_MAX_UNROLL_COUNT='4'"
os.environ["POCL_EXTRA_BUILD_FLAGS"] = "-DA=1 -DB=2"
most = compiled()
for one, other in ((plain, more), (plain, most), (more, most)):
    assert all(a != b for a, b in zip(one, other))
""",
        tmp_path,
    )


def test_the_cache_may_be_trimmed_meanwhile(tmp_path: Path) -> None:
    run(
        """
from tilewright.runtime import cache, cache_folder
plan = tw.plan("n1c2h5w5k3r3s3-f32", device="cpu")
os.environ["TILEWRIGHT_CACHE_MIB"] = "0"
cache.trim()
theirs = cache.of_pocl()
assert not cache.kernels() and cache.nbytes(theirs), "new ones may still be made"
for path in theirs:
    os.utime(path, (1, 1), follow_symlinks=False)
cache.trim()
assert not cache.kernels() and not cache.nbytes(cache.of_pocl())
assert plan(np.ones((1, 2, 5, 5), "f"), plan.pack(np.ones((3, 2, 3, 3), "f"))).max() == 18
assert conv(2) == [18.0] * 3
""",
        tmp_path,
    )


def test_the_cache_may_be_removed_meanwhile(tmp_path: Path) -> None:
    run(
        """
shutil.rmtree(os.environ["TILEWRIGHT_CACHE"])
assert conv(2) == [18.0] * 3
assert os.listdir(os.environ["POCL_CACHE_DIR"])
assert os.stat(os.environ["TILEWRIGHT_CACHE"]).st_mode & 0o777 == 0o700
""",
        tmp_path,
    )


NO_CACHE = "file/below"  # below a file: the process has its scratch folder only


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_childs_end_leaves_the_scratch_folder_of_its_parent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run(
        """
import sys
from tilewright.runtime import cache, cache_folder
if not (child := os.fork()):
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert cache_folder.scratch().is_dir() and os.listdir(os.environ["POCL_CACHE_DIR"])
assert conv(2) == [18.0] * 3
""",
        tmp_path,
        NO_CACHE,
    )
    assert not list(tmp_path.glob("tilewright-*")), "its own process has removed it"


def test_the_scratch_folder_may_be_removed_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run(
        """
from tilewright.runtime import cache, cache_folder
shutil.rmtree(cache_folder.scratch())
assert conv(2) == [18.0] * 3
assert cache_folder.scratch().stat().st_mode & 0o777 == 0o700
""",
        tmp_path,
        NO_CACHE,
    )


@pytest.mark.usefixtures("used_before")
@pytest.mark.parametrize(("kind", "nbytes"), [("bc", 0), ("bc", 1000), ("so", 0), ("so", 1000), ("so", 9000)])
def test_what_pocl_keeps_may_be_cut_short(kind: str, nbytes: int, tmp_path: Path) -> None:
    """Its programs lack their kernels then, or libraries cannot be loaded; they are made again."""
    files = list((tmp_path / "cache" / "pocl").rglob(f"*.{kind}"))
    assert files and all(path.stat().st_size > nbytes for path in files)
    for path in files:
        os.truncate(path, nbytes)
    run("", tmp_path)


def test_without_a_linker_there_is_an_error_unless_all_is_compiled(tmp_path: Path) -> None:
    """PoCL would end the process."""
    refused = """
import numpy as np
import tilewright as tw
x, w = np.ones((1, 2, 5, 5), "f"), np.ones((3, 2, 3, 3), "f")
try:
    tw.conv2d(x, w)
except tw.RunError as error:
    assert "install a C compiler" in str(error) and "\\n" not in str(error)
else:
    raise AssertionError("not refused")
assert tw.conv2d(x, w, device="numpy").max() == 18
"""
    another = """
for _ in range(2):
    try:
        conv(2)
    except tw.RunError as error:
        assert "install a C compiler" in str(error) and "\\n" not in str(error)
    else:
        raise AssertionError("not refused")
    assert conv(3) == [18.0] * 3
assert conv(1) == [18.0] * 3
"""
    run("", tmp_path, used=refused, PATH=str(tmp_path))
    run("conv(3)", tmp_path)
    run("", tmp_path, PATH=str(tmp_path))
    run(another, tmp_path, PATH=str(tmp_path))


def test_without_a_path_the_linker_is_found(tmp_path: Path) -> None:
    """As of ``env -i``, or ``subprocess.run(..., env={})``. PoCL would end the process."""
    if not shutil.which("ld", path=os.defpath):
        pytest.skip("no linker in the usual place")
    run("conv(2)", tmp_path, used='import os\ndel os.environ["PATH"]\n' + USED)


def test_an_empty_name_of_pocls_cache_is_none(tmp_path: Path) -> None:
    """PoCL would hide its devices."""
    run('assert os.environ["POCL_CACHE_DIR"].endswith("pocl")', tmp_path, POCL_CACHE_DIR="")


MOUNTED = 'mount -t tmpfs -o noexec none "$0" && exec "$@"'


def where_nothing_may_be_run(
    place: Path, *command: str, variable: str = "TILEWRIGHT_CACHE"
) -> subprocess.CompletedProcess[str]:
    """Run a command that finds a folder mounted noexec, named by a variable; it alone sees that."""
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNTED, str(place), *command]
    environment = {name: value for name, value in os.environ.items() if name != "POCL_CACHE_DIR"}
    environment[variable] = str(place / "cache")
    return subprocess.run(unshared, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("variable", ["TILEWRIGHT_CACHE", "POCL_CACHE_DIR"])
def test_a_cache_where_nothing_may_be_run_is_an_error(tmp_path: Path, variable: str) -> None:
    """As on /tmp of a container, which Docker mounts so. PoCL would end the process. The first variable
    moves nothing where the second one is set."""
    pytest.importorskip("pyopencl")
    if not shutil.which("unshare") or where_nothing_may_be_run(tmp_path, "true").returncode:
        pytest.skip("nothing can be mounted here")
    done = where_nothing_may_be_run(tmp_path, sys.executable, "-W", "ignore", "-c", USED, variable=variable)
    assert done.returncode == 1 and variable in done.stderr.splitlines()[-1]
    assert "RunError: PoCL, which compiles" in done.stderr and f"from {tmp_path}" in done.stderr


def test_a_cache_of_pocl_that_is_no_folder_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL itself says no more than that a program cannot be built."""
    monkeypatch.setenv("POCL_CACHE_DIR", os.devnull)
    with pytest.raises(RunError, match=f"kernels in {os.devnull}: is no folder; .* POCL_CACHE_DIR, name a"):
        opencl_linker.require()


def test_kernels_and_their_program_are_freed(tmp_path: Path) -> None:
    """A program has a MB or more, which a service of many layers would pay at each that it makes anew."""
    used = """
import pyopencl as cl
from tilewright.runtime.opencl import OpenclRuntime
from tilewright.runtime.opencl_driver import make_kernels
text = "kernel void one(global int *a) { *a = 1; } kernel void two(global int *a) { *a = 2; }"
built = cl.Program(OpenclRuntime(cpu=True)._context, text).build()
kernels = make_kernels(cl, built)
assert sorted(kernels) == ["one", "two"]
count = cl.kernel_info.REFERENCE_COUNT
assert [kernel.get_info(count) for kernel in kernels.values()] == [1, 1]
del kernels
assert built.get_info(cl.program_info.REFERENCE_COUNT) == 1
"""
    run("", tmp_path, used=used)


def test_linking_is_tried_with_no_module_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies there, in a folder of downloads say, may be anybody's."""
    (tmp_path / "pyopencl.py").write_text("open('taken', 'w').close()")
    monkeypatch.chdir(tmp_path)
    opencl_linker.link()
    assert not (tmp_path / "taken").exists()


def test_where_the_linker_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linker alone does not do: slim containers have neither, or lack libc6-dev."""
    (tmp_path / "ld").write_text("")
    (tmp_path / "ld").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("usr/lib/gcc/x86_64-linux-gnu/12/libgcc.a", "usr/lib64/libc.so"):
        assert not opencl_linker.all_there(tmp_path)
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    assert opencl_linker.all_there(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "usr"))
    assert not opencl_linker.all_there(tmp_path)


# As ``ld``: says that it is there, takes its time, and links. (No shell: those hear all signals.)
SLOW_LINKER = """#!{python}
import os, sys, time
open({flag!r}, "w").close()
time.sleep(1)
os.execv({linker!r}, [{linker!r}, *sys.argv[1:]])
"""


def at_the_linker(tmp_path: Path) -> subprocess.Popen[str]:
    """A process of a group of its own that computes a layer; its first kernel is being linked."""
    flag, tools = tmp_path / "links", tmp_path / "tools"
    tools.mkdir()
    code = SLOW_LINKER.format(python=sys.executable, linker=shutil.which("ld"), flag=str(flag))
    (tools / "ld").write_text(code)
    (tools / "ld").chmod(0o700)
    paths = os.pathsep.join([str(tools), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if name != "POCL_CACHE_DIR"}
    environment |= {"TILEWRIGHT_CACHE": str(tmp_path / "cache"), "PATH": paths}
    command, pipe = [sys.executable, "-W", "ignore", "-c", USED], subprocess.PIPE
    child = subprocess.Popen(command, env=environment, stderr=pipe, text=True, start_new_session=True)
    end = time.monotonic() + 60
    while not flag.exists() and child.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    return child


@pytest.mark.skipif(not shutil.which("ld"), reason="PoCL links by itself, or not at all")
def test_ctrl_c_while_pocl_links_is_an_interrupt(tmp_path: Path) -> None:
    """A terminal interrupts the whole group of processes: PoCL aborts if its linker is one of them."""
    pytest.importorskip("pyopencl")
    child = at_the_linker(tmp_path)
    try:
        os.killpg(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == -signal.SIGINT, said
    assert said.endswith("KeyboardInterrupt\n")


@pytest.mark.usefixtures("used_before")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    run(
        """
import signal, sys, traceback
plan = tw.plan("n1c2h5w5k3r3s3-f32", device="cpu")
packed = plan.pack(np.ones((3, 2, 3, 3), "f"))
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(60)
try:
    x = np.ones((1, 2, 5, 5), "f")
    for use in (lambda: conv(1), lambda: tw.plan("R12"), lambda: plan(x, packed)):
        try:
            use()
        except tw.DeviceError as error:
            assert "get_context('spawn')" in str(error)
        else:
            raise AssertionError("not refused")
    assert tw.conv2d(x, np.ones((3, 2, 3, 3), "f"), device="numpy").max() == 18
except BaseException:
    traceback.print_exc()
    os._exit(1)
os._exit(0)
""",
        tmp_path,
    )


@pytest.mark.usefixtures("used_before")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_plan_handed_to_a_forked_pool_is_refused_where_it_is_used(tmp_path: Path) -> None:
    """A worker that cannot unpickle its task ends, and the pool starts another, for ever."""
    run(
        """
import multiprocessing, signal
signal.alarm(60)

def use(plan):
    return plan(np.ones((1, 2, 5, 5), "f"), plan.pack(np.ones((3, 2, 3, 3), "f")))

plan = tw.plan("n1c2h5w5k3r3s3-f32", device="cpu")
host = tw.plan("n1c2h5w5k3r3s3-f32", device="numpy")
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(use, [host])[0].max() == 18
    try:
        pool.map(use, [plan, plan])
    except tw.DeviceError as error:
        assert "get_context('spawn')" in str(error)
    else:
        raise AssertionError("not refused")
""",
        tmp_path,
    )


@pytest.mark.usefixtures("used_before")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_during_a_call_of_another_thread_is_refused_too(tmp_path: Path) -> None:
    """That thread holds the plan's lock, and no thread of the child ever gives it back."""
    run(
        """
import signal, sys, threading
plan = tw.plan("n1c2h5w5k3r3s3-f32", device="cpu")
w, x = np.ones((3, 2, 3, 3), "f"), np.ones((1, 2, 5, 5), "f")
packed = plan.pack(w)
held, over = threading.Event(), threading.Event()

def hold():
    with plan._lock:
        held.set()
        over.wait()

threading.Thread(target=hold).start()
held.wait()
if child := os.fork():
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    over.set()
    sys.exit(status)
signal.alarm(20)
for use in (lambda: plan(x, packed), lambda: plan.pack(w)):
    try:
        use()
    except tw.DeviceError:
        continue
    os._exit(1)
os._exit(0)
""",
        tmp_path,
    )


def test_what_another_thread_enqueues_while_one_waits_is_kept(
    cpu: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory may be a copy of a filter that nobody else holds."""
    queue, kept = cpu._queue, []  # type: ignore[attr-defined]

    class Waited:
        def finish(self) -> None:
            queue.finish()
            monkeypatch.undo()
            memory = cpu.alloc(64)
            kept.append(weakref.ref(memory))
            cpu.fill(memory, 0)

    monkeypatch.setattr(cpu, "_queue", Waited())
    cpu.synchronize()
    held: Any = kept[0]()
    assert held is not None
    del held
    cpu.synchronize()
    assert kept[0]() is None


def test_kernels_leave_nothing_behind(cpu: Runtime) -> None:
    """Python would keep the text of the code that pyopencl makes for each, as long as the process lives."""
    built = cpu.compile(reference_f64(Problem.parse("n1c2h5w5k3r3s3-f32"), cpu.device))
    before = set(linecache.cache)
    assert cpu.load(built).kernels
    assert set(linecache.cache) == before


COMPUTES = """
import atexit, threading, time
plan = tw.plan("n1c2h5w5k3r3s3-f32", device="cpu")
w, x = np.ones((3, 2, 3, 3), "f"), np.ones((1, 2, 5, 5), "f")
packed = plan.pack(w)
call = plan.bind(x, packed)

def compute():
    while True:
        WHAT

for _ in range(2):
    threading.Thread(target=compute, daemon=True).start()
time.sleep(0.5)
"""


@pytest.mark.usefixtures("used_before")
@pytest.mark.parametrize("what", ["conv(1)", "plan(x, packed)", "plan.pack(w)", "call()"])
def test_a_daemon_thread_may_compute_when_the_process_ends(tmp_path: Path, what: str) -> None:
    """A driver call that returned after that would abort the process."""
    run(COMPUTES.replace("WHAT", what), tmp_path)


@pytest.mark.usefixtures("used_before")
def test_what_runs_at_the_end_still_computes(tmp_path: Path) -> None:
    """Though other threads may not any more."""
    run(
        COMPUTES.replace("WHAT", "call()")
        + """
from tilewright.runtime import ending

def last():
    if not (ending._ends and conv(1) == [18.0] * 3 and plan(x, plan.pack(w)).max() == call().max() == 18):
        os._exit(1)

atexit.unregister(ending._wait_for_others)
atexit.register(last)
atexit.register(ending._wait_for_others)
""",
        tmp_path,
    )


@pytest.mark.usefixtures("used_before")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_ends_at_once_though_a_thread_computes(tmp_path: Path) -> None:
    """That thread is in the parent only."""
    run(
        """
import sys, threading, time
from tilewright.runtime import ending
held, over = threading.Event(), threading.Event()

def hold():
    with ending.Inside():
        held.set()
        over.wait()

threading.Thread(target=hold).start()
held.wait()
if child := os.fork():
    start = time.monotonic()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    over.set()
    assert status == 0 and time.monotonic() - start < ending.PATIENCE_S / 2
else:
    sys.exit(0)
""",
        tmp_path,
    )
