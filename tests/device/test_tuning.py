"""Tuning for real: a small layer on every backend with kernels that is here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.device import Device, for_architecture
from tilewright.errors import DeviceError
from tilewright.kernels.family import Config
from tilewright.problem import Problem
from tilewright.runtime import list_devices, open_runtime
from tilewright.store import Store
from tilewright.tuning.budget import Budget
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.protocol import Job
from tilewright.tuning.tuner import tune
from tilewright.tuning.worker import Worker

PROBLEM = Problem.parse("n1c8h10w10k16r3s3p1-f32+bias+relu")
BACKENDS = sorted({d.backend for d in list_devices() if isinstance(d, Device)} - {"numpy"})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    folder = tmp_path / "store"
    yield Store(folder / "records.sqlite", shipped=False)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_layer_is_tuned_and_resumed(backend: str, store: Store) -> None:
    first = tune(PROBLEM, backend, TuneOptions(Budget(trials=4), "random", seed=1), store=store)
    assert len(first.records) == 4
    assert not {r.outcome for r in first.records} & {"correctness", "runtime"}  # a slow machine may time out
    best = first.best
    assert best and best.check and best.check.ok and best.measurement
    assert best.measurement.warm_us
    assert first.finalists[0] == best
    assert store.best(PROBLEM, best.device) == best

    wanted = TuneOptions(Budget(trials=2), "random", seed=1)
    second = tune(PROBLEM, open_runtime(backend), wanted, store=store)
    assert second.resumed == 4
    assert not {r.config for r in first.records} & {r.config for r in second.records}


@pytest.mark.parametrize("backend", BACKENDS)
def test_seconds_are_kept(backend: str) -> None:
    start = time.monotonic()
    assert tune(PROBLEM, backend, TuneOptions(Budget(trials=1), "random")).best
    least = time.monotonic() - start  # processes, references, a compilation: what no budget can save
    start = time.monotonic()
    result = tune(PROBLEM, backend, TuneOptions(Budget(seconds=6), "random"))
    took = time.monotonic() - start
    assert result.best and result.stopped == "the time was used up"
    assert took < 6 + 2 * least  # as wide as the machine is busy


_SCRIPT = """
from tilewright.problem import Problem
from tilewright.store import Store
from tilewright.tuning.budget import Budget
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.tuner import tune
tune(Problem.parse("{problem}"), "{backend}", TuneOptions(Budget(seconds=60), "random"),
     store=Store(r"{path}", shipped=False), progress=lambda event: print(type(event).__name__, flush=True))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_loses_nothing_and_leaves_no_process(backend: str, store: Store) -> None:
    script = _SCRIPT.format(problem=PROBLEM, backend=backend, path=store.path)
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert child.stdout is not None
    tried = 0
    for line in child.stdout:
        tried += line.strip() == "Tried"
        if tried == 2:
            os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all of them
            break
    _, errors = child.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert len(store.records(PROBLEM)) >= 2
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.killpg(child.pid, 0)
            time.sleep(0.05)


LATE = """
import sys, threading
def late():
    threading.main_thread().join()
    import tilewright
    print(tilewright.tune(sys.argv[1], sys.argv[2], "2trials").stopped)
threading.Thread(target=late).start()
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_thread_may_tune_when_the_main_one_has_ended(backend: str, own_cache: None) -> None:
    """Python's own pools of threads take no work then."""
    command = [sys.executable, "-c", LATE, str(PROBLEM), "cpu" if backend == "opencl" else backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (done.stdout, done.returncode) == ("all trials done\n", 0), done.stderr


def test_compiling_for_a_gpu_needs_none() -> None:
    try:
        from tilewright.runtime.nvrtc import compiler

        compiler()
    except DeviceError as error:
        pytest.skip(str(error))
    job = Job(str(PROBLEM), "cuda", facts=for_architecture("sm_90").facts)
    with Worker(job) as worker:
        assert worker.device == for_architecture("sm_90")
        good = worker.compile(Config.parse("reference:v=1"))
        assert (good.outcome, good.reason) == (None, "")
        assert worker.compile(Config.parse("reference:v=2")).outcome == "constraints"
