"""Winners from elsewhere, verified before they run: compiled in parallel, then checked in a worker process.

A worker takes a second to start, so it rests for a while: the next layer of a network follows at once. The
first use of a layer takes as long as its compilation; those of several threads overlap but for the checks,
which measure, too.
"""

from __future__ import annotations

import atexit
import os
import threading
from concurrent.futures import wait
from contextlib import suppress

from tilewright.device import Device
from tilewright.errors import TilewrightError, warn_once
from tilewright.kernels import family_of
from tilewright.kernels.blueprint import Blueprint
from tilewright.kernels.config import Config
from tilewright.kernels.untuned import pack, tools
from tilewright.kernels.untuned.reference import reference_f64
from tilewright.problem import Problem
from tilewright.record import Record
from tilewright.runtime.base import Runtime
from tilewright.runtime.capacity import cores
from tilewright.runtime.ending import Inside, ends
from tilewright.tuning.protocol import Job
from tilewright.tuning.threads import Threads
from tilewright.tuning.worker import Worker
from tilewright.tuning.worker_pool import WorkerPool

REST_S = 5.0  # that a worker waits for another layer; on a GPU it holds a context meanwhile
_resting = WorkerPool(REST_S)
_one_at_a_time = threading.Lock()
_compilers = threading.BoundedSemaphore(cores())  # of all threads together
_owner = os.getpid()


@atexit.register
def _end() -> None:
    if os.getpid() == _owner:  # and no child that was forked from it
        _resting.close()


def verified(problem: Problem, runtime: Runtime, config: Config) -> Record | None:
    """Compile, verify and time a config from elsewhere; a failure is data.

    Returns None if no worker could be started, or make the references: that says nothing of the config.
    """
    job = Job(str(problem), runtime.device.backend, runtime.device.index)
    if job.backend == "cuda" and not ends():
        _compile(programs(problem, runtime.device, config), runtime, job)
    with _one_at_a_time, Worker(job, children=_resting) as worker:
        try:
            worker.prepare()
            return worker.run(config, full=True)
        except TilewrightError as error:
            warn_once(f"tuned winners from elsewhere are not used: {error}", "verified")
            return None


def programs(problem: Problem, device: Device, config: Config) -> list[Blueprint]:
    """Return what a full check compiles: kernels for arrays that are aligned and not, packing, references."""
    found = [reference_f64(problem.portable, device)]
    found += [tools.check(problem, device), tools.same(problem, device)]
    with suppress(TilewrightError):  # which the worker will say
        family = family_of(config.family)
        family.check(problem, device, config)
        aligned, other = (family.blueprint(problem, device, config, aligned=one) for one in (True, False))
        found += [*aligned.programs, *other.programs]
        if aligned.pack is not None:
            found.append(pack(problem, device, aligned))
    return list(dict.fromkeys(found))


def _compile(blueprints: list[Blueprint], runtime: Runtime, job: Job) -> None:
    """Fill the cache of binaries while a worker starts, unless one rests."""
    threads = Threads(min(cores(), len(blueprints)), "compile")
    try:
        compiling = [threads.submit(_compile_one, one, runtime) for one in blueprints]
        with _one_at_a_time, suppress(TilewrightError), Worker(job, children=_resting) as worker:
            _ = worker.device
        wait(compiling)
    finally:
        threads.end()


def _compile_one(blueprint: Blueprint, runtime: Runtime) -> None:
    with _compilers, Inside(), suppress(TilewrightError):  # the worker will say what is wrong
        runtime.compile(blueprint, spills=True)
