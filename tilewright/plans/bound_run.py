"""A plan bound to memory, with its filter packed: used to check and time kernels, and as peers' reference."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.dtypes import numpy_dtype
from tilewright.plans.plan import Plan
from tilewright.runtime.base import Memory

Array = NDArray[Any]


class BoundRun:
    """A plan that runs on the same memory each time."""

    def __init__(self, plan: Plan, memories: Mapping[str, Memory]) -> None:
        """Pack the filter. ``memories`` has one for each operand, w as it comes (kcrs)."""
        self.plan, self.packed = plan, plan.pack(memories["w"])
        self._w, self._memories = memories["w"], {**memories, "w": self.packed}
        self._steps, self._launch = plan.steps(self._memories), plan.runtime.launch

    @classmethod
    def of(cls, plan: Plan, arrays: Mapping[str, Array]) -> BoundRun:
        """Copy host arrays to memory of its own; y is NaN until a run has written it."""
        runtime = plan.runtime
        memories = {name: runtime.alloc(array.nbytes) for name, array in arrays.items()}
        for name, array in arrays.items():
            runtime.upload(memories[name], array)
        memories["y"] = runtime.alloc(plan.problem.y_bytes)
        runtime.fill(memories["y"], 0xFF)
        return cls(plan, memories)

    def run(self) -> None:
        """Enqueue one run."""
        for step in self._steps:
            self._launch(*step)

    def call(self) -> None:
        """Do one run, and wait for it."""
        self.run()
        self.plan.runtime.synchronize()

    def once(self) -> Array:
        """Run, and return y on the host."""
        problem = self.plan.problem
        y = np.empty(problem.y_shape, numpy_dtype(problem.dtype_out))
        self.run()
        self.plan.runtime.download(self._memories["y"], y)
        return y

    def pack_us(self) -> float:
        """Time packing the filter, allocation included."""
        start = time.perf_counter()
        self.plan.pack(self._w)
        self.plan.runtime.synchronize()
        return (time.perf_counter() - start) * 1e6
