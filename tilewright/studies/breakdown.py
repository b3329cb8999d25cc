"""Time by activity of a program that runs one layer once, on the device and on the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np

from tilewright.checking.inputs import Inputs
from tilewright.dtypes import numpy_dtype
from tilewright.measuring.rounds import measure
from tilewright.plans.plan import Plan
from tilewright.runtime.base import Runtime
from tilewright.studies.lab import Entry, Lab
from tilewright.studies.published import LEFT_OUT, beside
from tilewright.studies.study import Breakdown, Column, PartResult, Step, StudyLayer, Value, present

RUNS = 3
HOST = ("allocate", "copy to device", "pack filter", "launch", "synchronize", "copy to host", "free")

# Our names for the rows of a source's profiler tables.
OURS = {
    "kernel": "kernel", "memcpy HtoD": "copy to device", "memcpy DtoH": "copy to host",
    "cudaMalloc": "allocate", "cudaDeviceSynchronize": "synchronize", "cudaLaunchKernel": "launch",
    "cudaFree": "free", "cudaMemcpy": "copies", "GPU sum": "device", "API sum": "host", "total": "whole",
}  # fmt: skip


def activities(runtime: Runtime, plan: Plan, inputs: Inputs) -> dict[str, float]:
    """Return the wall-clock time of each activity in us, the median of a few runs from scratch.

    ``launch`` lasts until the call returns, ``synchronize`` is the wait after it; ``whole`` is their sum.
    """
    runs = [_once(runtime, plan, inputs) for _ in range(RUNS)]
    found = {name: median(run[name] for run in runs) for name in HOST}
    return found | {"copies": found["copy to device"] + found["copy to host"], "whole": sum(found.values())}


def _once(runtime: Runtime, plan: Plan, inputs: Inputs) -> dict[str, float]:
    problem, took = plan.problem, dict[str, float]()
    arrays = inputs.given(problem)
    host = np.empty(problem.y_shape, numpy_dtype(problem.dtype_out))

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        took[name] = (time.perf_counter() - start) * 1e6
        return result

    def upload() -> None:
        for name, array in arrays.items():
            runtime.upload(memory[name], array)

    operands = problem.operands.values()
    memory = timed("allocate", lambda: {one.name: runtime.alloc(one.nbytes) for one in operands})
    timed("copy to device", upload)
    memory["w"] = timed("pack filter", lambda: plan.pack(memory["w"]))
    timed("launch", lambda: plan.run(memory))
    timed("synchronize", runtime.synchronize)
    timed("copy to host", lambda: runtime.download(memory["y"], host))
    timed("free", memory.clear)
    return took


def run_breakdown(part: Breakdown, lab: Lab) -> PartResult:
    """Time the activities of every step on every layer."""
    found = lab.each(part, lambda entry: _of(entry, lab))
    if part.table:
        return beside(part, found, OURS, lab.quick)
    rows = tuple(_row(step, layer, found[layer.name, step.name])
                 for layer in present(part.layers, lab.quick) for step in part.steps)  # fmt: skip
    columns = (
        Column("layer", "layer"), Column("step", "step"), Column("kernel", "kernel", "us"),
        *(Column(name, name, "us") for name in HOST), Column("whole", "whole", "us"),
        Column("published", "published: whole, and parts"),
    )  # fmt: skip
    used = tuple(c for c in columns if any(row.get(c.key) not in (None, "") for row in rows))
    return PartResult(part.title, "activities", part.note if rows else LEFT_OUT, used, rows)


def _of(entry: Entry, lab: Lab) -> dict[str, float]:
    if entry.plan is None:
        return {}
    kernel = measure({"it": entry.run}, entry.runtime, lab.limits)["it"].cold_us
    plan = Plan.make(entry.runtime, entry.problem, entry.plan.config)  # without the verifier's guards
    took = activities(entry.runtime, plan, lab.inputs(entry.problem))
    return {**took, "kernel": kernel, "device": kernel + took["copies"], "host": took["whole"]}


def _row(step: Step, layer: StudyLayer, took: Mapping[str, float] | str) -> dict[str, Value]:
    found = {"reason": took} if isinstance(took, str) else took
    return {"layer": layer.name, "step": step.name, **step.published_cells(layer.name), **found}
