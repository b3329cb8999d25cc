"""The plans of several layers, made at the same time: a network is ready after a fraction of the time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import wait

from tilewright.dispatch.dispatch import layer_plan
from tilewright.plans.layer import LayerPlan
from tilewright.plans.request import Request
from tilewright.runtime.base import Runtime
from tilewright.runtime.capacity import cores
from tilewright.runtime.ending import ends
from tilewright.store import Store
from tilewright.tuning.threads import Threads


def layer_plans(requests: Sequence[Request], runtime: Runtime, store: Store | None) -> list[LayerPlan]:
    """Return the plan of each request.

    On CUDA they are compiled in parallel, a core each. OpenCL's compilers take turns anyway.

    Raises:
        TilewrightError: as ``layer_plan``, of the first request that has no plan; the others were made.
    """
    if ends():
        return [layer_plan(one, runtime, store) for one in requests]
    most = cores() if runtime.device.backend == "cuda" else 1
    threads = Threads(most, "plan")
    try:
        making = {one: threads.submit(layer_plan, one, runtime, store) for one in dict.fromkeys(requests)}
        wait(making.values())
    finally:
        threads.end()
    return [making[one].result() for one in requests]
