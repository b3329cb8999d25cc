"""A source's table of profiler counters, beside ours: from ncu if it can be used, else from the model."""

from __future__ import annotations

from tilewright.errors import TilewrightError
from tilewright.profiling.figures import KernelProfile, Profile
from tilewright.profiling.profiler import profile
from tilewright.studies.breakdown import beside
from tilewright.studies.lab import Entry, Lab
from tilewright.studies.published import table
from tilewright.studies.study import Counters, PartResult, present

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
    found = dict[tuple[str, str], dict[str, str] | str]()
    for layer in present(part.layers, lab.quick):
        for step in part.steps:
            lab.say(f"{part.title}: {layer.name}, {step.name}")
            try:
                found[layer.name, step.name] = _texts(_profile(lab.enter(step, layer)))
            except TilewrightError as error:
                found[layer.name, step.name] = str(error)
    lab.forget()
    return beside(part.title, part.note, table(part.table), part.steps, found, OURS, lab.quick)


def _profile(entry: Entry) -> Profile:
    assert entry.plan is not None  # a peer's kernels are not profiled
    return profile(entry.plan)


def _texts(found: Profile) -> dict[str, str]:
    """Return the figures of the longest launch as text; predicted ones end with "model"."""
    main = max(found.kernels, key=_time)
    mark = "" if found.source == "ncu" else " (model)"
    texts = {f.name: f"{f.value:.4g}{f.unit and ' ' + f.unit}{mark}" for f in main.figures}
    values = {f.name: f.value for f in main.figures}
    for name, moved in (("read GB/s", "read from device memory"), ("write GB/s", "written to device memory")):
        if moved in values and values.get("time"):
            texts[name] = f"{values[moved] / values['time'] * 1e-3:.4g} GB/s{mark}"
    return {**texts, "limiter": main.limiter}


def _time(kernel: KernelProfile) -> float:
    return next((figure.value for figure in kernel.figures if figure.name == "time"), 0.0)
