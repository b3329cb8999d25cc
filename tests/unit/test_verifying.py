"""Winners from elsewhere: compiled at the same time, then checked one by one in a worker that rests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from dispatch_samples import DEVICE, LAYER, record, stage, tile

from tilewright.device import for_architecture
from tilewright.dispatch import choices, verifying
from tilewright.errors import CompileError, RunError
from tilewright.kernels import family_of
from tilewright.kernels.blueprint import Blueprint
from tilewright.kernels.config import Config
from tilewright.problem import Problem
from tilewright.record import Record
from tilewright.runtime import ending
from tilewright.search.ranking import rank
from tilewright.tuning.protocol import Job
from tilewright.tuning.worker_pool import WorkerPool

__all__ = ["stage"]  # a fixture
DIRECT = Problem.parse("n1c8h9w7k16r3s3p1-f32")
GPU = for_architecture("sm_90")


class Child:
    """Stands for a Worker: notes what it is told, and whether it is alone."""

    told: list[Any] = []
    ready = True
    alone = threading.Lock()

    def __init__(self, job: Job, children: WorkerPool) -> None:
        self.told.append((job.problem, job.backend, job.index))
        assert children is verifying._resting

    def __enter__(self) -> Child:
        assert self.alone.acquire(blocking=False), "another one measures"
        return self

    def __exit__(self, *error: object) -> None:
        self.told.append("ended")
        self.alone.release()

    @property
    def device(self) -> None:
        time.sleep(0.01)
        self.told.append("started")

    def prepare(self) -> None:
        self.told.append("prepared")
        if not self.ready:
            raise RunError("no memory for the references")

    def run(self, config: Config, full: bool = False) -> Record:
        time.sleep(0.01)
        self.told.append((config, full))
        return record(4)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a worker is told, which starts none."""
    monkeypatch.setattr(Child, "told", [])
    monkeypatch.setattr(verifying, "Worker", Child)
    return Child.told


def test_they_are_verified_in_full(told: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """After the references are there; where these cannot be made, nothing is said of the config."""
    there: Any = SimpleNamespace(device=replace(DEVICE, backend="opencl", index=1))
    assert choices.verified(LAYER, there, tile(4)) == record(4)
    assert told == [(str(LAYER), "opencl", 1), "prepared", (tile(4), True), "ended"]
    monkeypatch.setattr(Child, "ready", False)
    with pytest.warns(RuntimeWarning, match="not used: no memory for the references"):
        assert choices.verified(LAYER, there, tile(4)) is None
    assert told[-1] == "ended"


class Compiler:
    """Stands for a GPU's runtime: notes what is compiled, and lets a few wait for each other."""

    def __init__(self, parties: int = 1, fails: bool = False) -> None:
        self.device, self.compiled, self.fails = GPU, list[Blueprint](), fails
        self._together = threading.Barrier(parties)

    def compile(self, blueprint: Blueprint, spills: bool = False) -> None:
        assert spills, "that it spills is for the worker to say"
        self._together.wait(10)
        time.sleep(0.05)  # longer than a worker takes to start
        self.compiled.append(blueprint)
        if self.fails:
            raise CompileError("refused")


def programs_of(config: Config) -> list[Blueprint]:
    return verifying.programs(DIRECT, GPU, config)


@pytest.mark.parametrize("fails", [False, True])
def test_all_that_a_check_needs_is_compiled_at_once_while_the_worker_starts(
    told: list[Any], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it compiles is for the worker to say."""
    config = rank(DIRECT, GPU, family_of("direct"), 1)[0][0]
    wanted = programs_of(config)
    assert {one.source for one in wanted} == {"reference.cu", "direct.cu", "pack.cu", "check.cu", "same.cu"}
    monkeypatch.setattr(verifying, "cores", lambda: 8)
    monkeypatch.setattr(verifying, "_compilers", threading.BoundedSemaphore(8))
    runtime: Any = Compiler(len(wanted), fails)
    assert choices.verified(DIRECT, runtime, config) == record(4)
    assert sorted(runtime.compiled, key=repr) == sorted(wanted, key=repr)
    job = (str(DIRECT), "cuda", 0)
    assert told == [job, "started", "ended", job, "prepared", (config, True), "ended"]


def test_at_the_end_the_worker_compiles(told: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads would be blocked, and waited for in vain."""
    config = rank(DIRECT, GPU, family_of("direct"), 1)[0][0]
    runtime: Any = Compiler()
    monkeypatch.setattr(ending, "_ends", threading.get_ident())
    monkeypatch.setattr(verifying, "_compile", None)
    assert choices.verified(DIRECT, runtime, config) == record(4)
    assert told == [(str(DIRECT), "cuda", 0), "prepared", (config, True), "ended"]


def test_all_threads_together_have_a_compiler_for_each_core(
    told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = list[Blueprint](), list[int]()

    class Counts(Compiler):
        def compile(self, blueprint: Blueprint, spills: bool = False) -> None:
            running.append(blueprint)
            most.append(len(running))
            time.sleep(0.02)
            running.remove(blueprint)

    config = rank(DIRECT, GPU, family_of("direct"), 1)[0][0]
    runtime: Any = Counts()
    monkeypatch.setattr(verifying, "cores", lambda: 3)
    monkeypatch.setattr(verifying, "_compilers", threading.BoundedSemaphore(3))
    threads = [threading.Thread(target=choices.verified, args=(DIRECT, runtime, config)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 3


def test_of_a_config_that_breaks_a_rule_only_the_references_are_compiled() -> None:
    config = rank(DIRECT, GPU, family_of("direct"), 1)[0][0]
    broken = Config.make("direct", {**config.values, "th": 1 << 20})
    assert {one.source for one in programs_of(broken)} == {"reference.cu", "check.cu", "same.cu"}


@pytest.mark.parametrize("backend", ["cuda", "opencl"])
def test_several_threads_check_one_after_the_other(
    told: list[Any], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: Any = SimpleNamespace(device=replace(DEVICE, backend=backend))
    monkeypatch.setattr(verifying, "programs", lambda *given: [])
    found: list[Record | None] = []

    def verify() -> None:
        found.append(choices.verified(LAYER, there, tile(4)))

    threads = [threading.Thread(target=verify) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [record(4)] * 6


CODE = """
import os, sys
from tilewright.dispatch import verifying
from tilewright.tuning.protocol import Job
from tilewright.tuning.worker import Worker

verifying._resting._rest_s = 600.0  # which no end waits for
with Worker(Job("n1c1h2w2k1r1s1-f32", "numpy"), children=verifying._resting) as worker:
    worker.prepare()
    pid = worker._channel._child.pid
if hasattr(os, "fork") and not (child := os.fork()):
    sys.exit()  # as the end of this process, which has other children
os.waitpid(child, 0)
os.kill(pid, 0)
print(pid)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_worker_rests_and_ends_with_its_parent_but_not_with_a_forked_one() -> None:
    command = [sys.executable, "-W", "ignore", "-c", CODE]  # of a fork of several threads
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
