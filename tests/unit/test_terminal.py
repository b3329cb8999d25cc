"""Tables on a terminal: whatever its width, every figure is there in full."""

from __future__ import annotations

import copy
import io
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_report import DOCUMENT

from tilewright.cli import main
from tilewright.cli.screen import ProgressBar, show
from tilewright.device import for_architecture
from tilewright.report.table import Table
from tilewright.report.terminal import pieces
from tilewright.search import trials_file

HEAD = ("layer step", "ours", "±", "of floor", "onnxruntime converts", "error/bound", "")
ROWS = tuple(
    (f"R{n}   a step", f"{n}234.5", "12.3", "69%", f"{n}9861 us", f"0.00{n}", "█" * 24) for n in range(3)
)
WIDE = Table("a title that is longer than a column", HEAD, ROWS, ("a note",))
CONFIG = "direct:combine=3.cs=512.nh=7.nk=16.nw=1.sg=16.th=1.tk=1.tw=7.v=16.x=1"
WORDS = Table("", ("", ""), (("config", CONFIG), ("error over bound", "0.00833")), words=True)


def shown(
    table: Table, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What a terminal of some width shows."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    show(table)
    return re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)


@pytest.mark.parametrize("width", [36, 40, 60, 80, 100, 120])
def test_no_figure_is_cut_short(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(WIDE, width, monkeypatch, capsys)
    assert "…" not in text and text.endswith("a note\n") and text.startswith(WIDE.title + "\n")
    assert all(cell in text for row in (HEAD, *ROWS) for cell in row[:-1])
    assert all(len(line) <= width for line in text.splitlines()[1:])
    assert ("█" * 24 in text) == (width >= 100)


@pytest.mark.parametrize("table", [WIDE, WORDS], ids=["wide", "words"])
def test_a_width_of_0_is_no_width(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal is asked for its own."""
    monkeypatch.setattr("os.get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    assert shown(table, 0, monkeypatch, capsys) == shown(table, 80, monkeypatch, capsys)
    _terminal(monkeypatch, 0)
    with ProgressBar(1, "tuning") as progress:
        progress.finished("R12: done")
    assert "R12: done\n" in capsys.readouterr().err


def test_a_table_that_fits_is_whole() -> None:
    assert pieces(WIDE, 97) == [WIDE] and len(pieces(WIDE, 96)) == 1
    assert pieces(WIDE, 96)[0].head == HEAD[:-1]
    assert [piece.head[0] for piece in pieces(WIDE, 60)] == ["layer step"] * 2


def test_a_column_wider_than_the_terminal_stands_alone() -> None:
    assert [piece.head for piece in pieces(WIDE, 5)] == [("layer step", name) for name in HEAD[1:-1]]
    assert pieces(Table("", ("layer",), (("R1",),)), 3) == [Table("", ("layer",), (("R1",),))]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100])
def test_no_config_is_broken(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"tilewright run n1c512h7w7k512r3s3p1-f32 --config {CONFIG}"
    body = (*WORDS.body, ("measured", f"no time is stored; to see one: {command}"))
    lines = shown(replace(WORDS, body=body), width, monkeypatch, capsys).splitlines()
    assert sum(CONFIG in line.split() for line in lines) == 2
    assert all(len(line) <= width or len(line.split()[-1]) > width - 18 for line in lines)
    assert command in " ".join(" ".join(lines).split())
    three = Table("", ("", "config", "what"), (("toy", CONFIG, "a step of a ladder"),), words=True)
    words = shown(three, width, monkeypatch, capsys).split()
    assert CONFIG in words and words[0] == "config", "a head with an empty cell is one all the same"


EVIL, HARMLESS = "a\x1b]0;b\x07\x9b2Jc", "a\\x1b]0;b\\x07\\x9b2Jc"


def test_a_table_makes_control_characters_visible_everywhere() -> None:
    found = Table(EVIL, (EVIL,), ((EVIL,),), (EVIL,))
    assert found == Table(HARMLESS, (HARMLESS,), ((HARMLESS,),), (HARMLESS,))


class Terminal(io.StringIO):
    """Stands for a terminal."""

    def isatty(self) -> bool:
        return True


def names(tmp_path: Path) -> list[list[str]]:
    """Command lines that show a name out of a file."""
    document = copy.deepcopy(DOCUMENT)
    document["device"]["name"] = document["rows"][0]["name"] = EVIL
    document["rows"][0]["peers"]["cudnn"]["reason"] = f"{EVIL}\nsecond line"
    (tmp_path / "results.json").write_text(json.dumps(document))
    (tmp_path / "wrong.json").write_text(json.dumps(DOCUMENT | {"device": {"rates": {EVIL: "fast"}}}))
    (tmp_path / "layers.txt").write_text(f"{EVIL} n1c4h5w5k4r3s3p1-f32")
    trials_file.write(tmp_path / "trials.gz", replace(for_architecture("sm_90"), name=EVIL), [])
    return [
        ["report", "results.json"],
        ["report", "results.json", "--markdown", "-"],
        ["report", "results.json", "--csv", "-"],
        ["report", "results.json", "--html", "-"],
        ["report", "results.json", "--worst", "1"],
        ["report", "results.json", "--worst", "1", "--markdown", "-"],
        ["report", "results.json", "--worst", "1", "--csv", "-"],
        ["report", "wrong.json"],
        ["bench", "layers.txt", "--device", "numpy", "--peers", "none", "--no-tune"],
        ["model-report", "--records", "trials.gz"],
    ]


@pytest.mark.parametrize("number", range(10))
def test_no_name_steers_the_terminal(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "dumb")  # no colours of our own
    command = names(tmp_path)[number]
    for out in (io.StringIO(), Terminal()):
        if isinstance(out, Terminal) or "-" not in command:  # a pipe gets what a file does
            monkeypatch.setattr(sys, "stdout", out)
            main(command)
            said = out.getvalue() + capsys.readouterr().err
            assert HARMLESS in said
            assert all(line.isprintable() for line in said.split("\n")), command


def _terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Make stderr a terminal of so many columns."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))


def test_progress_shows_a_name_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name in brackets is no markup."""
    _terminal(monkeypatch, 100)
    with ProgressBar(1, "tuning") as progress:
        progress.now("[/a]: 1 tried")
    assert "tuning [/a]: 1 tried" in capsys.readouterr().err


def test_progress_counts_layers_and_the_share_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    _terminal(monkeypatch, 100)
    with ProgressBar(2, "tuning") as progress:
        assert progress._bar is not None
        (task,), seen = progress._bar.tasks, []
        for share in (0.25, 1.5, -0.5):
            progress.now("R1", share)
            seen.append(task.completed)
        progress.finished("R1: 3 us")
        seen.append(task.completed)
        progress.now("R2", 0.25)
        assert (seen, task.completed, task.total) == ([0.25, 1.0, 0.0, 1.0], 1.25, 2)


def test_a_build_server_has_a_line_for_each_layer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though what it runs in may be a terminal: a log keeps every change of a bar."""
    _terminal(monkeypatch, 100)
    monkeypatch.setenv("CI", "true")
    with ProgressBar(1, "tuning") as progress:
        progress.now("R1", 0.5)
        progress.finished("R1: 3 us")
    assert capsys.readouterr().err == "[1/1] R1: 3 us\n"


def test_a_finished_layer_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However narrow the terminal: what is to be run, or to be given again, can be copied."""
    _terminal(monkeypatch, 40)
    text = f"R12: run `tilewright run R12 --config {CONFIG}`"
    with ProgressBar(1, "tuning") as progress:
        progress.finished(text)
    assert text + "\n" in capsys.readouterr().err
