"""cuDNN: every strict f32 engine of its front end, in both layouts, the epilogue fused or apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.device import Device
from tilewright.errors import PeerError
from tilewright.peers.base import (
    F32,
    Contestant,
    Offer,
    Peer,
    Run,
    Setting,
    as_nchw,
    as_output,
    bias_of,
    load,
    needs,
    one_line,
)
from tilewright.peers.cudnn_plans import UIDS, Plan, graph_of, strict_plans
from tilewright.peers.gpu import Gpu
from tilewright.problem import Problem
from tilewright.tuning.inputs import Inputs

_HANDLES: dict[int, Any] = {}


class Cudnn(Peer):
    """All plans are listed and built, timed a few times; the best few, and the best GEMM, are kept."""

    name = "cudnn"
    backends = ("cuda",)

    def absent(self, device: Device) -> str | None:
        _preload()
        reason = needs(self.name, ("cudnn", "nvidia-cudnn-frontend"))
        if reason:
            return reason
        try:
            load("cudnn").backend_version()
            Gpu(Setting(device))
        except PeerError as error:
            return f"{self.name}: {error}"
        except Exception as error:  # the front end's RuntimeError: it found no libcudnn
            return f"{self.name}: {one_line(error)}; pip install nvidia-cudnn-cu13"
        return None

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        offer, ways = Offer(), [False, True] if problem.epilogue else [False]
        quick: list[tuple[float, _Layout, Plan, bool]] = []
        for layout in ("nchw", "nhwc"):
            try:
                arrays = _Layout(problem, inputs, setting, layout)
            except Exception as error:  # out of memory, most likely
                offer.skipped[f"cudnn {layout}"] = one_line(error)
                continue
            for fused in ways:
                for plan in arrays.plans(fused, offer):
                    name = arrays.title(plan, fused)
                    try:
                        time_us = setting.quick_us(arrays.run(plan, fused, arrays.y))
                    except Exception as error:  # refused at launch, or no room for its workspace
                        offer.skipped[name] = one_line(error)
                    else:
                        quick.append((time_us, arrays, plan, fused))
        for time_us, arrays, plan, fused in _best(quick, setting.engines, offer):
            make = lambda a=arrays, p=plan, f=fused, t=time_us: a.contestant(p, f, t)  # noqa: E731
            offer.attempt(arrays.title(plan, fused), make)
        return offer


class _Layout:
    """The problem's arrays on the GPU in one layout, and its plans."""

    def __init__(self, problem: Problem, inputs: Inputs, setting: Setting, layout: str) -> None:
        self.problem, self.setting, self.layout = problem, setting, layout
        self.cudnn = load("cudnn")
        self.gpu = gpu = Gpu(setting)
        self.handle = _handle(self.cudnn, setting.device.index)
        self.x = gpu.put(as_nchw(inputs.x, problem.layout_in), layout)
        self.w = gpu.put(inputs.w, layout)
        self.plain_w = gpu.put(inputs.w)
        bias = bias_of(problem, inputs)
        self.bias = None if bias is None else gpu.put(bias.reshape(1, -1, 1, 1))
        self.y = gpu.put(_nan(problem), layout)
        self._workspace = gpu.bytes(0)
        self._workspace_bytes = 0

    def plans(self, fused: bool, offer: Offer) -> list[Plan]:
        """Build the plans of one way to do the epilogue; failures go to the offer."""
        owner: Mapping[str, Any] = {"handle": self.handle}
        arguments = (self.cudnn, self.problem, self.layout, fused, owner)
        where = f"cudnn {self.layout}{' fused' if fused else ''}"
        try:
            plans, skipped = strict_plans(self.cudnn, lambda: graph_of(*arguments), (self.layout, fused))
        except Exception as error:  # the graph as a whole is refused
            offer.skipped[where] = one_line(error)
            return []
        offer.skipped |= {f"{where} {name}": reason for name, reason in skipped.items()}
        return plans

    def title(self, plan: Plan, fused: bool) -> str:
        """Name a plan uniquely."""
        return f"cudnn {self.layout}{' fused' if fused else ''} {plan.name}"

    def workspace(self, nbytes: int) -> Any:
        """Return room that all plans share: they run one after the other."""
        if nbytes > self._workspace_bytes:
            self._workspace = None  # give the old one back first
            self._workspace = self.gpu.bytes(nbytes)
            self._workspace_bytes = nbytes
        return self._workspace

    def run(self, plan: Plan, fused: bool, y: Any) -> Run:
        """Return what enqueues one run of a plan into y."""
        gpu, relu = self.gpu, self.problem.epilogue.act == "relu"
        room = self.workspace(plan.workspace_bytes)
        arrays = {"x": self.x, "w": self.w, "y": y} | ({"bias": self.bias} if self.bias is not None else {})
        if not fused:
            arrays.pop("bias", None)
        places = {UIDS[name]: gpu.address(array) for name, array in arrays.items()}
        execute, index = plan.graph.execute_plan_at_index, plan.index
        scratch, handle = gpu.address(room), self.handle
        set_stream, stream = self.cudnn.set_stream, self.setting.stream

        def run() -> None:
            set_stream(handle=handle, stream=stream())  # the front end does nothing where it is the same
            execute(places, scratch, index, handle)
            if self.problem.epilogue and not fused:
                gpu.bias_relu(y, self.bias, relu)

        run.keep = (room, arrays)  # type: ignore[attr-defined]  # addresses do not keep memory alive
        return run

    def contestant(self, plan: Plan, fused: bool, quick_us: float) -> Contestant:
        """Bind a plan for the careful measurement, with an output of its own that starts as NaN."""
        gpu, problem, layout = self.gpu, self.problem, self.layout
        y = gpu.put(_nan(problem), layout)

        def output() -> F32:
            return as_output(gpu.get(y), problem)

        how = "" if not problem.epilogue else ", epilogue fused" if fused else ", epilogue apart"
        notes = f" [{' '.join(sorted(plan.notes))}]" if plan.notes else ""
        detail = f"cuDNN {self.cudnn.backend_version_string()} {plan.name}{notes}, {layout}{how}"
        pack_us = 0.0 if layout == "nchw" else self.setting.quick_us(gpu.copying(self.plain_w, self.w))
        convert_us = gpu.convert_us(problem, self.setting, layout, self.x, y)
        return Contestant(
            "cudnn", self.title(plan, fused), detail, layout, self.run(plan, fused, y), output,
            plan.workspace_bytes, pack_us, convert_us, plan.tags,
        )  # fmt: skip


def _best(
    quick: list[tuple[float, _Layout, Plan, bool]], count: int, offer: Offer
) -> list[tuple[float, _Layout, Plan, bool]]:
    """Keep the fastest few and the fastest GEMM; note the time of the others."""
    ranked = sorted(quick, key=lambda entry: entry[0])
    kept = ranked[:count]
    if not any("gemm" in plan.tags for _, _, plan, _ in kept):
        kept += [entry for entry in ranked[count:] if "gemm" in entry[2].tags][:1]
    for entry in ranked:
        if not any(entry is other for other in kept):
            time_us, arrays, plan, fused = entry
            offer.skipped[arrays.title(plan, fused)] = f"slower: {time_us:.1f} us in a quick timing"
    return kept


def _handle(cudnn: Any, index: int) -> Any:
    """Return the process's handle of a device."""
    if index not in _HANDLES:
        _HANDLES[index] = cudnn.create_handle()
    return _HANDLES[index]


def _preload() -> None:
    """Load what libcudnn opens by name and aborts the process without: PyTorch brings it, or pip did."""
    try:
        load("torch")
    except Exception:  # absent or broken: then the CUDA wheels must be there
        try:
            find = load("cuda.pathfinder").load_nvidia_dynamic_lib
            for name in ("cublas", "cublasLt", "nvrtc"):
                find(name)
        except Exception:
            return


def _nan(problem: Problem) -> F32:
    return np.full((problem.n, problem.k, problem.p, problem.q), np.nan, np.float32)
