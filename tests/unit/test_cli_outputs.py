"""Output files of commands: ``-`` is standard output and nothing else is there; links and devices stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import typer

from tilewright.cli import app, main, outputs
from tilewright.cli.results_file import ResultsFile
from tilewright.files import locked

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


def test_files_are_written_before_standard_output_whose_reader_may_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"--json": Path("-"), "--markdown": tmp_path / "t.md", "--csv": None}
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", stream)
        with pytest.raises(BrokenPipeError):
            outputs.write_all(files, {"--json": "{}" * 100_000, "--markdown": "text"})
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # for what is left in its buffer
    assert (tmp_path / "t.md").read_text() == "text"


def test_markdown_to_standard_output_is_markdown_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*BENCH, "--json", "t.json", "--markdown", "-"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| layer |") for line in lines) == 1
    assert not any(line.startswith("layer ") for line in lines)
    assert (tmp_path / "t.json").exists() and not (tmp_path / "-").exists()


@pytest.mark.parametrize("option", ["--html", "--markdown", "--csv"])
def test_names_that_are_no_text_are_shown_with_question_marks(option: str, tmp_path: Path) -> None:
    """One of a file, in bytes that are no UTF-8; one of a layer, half a surrogate pair in JSON."""
    assert main([*BENCH, "--json", "t.json"]) == 0
    text = (tmp_path / "t.json").read_text().replace(f'"name": "{A}"', '"name": "half \\ud800"')
    odd = os.fsdecode(b"t\xff.json")
    Path(odd).write_text(text)
    assert main(["report", odd, option, "out"]) == 0
    written = (tmp_path / "out").read_text(encoding="utf-8")
    assert "t?" in written and "half " in written


@pytest.mark.parametrize(("option", "begins"), [("--html", "<"), ("--markdown", "#"), ("--csv", "file,")])
def test_report_to_standard_output(option: str, begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BENCH, "--json", "t.json"]) == 0
    capsys.readouterr()
    assert main(["report", "t.json", option, "-"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(begins), shown.out[:80]
    assert shown.err == "" and not Path("-").exists()


@pytest.mark.parametrize(
    "command",
    ["report r.json --html", "report r.json --csv", "report r.json --json", "bench l.txt --markdown",
     "tune l.txt --json", "model-report l.txt --json", "model-report --records r.json --save"],
)  # fmt: skip
def test_what_a_command_reads_it_does_not_replace(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*BENCH, "--json", "r.json"]) == 0
    Path("l.txt").write_text(f"A {A}")
    name = "l.txt" if "l.txt" in command else "r.json"
    before = Path(name).read_bytes()
    (tmp_path / "link").symlink_to(name)
    capsys.readouterr()
    more = [command.replace("l.txt", "l.txt:A")] * ("l.txt" in command)
    for each, named in ((one, file) for one in (command, *more) for file in (name, "link")):
        assert main([*each.split(), named]) == 2
        what = f"{command.split()[-1]} {named}"
        assert capsys.readouterr().err == f"error: {what}: is read by this command; name another file\n"
    assert Path(name).read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no file system here that takes no files")
def files_of_commands() -> list[tuple[list[str], str]]:
    """Return each option or argument that names a file, with its command."""
    root = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    named = [([name], command) for name, command in root.items()]
    named += [(["cache", name], command) for name, command in root["cache"].commands.items()]
    return [
        (words, one.opts[0] if one.opts[0].startswith("-") else one.metavar)
        for words, command in named for one in command.params if one.metavar in ("FILE", "RESULTS")
    ]  # fmt: skip


@pytest.mark.parametrize(("command", "name"), files_of_commands())
def test_an_empty_name_is_no_file(command: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a variable that is not set; it does not mean the current folder."""
    given = [f"{name}="] if name.startswith("-") else [""]
    assert main([*command, *given]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: Invalid value for '{name}': the name is empty; name a file")


def test_each_option_that_names_a_file_says_so() -> None:
    found = {name for _, name in files_of_commands()}
    assert {*outputs.TO_STDOUT, "--plot", "--records", "--save", "RESULTS"} == found


@pytest.mark.parametrize("option", ["--json", "--markdown", "--plot"])
def test_where_nothing_can_be_written_nothing_is_measured(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Permissions do not say it of /proc, where root may write."""
    assert main([*BENCH, option, "/proc/t.svg"]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: {option} /proc/t.svg: ") and shown.err.count("\n") == 1
    assert shown.out == ""


def test_looking_whether_a_file_can_be_written_leaves_it_alone(tmp_path: Path) -> None:
    (old := tmp_path / "old.json").write_text("kept")
    outputs.check({"--json": old, "--markdown": tmp_path / "new.md"})
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.json", "kept")]


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


@pytest.mark.parametrize("command", ["configs", " ".join(BENCH), "cache info"])
def test_what_nobody_reads_still_leaves_its_file(command: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-u", "-m", "tilewright", *command.split(), "--json", "out.json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 141 and "Traceback" not in said
    assert json.loads((tmp_path / "out.json").read_text())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("command", ["configs", "configs --json -", "--help", "cache info --json -"])
def test_no_room_for_the_output_is_one_line(command: str) -> None:
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-m", "tilewright", *command.split()]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device; make room, or write elsewhere\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_no_room_for_remarks_leaves_the_results(
    unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log on a full disk ends no benchmark of hours."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    argv = [sys.executable, "-m", "tilewright", *BENCH, "n1c8h9w9k8r3s3p1-f32", "--json", "t.json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=full, text=True, timeout=60)
    assert done.returncode == 0 and "n1c8h9w9k8r3s3p1-f32" in done.stdout
    assert len(json.loads(Path("t.json").read_text())["rows"]) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_file_without_room_leaves_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BENCH, "--json", "/dev/full", "--markdown", "t.md"]) == 2
    shown = capsys.readouterr()
    assert "cold caches" in shown.out and A in shown.out
    assert shown.err.endswith("error: --json /dev/full: No space left on device\n")
    assert "| layer |" in Path("t.md").read_text()
    assert main(["explain", A, "--arch", "sm_90", "--json", "/dev/full"]) == 2
    assert "bound by" in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="limits of POSIX")
def test_a_full_disk_ends_no_benchmark(tmp_path: Path) -> None:
    code = "import resource as r, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    code += "from tilewright.cli import main, opened; was = opened.room; "
    code += "opened.room = lambda *a: (was(*a), r.setrlimit(r.RLIMIT_FSIZE, (64, 64)))[0]; "
    code += "sys.exit(main(sys.argv[1:]))"
    B = "n1c8h8w8k8r1s1-f32"
    argv = [sys.executable, "-c", code, *BENCH, B, "--json", "t.json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and not Path("t.json").exists()
    assert all(f"{layer}  " in done.stdout for layer in (A, B))
    lines = done.stderr.splitlines()
    assert len([line for line in lines if line.endswith("; --json t.json: File too large")]) == 2
    assert lines[-1] == "error: --json t.json: File too large"


def test_a_closed_standard_output_is_no_defect(tmp_path: Path) -> None:
    line = f"{sys.executable} -m tilewright configs --json named.json >&- 2>&-"
    assert subprocess.run(["bash", "-c", line], timeout=60).returncode == 0
    assert (tmp_path / "named.json").exists()


@pytest.mark.parametrize(("command", "said"), [("clear", "add --yes"), ("import -", "standard input: not")])
def test_a_closed_standard_input_is_an_empty_one(command: str, said: str) -> None:
    line = f"{sys.executable} -m tilewright cache {command} <&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and said in done.stderr


def test_what_a_file_of_json_held_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("hours.json").write_text("measured for hours")
    assert main(["configs", "--json", "hours.json"]) == 0
    assert Path("hours.json.old").read_text() == "measured for hours"
    assert "what hours.json held is now hours.json.old" in capsys.readouterr().err


def test_a_link_to_nowhere_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("away.json").symlink_to("nowhere/x.json")
    assert main(["configs", "--json", "away.json"]) == 2
    assert "--json away.json: No such file" in (said := capsys.readouterr()).err and not said.out


def test_every_file_is_named_once_it_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["configs"], ["cache", "info"], ["doctor"]):
        assert main([*argv, "--json", "x.json"]) == 0
        said = capsys.readouterr().err.splitlines()
        assert said == ["what x.json held is now x.json.old"] * (argv != ["configs"]) + ["wrote x.json"]
        assert main([*argv, "--json", "-"]) == 0
        assert capsys.readouterr().err == ""
    assert main([*BENCH, "--json", "x.json", "--markdown", "x.md", "--plot", "x.svg"]) == 0
    assert "no plot: no peer" in (said := capsys.readouterr().err) and said.endswith("wrote x.json, x.md\n")
    assert main(["report", "x.json", "--csv", "x.csv", "--markdown", "-"]) == 0
    assert capsys.readouterr().err == "wrote x.csv\n"


def test_a_pipe_is_written_by_the_name_that_it_was_given() -> None:
    """``--json /dev/stdout | …`` and ``--json >(…)``: behind such a link there is no file."""
    reading, writing = os.pipe()
    pipe = Path(f"/dev/fd/{writing}")
    outputs.check({"--json": pipe})
    outputs.write(pipe, "{}\n", "--json")
    os.close(writing)
    with open(reading) as read:
        assert read.read() == "{}\n"


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
@pytest.mark.parametrize("command", [BENCH, ["study", "lenet", "--quick", "--device", "cpu"]])
def test_what_another_command_is_writing_is_left_alone(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each writes all the rows that it has: the other's would be lost."""
    (tmp_path / "link.json").symlink_to("t.json")
    with ResultsFile(Path("t.json"), resume=False).alone():
        for name in ("t.json", "link.json"):
            assert main([*command, "--json", name, "--resume"]) == 2
            assert f"error: --json {name}: another tilewright is writing it; wait" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["link.json"]


def test_a_lock_that_was_left_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "t.json.lock").touch()
    assert main([*BENCH, "--json", "t.json"]) == 0
    assert not (tmp_path / "t.json.lock").exists()


def test_where_no_lock_can_be_held_results_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a file may be written, but none beside it."""

    def refused(file: Path, wait: bool) -> None:
        raise PermissionError

    monkeypatch.setattr("tilewright.cli.results_file.locked", refused)
    kept = ResultsFile(tmp_path / "t.json", resume=False)
    with kept.alone():
        assert kept.keep({"a": 1}) == ""
    assert json.loads((tmp_path / "t.json").read_text()) == {"a": 1}


def test_results_of_an_earlier_run_are_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.json").write_text("earlier")
    Path("link.json").symlink_to("t.json")
    for name, old in (("link.json", "earlier"), ("t.json", "first")):
        kept = ResultsFile(Path(name), resume=False)
        with kept.alone():
            said = capsys.readouterr().err
            assert f"{name} holds results: they become t.json.old when the first layer is done; --res" in said
            assert not kept.keep("first") and not kept.keep("second" if name == "t.json" else "first")
        assert Path("t.json.old").read_text().strip('"\n') == old
    assert Path("link.json").is_symlink() and json.loads(Path("link.json").read_text()) == "second"
    with ResultsFile(Path("t.json"), resume=True).alone():
        assert not capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_one_at_a_time_has_a_lock_that_each_removes(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with locked(tmp_path / "lock"):
                inside += 1
                most = max(most, inside)
                time.sleep(1e-4)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and not (tmp_path / "lock").exists()
