"""A study that is stopped: every layer that is done is kept, and ``--resume`` goes on from there."""

from __future__ import annotations

import errno
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_studies import NAIVE, lab, runtime

from tilewright.bench import environment
from tilewright.cli import main
from tilewright.cli import study as command
from tilewright.problem import Problem
from tilewright.report.study import heading, part_table
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime
from tilewright.store import Store
from tilewright.studies import study_run
from tilewright.studies.document import document as document_of
from tilewright.studies.document import load
from tilewright.studies.lab import Lab
from tilewright.studies.study import (
    Im2colMemory,
    PartResult,
    Step,
    Steps,
    Study,
    StudyError,
    StudyLayer,
    TuningCurves,
    Value,
)
from tilewright.studies.study_run import StudyRun, earlier_result
from tilewright.tuning.budget import Budget
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.worker_pool import WorkerPool

__all__ = ["runtime"]  # a fixture

SAMPLE = Path(__file__).parent / "study_sample.json"
COMMITTED = sorted((Path(__file__).parents[2] / "benchmarks").glob("*/studies/*.json"))
A = StudyLayer("A", "n1c16h9w9k16r3s3p1-f32", quick="n1c16h9w9k16r3s3p1-f32")
B = replace(A, name="B")
STUDY = Study(
    "lenet", "A study", "a source", "a device",
    (
        Steps("steps", (A, B), (Step("naive", config=NAIVE), Step("later", config="waits")), total=True),
        TuningCurves("search", (A, B), ("model", "local")),
        Im2colMemory("memory", ("lenet",)),
    ),
)  # fmt: skip

PART = {"title": "steps", "chart": "ladder", "note": "", "columns": []}  # all of a part but its rows

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(autouse=True)
def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes seconds; the quick run of csg has a real one."""

    def curve(part: TuningCurves, layer: StudyLayer, strategy: str, lab: Lab) -> list[dict[str, Value]]:
        return [{"layer": layer.name, "strategy": strategy, "elapsed_s": 1.5, "trials": 1.0, "best_us": 2.0}]

    monkeypatch.setattr("tilewright.studies.searching._curve", curve)


def test_a_part_grows_layer_by_layer(runtime: Runtime) -> None:
    first, second = study_run.run_part(STUDY.parts[0], lab(runtime))
    assert (first.left, second.left) == (("B",), ())
    assert [row["layer"] for row in first.rows] == ["A", "A"]
    assert [row["layer"] for row in second.rows] == ["A", "A", "B", "B", "sum", "sum"]
    assert first.rows == second.rows[:2] and first.rows[0]["speedup"] == 1.0
    assert second.rows[4]["time_us"] == pytest.approx(sum(float(second.rows[i]["time_us"]) for i in (0, 2)))
    assert any("not measured yet: B" in note for note in part_table(first).notes)
    curves = list(study_run.run_part(STUDY.parts[1], lab(runtime)))
    assert [part.left for part in curves] == [("B",), ()]
    assert {row["layer"] for row in curves[0].rows} == {"A"}
    assert curves[0].rows == curves[1].rows[:2] and len(curves[1].rows) == 4


def run(monkeypatch: pytest.MonkeyPatch, *words: str, stop: str = "") -> int:
    """Run the command on ``STUDY``, stopped where it says the words of ``stop``; return its status."""

    def remark(text: str) -> None:
        print(text, file=sys.stderr)
        if stop and stop in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(study_run, "study", lambda name, quick: STUDY)
    monkeypatch.setattr("tilewright.cli.study.remark", remark)
    return main(["study", "lenet", "--quick", "--device", "cpu", *words])


@pytest.mark.parametrize(
    ("words", "left", "said"),
    [
        ("steps: A", None, "0 of 3 parts done"),
        ("steps: B", [("B",)], "0 of 3 parts done, and 1 of 2 layers of part 1"),
        ("search: A", [()], "1 of 3 parts done"),
        ("search: B", [(), ("B",)], "1 of 3 parts done, and 1 of 2 layers of part 2"),
    ],
)
def test_a_stopped_study_writes_every_layer_that_is_done(
    words: str, left: list[tuple[str, ...]] | None, said: str, runtime: Runtime, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "markdown", "html")}
    outputs = [word for kind, file in files.items() for word in (f"--{kind}", str(file))]
    assert run(monkeypatch, *outputs, stop=words) == 130
    shown = capsys.readouterr()
    assert f"stopped: {said}; the same command with --resume continues\n" in shown.err
    assert ("steps\n" in shown.out) == (left is not None)  # tables of what is done, whole parts or not
    assert ("not measured yet: B" in shown.out) == bool(left and left[-1])
    if left is None:
        assert not any(file.exists() for file in files.values())
        return
    result = load(files["json"])
    assert [part.left for part in result.parts] == left
    assert [{row["layer"] for row in part.rows} >= {"A"} for part in result.parts] == [True] * len(left)
    for kind in ("markdown", "html"):
        assert ("not measured yet: B" in files[kind].read_text()) == any(left)


def test_a_study_that_is_stopped_before_it_saves_a_layer_leaves_the_earlier_file(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be of another study, which --resume refuses; or complete, and nothing would be measured."""
    (file := tmp_path / "x.json").write_text("earlier")
    for stop, said in (
        ("steps: A", f"{file} is unchanged, as an earlier run left it; run the same command again"),
        ("steps: B", "the same command with --resume continues"),
    ):
        assert run(monkeypatch, "--json", str(file), stop=stop) == 130
        assert f"{said}\n" in capsys.readouterr().err
        assert (file.read_text() == "earlier") == (stop == "steps: A")


def test_a_layer_of_steps_says_when_they_are_timed(runtime: Runtime) -> None:
    said: list[str] = []
    next(study_run.run_part(STUDY.parts[0], replace(lab(runtime), say=said.append)))
    assert said[-1] == "steps: A, timing 1 step"  # the other has no kernel


def test_a_stopped_study_without_a_file_says_that_it_keeps_nothing(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--part", "2", stop="search: B") == 130
    again = "run the same command again, with --json FILE to keep the layers that are done"
    assert f"stopped: 0 of 1 part done, and 1 of 2 layers of part 2; {again}\n" in capsys.readouterr().err


def test_a_study_that_nobody_reads_ends_and_writes_what_is_done(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(table: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("tilewright.cli.study.show", gone)
    monkeypatch.setattr("tilewright.cli.outputs.drop_stdout", lambda: None)
    document, text = tmp_path / "out.json", tmp_path / "out.md"
    assert run(monkeypatch, "--markdown", str(text), "--json", str(document)) == 141
    assert [part.left for part in load(document).parts] == [()]
    assert "## steps" in text.read_text()


def test_a_killed_study_loses_the_layer_under_way_alone(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.json"

    def dies(text: str) -> None:
        if "search: B" in text:
            raise SystemError("as good as killed: nothing catches it")

    monkeypatch.setattr(study_run, "study", lambda name, quick: STUDY)
    monkeypatch.setattr("tilewright.cli.study.remark", dies)
    with pytest.raises(SystemError):
        main(["study", "lenet", "--quick", "--device", "cpu", "--json", str(file)])
    assert [part.left for part in load(file).parts] == [(), ("B",)]


def test_a_full_disk_ends_no_study(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "out.json"
    monkeypatch.setattr("tilewright.cli.outputs.atomic_write", full)
    assert run(monkeypatch, "--json", str(file)) == 2
    shown, said = capsys.readouterr(), f"--json {file}: No space left on device"
    for words in ("1. steps\n", "2. search\n", "3. memory\n", "A study ("):
        assert words in shown.out
    lines = shown.err.splitlines()
    assert lines.count(said) == 5  # after each layer of two parts, and the third part
    assert lines[-1] == f"error: {said}" and not file.exists()


def test_a_study_of_several_days_says_so() -> None:
    found = load(SAMPLE)
    assert f", {found.date[:10]}, quick" in heading(found)
    assert f", {found.date[:10]}); published figures: " in heading(replace(found, quick=False))
    later = replace(found.parts[0], date="2027-02-03T04:05:06+00:00")
    found = replace(found, parts=(later, *found.parts[1:]))
    assert f", {found.date[:10]} to 2027-02-03, quick" in heading(found)


def at(commit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the code be of a commit."""
    for module in (environment, study_run):
        monkeypatch.setattr(module, "commit", lambda: commit)


@pytest.mark.parametrize("stop", ["steps: A", "steps: B", "search: B"])
def test_a_stopped_study_is_gone_on_with(
    stop: str, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "x.json"
    resume = ("--json", str(file), "--resume")
    at("one", monkeypatch)
    assert run(monkeypatch, *resume, stop=stop) == 130  # where there is no file it begins
    before = load(file).parts if file.exists() else ()
    capsys.readouterr()
    at("two", monkeypatch)
    assert run(monkeypatch, *resume) == 0
    said, found = capsys.readouterr().err, load(file)
    steps, search, memory = found.parts
    assert [(part.title, part.left) for part in found.parts] == [(part.title, ()) for part in STUDY.parts]
    assert [row["layer"] for row in steps.rows] == ["A", "A", "B", "B", "sum", "sum"]
    assert [row["layer"] for row in search.rows] == ["A", "A", "B", "B"]
    for old, new in zip(before, found.parts, strict=False):
        assert new.rows[: len(old.rows)] == old.rows  # not measured again
        assert all(f"{old.title}: {row['layer']}," not in said for row in old.rows)
    commits = {"steps: A": ("two", "two"), "steps: B": ("one, two", "two"), "search: B": ("one", "one, two")}
    assert (steps.commit, search.commit, memory.commit) == (*commits[stop], "two")
    assert all(part.date for part in found.parts) and found.commit == "two"
    at("three", monkeypatch)
    assert run(monkeypatch, *resume) == 0  # nothing is left, nothing changes
    assert load(file) == found
    shown = capsys.readouterr()
    assert "all parts asked for are done" in shown.err
    assert all(f"{n}. {title}\n" in shown.out for n, title in enumerate(("steps", "search", "memory"), 1))


def test_parts_alone(runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.json"
    assert run(monkeypatch, "--json", str(file), "--part", "3,1", "--part", "1") == 0
    found = load(file)
    assert [part.title for part in found.parts] == ["steps", "memory"]
    resume = ("--json", str(file), "--part", "2", "--resume")
    assert run(monkeypatch, *resume, stop="search: B") == 130
    assert [(part.title, part.left) for part in load(file).parts] == [
        ("steps", ()), ("search", ("B",)), ("memory", ()),
    ]  # fmt: skip
    assert run(monkeypatch, *resume) == 0
    steps, search, memory = load(file).parts
    assert (steps, memory) == found.parts and not search.left
    assert run(monkeypatch, "--json", str(file), "--part", "2") == 0
    assert [part.title for part in load(file).parts] == ["search"]


def test_a_budget_tunes_layers_with_the_families_of_their_steps(
    own_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        "tilewright.dispatch.once.tune_once", lambda *given, children: tuned.append((*given, children))
    )
    device, store, children = open_runtime("numpy"), Store(), WorkerPool()
    without = command._lab(device, store, True, None, children)
    assert (without.tune, without.budget, without.quick) == (None, "", True)
    budget, problem = Budget(seconds=20.0), Problem.parse(A.problem)
    found = command._lab(device, store, False, budget, children)
    assert found.budget == "20s" and found.tune is not None
    found.tune(problem, ("direct",))
    assert tuned == [(problem, device, store, TuneOptions(budget, families=("direct",)), children)]


def test_parts_without_a_ladder_are_not_plotted(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    assert run(monkeypatch, "--part", "2", "--plot", str(file := tmp_path / "x.svg")) == 0
    assert "no plot: no part that has a ladder is done\n" in capsys.readouterr().err and not file.exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "csg"}, ["the study csg, not of lenet", "run that one"]),
        ({"device": {"key": "cuda/H100"}}, ["measured on cuda/H100, this is opencl/", "--device"]),
        ({"device": {}}, ["unknown device"]),
        ({"quick": False}, ["without --quick", "leave it out"]),
        ({"budget": "20s"}, ["measured with --budget 20s; give it, or name another file after --json"]),
        ({"budget": 20}, ["x.json: a damaged", "budget"]),
        ({"left": ["B", "R9"]}, ["lacks R9", "'steps'", "leave --resume out"]),
        ({"parts": 3}, ["x.json: a damaged", "parts: must be a list"]),
        ({"parts": [PART | {"rows": [{"layer": ["A"]}]}]}, ["layer: must be a text or"]),
        ({"device": {"key": "numpy", "clock_ghz": math.nan}}, ["x.json: holds numbers that are none, NaN"]),
        ({"format": "other"}, ["x.json: not a results document of a study"]),
    ],
)
def test_a_file_of_something_else_is_not_gone_on_with(
    changed: dict[str, Any], words: list[str], runtime: Runtime, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "x.json"
    part = PartResult("steps", "ladder", "", (), (), left=tuple(changed.pop("left", ())))
    document = document_of(StudyRun(STUDY, {}, latest={part.title: part}).result(lab(runtime))) | changed
    file.write_text(text := json.dumps(document))
    assert run(monkeypatch, "--json", str(file), "--resume") == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and len(shown.splitlines()) == 1
    assert all(word in shown for word in words)
    assert file.read_text() == text


def test_quick_sizes_are_not_gone_on_with_in_full(runtime: Runtime, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(document_of(StudyRun(STUDY, {}).result(lab(runtime)))))
    with pytest.raises(StudyError, match="with --quick; give it, or name another file after --json"):
        earlier_result(file, STUDY, replace(lab(runtime), quick=False))


def test_what_was_not_tuned_is_not_gone_on_with_tuned(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resume = ("--json", str(tmp_path / "x.json"), "--resume")
    assert run(monkeypatch, *resume, "--part", "3") == 0
    assert run(monkeypatch, *resume, "--budget", "1s") == 2
    assert "without --budget; leave it out, or name another file after --json" in capsys.readouterr().err
    assert run(monkeypatch, *resume) == 0 and load(tmp_path / "x.json").budget == ""


def test_an_older_file_does_not_say_whether_it_was_tuned(runtime: Runtime, tmp_path: Path) -> None:
    document = document_of(StudyRun(STUDY, {}).result(lab(runtime)))
    del document["budget"]
    (file := tmp_path / "x.json").write_text(json.dumps(document))
    tuned = replace(lab(runtime), budget="1s")
    before = earlier_result(file, STUDY, tuned)
    assert before is not None and StudyRun(STUDY, {}, before).result(tuned).budget is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--resume", "--json FILE"),
        ("--resume --json -", "--json FILE"),
        ("--resume --json {tmp}/text", "not JSON"),
        ("--part 4", "--part 4: the parts of lenet are 1. steps; 2. search; 3. memory"),
        ("--part 1 --part 0", "--part 0: the parts of lenet are 1. steps"),
        ("--part two", "--part 'two': must be the number of a part, or several: 1,3"),
        ("--part ١", "--part '١': must be the number of a part"),
        ("--part 1,,2", "--part '': must be"),
    ],
)
def test_mistakes(
    words: str, said: str, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "text").write_text("no results")
    assert run(monkeypatch, *words.format(tmp=tmp_path).split()) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and len(shown.splitlines()) == 1 and said in shown


def test_results_have_the_peaks_of_what_was_timed(runtime: Runtime) -> None:
    rows = tuple({"problem": f"n1c16h9w9k16r3s3p1-{dtype}", "time_us": us}
                 for dtype, us in (("f32", 3.0), ("i8", 2.0), ("f16", None)))  # fmt: skip
    part = PartResult("steps", "bars", "", (), rows)
    device = StudyRun(STUDY, {}, latest={part.title: part}).result(lab(runtime)).device
    f32 = runtime.device.rates.f32_tflops
    assert device["peak_tflops"] == {"f32": f32, "i8": 4 * f32}
