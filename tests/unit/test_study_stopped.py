"""A study that is stopped: every layer that is done is kept."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.cli import main
from tilewright.errors import DeviceError
from tilewright.report.study import part_table
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime
from tilewright.store import Store
from tilewright.studies import engine
from tilewright.studies.lab import Lab
from tilewright.studies.study import Layer, Memory, Search, Step, Steps, Study, Value

NAIVE = "textbook:step=0.bw=8.bh=8.bk=1.pool=0"
A = Layer("A", "n1c16h9w9k16r3s3p1-f32", quick="n1c16h9w9k16r3s3p1-f32")
B = replace(A, name="B")
STUDY = Study(
    "lenet", "A study", "a source", "a device",
    (
        Steps("steps", (A, B), (Step("naive", config=NAIVE), Step("later", waits="waits")), total=True),
        Search("search", (A, B), ("model", "local")),
        Memory("memory", ("lenet",)),
    ),
)  # fmt: skip


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The CPU by OpenCL, with a cache of its own."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    try:
        found = open_runtime("cpu")
    except DeviceError as error:
        pytest.skip(str(error))
    if found.device.backend == "numpy":
        pytest.skip("no OpenCL here")
    return found


def lab(runtime: Runtime) -> Lab:
    """A quick lab with an empty store."""
    return Lab(runtime, Store(shipped=False), quick=True)


@pytest.fixture(autouse=True)
def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes seconds; the quick run of csg has a real one."""

    def curve(part: Search, layer: Layer, strategy: str, lab: Lab) -> list[dict[str, Value]]:
        return [{"layer": layer.name, "strategy": strategy, "elapsed_s": 1.5, "trials": 1.0, "best_us": 2.0}]

    monkeypatch.setattr("tilewright.studies.searching._curve", curve)


def test_a_part_grows_layer_by_layer(runtime: Runtime) -> None:
    first, second = engine._run(STUDY.parts[0], lab(runtime))
    assert (first.left, second.left) == (("B",), ())
    assert [row["layer"] for row in first.rows] == ["A", "A"]
    assert [row["layer"] for row in second.rows] == ["A", "A", "B", "B", "sum", "sum"]
    assert first.rows == second.rows[:2] and first.rows[0]["speedup"] == 1.0
    assert second.rows[4]["time_us"] == pytest.approx(sum(float(second.rows[i]["time_us"]) for i in (0, 2)))
    assert any("not measured yet: B" in note for note in part_table(first).notes)
    curves = list(engine._run(STUDY.parts[1], lab(runtime)))
    assert [part.left for part in curves] == [("B",), ()]
    assert {row["layer"] for row in curves[0].rows} == {"A"}
    assert curves[0].rows == curves[1].rows[:2] and len(curves[1].rows) == 4


def stopped_at(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next studies be ``STUDY``, stopped where one says these words; or not at all."""

    def remark(text: str) -> None:
        print(text, file=sys.stderr)
        if words and words in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(engine, "study", lambda name: STUDY)
    monkeypatch.setattr("tilewright.cli.study.remark", remark)


@pytest.mark.parametrize(
    ("words", "left", "said"),
    [
        ("steps: A", None, "0 of 3 parts are done"),
        ("steps: B", [("B",)], "0 of 3 parts are done, and 1 of 2 layers of part 1"),
        ("search: A", [()], "1 of 3 parts are done"),
        ("search: B", [(), ("B",)], "1 of 3 parts are done, and 1 of 2 layers of part 2"),
    ],
)
def test_a_stopped_study_writes_every_layer_that_is_done(
    words: str, left: list[tuple[str, ...]] | None, said: str, runtime: Runtime, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stopped_at(words, monkeypatch)
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "markdown", "html")}
    outputs = [word for kind, file in files.items() for word in (f"--{kind}", str(file))]
    assert main(["study", "lenet", "--quick", "--device", "cpu", *outputs]) == 130
    shown = capsys.readouterr()
    assert f"stopped: {said}\n" in shown.err
    assert ("steps\n" in shown.out) == (left is not None and not left[0])  # a table once its part is done
    if left is None:
        assert not any(file.exists() for file in files.values())
        return
    result = engine.load(files["json"])
    assert [part.left for part in result.parts] == left
    assert [{row["layer"] for row in part.rows} >= {"A"} for part in result.parts] == [True] * len(left)
    for kind in ("markdown", "html"):
        assert ("not measured yet: B" in files[kind].read_text()) == any(left)
