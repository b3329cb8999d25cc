"""The plans of several layers, made at the same time: a network is ready after a fraction of the time.

On CUDA there is a thread for each core. Compilers run in it, what the model thinks in a process for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import wait
from functools import partial

from tilewright.device import Device
from tilewright.dispatch.dispatch import layer_plan
from tilewright.errors import TilewrightError
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.plans.layer import LayerPlan
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime
from tilewright.runtime.capacity import cores
from tilewright.runtime.ending import ends
from tilewright.search.guesses import guesses
from tilewright.store import Store
from tilewright.tuning.protocol import Job
from tilewright.tuning.threads import Threads
from tilewright.tuning.worker import Worker
from tilewright.tuning.worker_pool import WorkerPool


def layer_plans(requests: Sequence[Request], runtime: Runtime, store: Store | None) -> list[LayerPlan]:
    """Return the plan of each request.

    On CUDA they are compiled in parallel, a core each. OpenCL's compilers take turns anyway.

    Raises:
        TilewrightError: as ``layer_plan``, of the first request that has no plan; the others were made.
    """
    if ends():
        return [layer_plan(one, runtime, store) for one in requests]
    wanted = dict.fromkeys(requests)
    most = min(cores(), len(wanted)) if runtime.device.backend == "cuda" else 1
    threads = Threads(most, "plan")
    with WorkerPool() as children:
        rank = partial(_elsewhere, children) if most > 1 else guesses
        try:
            making = {one: threads.submit(layer_plan, one, runtime, store, rank) for one in wanted}
            wait(making.values())
        finally:
            threads.end()
    return [making[one].result() for one in requests]


def _elsewhere(
    children: WorkerPool, problem: Problem, device: Device, families: Sequence[Family], deterministic: bool
) -> list[Config]:
    """Return the model's choices, computed in another process: threads of one would take turns."""
    job = Job(str(problem), device.backend, device.index, facts=device.facts)
    try:
        with Worker(job, children=children) as worker:
            return worker.ranked([family.name for family in families], deterministic)
    except TilewrightError:
        return guesses(problem, device, families, deterministic)
