"""tune and bench over a stand-in of the tuner: stored winners, failures, Ctrl-C, exit statuses."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright import floor
from tilewright.bench.bench import Bench
from tilewright.bench.rows import BenchRow, OurFigure, PeerFigure
from tilewright.cli import explain, main, opened
from tilewright.cli.bench import _BenchRun
from tilewright.cli.session import TuningSession
from tilewright.cli.stopping import Terminated
from tilewright.device import for_architecture
from tilewright.dispatch import once
from tilewright.errors import ProblemError, StoreError
from tilewright.kernels import family_of
from tilewright.peers.base import needs as needed
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.problem.shapes import Layer
from tilewright.record import Check, Measurement, Record
from tilewright.report.results import Results
from tilewright.report.table import NOISY_NOTE
from tilewright.search.space import sample
from tilewright.store import Store
from tilewright.store.record_json import read_context
from tilewright.store.sources import Sources
from tilewright.tuning.events import Comparing, Tried, TuneResult
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.worker_pool import WorkerPool

DEVICE = for_architecture("sm_90")
A, B = "n1c8h8w8k8r3s3p1-f32", "n1c8h8w8k8r1s1-f32"


def direct(problem: Problem | str, number: int = 1) -> str:
    """Return a legal config of a layer."""
    return str(sample(family_of("direct"), Problem.parse(str(problem)), DEVICE, random.Random(number)))


def winner(
    problem: Problem | str, stage: str = "final", raced: str = "", compiler: str = "c", **changes: Any
) -> Record:
    check = Check(True, 1e-6, 1e-5, 0.1, True, True)
    context = {"compiler": compiler, "stage": stage} | ({"raced": raced} if raced else {})
    made = Record(
        str(problem), DEVICE.key, "direct", direct(problem), "correct", True, check,
        Measurement(12.5, 0.25, 50, 10.0), workspace_bytes=3 << 20, **read_context(context),
    )  # fmt: skip
    return Sources([family_of("direct")], DEVICE, compiler).signed(replace(made, **changes))


class Tuner:
    """Stands for ``tuner.tune``: stores a winner, or does what it was told for a problem."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.families: list[tuple[str, ...]] = []
        self.instead: dict[str, Callable[[], Any]] = {}

    def __call__(
        self, problem: Problem, runtime: Any, wanted: TuneOptions, *, store: Store,
        progress: Callable[[Any], None], children: WorkerPool | None = None,
    ) -> TuneResult:  # fmt: skip
        self.asked.append(str(problem))
        self.families.append(wanted.families)
        if str(problem) in self.instead:
            return self.instead[str(problem)]()  # type: ignore[no-any-return]
        best = winner(problem, raced=" ".join(wanted.families))
        progress(Tried(best, 1, 12.5, 0.1, 0.5))
        progress(Comparing((best.config,), 0.2))
        store.add(best)
        return TuneResult(best, (best,), (best,), 1.5, 0)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tuner:
    """A device that is not there, and a tuner that needs none."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    runtime = SimpleNamespace(device=DEVICE, compiler="c", unified=False, array_bytes=1 << 62,
                              versions=lambda: {"compiler": "c"},
                              memory_bytes=lambda: 80 << 30)  # fmt: skip
    monkeypatch.setattr(opened, "open_device", lambda device: runtime)
    monkeypatch.setattr(opened, "calibrate_once", lambda runtime: None)
    fake = Tuner()
    monkeypatch.setattr(once, "tune", fake)
    return fake


def raises(error: BaseException) -> Callable[[], Any]:
    def act() -> None:
        raise error

    return act


def test_tune_prints_writes_and_is_then_answered_from_the_store(
    stand_in: Tuner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.json"
    assert main(["tune", A, B, "--json", str(file)]) == 0
    shown = capsys.readouterr()
    assert f"[2/2] {B}: 12.5 us, 1 tried in 1.5 s" in shown.err
    assert f"{A}: {direct(A)}" in shown.out
    assert "workspace" in shown.out and " 3.0M " in shown.out
    told = json.loads(file.read_text())
    assert (told["device"], told["budget"], told["seed"]) == (DEVICE.name, "", 0)
    assert (told["key"], told["strategy"], told["deterministic"], told["families"]) == (
        DEVICE.key, "model", False, [],
    )  # fmt: skip
    assert told["date"].startswith("20") and "commit" in told and told["versions"] == {"compiler": "c"}
    best = winner(A)
    assert told["rows"] == [
        {
            "name": layer, "problem": layer, "config": direct(layer), "cold_us": 12.5, "ci95_us": 0.25,
            "warm_us": 10.0, "floor_us": floor.floor_us(Problem.parse(layer), DEVICE), "worst": 0.1,
            "workspace_bytes": 3 << 20, "deterministic": best.deterministic, "trials": 1, "tune_s": 1.5,
            "note": "1 tried in 1.5 s", "noisy": False, "stolen": 0.0, "stopped": "",
        }
        for layer in (A, B)
    ]  # fmt: skip
    assert main(["tune", A, "--again", "--budget", "5trials", "--seed", "3", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["budget"], told["seed"]) == ("5trials", 3)
    assert main(["tune", A, "--again", "--strategy", "random", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["strategy"] == "random"
    assert stand_in.asked.pop() == A
    assert stand_in.asked.pop() == A
    assert main(["tune", A]) == 0
    shown = capsys.readouterr()
    assert f"[1/1] {A}: 12.5 us, known already; --again searches further" in shown.err
    assert " known " in shown.out and "stored" not in shown.out + shown.err
    assert stand_in.asked == [A, B]
    assert main(["tune", A, "--again"]) == 0
    assert stand_in.asked == [A, B, A]


def test_layers_of_two_files_are_told_apart(
    stand_in: Tuner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Layers of networks are often numbered."""
    for name, layer in (("one", A), ("two", B)):
        (tmp_path / f"{name}.txt").write_text(f"layer0 {layer}\n")
    assert main(["tune", str(tmp_path / "one.txt"), str(tmp_path / "two.txt")]) == 0
    lines = capsys.readouterr().out.splitlines()
    for layer in (A, B):
        assert len([line for line in lines if line.startswith(f"layer0 {layer} ")]) == 1
        assert f"layer0 {layer}: {direct(layer)}" in lines


def test_a_layer_that_bench_tunes_is_told_by_its_name(stand_in: Tuner) -> None:
    told: list[tuple[str, float]] = []
    bar: Any = SimpleNamespace(now=lambda *step: told.append(step))
    session = TuningSession(opened.open_device(None), Store(), bar, TuneOptions(), share=0.6)
    assert session.tune_s(Layer("R0", Problem.parse(A))) == 1.5
    assert told == [("R0: 1 tried, best 12.5 us", 0.3), ("R0: comparing 1 finalist", 0.6)]
    session._tell(Tried(winner(A), 7, None, 0.1, 1.0), "R0")
    assert told[-1] == ("R0: 7 tried, none correct yet", 0.6)


def test_tune_calibrates_a_device_that_never_was(stand_in: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(opened, "calibrate_once", asked.append)
    assert main(["tune", A]) == 0
    assert [runtime.device for runtime in asked] == [DEVICE]


def test_a_winner_of_a_busy_machine_is_told(stand_in: Tuner, capsys: pytest.CaptureFixture[str]) -> None:
    Store().add(replace(winner(A), measurement=Measurement(12.5, 20.0, 3, 10.0)))
    assert main(["tune", A]) == 0
    shown = capsys.readouterr()
    assert "known already, but timed on a busy machine; --again measures and" in shown.err
    assert "12.5~" in shown.out and NOISY_NOTE in shown.out and not stand_in.asked


def test_a_faster_trial_of_a_search_that_was_stopped_is_told(
    stand_in: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = winner(A, "trial", config=direct(A, 2), measurement=Measurement(9.5, 0.5, 3))
    for before, told in (([trial, winner(A)], False), ([trial], True), ([winner(A, "finalist")], False)):
        Store().add_all(before)  # behind what the store holds
        assert main(["tune", A]) == 0
        said = capsys.readouterr().err
        finish = "a trial of a search that was stopped was faster in a rough timing; --again finishes it"
        assert (finish in said) == told and ("--again searches further" in said) != told
    slower = replace(trial, measurement=Measurement(12.6, 0.5, 3))
    Store().add(slower)
    assert main(["tune", A]) == 0
    assert "--again searches further" in capsys.readouterr().err


def test_a_faster_trial_that_cannot_win_is_not_told(
    stand_in: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    """One by an older compiler; one without the same bits each time, if those were asked for."""
    quick: dict[str, Any] = dict(config=direct(A, 2), measurement=Measurement(9.5, 0.5, 3))
    older = winner(A, "trial", compiler="b", **quick)
    varies = winner(A, "trial", deterministic=False, **quick)
    cases = ((older, [], False), (varies, ["--deterministic"], False), (varies, [], True))
    Store().add(winner(A))
    for trial, options, told in cases:
        Store().add(trial)
        assert main(["tune", A, *options]) == 0
        assert ("a trial of a search that was stopped was faster" in capsys.readouterr().err) == told


def test_a_winner_that_beats_the_floor_is_marked(
    stand_in: Tuner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for floor_us, mark in ((25.0, 1), (12.5, 0)):
        monkeypatch.setattr("tilewright.measuring.calibrate.outdone", lambda *_, floor_us=floor_us: floor_us)
        assert main(["tune", A]) == 0
        shown = capsys.readouterr().out
        assert shown.count("200%‡") == shown.count("‡ beats the floor") == mark
    floors = iter((25.0, 12.5))
    monkeypatch.setattr("tilewright.measuring.calibrate.outdone", lambda *_: next(floors))
    assert main(["tune", A, B]) == 0
    shown = capsys.readouterr().out
    assert shown.count("200%‡") == shown.count("‡ beats the floor") == 1


def test_a_budget_that_was_exceeded_says_by_what(stand_in: Tuner, capsys: pytest.CaptureFixture[str]) -> None:
    best = winner(A)
    stand_in.instead[A] = lambda: TuneResult(best, (best,), (best,), 3.4, 0, "the time was used up", 1.0, 2.5)
    where = "1.0 s to start and compute references, 1.5 s to compile and try, 0.9 s to compare and check"
    assert main(["tune", A, "--budget", "1s"]) == 0
    assert f"1 tried in 3.4 s: {where} finalists (the time was used up)" in capsys.readouterr().err
    for enough in ("20s", "1trials"):
        assert main(["tune", A, "--budget", enough, "--again"]) == 0
        assert where not in capsys.readouterr().err


def test_a_long_check_is_told_before_it_begins(stand_in: Tuner, capsys: pytest.CaptureFixture[str]) -> None:
    large = "n1c1024h512w512k1024r3s3p1-f32"
    assert main(["tune", A, large]) == 0
    said = f"1 tried in 1.5 s\ncomputing f64 references of {large} first: 4,948 GFLOP, may take 2 minutes"
    assert said in capsys.readouterr().err
    assert main(["tune", A, large]) == 0
    assert "computing" not in capsys.readouterr().err


def test_tune_says_which_kernel_the_store_answers_with(
    stand_in: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = winner(A, raced="direct")  # the search that stands in says not which families raced
    faster = Measurement(9.5, 0.1, 50, 9.0)
    Store().add(winner(A, raced="direct", config=direct(A, 2), measurement=faster))
    assert main(["tune", A, "--again"]) == 0
    said = "1 tried in 1.5 s; the layer's winner is another search's: direct, 9.5 us"
    assert said in capsys.readouterr().err
    old = TuneResult(fast, (), (fast,), 1.5, 1, "all configs tried")
    stand_in.instead[A] = lambda: old
    assert main(["tune", A, "--again"]) == 0
    said = "0 tried in 1.5 s (all configs tried), the winner is of an earlier search"
    assert said in capsys.readouterr().err


def test_a_winner_whose_tuning_was_cut_short_or_of_another_source_is_tuned(stand_in: Tuner) -> None:
    Store().add_all([winner(A, stage="trial"), winner(A, compiler="another")])
    assert main(["tune", A]) == 0
    assert stand_in.asked == [A]


def test_a_pinned_family_is_searched_alone_and_settles_nothing_else(stand_in: Tuner) -> None:
    assert main(["tune", A, "--family", "direct"]) == 0
    assert main(["tune", A, "--family", "direct"]) == 0
    assert stand_in.families == [("direct",)]
    assert main(["tune", A]) == main(["tune", A]) == 0
    assert stand_in.families == [("direct",), ()]
    assert main(["tune", A, "--family", "winograd, direct"]) == 0  # the winner of all is one of them
    assert main(["tune", A, "--family", "winograd"]) == 0  # and is not of this one
    assert stand_in.families == [("direct",), (), ("winograd",)]


@pytest.mark.parametrize(("name", "says"), [("dirct", "known are direct,"), ("reference", "cannot be tuned")])
def test_a_family_that_cannot_be_pinned(
    stand_in: Tuner, name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", A, "--family", name]) == 2
    assert says in capsys.readouterr().err
    assert stand_in.asked == []


def test_batch_replaces_that_of_every_layer(stand_in: Tuner, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "R12", A, "--batch", "4", "--dtype", "f16"]) == 0
    assert stand_in.asked == ["n4c512h7w7k512r3s3p1-f16", A.replace("n1", "n4").replace("f32", "f16")]
    assert "R12 n4: direct" in capsys.readouterr().out
    assert main(["tune", A, "--batch", "0"]) == 2


@pytest.mark.parametrize(("stop", "status"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_ctrl_c_and_sigterm_keep_what_is_done(
    stand_in: Tuner, stop: type[KeyboardInterrupt], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.instead[B] = raises(stop())
    assert main(["tune", A, B]) == status
    shown = capsys.readouterr()
    assert f"{A}: {direct(A)}" in shown.out
    assert "stopped: 1 of 2 layers done" in shown.err
    assert "Traceback" not in shown.err


def test_a_search_that_is_stopped_at_its_first_layer_shows_no_table(
    stand_in: Tuner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.instead[A] = raises(KeyboardInterrupt())
    assert main(["tune", A, "--json", str(file := tmp_path / "t.json")]) == 130
    shown = capsys.readouterr()
    assert shown.out == "" and not file.exists()
    assert "stopped: 0 of 1 layer done" in shown.err


def test_a_store_that_cannot_be_written_will_do_where_all_winners_are_known(
    stand_in: Tuner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(store: Store) -> None:
        raise StoreError("nothing could be remembered")

    told: list[object] = []
    Store().add(winner(A))
    monkeypatch.setattr(Store, "require_writable", refuse)
    monkeypatch.setattr("tilewright.runtime.cache_folder.forgets", told.append)
    assert main(["tune", A]) == 0 and len(told) == 1
    assert "known already" in capsys.readouterr().err
    for needs in ([A, "--again"], [B], [A, B], [B, A], [A, "--family", "winograd"]):
        assert main(["tune", *needs]) == 2
        assert capsys.readouterr().err == "error: nothing could be remembered\n"
    assert main(["bench", B, "--peers", "none"]) == 2
    said = "error: nothing could be remembered; or give --no-tune, which stores nothing\n"
    assert capsys.readouterr().err == said and not stand_in.asked


def test_one_failing_layer_of_many_is_a_row(stand_in: Tuner, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.instead[A] = raises(ProblemError("no family takes it"))
    assert main(["tune", A, B]) == 1
    assert f"{A}: no family takes it" in capsys.readouterr().out
    assert main(["tune", A]) == 2
    assert capsys.readouterr().err == "error: no family takes it\n"


def test_nothing_right_says_what_became_of_the_trials(
    stand_in: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = Record(A, DEVICE.key, "direct", "direct:tk=1", "timeout", True)
    stand_in.instead[A] = lambda: TuneResult(None, (failed, failed), (), 3.0, 0)
    assert main(["tune", A]) == 1
    assert "2 timeout" in capsys.readouterr().err


def test_bench_without_peers_on_numpy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    names = {"--json": "o.json", "--markdown": "o.md", "--plot": "o.svg"}
    files = [part for option, name in names.items() for part in (option, str(tmp_path / name))]
    pytest.importorskip("matplotlib")
    assert main(["bench", A, "--device", "numpy", "--peers", "none", "--no-tune", *files]) == 0
    shown = capsys.readouterr()
    assert "[1/1]" in shown.err
    assert "no plot: no peer has a time" in shown.err
    assert json.loads((tmp_path / "o.json").read_text())["rows"][0]["problem"] == A
    assert "| layer |" in (tmp_path / "o.md").read_text()
    assert not (tmp_path / "o.svg").exists()


class Typed(io.StringIO):
    """Stands for a terminal at which something is typed."""

    def isatty(self) -> bool:
        return True


def test_clear_asks_before_it_deletes_everything(
    stand_in: Tuner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Store().add_all([winner(A), winner(A, config=direct(A, 2)), winner(B)])
    assert main(["cache", "clear", A]) == 0
    assert capsys.readouterr().out == "deleted 2 records\n" and Store().info().records == 1
    for typed, left in (("n\n", 1), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", Typed(typed))
        assert main(["cache", "clear"]) == 0
        said = capsys.readouterr().out
        assert "Delete everything: 1 record and the compiled kernels? [y/N]" in said
        assert said.endswith("deleted 1 record and 0 compiled kernels\n") == (typed == "y\n")
        assert Store().info().records == left


def test_what_the_cache_holds_is_told_in_words(
    stand_in: Tuner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TILEWRIGHT_CACHE_MIB", raising=False)
    Store().add_all([winner(A), Record(A, DEVICE.key, "direct", "direct:tk=1", "timeout", True)])
    assert main(["cache", "info"]) == 0
    told = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines()[1:])
    told = {name: value.strip() for name, value in told.items()}
    assert (told["records"], told["of them correct"], told["of them imported"]) == ("2", "1", "0")
    assert (told["devices"], told["damaged stores set aside"]) == (DEVICE.key, "none")
    assert told["limit of both in bytes"] == "1,073,741,824"


def test_explain_compares_with_kernels_that_may_be_chosen() -> None:
    problem, other = Problem.parse(A), winner(A, family="winograd")
    history = [winner(A), varies := winner(A, deterministic=False), other]
    assert explain._allowed(history, Request(problem)) == history
    assert explain._allowed(history, Request(problem, deterministic=True)) == [history[0], other]
    assert explain._allowed(history, Request(problem, families=("direct",))) == [history[0], varies]


NUMPY = ["bench", "--device", "numpy", "--peers", "none", "--no-tune"]


def test_bench_fails_where_a_layer_has_no_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    row = Bench.row

    def partly(self: Bench, layer: Layer) -> BenchRow:
        found = row(self, layer)
        return found if layer.name == A else replace(found, ours=OurFigure(reason="no kernel was right"))

    monkeypatch.setattr(Bench, "row", partly)
    assert main([*NUMPY, A, B]) == 1
    shown = capsys.readouterr()
    assert f"[2/2] {B}: no kernel was right, floor " in shown.err
    assert A in shown.out and f"{B}: no kernel was right" in shown.out
    assert main([*NUMPY, A]) == 0


def test_bench_plots_what_peers_have_a_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    row, drawn = Bench.row, list[tuple[float | None, Path]]()
    peers = {"onednn": PeerFigure(cold_us=1e9)}
    monkeypatch.setattr(Bench, "row", lambda self, layer: replace(row(self, layer), peers=peers))
    monkeypatch.setattr("tilewright.cli.bench.drawable", lambda file: None)
    monkeypatch.setattr("tilewright.cli.bench.draw", lambda found, file: drawn.append((found.geomean, file)))
    assert main([*NUMPY, A, "--plot", str(tmp_path / "x.svg")]) == 0
    ((ratio, file),) = drawn
    assert ratio and ratio > 1 and file == tmp_path / "x.svg" and "no plot" not in capsys.readouterr().err
    assert main([*NUMPY, A]) == 0 and len(drawn) == 1


def test_bench_passes_on_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    asked: dict[str, Any] = {}

    def made(**how: Any) -> None:
        asked.update(how)
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.bench.bench.Bench", made)
    assert main([*NUMPY, A, "--seed", "3", "--deterministic", "--family", "direct"]) == 130
    assert asked["runtime"].device.backend == "numpy" and isinstance(asked["store"], Store)
    assert (asked["peers"], asked["tune"]) == ((), None)
    assert asked["wanted"] == TuneOptions(seed=3, deterministic=True, families=("direct",))
    assert main([*NUMPY[:-1], A]) == 130
    session = asked["tune"].__self__
    assert (session.share, session.wanted, asked["wanted"]) == (0.6, TuneOptions(), TuneOptions())
    assert asked["progress"] == session.progress.now


def test_bench_calibrates_and_says_when_its_checks_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    calibrated: list[str] = []
    monkeypatch.setattr(opened, "calibrate", lambda runtime: calibrated.append(runtime.device.backend))
    monkeypatch.setattr(Bench, "row", lambda self, layer: raises(KeyboardInterrupt())())
    large = "n4c256h228w228k256r5s5-f32"
    assert main([*NUMPY, large, A]) == 130
    assert f"references of {large} first: 658 GFLOP, may take 1 minute" in capsys.readouterr().err
    assert calibrated == ["numpy"]


def test_model_report(
    stand_in: Tuner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tilewright.search import replay

    shares = ((0, 0.81), (8, 0.9), (100, 1.0))
    one = replay.Replay(A, "model", 40, 12.5, "direct:tk=1", shares, 40, 3)
    monkeypatch.setattr(replay, "replay", lambda *_, **__: one)
    assert main(["model-report", A, B, "--json", "-"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["geometric_mean"]["8"] == pytest.approx(0.9)
    assert shown.err == f"[1/2] {A}: 40 configs recorded\n[2/2] {B}: 40 configs recorded\n"
    assert main(["model-report", A]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split() == ["layer", "recorded", "best", "us", "after", "0", "after", "8",
                                             "after", "100"]  # fmt: skip
    assert "81.0%" in shown and "left out" not in shown
    assert shown.splitlines()[-2].split() == ["geometric", "mean", "81.0%", "90.0%", "100.0%"]
    assert shown.splitlines()[-1].startswith("each column is a search of its own")
    monkeypatch.setattr(replay, "replay", lambda problem, *_, **__: one if str(problem) == A else None)
    assert main(["model-report", A, B]) == 0
    assert "1 layer left out: fewer than two correct configs recorded" in capsys.readouterr().out


def test_model_report_replays_the_families_of_a_search(
    stand_in: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those that take a layer but are less accurate than it asks for."""
    from tilewright.search import replay

    raced: list[str] = []
    monkeypatch.setattr(replay, "replay", lambda _, device, families, *__, **___: raced.extend(
        family.name for family in families))  # fmt: skip
    assert main(["model-report", "n1c64h28w28k64r3s3p1-accurate-nhwc"]) == 2
    assert "direct" in raced and "hopper" in raced and "winograd4" not in raced


def test_model_report_replays_what_was_asked_for(
    stand_in: Tuner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tilewright.search import replay

    asked: list[tuple[str, str, int]] = []

    def replayed(*given: Any, seed: int) -> replay.Replay:
        asked.append((str(given[0]), given[-1], seed))
        return replay.Replay(A, given[-1], 40, 12.5, "direct:tk=1", ((0, 0.5), (8, 0.9), (100, 1.0)), 40, 3)

    monkeypatch.setattr(replay, "replay", replayed)
    options = ["--dtype", "f16", "--layout", "nhwc", "--strategy", "random", "--seed", "7", "--json", "-"]
    assert main(["model-report", A, *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert asked == [(A.replace("f32", "f16-nhwc"), "random", 7)]
    assert (told["strategy"], told["seed"]) == ("random", 7)
    assert told["left_out"] == 0 and told["rows"][0]["best_us"] == 12.5


def test_model_report_says_which_trials_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    trials = Path(__file__).parents[2] / "benchmarks" / "h100" / "trials.jsonl.gz"
    assert main(["model-report", "R3", "--dtype", "tf32", "--records", str(trials)]) == 2
    there = "there are trials of accurate in nhwc, bf16 in nchw, bf16 in nhwc, f16 in nchw, f16 in nhwc"
    assert there in capsys.readouterr().err


@pytest.mark.parametrize("kept", [False, True])
def test_a_benchmark_that_is_stopped_says_how_to_keep_its_layers(
    kept: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    row, stop = Bench.row, raises(KeyboardInterrupt())
    monkeypatch.setattr(Bench, "row", lambda self, layer: row(self, layer) if layer.name == A else stop())
    file = str(tmp_path / "o.json") if kept else "-"
    bench = ["bench", "--device", "numpy", "--peers", "none", "--no-tune", "--json", file]
    assert main([*bench, A, B]) == 130
    with_file = "run the same command again, with --json FILE to keep the layers that are done"
    way_on = "the same command with --resume continues" if kept else with_file
    assert f"stopped: 1 of 2 layers done; all trials so far are kept; {way_on}\n" in capsys.readouterr().err


def test_a_benchmark_that_is_stopped_before_it_saves_a_layer_leaves_the_earlier_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --resume the earlier layers would count as done, and none would be measured again."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "o.json"
    bench = ["bench", "--device", "numpy", "--peers", "none", "--no-tune", "--json", str(file), A]
    assert main(bench) == 0
    before = file.read_text()
    monkeypatch.setattr(Bench, "row", lambda self, layer: raises(KeyboardInterrupt())())
    assert main(bench) == 130
    said = f"{file} is unchanged, as an earlier run left it; run the same command again\n"
    assert said in capsys.readouterr().err
    assert file.read_text() == before


@pytest.mark.parametrize("installed", (False, True))
def test_a_row_without_a_peer_that_is_there_now_is_measured_again(installed: bool) -> None:
    absent = needed("there", *(() if installed else (("no_such_module", "it"),)))
    figures = {"there": PeerFigure(reason=needed("there", ("no_such_module", "it")) or "")}
    row = BenchRow("A", A, 1.0, OurFigure(cold_us=2.0), figures)
    peer = SimpleNamespace(name="there", absent=lambda device: absent)
    work: Any = SimpleNamespace(peers=(peer,), runtime=SimpleNamespace(device=None))
    before, layers = Results(device={}, date="", commit="", rows=(row,)), [Layer("A", Problem.parse(A))]
    assert (_BenchRun(work, layers, before).left == layers) is installed
    assert not _BenchRun(work, [], before).left


def test_bench_goes_on_from_its_file_and_adds_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "o.json"
    bench = ["bench", "--device", "numpy", "--peers", "none", "--no-tune", "--json", str(file)]
    assert main([*bench, A]) == 0
    first = json.loads(file.read_text()) | {"date": "2001-02-03"}
    file.write_text(json.dumps(first))
    assert main([*bench, "--resume", A]) == 0  # nothing to do: the file stays what it was
    assert json.loads(file.read_text()) == first
    capsys.readouterr()
    file.write_text(json.dumps(first | {"commit": "abc"}))
    assert main([*bench, "--resume", B, A]) == 0
    second = json.loads(file.read_text())
    assert [row["problem"] for row in second["rows"]] == [A, B]
    assert second["rows"][0] == first["rows"][0]
    assert second["commit"].startswith("abc") and second["date"] > first["date"]
    assert "kept from the file" in capsys.readouterr().err
    failed = {**first["rows"][0], "ours": {"reason": "no kernel was right"}}
    file.write_text(json.dumps(first | {"rows": [failed, {**failed, "name": "other"}]}))
    assert main([*bench, "--resume", A]) == 0  # the first is tried again, the other is none of its layers
    third = {row["name"]: row["ours"] for row in json.loads(file.read_text())["rows"]}
    assert third[A]["cold_us"] and third["other"]["reason"] == "no kernel was right"
    file.write_text(json.dumps(first | {"device": first["device"] | {"key": "another"}}))
    assert main([*bench, "--resume", A]) == 2
    assert "was measured on another, this is" in capsys.readouterr().err
    file.write_text(json.dumps(first))
    assert main([*bench, "--resume", "--seed", "1", B]) == 2
    assert "measured with seed 0, this is with seed 1; give the same options" in capsys.readouterr().err
    assert main([*bench, "--resume", "--deterministic", "--family", "textbook", B]) == 2
    assert "with deterministic: yes, families textbook; give the same" in capsys.readouterr().err
    file.write_text(json.dumps(first | {"protocol": first["protocol"] | {"strategy": "random"}}))
    assert main([*bench, "--resume", B]) == 2
    assert "measured with strategy random, this is with strategy model; give" in capsys.readouterr().err
    file.write_text(json.dumps(first))
    assert main([*(part for part in bench if part != "--no-tune"), "--resume", B]) == 2
    assert "measured with tuned: no, this is with tuned: yes; give" in capsys.readouterr().err
    assert main([*(part if part != "none" else "all" for part in bench), "--resume", B]) == 2
    assert "measured with no peers, this is with peers onednn and onnxruntime" in capsys.readouterr().err
    assert json.loads(file.read_text()) == first
    limits = first["protocol"]["limits"] | {"max_rounds": 3, "relative": 0.5}
    file.write_text(json.dumps(first | {"protocol": first["protocol"] | {"limits": limits}}))
    assert main([*bench, "--resume", B]) == 2  # no option would help
    now = "limits max_rounds 200, relative 0.01"
    told = f"with limits max_rounds 3, relative 0.5, this is with {now}; name another file"
    assert told in capsys.readouterr().err
    assert main([*bench[:-2], "--resume", A]) == 2
    assert "give --json FILE too" in capsys.readouterr().err


def test_model_report_passes_over_layers_of_another_version(
    stand_in: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    Store().add(winner(A.replace("f32", "f16")))
    Store().add(replace(winner(A), problem=f"{A}+gelu"))
    assert main(["model-report", A]) == 2
    assert "there are trials of f16 in nchw: choose one" in capsys.readouterr().err


def test_model_report_saves_what_it_replays(
    stand_in: Tuner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trials of the layers that were asked for, and no others."""
    saved, again = str(tmp_path / "trials.jsonl.gz"), str(tmp_path / "again.jsonl.gz")
    for problem in (A, B):
        for number, us in ((1, 25.0), (2, 10.0)):
            trial = winner(problem, stage="search", config=direct(problem, number))
            Store().add(replace(trial, measurement=Measurement(us, 0.25, 50, us)))
    assert main(["model-report", A, "--save", saved, "--json", "-"]) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert told["rows"][0]["recorded"] == 2 and told["rows"][0]["best_us"] == 10.0
    assert told["device"] == DEVICE.name and saved in shown.err
    Store().clear()
    assert main(["model-report", A, B, "--records", saved, "--save", again, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == {**told, "left_out": 1}
    assert main(["model-report", B, "--records", again]) == 2
    assert "there are trials of f32 in nchw: choose one" in capsys.readouterr().err


def test_model_report_says_which_trials_the_store_has(
    stand_in: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of other dtypes than the one that was asked for, too."""
    Store().add(winner(A.replace("f32", "f16")))
    assert main(["model-report", A]) == 2
    assert "there are trials of f16 in nchw: choose one" in capsys.readouterr().err
