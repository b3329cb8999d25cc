"""A plan on given inputs, in memory of its own: timed beside peers, and the reference of their answers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tilewright.checking.inputs import Inputs
from tilewright.dtypes import numpy_dtype
from tilewright.peers.base import Array
from tilewright.plans.execution import Plan
from tilewright.runtime.base import Memory, Runtime


class BoundPlan:
    """One of our plans on given inputs, in memory of its own."""

    def __init__(self, runtime: Runtime, plan: Plan, inputs: Inputs) -> None:
        """Copy the inputs to the device and pack the filter."""
        self.runtime, self.plan = runtime, plan
        given = {name: self._place(array) for name, array in inputs.given(plan.problem).items()}
        self._w = given["w"]
        self._memories = {**given, "w": plan.pack(self._w), "y": runtime.alloc(plan.problem.y_bytes)}
        runtime.fill(self._memories["y"], 0xFF)

    def run(self) -> None:
        """Enqueue one run."""
        self.plan.run(self._memories)

    def call(self) -> None:
        """Do one run, and wait for it."""
        self.run()
        self.runtime.synchronize()

    def once(self) -> Array:
        """Run, and return y on the host."""
        problem = self.plan.problem
        y = np.empty(problem.y_shape, numpy_dtype(problem.dtype_out))
        self.run()
        self.runtime.download(self._memories["y"], y)
        return y

    def pack_us(self) -> float:
        """Time packing the filter, allocation included."""
        start = time.perf_counter()
        self.plan.pack(self._w)
        self.runtime.synchronize()
        return (time.perf_counter() - start) * 1e6

    def _place(self, array: Any) -> Memory:
        memory = self.runtime.alloc(array.nbytes)
        self.runtime.upload(memory, array)
        return memory
