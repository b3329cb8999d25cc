"""The worker's side of the pipe, against children that misbehave."""

from __future__ import annotations

import json
import math
import os
import queue
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

import tilewright
from tilewright.checking.stage import Stage
from tilewright.device import for_architecture
from tilewright.errors import DeviceError, RunError
from tilewright.kernels.family import Config
from tilewright.measuring.rounds import Limits
from tilewright.problem import Problem
from tilewright.runtime import cache_folder
from tilewright.tuning import channel as channel_module
from tilewright.tuning.channel import Channel, ChildError, ChildLost, Crashed, Hung, python_child, signal_name
from tilewright.tuning.child import RequestHandler
from tilewright.tuning.protocol import (
    Compare,
    Compile,
    Job,
    Prepare,
    Rank,
    Rest,
    Try,
    WorkerRequest,
    decode,
    encode,
)
from tilewright.tuning.worker import ALLOWANCES_S, Worker, _advice, _allowances_s
from tilewright.tuning.worker_pool import WorkerPool

CONFIG = Config.parse("reference:v=1")
PROBLEM = "n1c1h2w2k1r1s1-f32"

REQUESTS = (
    Job(PROBLEM, "cuda", 1, 2, {"backend": "cuda"}), Rest(), Prepare(), Compile(str(CONFIG)),
    Rank(["direct"], True), Try(str(CONFIG), math.inf, True),
    Compare([str(CONFIG)] * 2, asdict(Limits(max_rounds=3))),
)  # fmt: skip


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_request_is_read_as_it_was_meant(request_: WorkerRequest) -> None:
    assert decode(json.loads(json.dumps(encode(request_)))) == request_


def test_every_stage_has_a_deadline() -> None:
    assert ALLOWANCES_S.keys() == set(Stage)


# A child that answers by the book, except where the config's number tells it to misbehave.
CHILD = """
import json, os, signal, sys, time
facts = json.loads(sys.argv[1])
record = dict(problem="p", device="d", family="f", config="c", outcome="correct", deterministic=True,
              check=None, measurement=dict(cold_us=5.0, ci95_us=0.1, runs=6, warm_us=None), reason="",
              registers=0, workspace_bytes=0, compile_s=0.0, context={})
def say(**line):
    print(json.dumps(line), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "Job":
        say(stage="open")
        if request["index"] == 9:
            say(error="DeviceError", text="there is no such device")
        else:
            say(result=dict(device=facts, versions={"compiler": "none", "pid": str(os.getpid())}))
        continue
    if request["do"] == "Rest":
        say(result=None)
        continue
    if request["do"] in ("Compare", "Prepare"):
        if request.get("configs") == ["f:kind=0"]: os._exit(3)
        say(error="RunError", text="CUDA: CUDA_ERROR_ILLEGAL_ADDRESS")
        continue
    kind = int(request["config"].partition("=")[2])
    say(stage="run")
    if kind == 1: time.sleep(60)
    if kind == 2: os.kill(os.getpid(), signal.SIGSEGV)
    if kind == 3: sys.stderr.write("some library: all is lost\\n"); sys.stderr.flush(); os._exit(7)
    if kind == 7:
        say(stage="compile")
        sys.stderr.write("not in stage 'run'\\n"); sys.stderr.flush(); os._exit(7)
    if kind == 4: say(error="ValueError", text="a bug")
    elif request["do"] == "Compile": say(result=dict(outcome=None, reason="", compile_s=0.5))
    else: say(result=dict(record=record, spoilt=kind == 5))
"""


def config(kind: int) -> Config:
    return Config.make("f", {"kind": kind})


@pytest.fixture
def worker() -> Worker:
    facts = json.dumps(asdict(for_architecture("sm_90")))
    return Worker(Job(PROBLEM, "cuda"), {"run": 0.5}, [sys.executable, "-c", CHILD, facts])


def test_the_good_case(worker: Worker) -> None:
    with worker:
        record = worker.run(config(0))
        assert record.outcome == "correct"
        assert record.measurement and record.measurement.cold_us == 5.0
        assert worker.device == for_architecture("sm_90")
        assert worker.compile(config(0)).compile_s == 0.5


def test_one_process_serves_many(worker: Worker) -> None:
    with worker:
        pids = {worker.versions.others["pid"] for _ in range(3) if worker.run(config(0))}
        assert len(pids) == 1
        assert worker.restarts == 0


@pytest.mark.parametrize(
    ("kind", "outcome", "reason"),
    [
        (1, "timeout", "no answer in 0.5 s in stage 'run'"),
        (2, "runtime", "SIGSEGV"),
        (3, "runtime", "exit status 7 in stage 'run': some library: all is lost"),
        (4, "runtime", "a bug"),
    ],
)
def test_misbehaviour_is_data(worker: Worker, kind: int, outcome: str, reason: str) -> None:
    with worker:
        record = worker.run(config(kind))
        assert (record.outcome, record.problem, record.config) == (outcome, PROBLEM, str(config(kind)))
        assert record.device == for_architecture("sm_90").key
        assert reason in record.reason
        assert "\n" not in record.reason
        assert worker.run(config(0)).outcome == "correct"


def test_a_spoilt_device_gets_a_new_process(worker: Worker) -> None:
    with worker:
        assert worker.run(config(5)).outcome == "correct"
        worker.run(config(0))
        assert worker.restarts == 1


def test_compilers_that_misbehave(worker: Worker) -> None:
    with worker:
        for kind in (1, 2, 4):  # in the rehearsal: the trial will tell
            assert worker.compile(config(kind)).outcome is None
        crashed = worker.compile(config(7))
        assert (crashed.outcome, crashed.reason[-18:]) == ("compile", "not in stage 'run'")


def test_final_that_dies(worker: Worker) -> None:
    with (
        worker,
        pytest.raises(RunError, match="comparison failed: .* ended with exit status 3"),
    ):
        worker.final([config(0)], Limits())


def test_a_device_error_is_not_left_to_the_next(worker: Worker) -> None:
    with worker:
        for ask in (lambda: worker.final([config(0), config(6)], Limits()), worker.prepare):
            restarts = worker.restarts
            with pytest.raises(RunError, match="ILLEGAL_ADDRESS"):
                ask()
            assert worker.run(config(0)).outcome == "correct"
            assert worker.restarts == restarts + 1


def test_a_reference_that_fails_says_why(worker: Worker) -> None:
    with worker, pytest.raises(RunError, match=f"reference of {PROBLEM}: CUDA: CUDA_ERROR_ILLEGAL_ADDRESS$"):
        worker.prepare()


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (Hung("no answer in 120 s", "reference"), "; a smaller layer may do, e.g. by --batch"),
        (ChildError("OutOfMemory", "no room for y"), "; a smaller layer may do, e.g. by --batch"),
        (Crashed("the process ended with SIGKILL", "reference"), "; a smaller layer may do, e.g. by --batch"),
        (Crashed("the process ended with SIGABRT", "reference"), "`tilewright cache clear`"),
        (ChildError("CompileError", "no space left"), ""),
    ],
)
def test_what_may_help_against_a_reference_that_fails(error: ChildLost | ChildError, advice: str) -> None:
    said = _advice(error)
    assert said.endswith(advice)
    assert bool(said) == bool(advice)


def test_a_large_reference_may_take_longer() -> None:
    small, large = (_allowances_s(Problem.parse(f"n{n}c1h86w86k4r7s7-f32")) for n in (1, 10_000))
    assert small == ALLOWANCES_S
    assert large == {**ALLOWANCES_S, "reference": pytest.approx(502, abs=1)}


def test_large_inputs_may_be_looked_through_for_longer() -> None:
    """At the slowest that the host is believed to be, and whatever a run may take."""
    small, large = (_allowances_s(Problem.parse(f"n{n}c64h256w256k4r1s1-f32")) for n in (1, 512))
    assert small["inputs"] == ALLOWANCES_S["inputs"]
    assert large["inputs"] > (512 * 64 * 256 * 256 * 4) / 1e8 and large["run"] == small["run"]


def test_an_error_at_the_start_keeps_its_class(worker: Worker) -> None:
    worker.job = Job(PROBLEM, "cuda", 9)
    with worker, pytest.raises(DeviceError, match="no such device"):
        worker.run(config(0))


def test_a_child_that_cannot_start() -> None:
    with (
        Worker(Job(PROBLEM), command=[sys.executable, "-c", "raise SystemExit(4)"]) as worker,
        pytest.raises(RunError, match="cannot start: .*exit status 4"),
    ):
        worker.run(CONFIG)


def test_a_child_that_the_system_does_not_start() -> None:
    with (
        Worker(Job(PROBLEM), command=["/no/such/program"]) as worker,
        pytest.raises(RunError, match="cannot start: .*No such file"),
    ):
        worker.run(CONFIG)


@pytest.mark.parametrize(("name", "value"), [("executable", ""), ("frozen", True)])
def test_a_program_that_embeds_python_is_not_started_again(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, name, value, raising=False)
    with Worker(Job(PROBLEM)) as worker, pytest.raises(RunError, match="embeds Python"):
        worker.run(CONFIG)


@pytest.mark.parametrize("kills", [1, 2])
def test_a_child_that_is_killed_while_it_starts_is_replaced_once(
    kills: int, worker: Worker, tmp_path: Path
) -> None:
    """As a system without memory does."""
    starts, (python, flag, child, facts) = tmp_path / "starts", worker._command or ()
    dies = (
        f"import os, signal\nwith open({str(starts)!r}, 'a') as file: file.write('x')\n"
        f"if os.path.getsize({str(starts)!r}) <= {kills}: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with Worker(worker.job, command=[python, flag, dies + child, facts]) as fragile:
        if kills == 1:
            assert fragile.run(config(0)).outcome == "correct"
        else:
            with pytest.raises(RunError, match="cannot start: .*SIGKILL"):
                fragile.run(config(0))
    assert starts.read_text() == "xx"


def test_a_child_that_is_closed_while_it_starts_is_not_replaced(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    waits = f"import time\nwith open({str(starts)!r}, 'a') as file: file.write('x')\ntime.sleep(60)"
    worker = Worker(Job(PROBLEM), command=[sys.executable, "-c", waits])

    def close() -> None:
        while not (starts.exists() and starts.read_text()):
            time.sleep(0.01)
        worker.close()

    threading.Thread(target=close).start()
    with pytest.raises(RunError, match="cannot start: .*SIGKILL"):
        worker.run(CONFIG)
    assert starts.read_text() == "x"


def test_channel_kills_what_hangs() -> None:
    channel = Channel([sys.executable, "-c", "import time; time.sleep(60)"])
    start = time.monotonic()
    with pytest.raises(Hung, match="'start'"):
        channel.ask({}, {"start": 0.3})
    assert time.monotonic() - start < 5
    assert not channel.alive


def test_channel_names_signals() -> None:
    assert signal_name(-signal.SIGKILL) == "SIGKILL"
    assert signal_name(-200) == "signal 200"


def test_killing_from_another_thread_ends_a_question() -> None:
    import threading

    channel = Channel([sys.executable, "-c", "import time; time.sleep(60)"])
    threading.Timer(0.3, channel.kill).start()
    with pytest.raises(Crashed, match="SIGKILL"):
        channel.ask({}, {"start": 30.0})


def test_several_threads_may_kill_at_once() -> None:
    class Closing:
        """Stands for a pipe, whose close takes a while and cannot be entered twice, as a file's."""

        busy, closed = False, 0

        def close(self) -> None:
            if self.busy:
                raise ValueError("I/O operation on closed file")
            self.busy = True
            time.sleep(0.05)
            self.busy, self.closed = False, self.closed + 1

    channel = Channel([sys.executable, "-c", "import time; time.sleep(60)"])
    assert channel._child.stdin
    channel._child.stdin.close()
    channel._child.stdin = pipe = Closing()  # type: ignore[assignment]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: channel.kill(), range(4))) == [None] * 4
    assert pipe.closed == 4
    channel.kill()
    assert not channel.alive


def test_nobody_waits_for_a_child_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits for a driver does not, whatever it is sent."""
    monkeypatch.setattr(channel_module, "_END_S", 0.1)
    silent = "import os, time; os.write(2, b'stuck'); os.close(1); time.sleep(60)"
    channel = Channel([sys.executable, "-c", silent])
    kill = channel._child.kill
    monkeypatch.setattr(channel._child, "kill", lambda: None)
    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(Crashed, match="does not end, in stage 'start': stuck$"):
            thread.submit(channel.ask, {}, {"start": 30.0}).result(timeout=10)
        thread.submit(channel.kill).result(timeout=10)
    kill()
    channel._child.wait()


def test_a_child_that_can_answer_no_more_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has closed its pipe, but lives on."""
    monkeypatch.setattr(channel_module, "_END_S", 0.5)
    channel = Channel([sys.executable, "-c", "import os, time; os.close(1); time.sleep(60)"])
    with pytest.raises(Crashed, match="SIGKILL in stage 'start'"):
        channel.ask({}, {"start": 30.0})
    assert not channel.alive and channel._stderr.closed


def test_a_child_that_ends_by_itself_has_its_status_and_last_words_told() -> None:
    says = "import sys; sys.stderr.write('x' * 9000 + '\\nout of luck\\n \\n')"
    channel = Channel([sys.executable, "-c", says])
    with pytest.raises(Crashed, match=r"^.* ended with exit status 0 in stage 'start': out of luck$"):
        channel.ask({}, {"start": 30.0})


def test_a_question_to_a_killed_child_finds_it_crashed() -> None:
    channel = Channel([sys.executable, "-c", "import time; time.sleep(60)"])
    channel.kill()
    with pytest.raises(Crashed, match="SIGKILL in stage 'start'"):
        channel.ask({}, {"start": 30.0})


@pytest.mark.parametrize("said", ['{"result": {"rec', "[1]", "\\xff"])
def test_half_an_answer_is_a_crash(said: str) -> None:
    dies = f"import os; os.write(1, b'{said}'); os._exit(7)"
    channel = Channel([sys.executable, "-c", dies])
    with pytest.raises(Crashed, match="exit status 7 in stage 'start'; its last answer is cut off: b'"):
        channel.ask({}, {"start": 30.0})
    assert not channel.alive


def test_the_real_child_answers_in_spite_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is on the path of its parent, as ``python -m`` has it."""
    for name in ("numpy.py", "only_there.py"):
        (tmp_path / name).write_text("raise RuntimeError('a trap')")
    monkeypatch.chdir(tmp_path)
    for name in ("", ".", str(tmp_path), f"{tmp_path}/../{tmp_path.name}"):
        monkeypatch.syspath_prepend(name)
    with Worker(Job(PROBLEM, "numpy")) as worker:
        assert worker.device.backend == "numpy"
        assert worker.versions.compiler.startswith("numpy")
    assert "No module named 'only_there'" in imports("only_there")


def imports(name: str) -> str:
    """Return the file of a module that a child has imported in place of its own work; or why it cannot."""
    command, environment = python_child()
    code = command[-1].rpartition("run_module(")[0] + f"import {name}; print({name}.__file__, end='')"
    done = subprocess.run([*command[:-1], code], env=environment, capture_output=True, text=True)
    return done.stdout or done.stderr


def test_a_child_finds_the_libraries_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind those that it has anyway; and from a folder that is gone, too."""
    for name, text in (("only_there", ""), ("selectors", "raise SystemExit('a trap')")):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert imports("only_there") == str(tmp_path / "only_there.py")
    assert imports("selectors") == selectors.__file__
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert imports("only_there") == str(tmp_path / "only_there.py")


def test_a_child_has_the_cache_folder_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it starts in another folder."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", given := f"relative-{tmp_path.name}")
    monkeypatch.chdir(tmp_path)
    mine = cache_folder.folder()
    (tmp_path / "another").mkdir()
    monkeypatch.chdir(tmp_path / "another")
    assert python_child()[1]["TILEWRIGHT_CACHE"] == str(mine) == str(tmp_path / given)
    monkeypatch.setenv("TILEWRIGHT_CACHE", "~nobody at all/x")
    assert python_child()[1]["TILEWRIGHT_CACHE"] == "~nobody at all/x", "it says what is wrong"
    monkeypatch.delenv("TILEWRIGHT_CACHE")
    assert "TILEWRIGHT_CACHE" not in python_child()[1]


ODD_CHILD = """
from tilewright.tuning import child
class Odd(child.RequestHandler):
    def handle(self, request):
        assert not isinstance(request, child.Rest)
        print('{"result": "of a library"}', flush=True)
        return 7
child.RequestHandler = Odd
child.main()
"""


def test_nothing_but_answers_reaches_the_parent() -> None:
    """Not what a library prints, and no end by Ctrl-C, which a terminal sends to children too."""
    root = str(Path(tilewright.__file__).parents[1])
    channel = Channel([sys.executable, "-c", ODD_CHILD], {**os.environ, "PYTHONPATH": root})
    try:
        for _ in range(2):
            assert channel.ask({"do": "Prepare"}, {"start": 30.0}) == 7
            os.kill(channel._child.pid, signal.SIGINT)
        with pytest.raises(ChildError, match=r"^AssertionError\(\)$") as error:
            channel.ask({"do": "Rest"}, {"start": 30.0})
        assert error.value.name == "AssertionError" and channel.idle
    finally:
        channel.kill()


def test_a_child_that_rests_holds_no_arrays() -> None:
    handler = RequestHandler(lambda stage: None)
    handler._trials = object()
    assert handler.handle(decode({"do": "Rest"})) is None and handler._trials is None


def test_what_lies_beside_the_package_does_not_stand_in_for_the_standard_library(tmp_path: Path) -> None:
    """As in a folder of all installed packages, some of which have names of old."""
    shutil.copytree(Path(tilewright.__file__).parent, tmp_path / "tilewright")
    (tmp_path / "selectors.py").write_text("raise SystemExit('no module of the standard library')")
    program = (
        f"import selectors, sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from tilewright.tuning.worker import Worker, Job\n"
        f"with Worker(Job({PROBLEM!r}, 'numpy')) as worker: worker.device\n"
        "import tilewright; print(tilewright.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))


def test_a_child_runs_the_package_of_its_parent(tmp_path: Path) -> None:
    """And no other of its name, which comes first on its path."""
    (tmp_path / "tilewright").mkdir()
    (tmp_path / "tilewright" / "__init__.py").write_text("raise SystemExit('another')")
    command, environment = python_child()
    with Worker(Job(PROBLEM, "numpy"), command=["env", f"PYTHONPATH={tmp_path}", *command]) as worker:
        assert worker.device.backend == "numpy"
    assert environment["PYTHONSAFEPATH"] == "1"


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="the system has no priorities")
def test_a_child_that_only_compiles_makes_way_for_one_that_measures() -> None:
    facts = asdict(for_architecture("sm_90"))
    here = os.getpriority(os.PRIO_PROCESS, 0)
    for job, wanted in ((Job(PROBLEM, "numpy"), here), (Job(PROBLEM, "cuda", facts=facts), max(here, 10))):
        with Worker(job) as worker:
            assert worker.device.backend == job.backend and worker._channel
            assert os.getpriority(os.PRIO_PROCESS, worker._channel._child.pid) == wanted


def test_the_real_child_ends_with_its_parent() -> None:
    program = (
        "from tilewright.tuning.worker import Worker, Job\n"
        f"worker = Worker(Job({PROBLEM!r}, 'numpy')); worker.device\n"
        "print(worker._channel._child.pid, flush=True)\n"
        "import os; os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").exists() and " Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.05)
    pytest.fail("the child outlived its parent")


def test_a_child_rests_and_takes_the_next_job(tmp_path: Path) -> None:
    other, command = "n1c2h4w4k3r1s1-f32", [sys.executable, "-c", "raise SystemExit(4)"]
    with WorkerPool() as children:
        pids = []
        for problem in (PROBLEM, other):
            with Worker(Job(problem, "numpy"), children=children) as worker:
                worker.prepare()
                assert worker.run(CONFIG).problem == problem
                pids.append(_pid(worker))
        with (
            Worker(Job(other, "numpy"), command=command, children=children) as worker,
            pytest.raises(RunError, match="exit status 4"),  # no child of another kind
        ):
            worker.prepare()
        with Worker(Job(other, "numpy"), children=children) as worker:
            pids.append(_pid(worker))
    assert len(set(pids)) == 1
    assert not Path(f"/proc/{pids[0]}").exists()


def test_only_a_child_that_is_well_rests(worker: Worker) -> None:
    pids = []
    with WorkerPool() as children:
        for kind in (0, 2, 1, 5, 0):  # answers, crashes, hangs, spoils the device, answers
            command = worker._command
            with Worker(worker.job, {"run": 0.5}, command, children) as one:
                pids.append(one.versions.others["pid"])
                one.run(config(kind))
    assert pids[0] == pids[1]
    assert len(set(pids[1:])) == 4
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_child_whose_question_was_interrupted_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer would be taken for that of the next job."""

    class Interrupted(queue.SimpleQueue[bytes | None]):
        def get(self, block: bool = True, timeout: float | None = None) -> bytes | None:
            raise KeyboardInterrupt

    channel = Channel([sys.executable, "-c", "import time; time.sleep(60)"])
    assert channel.idle
    monkeypatch.setattr(channel, "_lines", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        channel.ask({}, {"start": 30.0})
    assert channel.alive and not channel.idle
    channel.kill()


def test_a_worker_whose_question_was_interrupted_ends_its_child(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WorkerPool() as children:
        with Worker(worker.job, command=worker._command, children=children) as one:
            assert one.run(config(0)).outcome == "correct" and one._channel
            channel = one._channel
            monkeypatch.setattr(channel, "_asked", True)
        assert not channel.alive and children.take(one._pool_key) is None


def test_a_child_that_is_interrupted_as_it_goes_to_rest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*given: object) -> None:
        raise KeyboardInterrupt

    with WorkerPool() as children:
        with pytest.raises(KeyboardInterrupt), Worker(Job(PROBLEM, "numpy"), children=children) as worker:
            pid = _pid(worker)
            monkeypatch.setattr(Channel, "ask", ask)
        assert not Path(f"/proc/{pid}").exists()


def test_a_child_that_died_at_rest_leaves_no_open_files() -> None:
    with WorkerPool() as children:
        channel = Channel([sys.executable, "-c", ""])
        children.keep("key", channel)
        channel._child.wait(30)
        assert children.take("key") is None
        assert channel._child.stdin and channel._child.stdin.closed and channel._stderr.closed


def test_a_dead_child_is_not_idle() -> None:
    channel = Channel([sys.executable, "-c", ""])
    channel.kill()
    assert not channel.idle


def test_what_comes_to_rest_too_late_ends() -> None:
    children = WorkerPool()
    children.close()
    with Worker(Job(PROBLEM, "numpy"), children=children) as worker:
        pid = _pid(worker)
    assert not Path(f"/proc/{pid}").exists()


def test_a_child_that_ends_over_its_choices_is_an_error(worker: Worker) -> None:
    with pytest.raises(RunError, match=f"cannot rank the configs of {PROBLEM}: .* exit status 1 .*KeyError"):
        worker.ranked(["direct"], False)


def test_a_child_rests_for_so_long() -> None:
    """One that is taken meanwhile works on, and rests as long again."""
    with WorkerPool(rest_s=0.5) as children:
        pid = _who_works(children)
        with Worker(Job(PROBLEM, "numpy"), children=children) as worker:
            assert _pid(worker) == pid
            time.sleep(0.6)
            worker.prepare()
        assert Path(f"/proc/{pid}").exists()
        ends = time.monotonic() + 30
        while Path(f"/proc/{pid}").exists() and time.monotonic() < ends:
            time.sleep(0.05)
        assert not Path(f"/proc/{pid}").exists()
        assert _who_works(children) != pid


def test_a_child_of_another_environment_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cache is another one."""
    with WorkerPool() as children:
        pid = _who_works(children)
        monkeypatch.setenv("TILEWRIGHT_CACHE", "/elsewhere")
        assert _who_works(children) != pid


def test_a_child_rests_with_the_environment_that_it_was_started_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever that is when it comes to rest."""
    with WorkerPool() as children:
        with Worker(Job(PROBLEM, "numpy"), children=children) as worker:
            pid = _pid(worker)
            with monkeypatch.context() as meanwhile:
                meanwhile.setenv("TILEWRIGHT_CACHE", "/elsewhere")
                worker.retire()
                with Worker(Job(PROBLEM, "numpy"), children=children) as other:
                    assert _pid(other) != pid
        assert _who_works(children) == pid


def _who_works(children: WorkerPool) -> int:
    """Return the process that does a job, and rests again."""
    with Worker(Job(PROBLEM, "numpy"), children=children) as worker:
        return _pid(worker)


def _pid(worker: Worker) -> int:
    """Return the process that has the job."""
    assert worker.device.backend == "numpy"
    assert worker._channel is not None
    return worker._channel._child.pid


def test_a_request_has_no_modules_imported() -> None:
    job = {**asdict(Job(PROBLEM, "numpy")), "families": "no_such_module"}
    with pytest.raises(TypeError, match="families"):
        RequestHandler(lambda stage: None).handle(decode({"do": "Job", **job}))


def test_refused_keeps_the_name() -> None:
    assert ChildError("CompileError", "x").name == "CompileError"
