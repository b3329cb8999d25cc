"""Which devices are here, asked once, as tests are collected: no test is made for one that is not.

And the harness of tests that run a plan: its arrays, with poison and guards, and whether its answer is right.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.checking.verify import Verifier
from tilewright.device import Device
from tilewright.dtypes import numpy_dtype
from tilewright.errors import DeviceError
from tilewright.kernels.config import Config
from tilewright.kernels.direct.cpu_tile import live_vectors
from tilewright.kernels.error_bound import error_bound
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Memory, Runtime

ALL = ("cpu", "cuda", "numpy")


def _found() -> dict[str, Device]:
    found = {}
    for kind in ALL:
        with suppress(DeviceError):
            device = open_runtime(kind).device
            if kind != "cpu" or device.backend != "numpy":  # which stands in where there is no OpenCL
                found[kind] = device
    return found


DEVICES = _found()
KERNELS = [kind for kind in DEVICES if kind != "numpy"]  # those that run kernels
GPU = [kind for kind in DEVICES if kind == "cuda"]
EMULATED_AND_GPU = ["emulated", *GPU]  # a GPU's kernels on the CPU, and there
GUARD = 256  # bytes on both sides of y


def clustered(runtime: Runtime) -> Runtime:
    """The runtime with a device that has clusters, as the emulation has."""
    runtime.device = replace(runtime.device, max_cluster=8)
    return runtime


def off(shift: int, dtype: Any) -> int:
    """Bytes that an array lies off an aligned address: ``shift``, or an element where that is more."""
    return max(shift, np.dtype(dtype).itemsize) if shift else 0


def put(runtime: Runtime, array: Any, shift: int = 0) -> Memory:
    """An array on the device, as far off as ``off`` says."""
    place = off(shift, array.dtype)
    memory = runtime.slice(runtime.alloc(array.nbytes + GUARD), place, max(array.nbytes, 4))
    if array.nbytes:
        runtime.upload(memory, array)
    return memory


def numbers(problem: Problem, seed: int = 7, normal: bool = False) -> dict[str, Any]:
    """Small whole numbers for all operands there may be, so that sums are exact; or normal ones."""
    rng = np.random.default_rng(seed)
    inputs, outputs = numpy_dtype(problem.stored), numpy_dtype(problem.dtype_added)
    shapes = dict(x=problem.x_shape, w=problem.w_shape, bias=(problem.k,), z=problem.z_shape)
    drawn = {n: rng.standard_normal(s) if normal else rng.integers(-4, 5, s) for n, s in shapes.items()}
    found = {n: a.astype(inputs if n in "xw" else outputs) for n, a in drawn.items()}
    return found | {"scale": np.exp2(rng.integers(-4, 0, problem.k)).astype(np.float32)}


def computed(plan: Plan, x: Any, w: Any, shift: int = 0, **more: Any) -> Any:
    """Return y of NumPy arrays, wherever the plan runs, ``shift`` bytes off; ``more``: bias, z, scale.

    There is poison in y before, and guards round it that nothing may write to.
    """
    runtime, problem = plan.runtime, plan.problem
    memories = {name: put(runtime, array, shift) for name, array in dict(x=x, **more).items()}
    whole = runtime.alloc(problem.y_bytes + 2 * GUARD)
    start = GUARD + off(shift, numpy_dtype(problem.dtype_out))
    runtime.fill(whole, 0xFF)
    y = runtime.slice(whole, start, problem.y_bytes)
    plan.run({**memories, "w": plan.pack(put(runtime, w, shift)), "y": y})
    held = np.empty(problem.y_bytes + 2 * GUARD, np.uint8)
    runtime.download(whole, held)
    assert (held[:start] == 0xFF).all(), f"{plan.config}: wrote before y"
    assert (held[start + problem.y_bytes :] == 0xFF).all(), f"{plan.config}: wrote past y"
    inside = held[start : start + problem.y_bytes].copy()
    return inside.view(numpy_dtype(problem.dtype_out)).reshape(problem.y_shape)


def fitting(problem: Problem, device: Device, values: dict[str, int]) -> dict[str, int]:
    """Return parameters of ``direct`` on a CPU; with one vector of channels where two need more registers."""
    tile = [values[name] for name in ("v", "tk", "th", "tw")]
    return values if live_vectors(problem, device, *tile) <= device.regs_per_thread else values | {"tk": 1}


def agrees(plan: Plan, shift: int = 0, seed: int = 7, normal: bool = False) -> None:
    """Assert that a plan's answer is right: to the bit where all sums are exact, else within the bound."""
    problem, data = plan.problem, numbers(plan.problem, seed, normal)
    e = problem.epilogue
    y = computed(plan, shift=shift, **{n: a for n, a in data.items() if n in problem.operands})
    bias, z = (data["bias"] if e.bias else None), (data["z"] if e.add else None)
    ref, size = numpy_conv(problem, data["x"], data["w"], bias, z)
    if problem.requantised:
        ref = numpy_requantised(problem, ref, data["scale"])
        assert len(np.unique(ref)) > min(4, ref.size // 8), f"too few different answers to tell: {problem}"
    if e.exact and plan.family.exact and not normal:
        right = y == ref.astype(y.dtype)
    else:
        chain = plan.family.chain(problem, plan.device, plan.config)
        right = error_bound(problem, chain).allows(y, ref, size)
    assert right.all(), f"{plan.config}: {(~right).sum()} of {right.size} elements are wrong"


def verified(runtime: Runtime, problem: Problem, config: Config) -> Plan:
    """Assert that a config is right in full, with NaN and infinity in x, then in w; return its plan."""
    verifier = Verifier(runtime, problem, 0)
    candidate = verifier.candidate(config)
    check = verifier.check(candidate, full=True)
    assert check.ok, check.reason
    return candidate.plan
