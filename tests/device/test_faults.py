"""Every guard catches its planted fault, through the worker that real candidates go through."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.device import Device
from tilewright.kernels.family import Config
from tilewright.measuring.rounds import Limits
from tilewright.runtime import list_devices
from tilewright.tuning.finals import compare
from tilewright.tuning.protocol import Job
from tilewright.tuning.worker import Worker

FOLDER = Path(__file__).parent / "faults"
sys.path.insert(0, str(FOLDER))
from planted import faulty  # noqa: E402

PROBLEM = "n1c3h5w6k4r3s3p1-f32+bias+relu"
BACKENDS = sorted({d.backend for d in list_devices() if isinstance(d, Device)} - {"numpy"})


@pytest.fixture(scope="module", params=BACKENDS)
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    child = [sys.executable, str(FOLDER / "planted.py")]
    with Worker(Job(PROBLEM, request.param), {"run": 3.0, "time": 10.0}, child) as made:
        made.prepare()
        yield made


def test_the_right_one_passes_everything(worker: Worker) -> None:
    record = worker.run(faulty("none"), full=True)
    assert record.outcome == "correct", record.reason
    assert record.check and record.check.exact and record.check.repeatable
    assert 0 < record.check.worst <= 1
    assert record.measurement and record.measurement.runs >= 1 and 0 < record.cold_us < math.inf
    assert record.deterministic
    assert record.workspace_bytes == 4 * 33 + 64
    assert record.versions.compiler


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("past_end", "wrote 4 bytes past the end of y"),
        ("before_start", "wrote 4 bytes before the start of y"),
        ("past_workspace", "wrote 4 bytes past the end of a workspace buffer"),
        ("unwritten", "1 element not written"),
        ("corner", "1 element unlike the exact answer"),
        ("inexact", "elements unlike the exact answer"),
        ("unsteady", "two runs differ in 1 word"),
        ("stale_workspace", "1 element not written, or NaN"),
    ],
)
def test_wrong_answers(worker: Worker, fault: str, reason: str) -> None:
    restarts = worker.restarts
    record = worker.run(faulty(fault))
    assert record.outcome == "correctness"
    assert reason in record.reason
    assert record.measurement is None
    assert record.check and not record.check.ok
    assert worker.run(faulty("none")).outcome == "correct"
    # Who writes outside may have hit anything: nothing on the device is to be trusted.
    assert worker.restarts == restarts + ("wrote" in reason)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("spreads_nan", "NaN and infinity in x, bias"),
        ("hides_nan", "NaN and infinity in x, bias"),
        ("hides_bias", "NaN and infinity in x, bias"),
    ],
)
def test_a_full_check_finds_more(worker: Worker, fault: str, reason: str) -> None:
    record = worker.run(faulty(fault), full=True)
    assert record.outcome == "correctness"
    assert reason in record.reason


def test_a_changed_input_is_found(worker: Worker) -> None:
    record = worker.run(faulty("changes_x"), full=True)
    assert record.outcome == "correctness"
    assert "changed x" in record.reason
    assert worker.run(faulty("none")).outcome == "correct"


def test_admitted_nondeterminism_is_recorded(worker: Worker) -> None:
    record = worker.run(faulty("admitted_unsteady"))
    assert record.outcome in ("correct", "correctness")
    assert record.check and not record.check.repeatable
    assert "two runs" not in record.reason
    assert not record.deterministic


def test_a_hang_is_killed(worker: Worker) -> None:
    worker.prepare()
    start = time.monotonic()
    record = worker.run(faulty("hang"))
    assert record.outcome == "timeout"
    assert "stage 'run'" in record.reason
    assert time.monotonic() - start < 60  # 3 of them; the rest is a slow machine's to compile
    assert worker.run(faulty("none")).outcome == "correct"


def test_a_crash_is_data(worker: Worker) -> None:
    restarts = worker.restarts
    record = worker.run(faulty("crash"))
    assert record.outcome == "runtime"
    assert "SIG" in record.reason or "CUDA" in record.reason
    assert worker.run(faulty("none")).outcome == "correct"
    assert worker.restarts == restarts + 1


def test_compile_error_and_broken_rule(worker: Worker) -> None:
    assert worker.run(faulty("no_compile")).outcome == "compile"
    broken = worker.run(faulty("illegal"))
    assert broken.outcome == "constraints"
    assert "no_illegal" in broken.reason
    assert worker.compile(faulty("no_compile")).outcome == "compile"
    assert worker.compile(faulty("illegal")).outcome == "constraints"
    assert worker.compile(faulty("none")).outcome is None


@pytest.mark.skipif("opencl" not in BACKENDS, reason="no OpenCL device")
def test_what_has_no_room_says_nothing_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.errors import OutOfMemory
    from tilewright.tuning import trial

    def full(*_: object) -> None:
        raise OutOfMemory("no room")

    trials = trial.Trials(Job(PROBLEM, "opencl"), lambda stage: None)
    config = Config.parse("reference:v=1")
    with monkeypatch.context() as patched:
        patched.setattr(trial, "Verifier", full)
        record, spoilt = trials.run(config, 1.0, full=False)
        assert (record.outcome, record.reason, spoilt) == ("runtime", "no room", False)
        patched.setattr(trial, "_rehearse", full)
        assert trials.compile(config).outcome == "runtime"
    assert trials.run(config, 1.0, full=False)[0].outcome == "correct"


def test_a_slow_one_is_given_up(worker: Worker) -> None:
    record = worker.run(faulty("slow"), best_us=10.0)
    assert record.outcome == "timeout"
    assert "too long" in record.reason


def test_final_verifies_the_fastest_in_full(worker: Worker) -> None:
    rows = worker.final([faulty("none"), faulty("spreads_nan")], Limits(max_rounds=6, warm_runs=3))
    by_config = {row.config: row for row in rows}
    right = by_config[str(faulty("none"))]
    assert right.measurement.warm_us
    assert right.check and right.check.ok
    other = by_config[str(faulty("spreads_nan"))]
    assert other.check is None or not other.check.ok


def test_a_finalist_that_spoils_the_inputs_is_alone_to_blame(worker: Worker) -> None:
    right = worker.run(faulty("none"))
    spoiler = replace(right, config=str(faulty("changes_x")))
    found = {r.config: r for r in compare(worker, [right, spoiler], 1.0)}
    assert found[right.config].won
    assert "changed x" in found[spoiler.config].reason
