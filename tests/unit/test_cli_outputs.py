"""Output files of commands: ``-`` is standard output and nothing else is there; links and devices stay."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tilewright.cli import main, outputs

A = "n1c8h8w8k8r3s3p1-f32"
BENCH = ["bench", A, "--device", "numpy", "--peers", "none", "--no-tune"]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_json_to_standard_output_is_json_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BENCH, "--json", "-", "--markdown", "t.md"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["problem"] == A
    assert (tmp_path / "t.md").exists() and not (tmp_path / "-").exists()


def test_markdown_to_standard_output_is_markdown_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*BENCH, "--json", "t.json", "--markdown", "-"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| layer |") for line in lines) == 1
    assert not any(line.startswith("layer ") for line in lines)
    assert (tmp_path / "t.json").exists() and not (tmp_path / "-").exists()


@pytest.mark.parametrize(("option", "begins"), [("--html", "<"), ("--markdown", "#"), ("--csv", "file,")])
def test_report_to_standard_output(option: str, begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BENCH, "--json", "t.json"]) == 0
    capsys.readouterr()
    assert main(["report", "t.json", option, "-"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(begins), shown.out[:80]
    assert shown.err == "" and not Path("-").exists()


def test_what_is_no_plain_file_is_written_in_place(tmp_path: Path) -> None:
    assert outputs.check({"--json": Path("/dev/null"), "--markdown": Path("/dev/null")}) is False
    outputs.write(Path("/dev/null"), "x", "--json")
    assert not Path("/dev/null").is_file()
    (tmp_path / "link").symlink_to("target")
    outputs.write(tmp_path / "link", "x", "--json")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "x"
    assert sorted(os.listdir(tmp_path)) == ["link", "target"]


def test_the_suffix_says_the_format_of_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from test_report import DOCUMENT

    from tilewright.report import plot, results

    for name, begins in (("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("a.svg", b"<?xml")):
        plot.draw(results.parse(DOCUMENT), tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)
