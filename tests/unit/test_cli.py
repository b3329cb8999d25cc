"""The command line where all goes well: help, versions, tables, JSON, progress, Ctrl-C."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright import __version__
from tilewright.cli import doctor, main, opened, options, outputs, run
from tilewright.cli.screen import ProgressBar, emit
from tilewright.device import Rates, for_architecture
from tilewright.errors import TORCH_CPU, DeviceError, ProblemError, how_to_get
from tilewright.record import Check
from tilewright.report.table import NOISY_NOTE, Table, as_text
from tilewright.runtime import cache, open_runtime
from tilewright.runtime.base import Runtime
from tilewright.store import Store
from tilewright.store.database import Database

COMMANDS = (
    "bench", "tune", "explain", "run", "configs", "profile", "export", "study", "report",
    "doctor", "calibrate", "model-report", "cache",
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize("argv", [[], ["--help"]])
def test_help_names_every_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
    assert "[s<filter width>]" in shown and "+avgpool<size>" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "Usage: tilewright " + command in (shown := capsys.readouterr().out)
    assert main([command, "-h"]) == 0 and capsys.readouterr().out == shown


def test_help_says_what_q8_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--help"]) == 0
    assert "q8 (-i8+requant)" in " ".join(capsys.readouterr().out.split())


def test_both_layouts_are_offered_where_there_may_be_many_layers(capsys: pytest.CaptureFixture[str]) -> None:
    for command, offered in (("bench", True), ("run", False), ("explain", False), ("profile", False)):
        assert main([command, "--help"]) == 0
        assert ("nhwc or both" in " ".join(capsys.readouterr().out.split())) is offered


def test_help_cuts_no_sentence_short(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--help"], ["cache", "--help"]):
        assert main(argv) == 0
        assert not any(line.endswith("...") for line in capsys.readouterr().out.splitlines()[1:])


def test_a_shell_completes_commands_and_options() -> None:
    for typed, meant in (("tilewright tu", "tune"), ("tilewright tune --fa", "--family")):
        asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
        environment = {**os.environ, **asked, "_TILEWRIGHT_COMPLETE": "complete_bash"}
        command = [sys.executable, "-m", "tilewright"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.stdout.split() == [meant] and done.stderr == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tilewright {__version__}\n"


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from tilewright.cli import main; main(['--help']); "
        "heavy = {'torch', 'pyopencl', 'cuda', 'cupy', 'onnxruntime', 'matplotlib', 'numpy', 'rich'}; "
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    seconds: dict[str, list[float]] = {code: [], "import typer": []}  # of the processor: other tests run too
    for _ in range(3):
        for text, took in seconds.items():
            before = os.times()
            done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
            after = os.times()
            took.append(sum(after[2:4]) - sum(before[2:4]))
            assert done.returncode == 0, done.stderr
    ours, least = (min(took) for took in seconds.values())
    assert 0 < ours < max(0.5, 6 * least)  # 0.1 s is a machine that is not slow


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tilewright"] == __version__
    assert any(device.get("backend") == "numpy" for device in found["devices"])
    assert main(["doctor"]) == 0
    assert "numpy:0" in capsys.readouterr().out


def test_doctor_says_how_to_get_what_is_missing() -> None:
    rates = {"read_gbs": 19.876, "f32_tflops": 0.25}
    device = {
        "backend": "opencl", "index": 1, "name": "EPYC", "arch": "x86_64", "units": 1, "lanes": 16,
        "rates": rates, "rates_from": "calibrated", "driver": "PoCL 6.0",
    }  # fmt: skip
    document = {
        "tilewright": "1", "python": "3", "system": "Linux", "cache": "/c",
        "packages": {"onnx": "1.2", "torch": None}, "devices": [{"absent": "no CUDA driver"}, device],
        "peers": {"onednn": "torch cannot be imported"},
    }  # fmt: skip
    assert doctor._rows(document) == [
        ("tilewright", "1"), ("python", "3"), ("system", "Linux"), ("cache", "/c"), ("onnx", "1.2"),
        ("torch", f"not installed (peers oneDNN and PyTorch): pip install {TORCH_CPU}"),
        ("device", "no CUDA driver"),
        ("device opencl:1", "EPYC, x86_64, 1 unit of 16 lanes; 19.88 GB/s, 0.25 TFLOP/s f32 (calibrated); "
         "PoCL 6.0"),
        ("peer onednn", "torch cannot be imported"),
    ]  # fmt: skip
    document["devices"] = [device | {"backend": "cuda", "rates_from": "default"}]
    found = dict(doctor._rows(document))
    assert found["torch"] == f"not installed (peers oneDNN and PyTorch): {how_to_get('torch')}"
    assert "f32 (guessed, not calibrated yet); PoCL" in found["device cuda:1"]


def test_configs_lists_the_names_that_fit_a_layer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configs"]) == 0
    assert "toy:no-tiling " in (shown := capsys.readouterr().out) and "gemm:tile-32 " in shown
    assert shown.split("\n")[0].split() == ["name", "what"] and "fits" not in shown
    assert main(["configs", "TOY"]) == 0
    assert "fits" not in (shown := capsys.readouterr().out) and " textbook:bh=16.bk=4.bw=16" in shown
    assert shown.split("\n")[0].split() == ["name", "config", "what"]
    assert main(["configs", "TOY", "--json", "-"]) == 0
    found = {row["name"]: row["config"] for row in json.loads(capsys.readouterr().out)}
    assert found["toy:unroll-pragma"] == "textbook:bh=16.bk=4.bw=16.pool=1.step=2"
    assert "gemm:naive" not in found
    assert main(["configs", "MB1"]) == 0
    assert "no named config fits n1c32h112" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        ("n1c4h7w6k5r3s3p1-f32+relu+maxpool2", "toy:pool-unrolled"),
        ("n1c40h3w3k20r1s1-f32", "gemm:tiled-coalesced"),
    ],
)
def test_a_named_config_runs_and_is_explained(
    layer: str, name: str, hasty: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--device", "cpu", "--config", name, "--json", "-"]
    assert main(["run", layer, *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["note"] == "named by --config"
    assert found["config"].startswith("textbook:") and 0 <= found["error_over_bound"] <= 1
    assert found["workspace_bytes"] == (4 * 40 * 20 if "gemm" in name else 0)
    assert main(["explain", layer, *given]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["config"]["config"] == found["config"]
    assert told["launches"]["kernels"] == (
        ["transpose", "textbook_gemm"] if "gemm" in name else ["textbook"]
    )
    assert (told["pool"] == {}) == ("gemm" in name)
    assert main(["profile", layer, *given]) == 0
    limits = json.loads(capsys.readouterr().out)["kernels"][0]["limiter"]
    assert told["model_sees"]["limiter"] == limits and "% of the predicted time" in limits


def test_run_says_when_its_check_takes_long(
    cpu: Runtime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tilewright.checking import verify

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "Verifier", stopped)
    large = "n16c256h228w228k256r5s5-f32"
    assert main(["run", large, "--device", "cpu", "--config", "reference:v=1"]) == 130
    assert f"references of {large} first: 2,631 GFLOP, may take 5 minutes" in capsys.readouterr().err
    alone = "n1c1h4096k1r31p15"  # of one channel: a pass over all of it for each tap
    assert main(["run", alone, "--device", "cpu", "--config", "reference:v=1"]) == 130
    assert "32 GFLOP, may take 4 minutes" in capsys.readouterr().err
    depthwise = "n12c256h224w224k256r5s5g256-f32"  # far fewer flops, far fewer a second
    assert main(["run", depthwise, "--device", "cpu", "--config", "reference:v=1"]) == 130
    assert f"references of {depthwise} first: 7 GFLOP, may take 1 minute" in capsys.readouterr().err
    assert main(["run", "TOY", "--device", "cpu", "--config", "toy:shared-tile"]) == 130
    assert "references" not in capsys.readouterr().err
    assert main(["run", "R12", "--device", "cpu", "--config", "reference:v=1"]) == 130
    assert capsys.readouterr().err.startswith("stopped")


def test_run_checks_with_the_inputs_of_its_seed(cpu: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.checking import verify

    seeds: list[int] = []

    def stopped(runtime: Runtime, problem: object, seed: int) -> None:
        seeds.append(seed)
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "Verifier", stopped)
    for given in ([], ["--seed", "5"]):
        assert main(["run", "TOY", "--device", "cpu", "--config", "toy:shared-tile", *given]) == 130
    assert seeds == [0, 5]


def test_run_tells_no_time_of_a_wrong_answer(
    hasty: Runtime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tilewright.checking import verify

    wrong = Check(False, 1.0, 0.1, 10.0, False, True, "one element is off")
    monkeypatch.setattr(verify.Verifier, "check", lambda *_: wrong)
    layer = "n1c4h7w6k5r3s3p1-f32"
    assert main(["run", layer, "--device", "cpu", "--config", "reference:v=1"]) == 1
    shown = capsys.readouterr()
    assert shown.err == f"error: reference:v=1: wrong answer on {layer}: one element is off\n"
    assert shown.out == ""


def test_rates_are_measured_once_and_those_of_a_busy_device_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def busy(runtime: Any) -> None:
        measured.append(runtime.device.backend)
        raise DeviceError("busy")

    monkeypatch.setattr("tilewright.measuring.calibrate.calibrate", busy)
    for backend in ("opencl", "numpy"):
        for source in ("calibrated", "datasheet"):
            gpu = for_architecture("sm_90")
            device = replace(gpu, backend=backend, rates=replace(gpu.rates, source=source))
            runtime: Any = SimpleNamespace(device=device)
            opened.calibrate_once(runtime)
            assert measured == ["opencl"] * (source == "datasheet" or backend == "numpy")
    opened.calibrate(open_runtime("numpy"))
    assert measured == ["opencl"]


def test_calibrate_shows_the_rates_that_it_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[bool] = []

    def measured(runtime: Runtime, anew: bool) -> Rates:
        asked.append(anew)
        return Rates(f32_tflops=0.25, read_gbs=1234.56, empty_us=1.5, source="calibrated")

    monkeypatch.setattr("tilewright.measuring.calibrate.calibrate", measured)
    assert main(["calibrate", "--device", "numpy"]) == 0
    shown = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    told = {line[0]: line[-1].strip() for line in shown}
    assert (told["read gbs"], told["f32 tflops"], told["source"]) == ("1235", "0.25", "calibrated")
    assert main(["calibrate", "--device", "numpy", "--anew", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["read_gbs"], found["empty_us"], found["source"]) == (1234.56, 1.5, "calibrated")
    assert found["device"] == open_runtime("numpy").device.name and asked == [False, True]


def test_a_layer_that_is_given_twice_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    resnet = options.layers(["resnet"])
    assert options.layers(["R12", "resnet", "R12"]) == [resnet[-1], *resnet[:-1]]
    with pytest.raises(ProblemError, match="12 layers were given; at most 11 at once"):
        monkeypatch.setattr(options, "MAX_LAYERS", 11)
        options.layers(["resnet", "R12"])
    monkeypatch.setattr(options, "MAX_LAYERS", 12)
    assert options.layers(["resnet", "R12"]) == resnet


def test_an_import_that_is_of_no_use_here_says_for_which_devices_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    winner = {
        "problem": "n1c4h5w6k3r3s3p1-f32", "family": "reference", "config": {"v": 1}, "deterministic": True,
        "cold_us": 9.5, "ci95_us": 0.5, "warm_us": None, "runs": 20, "worst": 0.5, "provenance": {},
    }  # fmt: skip
    file, strange = tmp_path / "winners.json", [f"opencl/Some CPU/x86_64/{units}" for units in (1, 2, 3, 4)]
    own = open_runtime("numpy").device.key

    def said(*keys: str) -> str:
        rows = [winner | {"device": key} for key in keys]
        file.write_text(json.dumps({"format": "tilewright-tuned", "schema": 1, "records": rows}))
        assert main(["cache", "import", str(file)]) == 0
        return capsys.readouterr().out

    none = "none for a device of this machine\n"
    assert said(strange[0]) == f"imported 1 winner; they are for {strange[0]}, {none}"
    assert said(*strange) == f"imported 3 winners; they are for {', '.join(strange[:3])} and 1 more, {none}"
    assert said(strange[0]).startswith("imported 0 winners; the file holds none that are new; they are for")
    assert said(strange[0], own) == "imported 1 winner\n" and Store().info().imported == 5
    assert said() == "imported 0 winners; the file holds none that are new\n"


def test_run_marks_a_noisy_time() -> None:
    facts = {"cold_us": 45.4, "ci95_us": 242.0, "warm_us": 40.0, "workspace_bytes": 8, "note": ""}
    assert "cold us          45.4~\n± us             242\n" in (
        told := as_text(run._table(facts | {"noisy": True, "stolen": 0.0}))
    )
    assert told.endswith(NOISY_NOTE) and "noisy  " not in told
    assert "~" not in as_text(run._table(facts | {"noisy": False, "stolen": 0.0}))
    told = as_text(run._table(facts | {"noisy": True, "stolen": 0.23}))
    assert "45.4~" in told and "stolen" not in told
    assert told.endswith("~ the host took 23% of the CPU's time while this was measured")


def test_run_tells_no_interval_of_too_few_runs() -> None:
    facts = {"cold_us": 4e6, "ci95_us": 4e6, "workspace_bytes": 8, "noisy": True, "stolen": 0.0, "note": ""}
    assert "cold us          4000000~\n± us             –\n" in as_text(run._table(facts))


def test_cache_round_trip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TILEWRIGHT_CACHE_MIB", raising=False)
    file = tmp_path / "winners.json"
    for layer in ([], ["R5"]):
        assert main(["cache", "export", str(file), *layer]) == 2
        assert f"no winner{' of R5' * bool(layer)} is stored" in capsys.readouterr().err
    assert not file.exists()
    file.write_text(exported := '{"format": "tilewright-tuned", "schema": 1, "records": []}')
    assert main(["cache", "import", str(file)]) == 0
    assert "imported 0 winners" in capsys.readouterr().out
    with file.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert main(["cache", "import", "-"]) == 0
    assert "imported 0 winners" in capsys.readouterr().out
    with open(os.devnull) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert main(["cache", "import", "-"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: standard input: not a valid JSON") and "want one of 'cache export'" in said
    assert main(["cache", "info", "--json", "-"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["records"] == facts["kernel_bytes"] == 0 and facts["limit_bytes"] == 1 << 30
    assert main(["cache", "clear", "--yes"]) == 0
    assert "deleted 0 records" in capsys.readouterr().out
    assert main(["cache", "clear", "resnet"]) == 0
    monkeypatch.setattr(Store, "export_json", lambda *_, **__: exported.replace("[]", "[1, 2]"))
    assert main(["cache", "export", str(file)]) == 0
    assert capsys.readouterr().err == f"wrote {file}, 2 winners\n"


def test_clear_makes_room_where_not_even_a_store_can_be_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compiled kernels may fill a small disk before anything is tuned."""
    create, removed = Database._create, []

    def created(self: Database, db: sqlite3.Connection) -> None:
        if not removed:
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full
        create(self, db)

    monkeypatch.setattr(Database, "_create", created)
    monkeypatch.setattr(cache, "clear", lambda: removed.append(True) or 2)
    assert main(["cache", "info"]) == 2
    assert capsys.readouterr().err.endswith("database or disk is full; make room\n")
    assert main(["cache", "clear", "--yes"]) == 0
    assert capsys.readouterr().out == "deleted 0 records and 2 compiled kernels\n"


def test_tables_are_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("", ("a", "b"), (("x", "1"),))
    emit([table, table], None, None)
    assert capsys.readouterr().out == "a  b\nx  1\n\na  b\nx  1\n"


def test_json_goes_to_a_file_beside_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.json"
    emit(Table("", ("a", "b"), (("x", "1"),)), {"a": 1}, file)
    assert json.loads(file.read_text()) == {"a": 1}
    assert capsys.readouterr().out == "a  b\nx  1\n"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["x.json"]


@pytest.mark.parametrize(
    "text",
    [
        "-f16+bias+add0.5+silu",
        "-i8-nhwc+bias+add+relu+maxpool2",
        "-f64+alpha0.3+leaky0.2+avgpool3",
        "-bf16+clamp0:6",
    ],
)
def test_run_takes_every_dtype_and_epilogue(
    text: str, hasty: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = f"n1c4h7w6k5r3s3p1{text}"
    assert main(["run", layer, "--device", "cpu", "--config", "reference:v=1", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problem"] == layer and 0 <= found["error_over_bound"] <= 1


def test_progress_in_a_pipe_is_a_line_for_each_layer(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(2, "tuning") as progress:
        progress.now("R1", 0.5)
        progress.finished("R1: 3 us")
        progress.finished("R2: 4 us")
    shown = capsys.readouterr()
    assert shown.err == "[1/2] R1: 3 us\n[2/2] R2: 4 us\n"
    assert shown.out == ""


@pytest.mark.parametrize("text", ["", ": Unable to allocate 7.4 GiB"])
def test_no_memory_is_one_line(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError(*filter(None, [text.removeprefix(": ")]))

    monkeypatch.setattr(outputs, "check", fail)
    assert main(["configs"]) == 1
    assert capsys.readouterr().err == f"error: out of memory{text}; free some, or raise the limit on it\n"


@pytest.mark.parametrize(
    ("number", "file", "said"),
    [
        (errno.ENOSPC, None, "No space left on device"), (errno.EDQUOT, None, "Disk quota exceeded"),
        (errno.EIO, None, ""), (errno.ENOSPC, "store", ""),
    ],
)  # fmt: skip
def test_no_room_for_what_is_printed_is_one_line_and_other_errors_are_defects(
    number: int, file: str | None, said: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number), file)

    monkeypatch.setattr(outputs, "check", fail)
    if said:
        assert main(["configs"]) == 1
        assert capsys.readouterr().err == f"error: {said}; make room, or write elsewhere\n"
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            main(["configs"])


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(outputs, "check", stopped)
    assert main(["explain", "R12"]) == 130
    assert capsys.readouterr().err == "stopped before the end; what was stored is kept\n"
    for nothing_stored in ("doctor", "model-report"):
        assert main([nothing_stored]) == 130
        assert capsys.readouterr().err == "stopped before the end\n"


def test_one_layer_may_have_another_batch(
    hasty: Runtime, own_cache: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer, at_3 = "n1c4h7w6k5r3s3p1-f32", "n3c4h7w6k5r3s3p1-f32"
    for command in ("run", "explain", "profile"):
        assert main([command, layer, "--batch", "3", "--device", "cpu", "--json", "-"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told.get("layer", told)["problem"] == at_3
    assert main(["export", layer, "--batch", "3", "--device", "cpu", "--to", str(tmp_path / "x")]) == 0
    assert json.loads((tmp_path / "x" / "layer.json").read_text())["problem"] == at_3


@pytest.mark.parametrize("family", ["direct", "winograd4"])
def test_a_layer_may_be_run_and_explained_by_one_family(
    family: str, hasty: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = "n1c16h12w11k16r3s3p1-f32"
    for command in ("run", "explain"):
        assert main([command, layer, "--device", "cpu", "--family", family, "--json", "-"]) == 0
        shown = capsys.readouterr().out
        assert f"{family}:" in shown and ("(not verified)" in shown) == (command == "explain")


def _explained(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, dict[str, str]]:
    assert main(["explain", *command, "--arch", "sm_90", "--json", "-"]) == 0
    told: dict[str, dict[str, str]] = json.loads(capsys.readouterr().out)
    return told


def test_a_gpu_that_is_not_here_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    told = _explained(capsys, "R12")
    assert told["config"]["why"] == "shipped winner (not verified)"
    sources = {"read": "measured", "f32": "measured", "empty_kernel": "default"}
    assert "H100" in told["device"]["device"] and told["device"]["rates_from"] == sources
    assert told["predicted_against_measured"]["measured_us"] and told["runner_up"]["config"]
    told = _explained(capsys, "n1c8h6k16r3p1")
    assert "; on such a GPU run tilewright tune " in told["predicted_against_measured"]["measured"]
    told = _explained(capsys, "n1c8h6k16r3p1", "--family", "direct", "--deterministic")
    again = "run tilewright tune n1c8h6w6k16r3s3p1-f32 --family direct --deterministic"
    assert told["predicted_against_measured"]["measured"].endswith(again)
    given = told["config"]["config"]
    told = _explained(capsys, "n1c8h6k16r3p1", "--config", given)
    again = f"on such a GPU tilewright run n1c8h6w6k16r3s3p1-f32 --config {given}"
    assert told["predicted_against_measured"]["measured"].endswith(again)


def test_the_runner_up_is_of_the_families_that_were_asked_for(
    cpu: Runtime, own_cache: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _explained(capsys, "R12")["runner_up"]["config"].startswith("winograd:")
    assert _explained(capsys, "R12", "--family", "direct")["runner_up"] == {}
    layer = "n1c16h12w11k16r3s3p1-f32"
    families = ("direct", "winograd4")
    for family in families:
        assert main(["tune", layer, "--device", "cpu", "--family", family, "--budget", "2trials"]) == 0
    for family in families:
        capsys.readouterr()
        assert main(["explain", layer, "--device", "cpu", "--family", family, "--json", "-"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["config"]["config"].startswith(f"{family}:")
        assert told["runner_up"]["config"].startswith(f"{family}:")


def test_what_was_imported_was_not_measured_here(
    hasty: Runtime, own_cache: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer, file = "n1c16h12w11k16r3s3p1-f32", tmp_path / "winners.json"
    assert main(["tune", layer, "--device", "cpu", "--budget", "1trials"]) == 0
    assert main(["cache", "export", str(file)]) == 0
    document = json.loads(file.read_text())
    (winner,) = document["records"]
    file.write_text(json.dumps({**document, "records": [{**winner, "cold_us": 0.01}]}))
    assert main(["cache", "import", str(file)]) == 0
    capsys.readouterr()
    assert main(["explain", layer, "--device", "cpu", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)["predicted_against_measured"]
    assert told["measured_us"] == winner["cold_us"] > 0.01


def test_a_layer_that_no_winner_ships_for_is_the_models_there(capsys: pytest.CaptureFixture[str]) -> None:
    layer = "n3c88h31w33k88r7s7p3g88-f16-nhwc"
    told = _explained(capsys, layer)
    assert told["config"]["why"] == "the model's choice (not verified)"
    assert not told["predicted_against_measured"].get("measured_us")
    assert _explained(capsys, layer, "--family", "grouped")["config"]["config"].startswith("grouped:")
    given = told["config"]["config"]
    assert _explained(capsys, layer, "--config", given)["config"]["why"] == "named by --config"


@pytest.mark.parametrize(("arch", "most"), [("sm_75", 48), ("sm_80", 80), ("sm_90", 144), ("sm_120", 96)])
def test_what_no_gpu_of_an_architecture_has_memory_for_is_refused(
    arch: str, most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    million_bytes = "c250h1w1000k1r1s1-f32"  # of x, 4,000 of y
    fits, too_large = (f"n{int(most * 1e3 * share)}{million_bytes}" for share in (0.99, 1.0))
    assert main(["explain", fits, "--arch", arch, "--family", "direct"]) == 0
    for command in (["explain"], ["export", "--to", str(tmp_path / "x")]):
        capsys.readouterr()
        assert main([*command, too_large, "--arch", arch]) == 2
        said = capsys.readouterr().err
        assert f"too large: x {most * 1e9 / 2**30:.1f} GiB" in said and f"largest GPU of {arch} has" in said
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--arch", "sm_91"), ("sm_91", "known are sm_75", "that is here needs none: --device cuda")),
        (("--arch", "sm_90", "--device", "cpu"), ("--arch and --device",)),
        (("--arch", "sm_90", "--family", "gemv"), ("gemv: the filter does not cover",)),
    ],
)
def test_what_cannot_be_explained_elsewhere_is_said(
    more: tuple[str, ...], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "R12", *more]) == 2
    told = capsys.readouterr().err
    assert all(word in told for word in words), told
