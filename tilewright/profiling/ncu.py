"""Hardware counters of a kernel, read by NVIDIA's ``ncu``, which profiles ``tilewright run``."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.errors import shortened
from tilewright.kernels.blueprint import NO_KERNELS
from tilewright.plans.plan import Plan
from tilewright.profiling.figures import Figure, KernelProfile, Profile, limiter

TIMEOUT_S = 300.0
_UNKNOWN = re.compile(r"[Ff]ailed to find metric (?:regex:)?\^?([a-z0-9_.]+)")
_ERROR = re.compile(r"==ERROR==\s*(.+)")


class NoCounters(Exception):
    """Counters cannot be read; the text says why."""


@dataclass(frozen=True)
class Counter:
    """A metric of ncu, our name for it, and the factor to our unit."""

    metric: str
    name: str
    unit: str = ""
    factor: float = 1.0


COUNTERS = (
    Counter("gpu__time_duration.sum", "time", "us", 1e-3),
    Counter("sm__inst_executed.avg.per_cycle_active", "instructions a cycle"),
    Counter("sm__warps_active.avg.pct_of_peak_sustained_active", "occupancy", "%"),
    Counter("launch__registers_per_thread", "registers a thread"),
    Counter("dram__bytes_read.sum", "read from device memory", "bytes"),
    Counter("dram__bytes_write.sum", "written to device memory", "bytes"),
    Counter("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", "global load efficiency", "%"),
    Counter("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "shared-memory bank conflicts"),
)
PIPES = (
    Counter("sm__inst_issued.avg.pct_of_peak_sustained_active", "issue slots", "%"),
    Counter("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", "FMA pipe", "%"),
    Counter("sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", "tensor pipe", "%"),
    Counter("l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
            "shared-memory port", "%"),
    Counter("l1tex__throughput.avg.pct_of_peak_sustained_active", "L1 cache", "%"),
    Counter("lts__throughput.avg.pct_of_peak_sustained_elapsed", "L2 cache", "%"),
    Counter("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "device memory", "%"),
)  # fmt: skip
INSTRUCTIONS = (
    Counter("smsp__inst_executed_pipe_fma.sum", "multiply-adds"),
    Counter("smsp__sass_inst_executed_op_shared_ld.sum", "shared-memory loads"),
    Counter("smsp__sass_inst_executed_op_global_ld.sum", "global loads"),
    Counter("smsp__inst_executed.sum", "others"),  # of all instructions; the three above are subtracted
)
THREAD_FLOPS = {
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 2.0,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": 1.0,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": 1.0,
}
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = {
    _STALL.format(key): name
    for key, name in {
        "long_scoreboard": "L2 or device memory", "short_scoreboard": "shared memory",
        "mio_throttle": "the shared-memory queue", "lg_throttle": "the global-memory queue",
        "math_pipe_throttle": "a full math pipe", "barrier": "a barrier", "wait": "a fixed latency",
        "no_instruction": "the instruction cache", "not_selected": "their turn", "membar": "a fence",
        "dispatch_stall": "dispatch", "imc_miss": "the constant cache", "branch_resolve": "a branch",
    }.items()
}  # fmt: skip


def metrics() -> list[str]:
    """Return all metrics that are requested."""
    named = [counter.metric for counter in (*COUNTERS, *PIPES, *INSTRUCTIONS)]
    return [*named, *THREAD_FLOPS, *STALLS]


def profiled(plan: Plan) -> Profile:
    """Read the counters of each launch of a plan.

    Raises:
        NoCounters: ncu is missing, not permitted, or failed; says which.
    """
    if not plan.device.is_cuda:
        raise NoCounters("counters are read on CUDA devices only")
    tool = shutil.which("ncu")
    if tool is None:
        raise NoCounters("ncu is not installed (NVIDIA Nsight Compute)")
    kernels = [launch.kernel for launch in plan.blueprint.launches if launch.kernel not in NO_KERNELS]
    target = [sys.executable, "-P", "-m", "tilewright", "run", str(plan.problem)]
    target += ["--config", str(plan.config), "--device", f"cuda:{plan.device.index}"]
    wanted = metrics()
    output = _run(command(tool, kernels, wanted, target))
    unknown = set(_UNKNOWN.findall(output))
    if unknown and not parse(output):  # metrics differ between architectures: retry with the known ones
        wanted = [metric for metric in wanted if metric not in unknown]
        output = _run(command(tool, kernels, wanted, target))
    found = parse(output)
    if not found:
        raise NoCounters(_reason(output))
    return Profile("ncu", "", tuple(summary(kernel, values) for kernel, values in found))


def command(tool: str, kernels: Sequence[str], wanted: Iterable[str], target: Sequence[str]) -> list[str]:
    """Return the command line: it profiles the first launches of these kernels, at the usual clocks."""
    names = "|".join(dict.fromkeys(kernels))
    how = ["--csv", "--print-units", "base", "--clock-control", "none", "--launch-count", str(len(kernels))]
    return [tool, *how, "--kernel-name", f"regex:^({names})$", "--metrics", ",".join(wanted), *target]


def parse(output: str) -> list[tuple[str, dict[str, float]]]:
    """Parse ncu's CSV, one line per metric: for each launch, its kernel's name and metrics.

    Other lines of ncu and those of the profiled program are skipped.
    """
    lines = [line for line in output.splitlines() if line.startswith('"')]
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if head is None:
        return []
    launches: dict[str, tuple[str, dict[str, float]]] = {}
    for row in csv.DictReader(lines[head:]):
        name, value = row.get("Metric Name"), _number(row.get("Metric Value"))
        if name and value is not None and row.get("Kernel Name"):
            kernel = row["Kernel Name"].partition("(")[0]
            launches.setdefault(row["ID"], (kernel, {}))[1][name] = value
    return list(launches.values())


def summary(kernel: str, values: Mapping[str, float]) -> KernelProfile:
    """Turn the metrics of one launch into figures and the limiter."""
    figures = [Figure(c.name, values[c.metric] * c.factor, c.unit) for c in COUNTERS if c.metric in values]
    flops = sum(values.get(metric, 0.0) * each for metric, each in THREAD_FLOPS.items())
    time_us = values.get("gpu__time_duration.sum", 0.0) * 1e-3
    if flops and time_us:
        figures += [Figure("f32 operations", flops), Figure("TFLOP/s", flops / time_us * 1e-6)]
    pipes = {c.name: values[c.metric] for c in PIPES if c.metric in values}
    counts = {c.name: values[c.metric] for c in INSTRUCTIONS if c.metric in values}
    if "others" in counts:
        counts["others"] = max(0.0, 2 * counts["others"] - sum(counts.values()))
    stalls = {name: values[metric] for metric, name in STALLS.items() if metric in values}
    figures += [Figure(name, value, "%") for name, value in pipes.items()]
    waiting = sum(stalls.values())
    for name, value in sorted(stalls.items(), key=lambda item: -item[1]):
        if waiting and value >= 0.01 * waiting:
            figures.append(Figure(f"waits for {name}", 100 * value / waiting, "%"))
    return KernelProfile(kernel, tuple(figures), limiter(pipes, counts, stalls))


def _run(line: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCounters(shortened(f"ncu: {error}".splitlines()[0], 200)) from error
    return done.stdout + "\n" + done.stderr


def _reason(output: str) -> str:
    if "ERR_NVGPUCTRPERM" in output:
        return "the driver shows counters to administrators only (ERR_NVGPUCTRPERM)"
    found = _ERROR.search(output)
    return f"ncu: {shortened(found[1], 200)}" if found else "ncu printed no counters"


def _number(text: str | None) -> float | None:
    """Parse a number of ncu's, which may have commas between thousands; None for n/a."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
