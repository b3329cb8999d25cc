"""Profiles: ncu's CSV, the limiter in a sentence, the model in its place, and the command."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import pytest

from tilewright.cli import main
from tilewright.cli import profile as profile_command
from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.problem import Problem
from tilewright.profiling import ncu
from tilewright.profiling.figures import Figure, KernelProfile, Profile, limiter
from tilewright.profiling.modelled import modelled
from tilewright.search.ranking import rank

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
LAUNCHES = [
    ("0", "direct(const float *, const float *, float *)", {
        "gpu__time_duration.sum": ("ns", "12,345"),
        "sm__inst_issued.avg.pct_of_peak_sustained_active": ("%", "86.40"),
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "31.5"),
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed": ("%", "40"),
        "smsp__inst_executed.sum": ("inst", "1,000"),
        "smsp__inst_executed_pipe_fma.sum": ("inst", "200"),
        "smsp__sass_inst_executed_op_shared_ld.sum": ("inst", "710"),
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": ("inst", "231,211,008"),
        "launch__registers_per_thread": ("register/thread", "128"),
        "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "n/a"),
    }),
    ("1", "sum_shares", {
        "gpu__time_duration.sum": ("ns", "2000"),
        "sm__inst_issued.avg.pct_of_peak_sustained_active": ("%", "9"),
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "22"),
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "7.5"),
        "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": ("inst", "2.5"),
    }),
]  # fmt: skip
CSV = "\n".join(
    ["==PROF== Connected to process 4242 (/usr/bin/python3.11)", '==PROF== Profiling "direct": 0%....100%',
     "problem  n1c4h5w5k4r3s3p1-f32", "==PROF== Disconnected from process 4242", HEAD]
    + [
        f'"{number}","4242","python3.11","127.0.0.1","{kernel}","1","7","(256, 1, 1)","(132, 1, 1)",'
        f'"0","9.0","Command line profiler metrics","{metric}","{unit}","{value}"'
        for number, kernel, values in LAUNCHES
        for metric, (unit, value) in values.items()
    ]
)  # fmt: skip


def test_csv_of_two_launches() -> None:
    (first, values), (second, others) = ncu.parse(CSV)
    assert (first, second) == ("direct", "sum_shares")
    assert values["gpu__time_duration.sum"] == 12345.0
    assert "lts__throughput.avg.pct_of_peak_sustained_elapsed" not in values
    assert others["sm__inst_issued.avg.pct_of_peak_sustained_active"] == 9.0


@pytest.mark.parametrize("text", ["", "==PROF== nothing", HEAD, '"odd","line"\n"1"', HEAD + '\n"0"'])
def test_no_csv_is_no_launch(text: str) -> None:
    assert ncu.parse(text) == []


def test_summaries_and_limiters() -> None:
    first, second = (ncu.summary(kernel, values) for kernel, values in ncu.parse(CSV))
    shown = {figure.name: (figure.value, figure.unit) for figure in first.figures}
    assert shown["time"] == (pytest.approx(12.345), "us")
    assert shown["registers a thread"] == (128, "")
    assert shown["TFLOP/s"][0] == pytest.approx(2 * 231211008 / 12.345e6)
    assert first.limiter == (
        "issue slots: 86% of its peak (shared-memory loads 71%, multiply-adds 20%, others 9%)"
    )
    assert second.limiter == (
        "latency: 75% of waiting warps wait for L2 or device memory; "
        "no pipe is busier than device memory, 22%"
    )


def test_limiter_of_nothing() -> None:
    assert limiter({}, {}, {}).startswith("not known")
    assert limiter({"L2 cache": 12.0}, {}, {}) == "L2 cache: 12% of its peak"


PROBLEM, DEVICE = Problem.parse("n1c64h56w56k64r3s3p1-f32"), for_architecture("sm_90")


@cache
def chosen() -> Config:
    """The model's choice; it takes seconds."""
    return rank(PROBLEM, DEVICE, family_of("direct"), 1)[0][0]


def test_the_model_says_what_it_is() -> None:
    problem, device = PROBLEM, DEVICE
    found = modelled(family_of("direct"), problem, device, chosen(), "no ncu")
    assert (found.source, found.why) == ("model", "no ncu")
    assert "of the predicted time" in found.kernels[0].limiter
    untold = modelled(family_of("reference"), problem, device, Config.parse("reference:v=1"), "")
    assert untold.kernels[0].limiter.startswith("not known")


def test_the_launch_may_be_what_limits() -> None:
    tiny, device = Problem.parse("n1c16h1w1k16r1s1-f32"), for_architecture("sm_90")
    config = rank(tiny, device, family_of("direct"), 1)[0][0]
    found = modelled(family_of("direct"), tiny, device, config, "").kernels[0].limiter
    assert found.startswith("the launch: ") and found.endswith("% of the predicted time")


class GpuPlan:
    """As much of a Plan as profiling looks at."""

    problem, device = PROBLEM, DEVICE

    def __init__(self) -> None:
        self.config = chosen()
        self.blueprint = family_of("direct").blueprint(self.problem, self.device, self.config)


def with_ncu(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program called ncu first on the path."""
    tool = folder / "ncu"
    tool.write_text("#!/bin/sh\n" + script)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_counters_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out.csv").write_text(CSV)
    with_ncu(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/line; cat {tmp_path}/out.csv')
    found = ncu.profiled(GpuPlan())  # type: ignore[arg-type]
    assert found.source == "ncu" and [one.kernel for one in found.kernels] == ["direct", "sum_shares"]
    line = (tmp_path / "line").read_text()
    assert "--csv" in line and "regex:^(direct" in line and "tilewright run n1c64h56w56" in line


def test_what_is_no_kernel_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filling constant memory is a copy: ncu sees one launch."""
    plan = GpuPlan()
    config = Config.parse("small:bands=1.f=0.mb=1.ni=1.out=0.stages=1.th=1.threads=64.tk=4.tw=10")
    plan.blueprint = family_of("small").blueprint(Problem.parse("n2c1h14w14k4r5s5-f32"), plan.device, config)
    assert [launch.kernel for launch in plan.blueprint.launches] == ["constant", "small"]
    (tmp_path / "out.csv").write_text(CSV)
    with_ncu(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/line; cat {tmp_path}/out.csv')
    ncu.profiled(plan)  # type: ignore[arg-type]
    assert "--launch-count 1 --kernel-name regex:^(small)$" in (tmp_path / "line").read_text()


def test_a_metric_that_is_not_there_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out.csv").write_text(CSV)
    missing = "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"
    script = f'case "$*" in *{missing}*) echo "==ERROR== Failed to find metric {missing}";;'
    with_ncu(tmp_path, monkeypatch, f"{script} *) cat {tmp_path}/out.csv;; esac")
    assert ncu.profiled(GpuPlan()).source == "ncu"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1', "administrators"),
        ('echo "==ERROR== No kernels were profiled"', "No kernels"),
        ("exit 0", "no counters"),
    ],
)
def test_reasons(script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_ncu(tmp_path, monkeypatch, script)
    with pytest.raises(ncu.NoCounters, match=words):
        ncu.profiled(GpuPlan())  # type: ignore[arg-type]


def test_no_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ncu.NoCounters, match="not installed"):
        ncu.profiled(GpuPlan())  # type: ignore[arg-type]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], own_cache: None) -> None:
    layer = "n1c8h9w9k16r3s3p1-f32"
    assert main(["profile", layer, "--device", "numpy"]) == 2
    assert "NumPy" in capsys.readouterr().err
    status = main(["profile", layer, "--device", "opencl:0", "--json", str(tmp_path / "x.json")])
    if status == 2:
        pytest.skip(capsys.readouterr().err)
    shown = capsys.readouterr().out
    assert "predicted by the model: counters are read on CUDA devices only" in shown
    assert "limiter: " in shown
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["source"] == "model" and found["kernels"][0]["limiter"]


@pytest.mark.parametrize(
    ("source", "why", "said"),
    [("ncu", "", "measured by ncu"), ("model", "no GPU", "predicted by the model: no GPU")],
)
def test_each_launch_is_a_table_of_figures_in_their_units(source: str, why: str, said: str) -> None:
    figures = (
        Figure("busy", 12.345, "%"), Figure("time", 4.5678, "us"), Figure("spilt", 20480.4, "bytes"),
        Figure("rate", 1234.5, "GB/s"), Figure("registers", 128.0),
    )  # fmt: skip
    launches = (KernelProfile("first", figures, "memory"), KernelProfile("second", (), "launches"))
    head, first, second = profile_command._tables(Profile(source, why, launches), {"config": "direct"})
    assert head.body == (("config", "direct"),)
    assert (first.title, second.title) == (f"first, {said}", f"second, {said}")
    assert first.body == (
        ("busy", "12.3%"), ("time", "4.57 us"), ("spilt", "20k"), ("rate", "1,234 GB/s"),
        ("registers", "128"),
    )  # fmt: skip
    assert (first.notes, second.notes) == (("limiter: memory",), ("limiter: launches",))
