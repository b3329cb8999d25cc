"""Time what a call costs before its kernel is launched, on a CPU: ``python benchmarks/time_calls_cpu.py``.

A small layer, called over and over, with warm caches and after a flush of all of them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright.runtime import open_runtime  # noqa: E402

LAYER = "n1c1152h1w1k48r1s1-f32"
CALLS = 60


def main() -> None:
    """Print a line for each way to call and state of the caches."""
    runtime: Any = open_runtime("cpu")
    layer, plan = tw.Problem.parse(LAYER), tw.plan(LAYER, "cpu", family="direct")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in (layer.x_shape, layer.w_shape))
    packed = plan.pack(w)
    out, enqueue, launched = plan(x, packed), runtime._enqueue, []

    def noted(*given: Any) -> Any:
        launched.append(time.perf_counter_ns())
        return enqueue(*given)

    runtime._enqueue = noted
    calls = {"plan": lambda: plan(x, packed, out=out), "plan.bind": plan.bind(x, packed, out=out)}

    def timed(call: Callable[[], object], cold: bool) -> tuple[float, float]:
        if cold:
            runtime._flusher.enqueue()
            runtime.synchronize()
        launched.clear()
        start = time.perf_counter_ns()
        call()
        return (launched[0] - start) / 1e3, (time.perf_counter_ns() - start) / 1e3

    for state in ("warm", "cold"):
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for _ in range(CALLS):  # in turns, since the machine's speed changes
            for name, call in calls.items():
                times[name].append(timed(call, state == "cold"))
        for name, pairs in times.items():
            to_launch, in_all = map(statistics.median, zip(*pairs, strict=True))
            print(f"{state}, {name}: {to_launch:.0f} us to the launch, {in_all:.0f} in all")


if __name__ == "__main__":
    main()
