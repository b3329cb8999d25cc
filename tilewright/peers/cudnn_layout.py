"""A layer's arrays in one layout for cuDNN, and its engines' plans bound to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.checking.inputs import Inputs
from tilewright.dtypes import numpy_dtype
from tilewright.peers.base import Contestant, Offer, Setting, as_nchw, load, one_line, unwritten
from tilewright.peers.cudnn_plans import (
    REQUANT,
    UIDS,
    ExecutionPlan,
    Way,
    graph_of,
    scalar_dtype,
    strict_plans,
)
from tilewright.peers.eager import told, words
from tilewright.peers.gpu import gpu_arrays
from tilewright.problem import Problem
from tilewright.runtime.base import Run

_HANDLES: dict[int, Any] = {}  # of this process, by the index of the device


class CudnnLayout:
    """The problem's arrays on the GPU in one layout, x and w padded with zero channels, and its plans."""

    def __init__(
        self, problem: Problem, inputs: Inputs, setting: Setting, layout: str, channels: int
    ) -> None:
        self.setting, self.layout, self.given = setting, layout, inputs.x
        self.padding = channels - problem.c
        self.problem = replace(problem, c=channels)
        inputs = _padded(problem, inputs, self.padding)
        self.cudnn = load("cudnn")
        self.gpu = gpu = gpu_arrays(setting)
        self.handle = _handle(self.cudnn, setting.device.index)
        e, w = problem.epilogue, inputs.w
        if e.alpha != 1.0:  # folded into the filter, as a user would do once
            inputs = replace(inputs, w=(w.astype(np.float64) * e.alpha).astype(w.dtype))
        self.placed = placed = gpu.place(problem, inputs, layout)
        self.sums = gpu.put(unwritten(problem, pooled=False), layout)
        self.arrays = {name: getattr(placed, name) for name in ("x", "w", "bias", "z", "scale")}
        self.arrays["beta"] = gpu.put(np.full((1, 1, 1, 1), e.beta, numpy_dtype(scalar_dtype(problem))))
        self.zeros = gpu.put(np.zeros((1, problem.k, 1, 1), numpy_dtype(problem.dtype_added)))
        self._workspace = gpu.bytes(0)
        self._workspace_bytes = 0

    def engines(self, way: Way, offer: Offer) -> list[list[ExecutionPlan]]:
        """Return the plans of one way to do the epilogue, by engine; failures go to the offer."""
        owner: Mapping[str, Any] = {"handle": self.handle}
        arguments = (self.cudnn, self.problem, self.layout, way, owner)
        where, key = self.where(way), (self.problem.precision, self.layout, str(way))
        try:
            plans, skipped = strict_plans(self.cudnn, lambda: graph_of(*arguments), key)
        except Exception as error:  # the graph as a whole is refused
            offer.skipped[where] = one_line(error)
            return []
        offer.skipped |= {f"{where} {name}": reason for name, reason in skipped.items()}
        found: dict[int, list[ExecutionPlan]] = {}
        for plan in plans:
            found.setdefault(plan.engine, []).append(plan)
        return list(found.values())

    def where(self, way: Way) -> str:
        """Name a graph uniquely."""
        padded = f" C={self.problem.c}" if self.padding else ""
        return f"cudnn {self.layout}{padded}{f' {way}' if way.steps else ''}"

    def title(self, plan: ExecutionPlan, way: Way) -> str:
        """Name a plan uniquely."""
        return f"{self.where(way)} {plan.name}"

    def workspace(self, nbytes: int) -> Any:
        """Return a workspace that all plans share: they run one after the other."""
        if nbytes > self._workspace_bytes:
            self._workspace, self._workspace_bytes = None, 0  # free the old one first
            self._workspace, self._workspace_bytes = self.gpu.bytes(nbytes), nbytes
        elif self._workspace is None:  # the last allocation failed
            self._workspace = self.gpu.bytes(0)
        return self._workspace

    def run(self, plan: ExecutionPlan, way: Way, sums: Any) -> tuple[Run, list[Any]]:
        """Return a function that enqueues one run of a plan into ``sums``, and a list that then has y."""
        gpu, last = self.gpu, [sums]
        room = self.workspace(plan.workspace_bytes)
        wanted = [name for name in self.arrays if name in way.tensors(self.problem.epilogue)]
        arrays = {name: self.arrays[name] for name in wanted} | {"y": sums}
        arrays |= {"bias": self.zeros} if way.zero_bias else {}
        places = {UIDS[name]: gpu.address(array) for name, array in arrays.items()}
        execute, index = plan.graph.execute_plan_at_index, plan.index
        scratch, handle = gpu.address(room), self.handle
        set_stream, stream = self.cudnn.set_stream, self.setting.stream
        done = ("alpha", *way.steps)
        apart = [step for step in words(self.problem.epilogue) if step not in done]
        requants = self.problem.requantised and REQUANT not in way.steps
        left = gpu.eager(self.problem, self.placed, done) if apart or requants else None

        def run() -> None:
            set_stream(handle=handle, stream=stream())  # a no-op in the front end if it is the same
            execute(places, scratch, index, handle)
            if left is not None:
                with gpu.on_stream():
                    last[0] = left(sums)

        run.keep = (room, arrays)  # type: ignore[attr-defined]  # addresses do not keep memory alive
        return run, last

    def contestant(self, plan: ExecutionPlan, way: Way) -> Contestant:
        """Bind a plan for the careful measurement, with its own, unwritten output."""
        gpu, problem, layout = self.gpu, self.problem, self.layout
        run, last = self.run(plan, way, gpu.put(unwritten(problem, pooled=REQUANT in way.steps), layout))
        notes = f" [{' '.join(sorted(plan.notes))}]" if plan.notes else ""
        how = ", alpha in the filter" if problem.epilogue.alpha != 1.0 else ""
        how += told(replace(problem.epilogue, alpha=1.0), way.steps)
        if problem.requantised:
            how += f", {REQUANT} {'fused' if REQUANT in way.steps else 'apart'}"
        how += ", with a bias of zeros" if way.zero_bias else ""
        how += f", C padded to {problem.c}" if self.padding else ""
        detail = f"cuDNN {self.cudnn.backend_version_string()} {plan.name}{notes}, {layout}{how}"
        title = self.title(plan, way)
        made = gpu.contestant("cudnn", title, detail, problem, layout, self.placed, run, last)
        made.workspace_bytes, made.tags = plan.workspace_bytes, plan.tags
        if self.padding:
            made.convert_us += self._padding_us()
        return made

    def _padding_us(self) -> float:
        """Time the copy of x into its padded array."""
        gpu, c = self.gpu, self.problem.c - self.padding
        given = gpu.put(as_nchw(self.given, self.problem.layout_in), self.layout)
        return self.setting.quick_us(gpu.copying(given, self.placed.x[:, :c]))


def _padded(problem: Problem, inputs: Inputs, channels: int) -> Inputs:
    """Pad x and w with zero channels."""
    if not channels:
        return inputs
    x = [(0, channels) if axis == "c" else (0, 0) for axis in problem.layout_in]
    return replace(inputs, x=np.pad(inputs.x, x), w=np.pad(inputs.w, [(0, 0), (0, channels), (0, 0), (0, 0)]))


def _handle(cudnn: Any, index: int) -> Any:
    """Return this process's cuDNN handle of a device."""
    if index not in _HANDLES:
        _HANDLES[index] = cudnn.create_handle()
    return _HANDLES[index]
