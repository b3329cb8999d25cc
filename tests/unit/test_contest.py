"""Which contestants of a peer are measured with care, and what its figure says: by made-up times."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from store_samples import DEVICE, LAYER, Tiles, families, path, record

from tilewright.bench.contest import ContestantFailed, Entered, enter
from tilewright.bench.race import raced
from tilewright.bench.rows import PeerFigure
from tilewright.peers import Contestant, Offer, Setting
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.record import Measurement
from tilewright.runtime.base import Blocking, Runtime
from tilewright.store import Store
from tilewright.store.sources import Sources

__all__ = ["families", "path"]  # fixtures
PROBLEM = Problem.parse("n1c2h4w3k2r1s1-f32")
TRUTH = np.ones(PROBLEM.y_shape, np.float32)
QUICK_US = {
    "e": 12.6, "c": 11.0, "a": 10.0, "d": 12.4, "b": 10.5004, "h gemm": 60.0, "g gemm": 50.0, "far": 99.0,
}  # fmt: skip


def contestant(name: str) -> Contestant:
    error = np.float32(list(QUICK_US).index(name) * 1e-7)
    tags = ("gemm",) if "gemm" in name else ()
    return Contestant(
        "p", name, f"detail of {name}", "nhwc", lambda: None, lambda: TRUTH + error, 7, 1.5, 2.5, tags
    )


def entered(*names: str) -> Entered:
    """Enter contestants whose quick times are those above."""
    made = [contestant(name) for name in names]
    timed = {id(one.run): QUICK_US[one.name] for one in made}
    setting = Setting(DEVICE, timed=lambda run: timed[id(run)])
    return enter("p", Offer(made, {"odd": "not on a Monday"}), PROBLEM, TRUTH, setting)


def test_the_fastest_few_and_the_fastest_gemm_are_measured() -> None:
    found = entered(*QUICK_US)
    assert list(found.runs) == ["a", "b", "c", "g gemm"]
    assert found.tried == {"odd": "not on a Monday", "e": 12.6, "d": 12.4, "h gemm": 60.0, "far": 99.0}
    assert [(us, one.name) for us, one in found.rest] == [
        (12.4, "d"), (12.6, "e"), (60.0, "h gemm"), (99.0, "far")
    ]  # fmt: skip
    assert list(entered("e", "a", "d").runs) == ["a", "d"], "what is a quarter slower is left out"


@pytest.mark.parametrize(
    ("measured", "called"),
    [
        ((15.5, 15.5, 80.0, 80.0), []),  # 1.25 times 12.4: their fastest decides
        ((20.0, 15.6, 80.0, 80.0), ["d"]),
        ((16.0, 90.0, 90.0, 76.0), ["d", "e"]),
        ((80.0, 80.0, 80.0, 80.0), ["d", "e", "h gemm"]),
    ],
)
def test_who_was_left_out_is_called_if_the_measured_are_far_slower(
    measured: tuple[float, ...], called: list[str]
) -> None:
    found = entered(*QUICK_US)
    times = {name: Measurement(us, 0.1, 9) for name, us in zip(found.runs, measured, strict=True)}
    assert found.call_back(times) == bool(called)
    assert list(found.runs) == ["a", "b", "c", "g gemm", *called]
    left = [name for name in ("d", "e", "h gemm", "far") if name not in called]
    assert [one.name for _, one in found.rest] == left and {*found.tried} == {"odd", *left}


def test_a_figure_is_that_of_the_fastest_contestant() -> None:
    found = entered(*QUICK_US)
    times = {
        "a": Measurement(30.0, 0.3, 9, 28.0, 0.01),
        "b": Measurement(20.00049, 0.2, 9, 18.0, 0.02),
        "c": Measurement(40.0, 0.4, 9, 38.0, 0.03),
        "g gemm": Measurement(60.0, 0.6, 9, 58.0, 0.06),
    }
    (name, best), (gemm_name, gemm) = found.figures(times)
    assert (name, gemm_name) == ("p", "p-gemm")
    assert best == PeerFigure(
        cold_us=20.00049, warm_us=18.0, ci95_us=0.2, runs=9, stolen=0.02, detail="detail of b", layout="nhwc",
        workspace_bytes=7, pack_us=1.5, convert_us=2.5, max_error=pytest.approx(4e-7, abs=1e-7),
        tried=found.tried | {"a": 30.0, "c": 40.0, "g gemm": 60.0},
    )  # fmt: skip
    assert (gemm.cold_us, gemm.detail, gemm.tried) == (60.0, "detail of g gemm", {})
    found.lose(ContestantFailed("b", RuntimeError("out of\nluck")))
    (_, best), _ = found.figures(times)
    said = "failed while it was timed: RuntimeError: out of luck"
    assert (best.cold_us, best.tried["b"], best.reason) == (30.0, said, "")


@pytest.mark.parametrize("blocking", [False, True])
def test_an_error_names_the_contestant_that_raised_it(blocking: bool) -> None:
    """Those of a CPU are all Blocking."""

    def fails() -> None:
        raise RuntimeError("out of luck")

    one = replace(contestant("a"), run=Blocking(fails) if blocking else fails)
    with pytest.raises(ContestantFailed, match="RuntimeError: out of luck") as failed:
        Entered("p", [one]).runs["a"]()
    assert failed.value.name == "a"


class Others(Tiles):
    name = "others"


BOTH = Sources([Tiles(), Others()], DEVICE, "c1")


def test_a_family_has_the_best_newest_time_of_the_current_kernels(
    path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.bench.race.sources_for", lambda request, runtime: BOTH)
    runtime = cast(Runtime, SimpleNamespace(device=DEVICE))
    request, box = Request(Problem.parse(LAYER)), Store(path, shipped=False)
    untried = dict.fromkeys(BOTH.names, "not tried")
    assert raced(request, runtime, None) == raced(request, runtime, box) == untried
    wrong = {"outcome": "correctness", "measurement": None}
    box.add_all([record(**wrong), record("tiles:t=2.u=0", **wrong), record("tiles:t=4.u=0", **wrong)])
    assert raced(request, runtime, box) == {"tiles": "none right: 3 wrong", "others": "not tried"}
    box.add_all([record(us=5.0), record(us=9.0004), record("tiles:t=2.u=0", 12.0)])
    box.add(record("tiles:t=4.u=0", 1.0, context={"compiler": "old"}))
    box.add(record("tiles:t=4.u=0", 1.0, problem=LAYER + "-nhwc"))
    box.add(BOTH.signed(record("others:t=4.u=0", 2.0, family="others")))
    assert raced(request, runtime, box) == {"tiles": 9.0, "others": 2.0}
