"""Every user's mistake: exit status 2, one line on stderr that begins with ``error:``, no traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewright
from tilewright.cli import main, opened
from tilewright.errors import DeviceError
from tilewright.runtime import opening

GOOD = "n1c4h5w5k4r3s3p1-f32"

# Command line, and words that the error must hold. {tmp} is a folder made by `place`.
MISTAKES: list[tuple[str, list[str]]] = [
    # commands and flags
    ("frobnicate", ["frobnicate"]),
    ("bnch R12", ["Did you mean 'bench'? See 'tilewright --help'"]),
    ("--frobnicate", ["--frobnicate"]),
    ("bench", ["LAYERS"]),
    ("tune", ["LAYERS"]),
    ("explain", ["LAYER"]),
    ("run", ["LAYER"]),
    (f"bench {GOOD} --frob", ["--frob"]),
    (f"tune {GOOD} --buget 3s", ["--buget"]),
    (f"tune {GOOD} --budget", ["--budget"]),
    (f"explain {GOOD} {GOOD}", ["argument"]),
    ("doctor now", ["argument"]),
    ("cache", ["command"]),
    ("cache frob", ["frob"]),
    # problem strings
    ("tune R12 n1c4h5k4r3g3", ["problem 'n1c4h5k4r3g3': groups=3"]),
    ("tune R12 n1c4h5k4r3u0", ["problem 'n1c4h5k4r3u0': stride"]),
    ("tune R12 n1c4h2k4r3", ["problem 'n1c4h2k4r3': the filter spans", "give a larger input or padding"]),
    ("tune R12 n1c4h9999999999k4r3", ["problem 'n1c4h9999999999k4r3': h=9999999999"]),
    ("tune n1c", ["'c'", "write it like n1c64"]),
    ("tune N1C4H5K4R3", ["did you mean n1c4h5k4r3?"]),
    ("tune n1c4h5k4r3+clamp1", ["+clamp1", "takes 2 numbers"]),
    ("tune n1c4h5w5k4r3s3q1", ["'q1'", "unknown letter"]),
    ("tune n1c4c4h5w5k4r3s3", ["c4", "twice"]),
    ("tune n1h5w5k4r3s3", ["missing c"]),
    ("tune n1c4h5w5k4r3s3-f33", ["f33", "f32"]),
    ("tune n1c4h5w5k4r3s3-f32-f32", ["f32", "twice"]),
    ("tune n1c4h5w5k4r3s3-f32-nhcw", ["nhcw", "nhwc"]),
    ("tune n1c4h5w5k4r3s3-f32+swish", ["+swish", "relu"]),
    ("run n1c4h5w5k4r3s3-f32+gelu", ["+gelu", "silu"]),
    ("run n1c4h5w5k4r3s3-i8+silu", ["+silu", "i8 layers accept only bias"]),
    ("run n1c4h5w5k4r3s3-f32+maxpool4", ["maxpool4", "3x3"]),
    ("tune n1c4h5w5k4r3s3-f32+relu+bias", ["+bias", "out of order"]),
    ("tune n1c4h5w5k4r9s9", ["filter spans 9x9", "empty"]),
    ("tune n1c0h5w5k4r3s3", ["c=0"]),
    ("tune n1c4h5w5k0r3s3", ["k=0"]),
    ("tune n1c4h5w5k4r3s3u0", ["stride"]),
    ("tune n1c4h5w5k4r3s3d0", ["dilation"]),
    ("tune n1c4h5w5k4r3s3p1.2.3", ["p1.2.3"]),
    ("tune n1c4h5w5k4r3s3g3", ["groups=3", "divide"]),
    ("tune n99999999999c4h5w5k4r3s3", ["n=99999999999: must be", "no larger than 16777216"]),
    (f"tune n1c4h5k4r3p1x{'9' * 99}", [f"p={'9' * 37}...: must be", "16777216"]),
    ("tune n-1c4h5w5k4r3s3", ["n-1c4h5w5k4r3s3"]),
    (f"bench {'n1c4' * 100}", ["255"]),
    # suites and shape files
    ("bench resnt", ["resnt", "did you mean resnet"]),
    ("bench RESNET", ["did you mean resnet?"]),
    ("bench ResNet:r1", ["did you mean resnet:R1?"]),
    ("bench r12", ["did you mean R12?"]),
    ("bench R13", ["suite resnet has R1, R2,", "R12"]),
    ("bench y3", ["suite yolo9000 has Y0, Y2,"]),
    ("bench R1,R2", ["with spaces, not commas"]),
    ("bench resnet:R13", ["R13", "suite resnet has no such layer; it has R1,"]),
    ("bench {tmp}/missing.txt", ["missing.txt", "No such file"]),
    ("bench {tmp}/empty.txt", ["empty.txt", "no layers"]),
    ("bench {tmp}/binary.txt", ["binary.txt", "not a text file"]),
    ("bench {tmp}/bad.txt", ["bad.txt", "line 2"]),
    ("bench {tmp}/twice.txt", ["line 2", "twice"]),
    ("bench {tmp}/", ["Is a directory"]),
    ("explain resnet", ["resnet", "12 layers"]),
    # dtype, layout
    (f"bench {GOOD} --dtype f17", ["f17", "f32"]),
    (f"tune {GOOD} --dtype float32", ["float32", "f32"]),
    (f"bench {GOOD} --layout nwhc", ["nwhc", "nhwc"]),
    *(
        (f"{command} {GOOD} --device cpu --deterministic --config direct:combine=1{more}", ["that varies"])
        for command, more in (("explain", ""), ("run", ""), ("profile", ""), ("export", " --to {tmp}/x"))
    ),
    (f"explain {GOOD} --layout NCHW", ["NCHW", "nchw"]),
    (f"run {GOOD} --layout both", ["'both'", "takes one layout: nchw or nhwc"]),
    # budgets, strategies, seeds
    (f"tune {GOOD} --budget soon", ["soon", "20s"]),
    (f"tune {GOOD} --budget 0s", ["0s", "zero"]),
    (f"tune {GOOD} --budget -5s", ["-5s"]),
    (f"tune {GOOD} --budget 5parsecs", ["5parsecs"]),
    (f"tune {GOOD} --budget 1.5trials", ["1.5trials", "whole"]),
    (f"bench {GOOD} --budget 1e9s", ["1e9s"]),
    (f"tune {GOOD} --strategy genetic", ["genetic", "random"]),
    (f"tune {GOOD} --seed -1", ["--seed", "'-1' was given. See"]),
    (f"tune {GOOD} --seed one", ["--seed", "integer", "'one' was given"]),
    (f"tune {GOOD} --batch=x", ["--batch", "'x' was given"]),
    (f"tune {GOOD} --seed 99999999999", ["--seed"]),
    # devices and peers
    (f"bench {GOOD} --device gpu", ["'gpu'", "cuda"]),
    (f"tune {GOOD} --device cuda:x", ["cuda:x"]),
    (f"tune {GOOD} --device cuda:-1", ["cuda:-1"]),
    (f"tune {GOOD} --device cuda:١", ["cuda:١", "must be cpu, cuda, cuda:N"]),
    (f"tune {GOOD} --device cuda:99", ["cuda"]),
    (f"tune {GOOD} --device opencl:99", ["OpenCL"]),
    (f"tune {GOOD} --device cpu:99", ["OpenCL"]),
    (f"tune {GOOD} --device numpy:1", ["numpy"]),
    (f"run {GOOD} --device numpy", ["NumPy has no kernels"]),
    (f"tune {GOOD} --device numpy", ["NumPy has no kernels"]),
    (f"bench {GOOD} --device numpy --budget 3s", ["bench --budget: NumPy has no kernels"]),
    (f"bench {GOOD} --device numpy --strategy model", ["bench --strategy: NumPy has no kernels"]),
    (f"bench {GOOD} --device numpy --again", ["bench --again: NumPy has no kernels"]),
    ("calibrate --device numpy", ["NumPy"]),
    ("calibrate --device tpu", ["tpu", "cuda"]),
    (f"bench {GOOD} --device numpy --peers cudann", ["cudann", "onednn"]),
    (f"bench {GOOD} --device numpy --peers onednn,,", ["peer ''"]),
    (f"bench {GOOD} --device numpy --peers ", ["peer ''"]),
    (f"bench {GOOD} --device cpu --peers cublas", ["--peers cublas: not for", "onnxruntime"]),
    ("model-report --records {tmp}/missing.gz", ["missing.gz", "(No such file or directory)"]),
    ("model-report R12 --device cpu", ["two correct configs recorded", "tune some first"]),
    ("model-report --strategy x", ["'x'", "random"]),
    # configs
    (f"explain {GOOD} --device cpu --config direct", ["direct", "family:name=value"]),
    (f"explain {GOOD} --device cpu --config direct:tk=x", ["tk=x", "integer"]),
    (f"explain {GOOD} --device cpu --config direct:tk=1.tk=1", ["tk=1", "once"]),
    (f"explain {GOOD} --device cpu --config fourier:tk=1", ["winograd", "direct"]),
    (f"explain {GOOD} --device cpu --config direct:frob=1", ["direct:frob=1"]),
    (f"run {GOOD} --device cpu --config direct:tk=;rm", ["tk="]),
    (f"run {GOOD} --config direct:tk=1 --family direct", ["--family direct", "give only one of them"]),
    (f"model-report {GOOD} --records {{tmp}}/x --device cpu", ["--records and --device", "only one of them"]),
    (f"explain {GOOD} --device cpu --family gem", ["gem", "gemm"]),
    (f"export {GOOD} --to {{tmp}}/x --family reference", ["has one kernel: give --config reference:v=1"]),
    (f"run {GOOD} --config reference", ["'reference': is a family of one kernel, reference:v=1"]),
    (f"explain {GOOD} --arch sm_90 --family reference", ["has one kernel: give --config reference:v=1"]),
    (f"run {GOOD} --config toy:no-tilling", ["toy:no-tilling", "toy:no-tiling, toy:shared-tile"]),
    (f"explain {GOOD} --config gemm:naive", ["gemm:naive", "other layers", "toy:unroll-pragma"]),
    ("run n1c4h5w5k4r3s3p1g2-f32 --config toy:no-tiling", ["fit n1c4h5w5k4r3s3p1g2-f32: none"]),
    (f"explain {GOOD} --device cpu --config textbook:bh=1.bk=1.bw=4.pool=0.step=9", ["step=9", "0, 1, 2"]),
    ("explain n1c4h5w5k4r3s3p1g2 --device cpu --config textbook:bh=1.bk=1.bw=4.pool=0.step=0", ["one group"]),
    ("configs resnet", ["12 layers"]),
    # output files
    (f"bench {GOOD} --json {{tmp}}", ["--json", "is a folder"]),
    (f"bench {GOOD} --json {{tmp}}/no/such/x.json", ["--json", "does not exist"]),
    (f"bench {GOOD} --markdown {{tmp}}/no/x.md", ["--markdown", "does not exist"]),
    (f"bench {GOOD} --plot {{tmp}}/no/x.svg", ["--plot", "does not exist"]),
    (f"bench {GOOD} --plot {{tmp}}/x.bmp", ["x.bmp", ".svg, .png, .pdf"]),
    (f"bench {GOOD} --plot {{tmp}}/plot", ["must end in .svg"]),
    (f"bench {GOOD} --plot -", ["--plot -", "name a file"]),
    ("study lenet --quick --plot {tmp}/x.bmp", ["x.bmp", ".svg, .png, .pdf"]),
    (f"bench {GOOD} --json - --markdown -", ["--markdown -", "--json is already written there"]),
    (f"bench {GOOD} --json {{tmp}}/x --markdown {{tmp}}/./x", ["--json is already written there"]),
    (f"bench {GOOD} --json {{tmp}}/{'x' * 300}", ["--json", "too long"]),
    (f"bench {GOOD} --json {{tmp}}/circle", ["--json", "circle"]),
    (f"bench {GOOD} --resume", ["--resume: continues the file given by --json"]),
    (f"bench {GOOD} --json - --resume", ["--resume: continues the file given by --json"]),
    ("study lenet --json /dev/null --resume", ["--resume: continues the file given by --json"]),
    ("study lenet --part 0x1", ["--part '0x1'", "the number of a part"]),
    (f"export {GOOD} --to -", ["--to -", "name a folder"]),
    (f"export {GOOD} --to {{tmp}}/empty.txt", ["name a folder"]),
    (f"export {GOOD} --to {{tmp}}/a/b", ["does not exist"]),
    ("model-report R12 --records {tmp}/none --save -", ["--save -", "name a file"]),
    ("model-report R12 --records {tmp}/none --save {tmp}/no/x", ["--save", "does not exist"]),
    ("report --html {tmp} x.json", ["--html", "is a folder"]),
    ("report --worst 0 x.json", ["--worst", "1", "'0'"]),
    ("report --worst few x.json", ["--worst", "'few'"]),
    ("report --worst 3 --by speed x.json", ["--by 'speed'", "floor, ratio, time"]),
    ("report --by ratio x.json", ["--by ratio", "give --worst N too"]),
    ("report --worst 3 --html x.html x.json", ["--html and --worst", "only one"]),
    ("report --title Mine --csv x.csv x.json", ["--title Mine", "give --html FILE too"]),
    ("report --worst 3 --csv - --json - x.json", ["already written there"]),
    ("study lenet --markdown {tmp}/no/x.md", ["--markdown", "does not exist"]),
    # nothing to do
    ("run n0c4h5k4r3 --device cpu", ["batch of 0", "nothing to compute"]),
    ("bench n0c4h5k4r3 --device numpy", ["nothing to compute"]),
    ("explain n0c4h5k4r3 --arch sm_90", ["batch of 0", "nothing to explain"]),
    ("explain n0c4h5k4r3 --device cpu --config reference:v=1", ["batch of 0", "nothing to explain"]),
    # no room
    ("tune n9999999c64h56w56k64r3s3p1 --device cpu", ["too large", "x 7,476.8 GiB", "memory"]),
    ("run n9999999c64h56w56k64r3s3p1 --device cpu", ["too large"]),
    ("bench resnet --batch 9999999 --device numpy", ["too large", "n9999999c3h224"]),
    # options that contradict each other
    (f"bench {GOOD} --no-tune --again", ["--no-tune and --again", "give only one"]),
    (f"bench {GOOD} --no-tune --budget 3s", ["--no-tune and --budget", "give only one"]),
    (f"bench {GOOD} --no-tune --strategy model", ["--no-tune and --strategy", "give only one"]),
    (f"export {GOOD} --to {{tmp}}/{'a' * 300} --device cpu", ["--to ", "aaa: File name too long"]),
    (f"export {GOOD} --to /dev/null --device cpu", ["--to /dev/null: is no folder; name a folder"]),
    (f"export {GOOD} --to {{tmp}}/e --arch sm_90 --device cpu", ["--arch and --device", "give only one"]),
    (f"tune {GOOD} --json {{tmp}}/empty.txt/x.json", ["--json", "empty.txt is no folder"]),
    ("doctor --json {tmp}", ["--json", "is a folder"]),
    ("cache export {tmp}", ["FILE", "is a folder"]),
    # the cache
    ("cache import {tmp}/missing.json", ["missing.json", "No such file"]),
    ("cache import {tmp}", ["Is a directory"]),
    ("cache import {tmp}/empty.txt", ["empty.txt", "JSON"]),
    ("cache import {tmp}/binary.txt", ["binary.txt", "not a text file"]),
    ("cache import {tmp}/list.json", ["list.json", "object"]),
    ("cache import {tmp}/foreign.json", ["foreign.json", "format", "'cache export'"]),
    ("cache import {tmp}/source.json", ["records[0]", "unknown field"]),
    ("cache import {tmp}/nan.json", ["nan.json", "NaN"]),
    ("cache import {tmp}/deep.json", ["deep.json"]),
    ("cache import", ["FILE"]),
    ("cache clear", ["--yes"]),
    ("cache clear n1c", ["write it like"]),
    ("cache export {tmp}/x.json resnet", ["12 layers"]),
    ("cache export R12", ["is a layer; the file comes first: cache export winners.json R12"]),
    ("cache info x", ["'tilewright cache info --help'"]),
    ("report {tmp}/deep.json", ["deep.json", "not JSON"]),
    ("report {tmp}/list.json", ["list.json", "want one written by 'bench --json'"]),
    ("report {tmp}/foreign.json", ["foreign.json", "want one written by 'bench --json'"]),
]

FILES = {
    "empty.txt": b"",
    "binary.txt": b"\x7fELF\x00\xff\xfe",
    "bad.txt": f"A {GOOD}\nB n1c4\n".encode(),
    "twice.txt": f"A {GOOD}\nA {GOOD}\n".encode(),
    "list.json": b"[1, 2]",
    "foreign.json": b'{"format": "other", "schema": 1, "records": []}',
    "source.json": b'{"format": "tilewright-tuned", "schema": 1, "records": [{"source": "int main"}]}',
    "nan.json": b'{"format": "tilewright-tuned", "schema": NaN, "records": []}',
    "deep.json": b"[" * 100_000,
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that mistakes are made with, and a cache of its own."""
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "circle").symlink_to("circle")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(argv: Sequence[str], capsys: pytest.CaptureFixture[str], *words: str) -> None:
    """Run a wrong command line and look at what it says."""
    status = main(argv)
    shown = capsys.readouterr()
    assert status == 2, shown.err
    assert len(shown.err.splitlines()) == 1, shown.err
    assert shown.err.startswith("error: ")
    assert "Traceback" not in shown.err + shown.out
    for word in words:
        assert word in shown.err


def test_there_are_at_least_sixty() -> None:
    assert len(MISTAKES) >= 60
    assert len({line for line, _ in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize(("line", "words"), MISTAKES, ids=[line[:60] for line, _ in MISTAKES])
def test_mistake(line: str, words: list[str], place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(line.replace("{tmp}", str(place)).split(" "), capsys, *words)


@pytest.mark.parametrize(
    "spec", ["", " ", "\n", "n1c4h5w5k4r3s3\nerror", "日本語", "n١c4h5w5k4r3s3", "\ud800"]
)
def test_odd_text_is_one_line(spec: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(["tune", spec], capsys, "n1c")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="nchwkrspudg0123456789x.-+f ", max_size=30))
def test_any_broken_problem_string(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    # The unknown strategy ends those that happen to be right.
    check(["tune", "--strategy", "none", "--", text], capsys)


def test_a_bad_problem_string_is_told_in_a_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    for spec in ("n1c4h5w5k4r3s3q1", "n1c4h5w5k4r3s3-f33", "n1c4h5w5k4r3s3+swish", "ResNet R1"):
        assert main(["tune", spec]) == 2
        assert len(capsys.readouterr().err) < 250


def test_peers_and_the_file_to_resume_are_read_before_anything_is_measured(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opened, "calibrate", pytest.fail)
    check(["bench", GOOD, "--peers", "foo"], capsys, "'foo'", "onednn")
    for command in (["bench", GOOD], ["study", "toy-cnn", "--device", "cpu"]):
        for file in ("deep.json", "empty.txt"):
            check([*command, "--json", str(place / file), "--resume"], capsys, file, "not JSON")


def test_missing_libraries(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "_opened", {})
    for name in ("pyopencl", "cuda", "cuda.core", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    check(["tune", GOOD, "--device", "opencl:0"], capsys, "pip install")
    check(["tune", GOOD, "--device", "cuda"], capsys, "pip install")
    check(["run", GOOD, "--device", "numpy"], capsys, "NumPy", "pip install -e '.[opencl]'")
    check(["bench", GOOD, "--device", "numpy", "--plot", "x.svg"], capsys, "pip install -e '.[plot]'")


def test_a_number_that_no_device_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyopencl")
    from tilewright.runtime import cuda, opencl

    cpus = [SimpleNamespace(type=opencl.import_opencl().device_type.CPU)] * 2
    monkeypatch.setattr(opencl, "devices", lambda: cpus)
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    check(["tune", GOOD, "--device", "cpu:9"], capsys, "cpu:9: no such OpenCL CPU, the last is cpu:1; see")
    check(["tune", GOOD, "--device", "opencl:9"], capsys, "OpenCL device, the last is opencl:1; see")
    check(["tune", GOOD, "--device", "cuda:9"], capsys, "cuda:9: no such device, the last is cuda:0")
    cpus.clear()
    check(["tune", GOOD, "--device", "cpu:9"], capsys, "no such OpenCL CPU, there is none; see")


@pytest.mark.parametrize(
    "command",
    [f"bench {GOOD} --no-tune --peers none", f"explain {GOOD}", f"run {GOOD}", f"profile {GOOD}",
     f"tune {GOOD}", f"export {GOOD} --to x", "study lenet --quick", "calibrate", "model-report"],
)  # fmt: skip
def test_help_offers_numpy_where_it_is_taken(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main([command.split()[0], "--help"]) == 0
    offered = "opencl:N or numpy" in " ".join(capsys.readouterr().out.split())
    taken = main([*command.split(), "--device", "numpy"]) == 0
    assert offered == taken
    assert taken or "NumPy" in capsys.readouterr().err


def test_numpy_where_a_device_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best = SimpleNamespace(device=SimpleNamespace(runs_kernels=True, name="EPYC"))
    real = opening.open_runtime
    monkeypatch.setattr(opening, "open_runtime", lambda *which: real(*which) if which else best)
    check(
        ["run", GOOD, "--device", "numpy"], capsys, "NumPy has no kernels; leave out --device, EPYC would do"
    )
    with pytest.raises(DeviceError, match="leave out device, EPYC"):
        tilewright.tune(GOOD, "numpy")


def test_no_driver_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tilewright.runtime import cuda

    def missing(flags: int) -> None:
        raise RuntimeError("it was looked for here and there. Ensure the driver is installed.\nTried: 1")

    bindings = SimpleNamespace(driver=SimpleNamespace(cuInit=missing))
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(bindings=bindings))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setattr(cuda, "import_core", lambda: None)
    said = "no CUDA driver: it was looked for here and there; install NVIDIA's display driver"
    check(["tune", GOOD, "--device", "cuda:7"], capsys, f"{said}, or choose the device cpu\n")


def test_unusable_cache(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(place / "empty.txt"))
    check(["cache", "info"], capsys, "TILEWRIGHT_CACHE")
    for bad in (place / "empty.txt", place / "empty.txt" / "below", Path("/proc/nowhere")):
        monkeypatch.setenv("TILEWRIGHT_CACHE", str(bad))
        assert main(["doctor"]) == 0
        found = capsys.readouterr()
        assert f"not usable: cache folder {bad}: " in found.out and found.err == ""
    (place / "link").symlink_to(place)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(place / "link"))
    check(["cache", "info"], capsys, "symbolic link")


@pytest.mark.parametrize("line", ["bench resnt", "tune n1c4h5w5k4r3s3q1", "frobnicate"])
def test_from_a_shell(line: str) -> None:
    command = [sys.executable, "-m", "tilewright", *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.problem import shapes

    def broken(spec: str) -> list[shapes.Layer]:
        raise ZeroDivisionError

    monkeypatch.setattr(shapes, "resolve", broken)
    with pytest.raises(ZeroDivisionError):
        main(["tune", GOOD])
