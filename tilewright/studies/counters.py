"""A source's table of profiler counters, beside ours: from ncu if it can be used, else from the model."""

from __future__ import annotations

from tilewright.profiling import profile
from tilewright.profiling.figures import KernelProfile
from tilewright.studies.lab import Entry, Lab
from tilewright.studies.published import beside
from tilewright.studies.study import Counters, PartResult

# nvprof's name: our name.
OURS = {
    "Floating Point Operations (Single Precision)": "f32 operations",
    "Executed IPC": "instructions a cycle",
    "Achieved Occupancy": "occupancy",
    "Device Memory Read Throughput": "read GB/s",
    "Device Memory Write Throughput": "write GB/s",
    "Device Memory Utilization": "device memory",
    "Global Memory Load Efficiency": "global load efficiency",
    "Issue Stall Reasons (Instructions Fetch)": "waits for the instruction cache",
    "Issue Stall Reasons (Data Request)": "waits for L2 or device memory",
    "Issue Stall Reasons (Memory Throttle)": "waits for the global-memory queue",
    "Issue Stall Reasons (Not Selected)": "waits for their turn",
    "Issue Stall Reasons (Pipe Busy)": "waits for a full math pipe",
    "Issue Stall Reasons (Synchronization)": "waits for a barrier",
}


def run_counters(part: Counters, lab: Lab) -> PartResult:
    """Profile every step; predicted figures are marked."""
    return beside(part, lab.each(part, _figures), OURS, lab.quick)


def _figures(entry: Entry) -> dict[str, str]:
    """Return the figures of a step's longest launch as text; predicted ones end with "model"."""
    assert entry.plan is not None  # a peer's kernels are not profiled
    found = profile(entry.plan)
    main = max(found.kernels, key=_time)
    mark = "" if found.source == "ncu" else " (model)"
    texts = {f.name: f"{_digits(f.value)}{f.unit and ' ' + f.unit}{mark}" for f in main.figures}
    values = {f.name: f.value for f in main.figures}
    for name, moved in (("read GB/s", "read from device memory"), ("write GB/s", "written to device memory")):
        if moved in values and values.get("time"):
            texts[name] = f"{_digits(values[moved] / values['time'] * 1e-3)} GB/s{mark}"
    return {**texts, "limiter": main.limiter}


def _digits(value: float) -> str:
    """Return a figure with four digits, and no exponent if large: sources print none."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _time(kernel: KernelProfile) -> float:
    return next((figure.value for figure in kernel.figures if figure.name == "time"), 0.0)
