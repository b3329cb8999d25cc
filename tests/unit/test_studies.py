"""Studies: their data is whole, each runs quickly on a CPU, what cannot run leaves its reason."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.arguments.named import find
from tilewright.checking.inputs import Inputs, normal_inputs
from tilewright.cli import main
from tilewright.device import for_architecture
from tilewright.errors import ConfigError, ProblemError, RunError
from tilewright.floor import floor_us
from tilewright.kernels import family_of
from tilewright.problem import Problem
from tilewright.profiling.figures import Figure, KernelProfile, Profile
from tilewright.record import Check, Measurement
from tilewright.report.html import study as html_study
from tilewright.report.study import bars, cell, duration, part_table, study_markdown
from tilewright.report.table import BEATS_NOTE, NOISY_NOTE
from tilewright.runtime.base import Runtime
from tilewright.search.space import Space
from tilewright.store import Store
from tilewright.studies import steps, study_run
from tilewright.studies.breakdown import OURS
from tilewright.studies.document import document as document_of
from tilewright.studies.document import load, parse
from tilewright.studies.lab import Entry, Lab, pinned
from tilewright.studies.memory import formula_bytes
from tilewright.studies.published import FOLDER, beside, table
from tilewright.studies.study import (
    Breakdown,
    Column,
    Counters,
    Part,
    PartResult,
    Step,
    Steps,
    StudyLayer,
    TuningCurves,
    Value,
    present,
    published_us,
    time_us,
)

H100 = for_architecture("sm_90")
SMALL = StudyLayer("S", "n1c16h9w9k16r3s3p1-f32", quick="n1c16h9w9k16r3s3p1-f32")
NAIVE = "textbook:step=0.bw=8.bh=8.bk=1.pool=0"

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def runtime(hasty: Runtime) -> Runtime:
    """The CPU, in haste."""
    return hasty


def lab(runtime: Runtime) -> Lab:
    """A quick lab with an empty store."""
    return Lab(runtime, Store(shipped=False), quick=True)


# ------------------------------------------------------------------------------------ the data


@pytest.mark.parametrize("name", study_run.NAMES)
def test_every_layer_and_config_is_legal_on_an_h100(name: str) -> None:
    study = study_run.study(name)
    assert study.name == name and study.parts
    assert len({part.title for part in study.parts}) == len(study.parts)
    for part in study.parts:
        layers = getattr(part, "layers", ())
        assert present(layers, quick=True) or not isinstance(part, Steps | TuningCurves)
        assert len({layer.name for layer in layers}) == len(layers)
        for layer in layers:
            layer.at(False)
            assert not layer.quick or layer.at(True)
            for step in getattr(part, "steps", ()):
                if not step.config or step.dtype:
                    continue
                for quick in (False, True):
                    if layer.quick or not quick:
                        problem = layer.at(quick)
                        config = find(step.config, problem)
                        family_of(config.family).check(problem, H100, config)


@pytest.mark.parametrize("name", study_run.NAMES)
def test_a_quick_study_tells_of_its_own_sizes(name: str) -> None:
    whole, quick = study_run.study(name), study_run.study(name, quick=True)
    for words in ("10000", "4096", "1024 x", "64 times"):
        assert not any(words in text for part in quick.parts for text in (part.title, part.note, quick.title))
    for part, full in zip(quick.parts, whole.parts, strict=True):
        for step, theirs in zip(getattr(part, "steps", ()), getattr(full, "steps", ()), strict=True):
            for layer, figures in step.published.items():
                assert figures[0] == f"at full size: {theirs.published[layer][0]}"
                assert published_us(figures) is None  # of no speed-up
    sizes = {layer.quick for part in quick.parts for layer in getattr(part, "layers", ()) if layer.quick}
    if name == "lenet":
        assert quick.title.endswith("batch 8") and all(text.startswith("n8c") for text in sizes)
    if name == "im2col-gemm":
        assert {part.title[-15:] for part in quick.parts[:2]} == {"128 x 128 x 256"}
        k, c, pixels = 128, 128, 256
        assert sizes == {f"n1c{c}h16w{pixels // 16}k{k}r1s1-f32"}
        assert f"{4096**3 // (k * c * pixels):,} times the work" in quick.parts[1].note


def test_a_published_table_beside_a_quick_run_is_marked(runtime: Runtime) -> None:
    part = study_run.study("diannao", quick=True).parts[6]
    assert isinstance(part, Breakdown) and part.table
    *_, found = study_run.run_part(replace(part, layers=(SMALL,), steps=part.steps[:1]), lab(runtime))
    assert [column.title for column in found.columns] == ["activity", "8x8", "8x8: published at full size"]


def test_steps_without_figures_are_noted_by_reason() -> None:
    part = study_run.study("diannao", quick=True).parts[6]
    assert isinstance(part, Breakdown) and part.note
    found = {("A", "8x8"): {"kernel": 1.0}, ("A", "16x16"): "no room", ("A", "32x32"): "no room"}
    notes = part_table(beside(part, {**found, ("A", "32x32 f16"): "no f16"}, OURS, quick=True)).notes
    assert notes == (part.note, "no figures for 16x16; 32x32: no room", "no figures for 32x32 f16: no f16")
    alone = part_table(beside(part, {}, OURS, quick=True)).notes
    assert alone == ("left out of a quick run: these are the source's figures alone",)


def test_a_table_says_what_its_steps_are_here() -> None:
    steps_of = {"a": "one output a thread", "b": "one output a thread", "c, d": "tiles", "e": ""}
    columns = (Column("layer", "layer"), Column("step", "step"))
    rows: tuple[dict[str, Value], ...] = tuple(
        {"layer": layer, "step": step, "what": what} for layer in "LM" for step, what in steps_of.items()
    )
    shown = part_table(PartResult("t", "ladder", "As there.", columns, rows))
    assert shown.notes == ("'a'; 'b' here: one output a thread", "'c, d' here: tiles", "As there.")
    table_2 = study_run.study("toy-cnn").parts[0]
    assert isinstance(table_2, Steps) and all(step.what for step in table_2.steps)


@pytest.mark.parametrize("text", [("Text.\n", "Text."), ("", "")])
def test_a_cpu_is_told_of_where_steps_are_made_for_a_gpu(text: tuple[str, str], runtime: Runtime) -> None:
    given, note = text
    naive = (Step("naive", config=NAIVE), Step("tile", config=NAIVE.replace("step=0", "step=1")))
    for chosen, told in ((naive, steps.ON_A_CPU), (naive[:1], "")):
        *_, found = study_run.run_part(Steps("t", (SMALL,), chosen, note=note), lab(runtime))
        assert found.note == (given + told if told else note)


def test_a_table_names_its_peers() -> None:
    columns = (Column("layer", "layer"), Column("step", "step"))
    rows: tuple[dict[str, Value], ...] = tuple(
        {"layer": layer, "step": step, "config": config, "note": note, "time_us": 9.0}
        for layer, step, config, note in (
            ("L", "fastest peer", "", "cudnn: engine 1"), ("L", "cuDNN", "", "cudnn: engine 1"),
            ("M", "fastest peer", "", "pytorch: nchw"), ("N", "fastest peer", "", "cudnn: engine 2"),
            ("L", "direct", "direct:a=1", "shipped: verified here"),
        )
    )  # fmt: skip
    shown = part_table(PartResult("t", "ladder", "", columns, rows))
    assert shown.notes == ("by cudnn: L fastest peer; N fastest peer", "by pytorch: M fastest peer")


def test_names_with_commas_are_told_apart() -> None:
    rows: tuple[dict[str, Value], ...] = tuple(
        {"layer": "L", "step": step, "reason": "no peer"} for step in ("cuDNN, GEMM only", "cuDNN")
    )
    part = PartResult("t", "ladder", "", (Column("layer", "layer"), Column("step", "step")), rows)
    assert part_table(part).notes == ("no time for L cuDNN, GEMM only; L cuDNN: no peer",)


def test_a_large_counter_has_no_exponent(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figure("f32 operations", 3702587392), Figure("time", 12.345678, "us"), Figure("tile", 17344)
    profiled = Profile("model", "", (KernelProfile("k", figures, "the memory"),))
    monkeypatch.setattr("tilewright.studies.counters.profile", lambda plan: profiled)
    whole = study_run.study("diannao", quick=True).parts[10]
    assert isinstance(whole, Counters)
    part = replace(whole, layers=(SMALL,), steps=(Step("8x8", config=NAIVE),))
    *_, found = study_run.run_part(part, lab(runtime))
    texts = [row["8x8"] for row in found.rows if row.get("8x8")]
    assert texts == ["3702587392 (model)", "12.35 us (model)", "17344 (model)", "the memory"]


@pytest.mark.parametrize("name", study_run.NAMES)
def test_steps_have_names_of_their_own_and_figures_that_can_be_read(name: str) -> None:
    for part in study_run.study(name).parts:
        steps = part.steps if isinstance(part, Steps | Breakdown | Counters) else ()
        assert len({step.name for step in steps}) == len(steps)
        for step in steps:
            layers = {layer.name for layer in getattr(part, "layers", ())} | {"", "sum"}
            assert set(step.published) <= layers
            assert all(published_us(figures) for figures in step.published.values()), step.name
        if isinstance(part, Breakdown | Counters) and part.table:
            assert set(table(part.table).steps) == {step.name for step in steps}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.tsv")), ids=lambda path: path.stem)
def test_published_tables(path: Path) -> None:
    found = table(path.stem)
    assert len(found.rows) >= 17
    assert found.times == path.stem.endswith("times")
    if found.times:  # what the source sums up is the sum, as printed
        for step in found.steps:
            parts = [time_us(found.rows[row][step]) or 0 for row in ("kernel", "memcpy HtoD", "memcpy DtoH")]
            assert sum(parts) == pytest.approx(time_us(found.rows["GPU sum"][step]), rel=2e-3)


def test_a_block_of_one_thread_is_told_as_one() -> None:
    part = study_run.study("diannao").parts[2]
    assert isinstance(part, Steps)
    said = [step.what.partition(", input")[0] for step in part.steps]
    assert said[:2] == ["1 thread", "32 threads"] and said[-1] == "1,024 threads"


def test_held_parameters() -> None:
    problem = Problem.parse("n1c64h14w14k64r3s3p1-f32")
    held = Space(family_of("direct"), problem, H100, {"sw": (2, 4), "sg": 1})
    configs = [config for config, _ in zip(held.every(), range(200), strict=False)]
    assert configs and all(config["sw"] in (2, 4) and config["sg"] == 1 for config in configs)
    for config in pinned(family_of("direct"), problem, H100, {"sw": 1, "sb": 2})[:3]:
        family_of("direct").check(problem, H100, config)
        assert (config["sw"], config["sb"]) == (1, 2)
    wide = pinned(family_of("direct"), problem, H100, {"tw": 14})[0]  # not offered by layers of experience
    assert wide["tw"] == 14
    with pytest.raises(ConfigError, match="no parameter 'frob'"):
        pinned(family_of("direct"), problem, H100, {"zap": 1, "frob": 1, "sap": 1})
    with pytest.raises(ConfigError, match="bh may not be 999"):
        pinned(family_of("direct"), problem, H100, {"bh": 999})
    with pytest.raises(ConfigError, match="not cover"):
        pinned(family_of("gemv"), problem, H100, {"x": 1})


def test_formula_of_im2col() -> None:
    problem = Problem.parse("n2c3h10w8k4r3s5-f32")
    assert formula_bytes(problem) == 3 * 5 * (10 - 3 + 1) * (8 - 5 + 1) * 3 * 2 * 4


@pytest.mark.parametrize(
    ("text", "us"),
    [("128.10ms", 128100.0), ("996ns", 0.996), ("1.53906e6ms", 1.53906e9), ("0.468s", 468000.0), ("x", None)],
)
def test_times_as_printed(text: str, us: float | None) -> None:
    assert time_us(text) == (pytest.approx(us) if us else None)


# ------------------------------------------------------------------------------------- running


# Why a kernel of ours may have no time on a CPU: it has other parameters there, or wants tensor cores, a GPU.
LEFT_OUT = re.compile(
    r"has no parameter '\w+' on|may not be [\d, ]+ here, but|it is made for the threads of a GPU"
    r"|textbook does not take \S+: (in f16 it computes matrix products|it computes f32|the device has no)"
)
WHOLE = "toy-cnn"  # that is run from end to end
CHECKED = {"csg": 11, "diannao": 20, "im2col-gemm": 12, "lenet": 10, WHOLE: 17}  # kernels of ours, on a CPU


def in_haste(part: Part) -> Part:
    """The part, with one short search where it has long ones."""
    if isinstance(part, TuningCurves):
        return replace(part, strategies=part.strategies[-1:], quick_trials=1)
    return part


def checked_rows(part: Part, found: PartResult) -> int:
    """Count the kernels of ours with a check of their answer; each has one, or a reason that is expected."""
    count = 0
    for row in found.rows:
        reason = str(row.get("reason") or "")
        if not isinstance(part, Steps):
            assert not reason or LEFT_OUT.search(reason), reason
            continue
        if row["layer"] == "sum":
            continue
        (step,) = (step for step in part.steps if step.name == row["step"])
        if step.peer:  # checked before it is timed (bench/contest.py); which are here is the machine's
            assert reason or (row["time_us"] and row.get("error_over_bound") is None)
        elif reason:
            assert LEFT_OUT.search(reason) and "time_us" not in row, reason
        else:
            error = row["error_over_bound"]
            assert row["time_us"] and row["config"], row
            assert isinstance(error, float) and 0 <= error <= 1, f"error_over_bound of {row}"
            count += 1
    return count


@pytest.mark.long
@pytest.mark.timeout(900)  # a minute on 4 cores of one's own
@pytest.mark.parametrize("name", sorted(CHECKED.keys() - {WHOLE}))
def test_quick_run(name: str, runtime: Runtime) -> None:
    """Each kernel of ours has its answer checked on every layer of a quick run."""
    assert CHECKED.keys() == set(study_run.NAMES)
    used, checked = lab(runtime), 0
    for part in map(in_haste, study_run.study(name).parts):
        *_, found = study_run.run_part(part, used)
        assert found.left == () and (found.rows or "left out" in found.note)
        if isinstance(part, Steps):
            ran = {(row["layer"], row["step"]) for row in found.rows if row["layer"] != "sum"}
            layers = present(part.layers, quick=True)
            assert ran == {(layer.name, step.name) for layer in layers for step in part.steps}
        checked += checked_rows(part, found)
    assert checked == CHECKED[name]


@pytest.mark.parametrize(
    ("change", "why"),
    [({"error_over_bound": None}, "error_over_bound"), ({"error_over_bound": 1.5}, "error_over_bound"),
     ({"reason": "wrong answer: one element is off"}, "wrong answer")],
)  # fmt: skip
def test_a_run_without_a_check_would_be_seen(change: dict[str, object], why: str) -> None:
    part = Steps("t", (SMALL,), (Step("naive", config=NAIVE),))
    row = {"layer": "S", "step": "naive", "time_us": 9.0, "config": NAIVE, "error_over_bound": 0.5}
    found = PartResult("t", "ladder", "", (), (row,))
    assert checked_rows(part, found) == 1
    with pytest.raises(AssertionError, match=why):
        checked_rows(part, replace(found, rows=({**row, **change},)))


@pytest.mark.parametrize("quick", [False, True])
def test_a_study_names_its_source_and_warns_of_full_sizes_on_a_cpu(
    quick: bool, runtime: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = ["study", "im2col-gemm", "--device", "cpu", "--part", "5"]  # which takes no time
    assert main([*memory, *["--quick"] * quick]) == 0
    said, study = capsys.readouterr().err, study_run.study("im2col-gemm")
    assert said.startswith(f"{study.title}; source: {study.source}\n")
    assert ("may take hours on a CPU: --quick" in said) != quick


@pytest.mark.long
def test_a_study_from_end_to_end(
    runtime: Runtime, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "markdown", "html")}
    outputs = [word for kind, file in files.items() for word in (f"--{kind}", str(file))]
    assert main(["study", WHOLE, "--quick", "--device", "cpu", *outputs]) == 0
    result, study = load(files["json"]), study_run.study(WHOLE, quick=True)
    assert result.quick and result.name == study.name
    pairs = [*zip(study.parts, result.parts, strict=True)]
    assert sum(checked_rows(part, found) for part, found in pairs) == CHECKED[WHOLE]
    assert files["markdown"].read_text().startswith(f"# {result.title}")
    assert "<svg" in files["html"].read_text()
    assert result.title in capsys.readouterr().out


def test_what_cannot_run_leaves_its_reason(runtime: Runtime) -> None:
    part = Steps(
        "t", (SMALL,),
        (
            Step("naive", config=NAIVE, published={"": ("10ms", "5 GFLOP/s")}),
            Step("held", family="direct", pin={"x": 1}, published={"": ("5ms",)}),
            Step("no such", family="direct", pin={"frob": 1}),
            Step("later", config="no text"),
            Step("refused", family="gemv"),
            Step("peer", peer="frob"),
            Step("odd", config="textbook:step=9"),
        ),
    )  # fmt: skip
    *_, found = study_run.run_part(part, lab(runtime))
    rows = {str(row["step"]): row for row in found.rows}
    assert rows["naive"]["speedup"] == 1.0 and rows["held"]["published_speedup"] == 2.0
    assert rows["naive"]["published"] == "10ms, 5 GFLOP/s"
    reasons = {name: str(row.get("reason", "")) for name, row in rows.items()}
    assert not reasons["naive"] and not reasons["held"]
    assert "no parameter 'frob'" in reasons["no such"] and "must be family" in reasons["later"]
    assert "cover" in reasons["refused"] and "no peer" in reasons["peer"] and "step" in reasons["odd"]
    shown = part_table(found, with_bars=True)
    assert "█" in shown.body[0][-1] and any("must be family" in note for note in shown.notes)


def test_a_wrong_kernel_gets_no_time(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.checking.verify import Verifier

    check = Verifier.check
    monkeypatch.setattr(
        Verifier, "check", lambda *a, **k: replace(check(*a, **k), ok=False, reason="one element is off")
    )
    (part,) = study_run.run_part(Steps("t", (SMALL,), (Step("naive", config=NAIVE),)), lab(runtime))
    row = part.rows[0]
    assert row["reason"] == "wrong answer: one element is off" and "time_us" not in row


def test_spoilt_inputs_are_of_no_further_use(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.checking.verify import Verifier

    asked: list[Verifier] = []
    check = Verifier.check

    def spoils(self: Verifier, *given: object) -> Check:
        asked.append(self)
        found = check(self, *given)  # type: ignore[arg-type]
        self.spoilt = True
        return replace(found, ok=False, reason="changed x")

    used, config = lab(runtime), find(NAIVE, SMALL.at(True))
    monkeypatch.setattr(Lab, "_choices", lambda *_: [(config, ""), (config, "")])
    with monkeypatch.context() as patched:
        patched.setattr(Verifier, "check", spoils)
        with pytest.raises(RunError, match="changed x"):
            used.enter(Step("two"), SMALL)
    assert len(asked) == 1 and used.enter(Step("two"), SMALL).check
    assert asked[0] not in used._made.values()


def test_the_peers_of_a_layer_share_their_inputs(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Problem] = []

    def counted(problem: Problem, seed: int) -> Inputs:
        made.append(problem)
        return normal_inputs(problem, seed)

    monkeypatch.setattr("tilewright.studies.lab.normal_inputs", counted)
    used = lab(runtime)
    step = Step("peer", peer="best")
    for times in (1, 2):
        for _ in range(2):
            with contextlib.suppress(ProblemError):  # no peer may be installed here
                used.enter(step, SMALL)
        assert made == [SMALL.at(True)] * times
        used.forget()


# -------------------------------------------------------------------------------------- showing


def test_documents_round_trip(tmp_path: Path) -> None:
    sample = Path(__file__).parent / "study_sample.json"
    result = load(sample)
    assert parse(json.loads(json.dumps(document_of(result)))) == result
    shown = study_markdown(result)
    assert "| TOY" in shown and f"({result.device['name']}, " in shown
    assert main(["report", str(sample), "--markdown", str(tmp_path / "x.md")]) == 0


def test_the_share_of_the_floor_is_written_as_a_fraction() -> None:
    device = replace(H100, rates=replace(H100.rates, source="calibrated"))
    there: Any = SimpleNamespace(device=device)
    entry = Entry(Problem.parse(SMALL.problem), there, run=pytest.fail)
    row = steps._measured(entry, Measurement(4 * floor_us(entry.problem, device), 0.1, 9))
    assert row["floor_share"] == pytest.approx(0.25)


def test_cells() -> None:
    values = [("us", 1234.0), ("x", 2.345), ("x", 1234.5), ("%", 45.6), ("bytes", 2048.0)]
    values += [("", 12345.0), ("", None), ("", "a")]
    shown = [cell(Column("k", "t", unit), value) for unit, value in values]
    assert shown == ["1.23 ms", "2.35x", "1234x", "46%", "2.0k", "12,345", "–", "a"]
    assert [duration(us) for us in (5.0, 5e3, 5e6, 5e9)] == ["5 us", "5 ms", "5 s", "5000 s"]
    assert cell(Column("k", "t", ""), 999.7) == "1,000"
    assert [duration(us) for us in (999.4, 999.7, 999_800.0, 999.7e6)] == ["999 us", "1 ms", "1 s", "1000 s"]


def test_of_many_steps_without_a_time_a_few_are_named_and_the_rest_counted() -> None:
    columns = (Column("layer", "layer"), Column("time_us", "time", "us"))
    for lost, more in ((6, ""), (8, " and 2 more")):
        rows = tuple({"layer": f"L{i}", "reason": "no room"} for i in range(lost))
        (note,) = part_table(PartResult("t", "ladder", "", columns, rows)).notes
        assert note == f"no time for L0; L1; L2; L3; L4; L5{more}: no room"


def test_a_noisy_time_is_marked() -> None:
    columns = (Column("layer", "layer"), Column("time_us", "time", "us"), Column("ci95_us", "±", "us"))
    rows = tuple({"layer": "L", "time_us": 45.0, "ci95_us": width} for width in (242.0, 2.0, 45.0))
    part = PartResult("t", "ladder", "", columns, rows)
    shown = part_table(part)
    assert shown.head == ("layer", "time", "±")
    assert [row[1:] for row in shown.body] == [("45 us~", "242 us"), ("45 us", "2 us"), ("45 us~", "–")]
    assert shown.notes == (NOISY_NOTE,)
    cells = re.findall(">([^<>]*)</td>", html_study._table(part))
    assert cells == ["L", "45 us~", "242 us", "L", "45 us", "2 us", "L", "45 us~", "–"]


def test_a_time_that_the_host_took_part_of_is_marked() -> None:
    columns = (Column("layer", "layer"), Column("time_us", "time", "us"))
    rows = tuple({"layer": "L", "time_us": 45.0, "ci95_us": 0.1, "stolen": share} for share in (0.2, 0.01))
    shown = part_table(PartResult("t", "ladder", "", columns, rows))
    assert [row[1] for row in shown.body] == ["45 us~", "45 us"]
    assert shown.notes == ("~ the host took 20% of the CPU's time while this was measured",)
    measured = steps._result(Steps("t", (), (Step("s"),), total=True), [
        {"layer": layer, "step": "s", "time_us": 9.0, "ci95_us": 0.1, "stolen": share}
        for layer, share in (("L1", 0.3), ("L2", 0.0))
    ], ())  # fmt: skip
    assert measured.rows[-1]["stolen"] == 0.3  # of a sum that of its worst term


def test_a_speedup_with_a_noisy_time_in_it_is_marked() -> None:
    columns = (Column("layer", "layer"), Column("time_us", "time", "us"), Column("speedup", "speed-up", "x"))
    rows = tuple(
        {"layer": layer, "time_us": us, "ci95_us": width, "speedup": speedup}
        for layer, us, width, speedup in (
            ("K", 40.0, 20.0, 1.0), ("K", 20.0, 0.1, 2.0), ("L", 40.0, 0.1, 1.0), ("L", 20.0, 9.0, 2.0),
            ("L", 10.0, 0.1, 4.0), ("L", None, None, None),
        )
    )  # fmt: skip
    shown = part_table(PartResult("t", "ladder", "", columns, rows))
    assert [row[1] for row in shown.body] == ["40 us~", "20 us", "40 us", "20 us~", "10 us", "–"]
    assert [row[2] for row in shown.body] == ["1x~", "2x~", "1x", "2x~", "4x", "–"]
    assert shown.notes == (NOISY_NOTE,)


def test_a_sum_is_as_sure_as_its_terms() -> None:
    part = study_run.study("lenet").parts[0]
    assert isinstance(part, Steps) and part.total
    timed: list[dict[str, Value]] = [
        {"layer": layer, "step": step.name, "time_us": us, "ci95_us": width if step is part.steps[0] else 0.1}
        for layer, us, width in (("L1", 100.0, 2.0), ("L2", 300.0, 30.0))
        for step in part.steps
    ]
    found = steps._result(part, timed, ())
    noisy, sure = [row for row in found.rows if row["layer"] == "sum"][:2]
    assert (noisy["time_us"], noisy["ci95_us"], sure["ci95_us"]) == (400.0, 32.0, 0.2)
    times = [text for name, text, *_ in part_table(found).body if name.startswith("sum")]
    assert times[:2] == ["400 us~", "400 us"]
    short = steps._result(part, [{**row, "time_us": None} for row in timed], ())
    assert "time_us" not in short.rows[-1]  # no sum of what lacks a term


def test_the_layers_of_a_chart_have_one_baseline() -> None:
    part = Steps("t", (), (), chart="bars", baseline="peer")
    rows: list[dict[str, Value]] = [
        {"layer": layer, "step": step, "time_us": us}
        for layer, step, us in (
            ("A", "ours", 4.0), ("A", "peer", None), ("B", "ours", 2.0), ("B", "peer", 6.0),
        )
    ]
    assert [row["speedup"] for row in steps._result(part, rows, ()).rows] == [None, None, 3.0, 1.0]
    nowhere = [{**row, "time_us": row["time_us"] if row["step"] == "ours" else None} for row in rows]
    assert [row["speedup"] for row in steps._result(part, nowhere, ()).rows] == [1.0, None, 1.0, None]


def test_what_beats_the_floor_is_marked() -> None:
    columns = (Column("layer", "layer"), Column("floor_share", "of floor"), Column("waits", "waits", "%"))
    rows = tuple({"layer": "L", "floor_share": share, "waits": 150.0} for share in (1.32, 1.004))
    shown = part_table(PartResult("t", "ladder", "", columns, rows))
    assert [row[1:] for row in shown.body] == [("132%‡", "150%"), ("100%", "150%")]
    assert shown.notes == (BEATS_NOTE,)
    assert part_table(PartResult("t", "ladder", "", columns, rows[1:])).notes == ()


def test_the_longest_bar_of_each_layer_is_as_long_as_all_others() -> None:
    times = [1.1 * n for n in range(1, 200)]
    rows = tuple({"layer": f"L{us}", "step": step, "time_us": us} for us in times for step in "ab")
    drawn = bars(PartResult("t", "ladder", "", (Column("layer", "layer"),), rows))
    assert set(drawn) == {"█" * 24}


def test_an_empty_part_is_shown() -> None:
    part = PartResult("t", "ladder", "", (Column("layer", "layer"), Column("step", "step")), ())
    assert part_table(part).body == ()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("study frob", ["'frob'", "toy-cnn"]),
        ("study", ["NAME"]),
        ("study lenet --device numpy", ["NumPy"]),
        ("study lenet --budget soon", ["soon"]),
        ("study lenet --html /no/such/x.html", ["--html", "does not exist"]),
        ("study lenet --device cuda:99", ["cuda"]),
    ],
)
def test_mistakes(
    line: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    assert main(line.split()) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and len(shown.splitlines()) == 1
    assert all(word in shown for word in words)


def test_an_untuned_step_of_a_results_file_is_named() -> None:
    columns = (Column("layer", "layer"), Column("step", "step"), Column("time_us", "time", "us"))
    noted = {"A": "untuned: the model's choice", "B": "", "C": "the model's choice", "D": "tool: untuned way"}
    rows = tuple({"layer": "L", "step": step, "time_us": 9.0, "note": note} for step, note in noted.items())
    shown = part_table(PartResult("t", "ladder", "", columns, rows))
    assert shown.notes == ("untuned, the model's choice: L A; --budget 20s tunes these first",)
