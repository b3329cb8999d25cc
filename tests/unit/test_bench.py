"""The bench against invented peers: right, wrong, absent, broken; and what the rows say of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.bench.bench import Bench
from tilewright.bench.contest import Entered
from tilewright.bench.environment import commit
from tilewright.checking.deviation import deviation
from tilewright.checking.inputs import Inputs, normal_inputs
from tilewright.checking.verify import Verifier
from tilewright.device import Device
from tilewright.dtypes import numpy_dtype
from tilewright.errors import ProblemError
from tilewright.floor import floor_us
from tilewright.measuring.rounds import Limits
from tilewright.peers import Contestant, Offer, Peer, Setting
from tilewright.plans.bound_call import BoundCall
from tilewright.plans.bound_run import BoundRun
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue
from tilewright.problem.shapes import Layer
from tilewright.record import Check
from tilewright.report.results import parse
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Blocking, Runtime
from tilewright.tuning.budget import Budget
from tilewright.tuning.options import TuneOptions

LAYER = Layer("L1", Problem.parse("n1c8h6w5k4r3s3p1-f32+bias+relu"))
QUICK = Limits(min_rounds=2, max_rounds=2, warm_runs=2)


def answer(problem: Problem, inputs: Inputs) -> np.ndarray:
    """The right answer."""
    from tilewright.dispatch.choices import REFERENCE

    runtime = open_runtime("numpy")
    return np.array(BoundRun.of(Plan.make(runtime, problem, REFERENCE), inputs.given(problem)).once())


FAILS = range(0)  # which runs of a contestant whose name ends in "later" fail; a test says so


class Invented(Peer):
    """A peer with one contestant for each (name, factor, tags)."""

    backends = ("numpy",)

    def __init__(self, name: str, *ways: tuple[str, float, tuple[str, ...]], reason: str = "") -> None:
        self.name, self.ways, self.reason = name, ways, reason
        self.runs: list[str] = []

    def absent(self, device: Device) -> str | None:
        return self.reason or None

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        y, offer = answer(problem, inputs), Offer(skipped={f"{self.name} odd": "not on a Monday"})
        for name, factor, tags in self.ways:

            def run(name: str = name) -> None:
                self.runs.append(name)
                time.sleep({"steady": 2e-3, "tires": 2e-2 * (self.runs.count(name) > 4)}.get(name, 0.0))
                if name.endswith("crash") or (name.endswith("later") and self.runs.count(name) in FAILS):
                    raise RuntimeError("out of\nluck")

            output = y * np.float32(factor)
            about = (self.name, name, f"detail of {name}", "nchw", run)
            contestant = Contestant(*about, lambda o=output: o, 7, 1.5, 0, tags)
            if name.startswith("slow"):
                offer.skipped[name] = "slower: 9.0 us in a quick timing"
                offer.slower.append((name, lambda c=contestant: c))
            else:
                offer.contestants.append(contestant)
        return offer


def row_of(*peers: Peer, layer: Layer = LAYER, **how):  # type: ignore[no-untyped-def]
    return Bench(open_runtime("numpy"), peers, limits=QUICK, **how).row(layer)


def test_a_row_has_ours_and_every_peer() -> None:
    good = Invented("good", ("plain", 1.0, ("gemm",)), ("wino", 1.0, ("winograd",)))
    row = row_of(good, Invented("gone", reason="gone: not installed; pip install gone"))
    assert row.ours.family == "reference" and row.ours.cold_us and not row.ours.reason
    assert set(row.peers) == {"good", "good-gemm", "gone"}
    assert row.peers["good"].cold_us and row.peers["good"].workspace_bytes == 7
    assert row.peers["good"].tried["good odd"] == "not on a Monday"
    assert row.peers["good-gemm"].detail == "detail of plain"
    assert row.peers["gone"].cold_us is None and "pip install gone" in row.peers["gone"].reason
    assert row.best_peer in ("good", "good-gemm")
    assert row.ratio and row.floor_share


def test_a_wrong_answer_is_never_timed() -> None:
    peer = Invented("half", ("low precision", 1.001, ()), ("fine", 1.0, ()))
    row = row_of(peer)
    assert row.ours.worst is None  # NumPy is the reference
    assert peer.runs.count("low precision") == 1
    assert str(row.peers["half"].tried["low precision"]).startswith("wrong: error ")
    assert row.peers["half"].detail == "detail of fine"


@pytest.mark.parametrize("first", (3, 6), ids=("in the quick timing", "in the careful one"))
def test_a_peer_that_fails_later_leaves_its_reason(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_bench.FAILS", range(first, 10_000))
    monkeypatch.setattr("tilewright.bench.contest._NEAR", 1e9)  # none is left out for a busy machine's sake
    row = row_of(Invented("ill", ("later", 1.0, ())), Invented("well", ("fine", 1.0, ())))
    assert row.ours.cold_us and row.peers["well"].cold_us and "later" not in row.peers["well"].tried
    assert row.peers["ill"].cold_us is None and "out of luck" in str(row.peers["ill"].tried["later"])
    assert ("while it was timed" in row.peers["ill"].reason) == (first == 6)

    both = row_of(Invented("ill", ("later", 1.0, ()), ("sound", 1.0, ())))
    ill = both.peers["ill"]
    assert ill.detail == "detail of sound" and "out of luck" in str(ill.tried["later"])


def test_a_peer_is_no_slower_than_a_contestant_that_was_left_out() -> None:
    """Of two, the first is the faster by far in the quick timing, and the slower one in the careful one."""
    found = row_of(Invented("two", ("tires", 1.0, ()), ("steady", 1.0, ()))).peers["two"]
    assert found.detail == "detail of steady" and found.cold_us and 2e3 <= found.cold_us < 1e4
    tired_us = found.tried["tires"]
    assert isinstance(tired_us, float) and tired_us > 1e4 and "steady" not in found.tried


def test_what_holds_a_run_up_does_not_count_in_a_quick_timing() -> None:
    times = iter((367.0, 24.0, 368.0))
    setting = replace(Setting.of(open_runtime("numpy")), timed=lambda run: next(times))
    assert setting.quick_us(lambda: None) == 24.0


def test_what_is_timed_by_the_clock_stays_so() -> None:
    """Clocks tell a Blocking run apart: another library's on a CPU, which is timed after the flush."""
    ran: list[str] = []
    made = Blocking(lambda: ran.append("run"), lambda: ran.append("wake"))
    blocking, enqueued = (
        Contestant("p", name, "", "nchw", run, lambda: np.zeros(1))
        for name, run in (("one", made), ("other", lambda: ran.append("enqueued")))
    )
    runs = Entered("p", [blocking, enqueued]).runs
    assert isinstance(runs["one"], Blocking) and not isinstance(runs["other"], Blocking)
    runs["one"].wake()
    runs["one"](), runs["other"]()
    assert ran == ["wake", "run", "enqueued"]


def test_a_peer_with_no_right_answer_says_so() -> None:
    row = row_of(Invented("bad", ("a", 2.0, ()), ("crash", 1.0, ())))
    assert row.peers["bad"].cold_us is None
    assert "no contestant was right" in row.peers["bad"].reason
    assert row.peers["bad"].tried["crash"] == "out of luck"
    assert row.best_peer is None and row.ratio is None


def test_where_no_fast_way_is_right_the_slower_ones_are_tried() -> None:
    slower = [("slow crash", 1.0, ()), ("slow 2", 1.5, ()), ("slow 3", 1.0, ()), ("slow 4", 1.0, ())]
    peer = Invented("late", ("a", 2.0, ()), *slower)
    found = row_of(peer).peers["late"]
    assert found.cold_us and found.detail == "detail of slow 3"
    assert all(str(found.tried[name]).startswith("wrong: ") for name in ("a", "slow 2"))
    assert found.tried["slow crash"] == "out of luck"
    assert str(found.tried["slow 4"]).startswith("slower: ") and "slow 4" not in peer.runs
    assert "slow 3" not in found.tried


def test_slower_ways_rest_where_a_fast_one_is_right() -> None:
    peer = Invented("early", ("a", 1.0, ()), ("slow", 1.0, ()))
    assert row_of(peer).peers["early"].detail == "detail of a"
    assert "slow" not in peer.runs


def test_a_peer_that_raises_anything_is_a_reason() -> None:
    class Broken(Invented):
        def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
            raise ZeroDivisionError("oh")

    assert "ZeroDivisionError: oh" in row_of(Broken("broken")).peers["broken"].reason


def test_the_document_is_what_the_reports_read() -> None:
    layers = [LAYER, Layer("L2", Problem.parse("n2c4h5w5k3r1s1-f32-nhwc"))]
    peers = [Invented("good", ("plain", 1.0, ()))]
    how = TuneOptions(Budget.parse("20s"), "random", seed=3)
    work = Bench(open_runtime("numpy"), peers, limits=QUICK, wanted=how)
    rows = [replace(work.row(layer), floor_us=1e9) for layer in layers]
    document = json.loads(json.dumps(work.document(rows)))
    floors = [row["floor_us"] for row in document["rows"]]
    assert floors == [round(floor_us(layer.problem, work.runtime.device), 3) for layer in layers], "of now"
    results = parse(document)
    assert [row.name for row in results.rows] == ["L1", "L2"]
    protocol = document["protocol"]
    told = protocol["seed"], protocol["budget"], protocol["strategy"]
    assert results.geomean and told == (3, "20s", "random")
    assert {"name", "backend", "driver"} <= set(document["device"])
    wanted = {
        "family", "config", "cold_us", "warm_us", "ci95_us", "max_error", "error_bound", "deterministic",
        "workspace_bytes", "pack_us", "tune_s", "families",
    }  # fmt: skip
    assert document["rows"][0]["ours"]["runs"] == document["rows"][0]["peers"]["good"]["runs"] == 2
    assert wanted <= set(document["rows"][0]["ours"])
    assert {"cold_us", "warm_us", "detail"} <= set(document["rows"][1]["peers"]["good"])


def refuses(*_: object) -> float:
    raise ProblemError("no family takes it")


def test_tuning_is_told_and_may_fail() -> None:
    assert row_of(tune=lambda layer: 1.25).ours.tune_s == 1.25 and row_of().ours.tune_s == 0.0

    ours = row_of(tune=refuses).ours
    assert ours.cold_us and ours.tune_s == 0.0 and ours.note.startswith("slow: the reference")


def test_a_layer_that_we_cannot_run_has_its_reason_beside_the_peers_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tilewright.bench.bench.layer_plan", refuses)
    row = row_of(Invented("good", ("plain", 1.0, ())))
    assert (row.ours.cold_us, row.ours.reason, row.ratio) == (None, "no family takes it", None)
    assert row.peers["good"].cold_us and row.floor_us > 0


def test_a_wrong_answer_of_ours_is_never_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the inputs that are timed, or in the full check: either is enough."""
    failed = Check(False, 2.0, 1.0, 2.0, False, True, "corner")
    with monkeypatch.context() as patch:
        patch.setattr("tilewright.bench.bench._check", lambda *_: failed)
        ours = row_of().ours
        assert (ours.cold_us, ours.reason) == (None, "corner")
        assert (ours.max_error, ours.error_bound, ours.worst) == (2.0, 1.0, 2.0)
        patch.setattr("tilewright.bench.bench._check", lambda *_: replace(failed, ok=True, reason=""))
        assert (ours := row_of().ours).cold_us and ours.deterministic
        unlike = replace(failed, ok=True, reason="", repeatable=False)
        patch.setattr("tilewright.bench.bench._check", lambda *_: unlike)
        assert not row_of().ours.deterministic
    truth = 2 * answer(LAYER.problem, normal_inputs(LAYER.problem, 0))
    monkeypatch.setattr("tilewright.bench.bench.true_answer", lambda *_: truth)
    ours = row_of().ours
    assert ours.cold_us is None and ours.reason.startswith("error ")


def test_a_floor_is_raised_by_what_our_kernel_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[float] = []
    monkeypatch.setattr("tilewright.bench.bench.outdone", lambda *given: reached.append(given[2]) or 42.0)
    row = row_of()
    assert row.floor_us == 42.0 and reached == [row.ours.cold_us]


def test_progress_is_told() -> None:
    heard: list[str] = []
    row_of(progress=lambda text, share: heard.append(text))
    assert heard == ["L1: tuning", "L1: peers", "L1: measuring"]


def test_the_whole_epilogue_and_every_dtype() -> None:
    for text in ("f64+bias+silu", "f16+alpha0.5+add0.25+relu+maxpool2", "bf16+leaky0.1", "i8+bias+add+relu"):
        row = row_of(layer=Layer("L", Problem.parse(f"n1c8h6w5k4r3s3p1-{text}")))
        assert row.ours.cold_us and not row.ours.reason, text


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A checkout of something else, one commit old."""
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        name = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *name, *command], check=True)
    commit.cache_clear()
    yield tmp_path
    commit.cache_clear()


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_only_the_packages_own_checkout_has_a_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Path("tilewright") / "bench" / "provenance.py"
    monkeypatch.setattr("tilewright.bench.environment.__file__", str(checkout / "lib" / module))
    (checkout / "lib" / "tilewright").mkdir(parents=True)
    assert commit() == ""
    commit.cache_clear()
    monkeypatch.setattr("tilewright.bench.environment.__file__", str(checkout / module))
    (checkout / "tilewright").mkdir()
    assert len(commit()) == 12


def test_a_git_that_hangs_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(command: list[str], **how: object) -> None:
        raise subprocess.TimeoutExpired(command, 10)

    commit.cache_clear()
    monkeypatch.setattr(subprocess, "run", hangs)
    assert commit() == ""
    commit.cache_clear()


def _tf32(array: np.ndarray) -> np.ndarray:
    """Round to TF32's 10 bits of mantissa."""
    bits = array.view(np.uint32)
    return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)


LONG = ["n1c64h14w14k32r3s3p1-f32", "n1c512h7w7k64r3s3p1-f32", "n1c4096h1w1k100r1s1-f32"]


@pytest.mark.parametrize("text", LONG)
def test_f32_passes_and_tf32_does_not(text: str) -> None:
    problem = Problem.parse(text)
    inputs = normal_inputs(problem, 5)
    truth = answer(problem, inputs)
    columns = np.zeros((problem.cg * problem.r * problem.s, problem.p * problem.q), np.float32)
    x = np.pad(inputs.x[0], ((0, 0), problem.pad[:2], problem.pad[2:]))
    views = np.lib.stride_tricks.sliding_window_view(x, (problem.r, problem.s), axis=(1, 2))
    columns = views.transpose(0, 3, 4, 1, 2).reshape(columns.shape)
    w = inputs.w.reshape(problem.k, -1)
    plain = np.zeros((problem.k, columns.shape[1]), np.float32)
    for c in range(columns.shape[0]):  # the longest chain there is: one sequential f32 sum
        plain += w[:, c : c + 1] * columns[c]
    assert deviation(plain.reshape(truth.shape), truth).wrong(problem) == ""
    coarse = _tf32(w) @ _tf32(np.ascontiguousarray(columns))
    assert "error" in deviation(coarse.reshape(truth.shape), truth).wrong(problem)


def test_one_bad_element_is_wrong() -> None:
    problem = Problem.parse("n1c64h14w14k32r3s3p1-f32")
    truth = np.ones(problem.y_shape, np.float32)
    y = truth.copy()
    y[0, -1, -1, -1] += 0.1
    assert "error" in deviation(y, truth).wrong(problem)
    y[0, -1, -1, -1] = np.nan
    assert "1 element not finite" in deviation(y, truth).wrong(problem)
    assert deviation(truth[:0], truth[:0]).wrong(problem) == ""


DTYPES = [("f64", "f32"), ("f32", "f16"), ("f16", "f16"), ("bf16", "bf16")]


@pytest.mark.parametrize(("dtype", "sums"), DTYPES)
@pytest.mark.parametrize("words", ["", "+alpha0.5+bias+add0.25+relu+maxpool2", "+bias+silu+avgpool2"])
def test_each_dtype_has_its_own_tolerance(words: str, dtype: str, sums: str) -> None:
    """Rounding at each step of the epilogue passes; sums kept in a smaller dtype or a small one do not."""
    problem = Problem.parse(f"n1c256h8w8k32r3s3p1-{dtype}{words}")
    inputs, e = normal_inputs(problem, 5), problem.epilogue
    truth, kind = answer(problem, inputs), numpy_dtype(dtype)
    bare = replace(problem, epilogue=Epilogue())
    rest = (np.float64(0), np.float64(0)) if not e else (inputs.bias.reshape(-1, 1, 1), inputs.z)

    def finished(conv: np.ndarray) -> np.ndarray:
        y = (conv.astype(np.float64) * e.alpha).astype(kind).astype(np.float64)
        for part, factor in zip(rest, (float(e.bias), e.beta), strict=True):
            y = y if part is None or not factor else (y + factor * part.astype(np.float64)).astype(kind)
            y = y.astype(np.float64)
        y = np.maximum(y, 0) if e.act == "relu" else y / (1 + np.exp(-y)) if e.act else y
        if e.pool:
            y = y.reshape(1, 32, 4, 2, 4, 2)
            y = y.max((3, 5)) if e.pool.mode == "max" else y.mean((3, 5))
        return y.astype(kind)

    assert deviation(finished(answer(bare, inputs)), truth).wrong(problem) == ""
    small, total = numpy_dtype(sums), np.zeros((32, 64), numpy_dtype(sums))
    padded = np.pad(inputs.x[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    columns = windows.transpose(0, 3, 4, 1, 2).reshape(-1, 64).astype(small)
    w = inputs.w.reshape(32, -1).astype(small)
    for c in range(columns.shape[0]):
        total = (total + w[:, c : c + 1] * columns[c]).astype(small)
    assert "error" in deviation(finished(total.reshape(1, 32, 8, 8)), truth).wrong(problem)


def test_a_steep_slope_makes_roundings_larger() -> None:
    """Each step rounded to f16, as libraries do: sums, then what the slope and the pool make of them."""
    problem = Problem.parse("n8c5h14w3k5r1s2p2g5-f16+leaky-30+maxpool3u1p1")
    inputs = normal_inputs(problem, 5)
    truth = answer(problem, inputs)
    sums = answer(replace(problem, epilogue=Epilogue()), inputs).astype(np.float32)
    activated = np.where(sums < 0, -30 * sums, sums).astype(np.float16)
    padded = np.pad(activated, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    y = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).max((4, 5))
    assert deviation(y, truth).wrong(problem) == ""
    assert "error" in deviation((1.01 * y.astype(np.float32)).astype(np.float16), truth).wrong(problem)


@pytest.mark.parametrize("words", ["", "+alpha0.25", "+alpha30+bias+add-700", "+leaky-0.5", "+leaky-4"])
def test_errors_are_seen_beside_the_size_of_an_output(words: str) -> None:
    """An error of rms 5e-5 is the most in f32, of what the activation is given times its steepest slope."""
    problem = Problem.parse(f"n1c64h9w9k32r3s3-f32{words}")
    argument = replace(problem, epilogue=replace(problem.epilogue, act="", low=0.0))
    inputs = normal_inputs(problem, 5)
    truth, size = answer(problem, inputs), answer(argument, inputs).std()
    most = 5e-5 * size * max(1.0, -problem.epilogue.low)
    for share, right in ((0.9, True), (1.6, False)):
        assert (deviation(truth + share * most, truth).wrong(problem) == "") == right


def test_all_parts_of_an_answer_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.checking.deviation._PART", 7)
    problem = Problem.parse("n1c2h5w5k2r1s1-f32")
    truth = np.zeros(problem.y_shape, np.float32)
    y = truth.copy()
    y.reshape(-1)[[3, 20, 49]] = 1e-4, -3e-4, 2e-4
    found = deviation(y, truth)
    assert (found.size, found.lost, found.differing) == (50, 0, 3)
    assert found.most == pytest.approx(3e-4) and found.squares == pytest.approx(14e-8)
    y.reshape(-1)[48] = np.nan
    assert deviation(y, truth).wrong(problem) == "1 element not finite or not written"


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_every_float_is_compared_as_in_f64(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.checking.deviation._PART", 64)
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(300).astype(numpy_dtype(dtype))
    y = (truth.astype(np.float64) + rng.standard_normal(300) * 0.02).astype(truth.dtype)
    y[::3] = truth[::3]
    error = np.abs(y.astype(np.float64) - truth.astype(np.float64))
    found = deviation(y, truth)
    assert (found.size, found.lost, found.differing) == (300, 0, np.count_nonzero(error))
    assert found.most == pytest.approx(error.max(), rel=1e-7)
    assert found.squares == pytest.approx(np.dot(error, error), rel=1e-6)
    y[[70, 80]] = truth[[70, 90]] = np.inf  # both, y alone, the truth alone
    y[[71, 200]], truth[71] = -np.inf, -np.inf  # both, y alone
    truth[[70]], y[5], y[130] = np.inf, np.nan, np.nan
    kept = np.delete(error, [5, 70, 71, 80, 90, 130, 200])
    found = deviation(y, truth)
    assert (found.lost, found.differing) == (5, np.count_nonzero(kept))
    assert found.most == pytest.approx(kept.max(), rel=1e-7)
    assert found.squares == pytest.approx(np.dot(kept, kept), rel=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_squares_beyond_f32_are_added_up(size: float) -> None:
    truth = np.ones(100, np.float32) * np.float32(size)
    assert deviation(truth * 2, truth).squares == pytest.approx(100 * size**2, rel=1e-6)
    worst = np.full(4, np.finfo(np.float32).max)
    assert deviation(worst, -worst).most == pytest.approx(2 * float(worst[0]))


def test_an_answer_of_another_shape_is_wrong() -> None:
    problem = Problem.parse("n1c2h4w3k2r1s1-f32")
    truth = np.zeros(problem.y_shape, np.float32)
    for y in (truth.transpose(0, 1, 3, 2), truth[:, :1], truth[:0]):
        assert deviation(y, truth).wrong(problem) == f"of shape {y.shape}, not {truth.shape}"


def test_whole_numbers_are_right_or_wrong() -> None:
    problem = Problem.parse("n1c64h6w6k4r3s3-i8+bias+relu")
    truth = answer(problem, normal_inputs(problem, 1))
    assert truth.dtype == np.int32 and deviation(truth.copy(), truth).wrong(problem) == ""
    y = truth.copy()
    y[0, 0, 0, :2] += 1
    assert deviation(y, truth).wrong(problem) == "2 of 64 sums of whole numbers differ"


def test_the_same_infinity_is_no_error() -> None:
    problem = Problem.parse("n1c4h2w2k1r1s1-f16")
    truth = np.array([[[[np.inf, 1], [2, 3]]]], np.float16)
    assert deviation(truth.copy(), truth).wrong(problem) == ""
    assert "1 element not finite" in deviation(np.where(np.isinf(truth), 9, truth), truth).wrong(problem)


def test_on_a_cpu_a_whole_call_is_timed_beside_the_kernels(
    cpu: Runtime, own_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fully: list[bool] = []
    check = Verifier.check

    def spied(self: Verifier, *given: Any, full: bool = False) -> Check:
        fully.append(full)
        return check(self, *given, full=full)

    monkeypatch.setattr(Verifier, "check", spied)
    limits = replace(QUICK, min_rounds=6, max_rounds=6)
    ours = Bench(cpu, tune=refuses, limits=limits).row(LAYER).ours
    assert ours.cold_us and ours.call_us and ours.compared_us == ours.call_us > ours.cold_us
    assert ours.call_ci95_us and ours.runs == 6
    assert ours.ci95_us and ours.warm_us and ours.pack_us and ours.config.startswith(ours.family)
    assert ours.worst is not None and 0 < ours.worst <= 1 and fully[-1]
    assert ours.max_error and ours.error_bound and ours.max_error <= ours.error_bound
    assert ours.note.startswith("not tuned: no family takes it; untuned: ")
    assert "not verified" not in ours.note
    assert (row_of().ours.call_us, row_of().ours.call_ci95_us) == (None, None)


def test_our_call_is_one_that_users_make(
    cpu: Runtime, own_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, of a plan that is bound to arrays, as ``LayerPlan.bind`` returns it."""
    called: list[BoundCall] = []
    call = BoundCall.__call__

    def spied(self: BoundCall) -> Any:
        called.append(self)
        return call(self)

    monkeypatch.setattr(BoundCall, "__call__", spied)
    row = Bench(cpu, limits=replace(QUICK, min_rounds=6, max_rounds=6)).row(LAYER)
    assert row.ours.call_us and len(called) >= 6
    assert {one.problem for one in called} == {LAYER.problem}
