"""A call of a plan on fixed arrays: they are validated once, not at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn
from weakref import WeakKeyDictionary

from tilewright.arrays.untraced import untraced
from tilewright.arrays.view import Array
from tilewright.plans.stream_plans import StreamPlan
from tilewright.problem import Problem
from tilewright.runtime.base import Memory, Step


@dataclass(frozen=True, eq=False)
class BoundCall:
    """A layer bound to fixed arrays, whose current contents each call uses; made by ``LayerPlan.bind``.

    It keeps references to its arrays. They must not be moved or resized (``x.resize_`` of PyTorch) meanwhile.

    Attributes:
        out: what each call writes, and returns.
        problem: the layer.
    """

    out: Array
    problem: Problem
    _run: Callable[[], object]

    @untraced
    def __call__(self) -> Array:
        """Run the layer once; return ``out``.

        On CUDA it is enqueued on the caller's current stream; elsewhere it is complete on return.

        Raises:
            CompileError, OutOfMemory: the first call on a stream may need a workspace of its own.
            RunError: the device failed.
            DeviceError: this process was forked from the one that opened the device.
        """
        self._run()
        return self.out

    def __repr__(self) -> str:
        return f"<bound call of {self.problem}>"

    def __getstate__(self) -> NoReturn:
        raise TypeError("a bound call has arrays of its own and cannot be copied or pickled; pickle the plan")


class BoundLaunches:
    """The launches of a bound call, for each stream that it was called on."""

    def __init__(self, memories: Mapping[str, Memory]) -> None:
        self._memories = memories
        self._of: WeakKeyDictionary[StreamPlan, list[Step]] = WeakKeyDictionary()

    def enqueue(self, stream: int | None, own: StreamPlan) -> None:
        """Enqueue on a stream with its resources, ``own``."""
        steps = self._of.get(own)
        if steps is None:
            steps = self._of[own] = own.plan.steps(self._memories, stream)
        for loaded, launch, given in steps:
            own.plan.runtime.launch(loaded, launch, given, stream)
