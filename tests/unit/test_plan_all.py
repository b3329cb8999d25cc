"""``plan_all``: the plans of several layers, several at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from tilewright.device import for_architecture
from tilewright.dispatch import together
from tilewright.errors import CompileError, RunError
from tilewright.kernels import family_of
from tilewright.plans.request import Request
from tilewright.problem import Problem, shapes
from tilewright.search import ranking
from tilewright.search.guesses import guesses
from tilewright.tuning.worker import Worker

GPU = for_architecture("sm_90")
FIRST, SECOND = "n1c8h6w6k16r3s3p1-f32", "n1c16h6w6k8r1s1-f32"


def test_each_layer_has_its_plan_which_plan_finds() -> None:
    plans = tw.plan_all([FIRST, tw.Problem.parse(SECOND), FIRST], "numpy")
    assert [str(one.problem) for one in plans] == [FIRST, SECOND, FIRST]
    assert plans[0] is plans[2] is tw.plan(FIRST, "numpy")
    assert plans[1] is tw.plan(SECOND, "numpy")
    assert tw.plan_all((), "numpy") == []


def test_a_suite_stands_for_its_layers() -> None:
    wanted = [layer.problem for layer in shapes.load(["toy"])]
    assert [one.problem for one in tw.plan_all("toy", "numpy")] == wanted
    found = tw.plan_all(iter([FIRST, "toy"]), "numpy")
    assert [one.problem for one in found] == [Problem.parse(FIRST), *wanted]


@pytest.mark.parametrize("given", [7, None, [FIRST, 7], "n1c8", [FIRST, "n1c8"]])
def test_what_is_no_layer_is_refused(given: Any) -> None:
    with pytest.raises(tw.ProblemError):
        tw.plan_all(given, "numpy")


def requests(count: int) -> list[Request]:
    return [Request(Problem.parse(f"n{n}c8h6w6k16r3s3p1-f32")) for n in range(1, count + 1)]


def runtime(backend: str) -> Any:
    device = GPU if backend == "cuda" else SimpleNamespace(backend=backend)
    return SimpleNamespace(device=device)


def test_on_a_gpu_as_many_are_made_at_a_time_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    together_, running, most = threading.Barrier(3), set[int](), list[int]()

    def make(request: Request, *given: object) -> int:
        running.add(request.problem.n)
        together_.wait(10)
        most.append(len(running))
        together_.wait(10)
        running.discard(request.problem.n)
        return request.problem.n

    monkeypatch.setattr(together, "layer_plan", make)
    monkeypatch.setattr(together, "cores", lambda: 3)
    assert together.layer_plans(requests(6), runtime("cuda"), None) == [1, 2, 3, 4, 5, 6]
    assert max(most) == 3


def test_elsewhere_they_are_made_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def make(request: Request, *given: object) -> int:
        threads.add(threading.get_ident())
        return request.problem.n

    monkeypatch.setattr(together, "layer_plan", make)
    assert together.layer_plans(requests(4), runtime("opencl"), None) == [1, 2, 3, 4]
    assert len(threads) == 1


def test_the_others_are_made_though_one_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(request: Request, *given: object) -> int:
        if request.problem.n in (2, 3):
            raise CompileError(f"{request.problem}: refused")
        made.append(request.problem.n)
        return request.problem.n

    monkeypatch.setattr(together, "layer_plan", make)
    with pytest.raises(CompileError, match="^n2c8.*refused"):
        together.layer_plans(requests(5), runtime("cuda"), None)
    assert sorted(made) == [1, 4, 5]


def test_who_is_interrupted_has_no_more_made(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, made = threading.Event(), threading.Event(), list[int]()

    def make(request: Request, *given: object) -> int:
        begun.set()
        go_on.wait(10)
        made.append(request.problem.n)
        return request.problem.n

    def interrupted(futures: object) -> None:
        begun.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(together, "layer_plan", make)
    monkeypatch.setattr(together, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        together.layer_plans(requests(5), runtime("opencl"), None)
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "plan":
            thread.join(10)
    assert made == [1]


AT_THE_END = """
import atexit
atexit.register(lambda: print(len(tw.plan_all(["n1c8h6w6k16r3s3p1-f32", "n1c16h6w6k8r1s1-f32"], "numpy"))))
import tilewright as tw
tw.plan("n1c8h6w6k16r3s3p1-f32", "numpy")
"""


def test_what_runs_at_the_end_plans_by_itself() -> None:
    """Other threads are blocked by then: it would wait for them for ever."""
    command = [sys.executable, "-c", AT_THE_END]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


KINDS = [family_of("textbook"), family_of("direct")]


def choose(monkeypatch: pytest.MonkeyPatch, count: int) -> list[Any]:
    """What the model chooses for some layers on a GPU that is not here, asked for together."""

    def make(request: Request, runtime: Any, store: object, rank: Any) -> Any:
        return rank(request.problem, runtime.device, KINDS, request.deterministic)

    monkeypatch.setattr(together, "layer_plan", make)
    monkeypatch.setattr(together, "cores", lambda: 2)
    return together.layer_plans(requests(count), runtime("cuda"), None)


def test_the_model_thinks_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are cores, each for one layer after the other; they end with the call."""
    wanted = [guesses(one.problem, GPU, KINDS, False) for one in requests(3)]
    started = []

    def never(*given: object) -> Any:
        raise AssertionError("ranked here")

    def start(worker: Worker) -> Any:
        started.append(channel := begin(worker))
        return channel

    begin = Worker._start
    monkeypatch.setattr(Worker, "_start", start)
    monkeypatch.setattr(ranking, "rank_all", never)
    assert choose(monkeypatch, 3) == wanted and all(len(one) > 5 for one in wanted)
    assert 1 <= len(started) <= 2 and not any(channel.alive for channel in started)


def test_of_one_layer_it_thinks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "_start", None)
    assert choose(monkeypatch, 1) == [guesses(requests(1)[0].problem, GPU, KINDS, False)]


def test_it_thinks_here_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(worker: Worker) -> Any:
        raise RunError("this program embeds Python")

    monkeypatch.setattr(Worker, "_start", fail)
    assert choose(monkeypatch, 2) == [guesses(one.problem, GPU, KINDS, False) for one in requests(2)]
