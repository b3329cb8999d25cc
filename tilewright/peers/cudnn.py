"""cuDNN: every strict engine of its front end, in both layouts, the epilogue fused as far as it goes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.arithmetic import round_up
from tilewright.checking.inputs import Inputs
from tilewright.device import Device
from tilewright.dtypes import numpy_dtype
from tilewright.errors import PeerError
from tilewright.peers.base import (
    Array,
    Contestant,
    Offer,
    Peer,
    Setting,
    as_nchw,
    as_output,
    load,
    needs,
    one_line,
    unwritten,
)
from tilewright.peers.cudnn_plans import (
    REQUANT,
    UIDS,
    ExecutionPlan,
    Way,
    graph_of,
    scalar_dtype,
    strict_plans,
    ways,
)
from tilewright.peers.eager import told, words
from tilewright.peers.gpu import GpuArrays
from tilewright.problem import Problem
from tilewright.runtime.base import Run

_HANDLES: dict[int, Any] = {}


# An engine whose first setting, the one that cuDNN recommends, takes so many times as long as the
# fastest engine's is not tried in its others: each takes some 30 ms to build, and there are hundreds.
SLOW = 1.5

# Engines of whole numbers read channels by fours and by sixteens, and give wrong sums of other numbers.
_CHANNELS_AT_ONCE = (4, 16)


class Cudnn(Peer):
    """All engines are tried, and all settings of the fast ones; the best few, and the best GEMM, are kept."""

    name = "cudnn"
    backends = ("cuda",)
    dtypes = ("f64", "f32", "f16", "bf16", "i8", "q8", "f8")

    def absent(self, device: Device) -> str | None:
        _preload()
        reason = needs(self.name, ("cudnn", "nvidia-cudnn-frontend"))
        if reason:
            return reason
        try:
            load("cudnn").backend_version()
            GpuArrays(Setting(device))
        except PeerError as error:
            return f"{self.name}: {error}"
        except Exception as error:  # the front end's RuntimeError: it found no libcudnn
            return f"{self.name}: {one_line(error)}; pip install nvidia-cudnn-cu13"
        return None

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        offer, engines = Offer(), list[_Engine]()
        for layout in ("nchw", "nhwc"):
            for channels in _channels(problem):
                try:
                    arrays = _Layout(problem, inputs, setting, layout, channels)
                except Exception as error:  # out of memory, most likely
                    offer.skipped[f"cudnn {layout}"] = one_line(error)
                    continue
                for way in ways(problem):
                    engines += [_Engine(arrays, way, plans) for plans in arrays.engines(way, offer)]
        for engine in engines:
            engine.try_first(offer)
        fastest = min((engine.best_us for engine in engines), default=math.inf)
        for engine in engines:
            engine.try_others(SLOW * fastest, offer)
        quick = [timed for engine in engines for timed in engine.timed]
        for timed in _best(quick, setting.engines, offer):
            offer.attempt(timed.title, timed.contestant)
        return offer


def _channels(problem: Problem) -> list[int]:
    """List numbers of channels that x may be given with, as whoever uses cuDNN would pad it with zeros."""
    if problem.dtype not in ("i8", "q8") or problem.groups > 1:
        return [problem.c]
    return sorted({problem.c} | {round_up(problem.c, step) for step in _CHANNELS_AT_ONCE})


class _Layout:
    """The problem's arrays on the GPU in one layout, x and w padded with channels of zeros, and its plans."""

    def __init__(
        self, problem: Problem, inputs: Inputs, setting: Setting, layout: str, channels: int
    ) -> None:
        self.setting, self.layout, self.given = setting, layout, inputs.x
        self.padding = channels - problem.c
        self.problem = replace(problem, c=channels)
        inputs = _padded(problem, inputs, self.padding)
        self.cudnn = load("cudnn")
        self.gpu = gpu = GpuArrays(setting)
        self.handle = _handle(self.cudnn, setting.device.index)
        e, w = problem.epilogue, inputs.w
        if e.alpha != 1.0:  # as whoever prepares a filter once would do it
            inputs = replace(inputs, w=(w.astype(np.float64) * e.alpha).astype(w.dtype))
        self.placed = placed = gpu.place(problem, inputs, layout)
        self.sums = gpu.put(unwritten(problem, pooled=False), layout)
        self.arrays = {name: getattr(placed, name) for name in ("x", "w", "bias", "z", "scale")}
        self.arrays["beta"] = gpu.put(np.full((1, 1, 1, 1), e.beta, numpy_dtype(scalar_dtype(problem))))
        self.zeros = gpu.put(np.zeros((1, problem.k, 1, 1), numpy_dtype(problem.dtype_added)))
        self._workspace = gpu.bytes(0)
        self._workspace_bytes = 0

    def engines(self, way: Way, offer: Offer) -> list[list[ExecutionPlan]]:
        """List the plans of one way to do the epilogue, engine by engine; failures go to the offer."""
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
        """Return room that all plans share: they run one after the other."""
        if nbytes > self._workspace_bytes:
            self._workspace, self._workspace_bytes = None, 0  # give the old one back first
            self._workspace, self._workspace_bytes = self.gpu.bytes(nbytes), nbytes
        elif self._workspace is None:  # there was no room for what was asked last
            self._workspace = self.gpu.bytes(0)
        return self._workspace

    def run(self, plan: ExecutionPlan, way: Way, sums: Any) -> tuple[Run, list[Any]]:
        """Return what enqueues one run of a plan into ``sums``, and where it leaves y."""
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
            set_stream(handle=handle, stream=stream())  # the front end does nothing where it is the same
            execute(places, scratch, index, handle)
            if left is not None:
                with gpu.on_stream():
                    last[0] = left(sums)

        run.keep = (room, arrays)  # type: ignore[attr-defined]  # addresses do not keep memory alive
        return run, last

    def contestant(self, plan: ExecutionPlan, way: Way) -> Contestant:
        """Bind a plan for the careful measurement, with an output of its own that starts unwritten."""
        gpu, problem, layout, setting = self.gpu, self.problem, self.layout, self.setting
        run, last = self.run(plan, way, gpu.put(unwritten(problem, pooled=REQUANT in way.steps), layout))

        def output() -> Array:
            return as_output(gpu.get(last[0]), problem)

        run()
        notes = f" [{' '.join(sorted(plan.notes))}]" if plan.notes else ""
        how = ", alpha in the filter" if problem.epilogue.alpha != 1.0 else ""
        how += told(replace(problem.epilogue, alpha=1.0), way.steps)
        if problem.requantised:
            how += f", {REQUANT} {'fused' if REQUANT in way.steps else 'apart'}"
        how += ", with a bias of zeros" if way.zero_bias else ""
        how += f", C padded to {problem.c}" if self.padding else ""
        detail = f"cuDNN {self.cudnn.backend_version_string()} {plan.name}{notes}, {layout}{how}"
        pack_us = gpu.pack_us(setting, self.placed, layout)
        convert_us = gpu.convert_us(problem, setting, layout, self.placed, last[0])
        if self.padding:
            convert_us += self._padding_us()
        return Contestant(
            "cudnn", self.title(plan, way), detail, layout, run, output, plan.workspace_bytes, pack_us,
            convert_us, plan.tags,
        )  # fmt: skip

    def _padding_us(self) -> float:
        """Time bringing x among its channels of zeros."""
        gpu, c = self.gpu, self.problem.c - self.padding
        given = gpu.put(as_nchw(self.given, self.problem.layout_in), self.layout)
        return self.setting.quick_us(gpu.copying(given, self.placed.x[:, :c]))


def _padded(problem: Problem, inputs: Inputs, channels: int) -> Inputs:
    """Add channels of zeros to x and w."""
    if not channels:
        return inputs
    x = [(0, channels) if axis == "c" else (0, 0) for axis in problem.layout_in]
    return replace(inputs, x=np.pad(inputs.x, x), w=np.pad(inputs.w, [(0, 0), (0, channels), (0, 0), (0, 0)]))


@dataclass(frozen=True, eq=False)
class _TimedPlan:
    """A plan that ran, and about how long it took."""

    time_us: float
    arrays: _Layout
    plan: ExecutionPlan
    way: Way

    @property
    def title(self) -> str:
        return self.arrays.title(self.plan, self.way)

    def contestant(self) -> Contestant:
        return self.arrays.contestant(self.plan, self.way)


class _Engine:
    """One engine in one layout: its settings, and about how long those take that were tried."""

    def __init__(self, arrays: _Layout, way: Way, plans: list[ExecutionPlan]) -> None:
        self.timed: list[_TimedPlan] = []
        self._arrays, self._way, self._left = arrays, way, plans

    @property
    def best_us(self) -> float:
        """The least time so far."""
        return min((timed.time_us for timed in self.timed), default=math.inf)

    def try_first(self, offer: Offer) -> None:
        """Time the first setting that works."""
        while self._left and not self.timed:
            self._try(self._left.pop(0), offer)

    def try_others(self, most_us: float, offer: Offer) -> None:
        """Time all settings, unless the first took longer than ``most_us``."""
        if self.timed and self.best_us > most_us:
            if self._left:
                name = f"{self.timed[0].title} in {len(self._left)} other settings"
                offer.skipped[name] = f"slower: the first took {self.best_us:.1f} us in a quick timing"
            return
        for plan in self._left:
            self._try(plan, offer)

    def _try(self, plan: ExecutionPlan, offer: Offer) -> None:
        arrays, way = self._arrays, self._way
        try:
            plan.build()
            time_us = arrays.setting.quick_us(arrays.run(plan, way, arrays.sums)[0])
        except Exception as error:  # not built, refused at launch, or no room for its workspace
            offer.skipped[arrays.title(plan, way)] = one_line(error)
        else:
            self.timed.append(_TimedPlan(time_us, arrays, plan, way))


def _best(quick: list[_TimedPlan], count: int, offer: Offer) -> list[_TimedPlan]:
    """Keep the fastest few and the fastest GEMM; note the time of the others."""
    ranked = sorted(quick, key=lambda timed: timed.time_us)
    kept = ranked[:count]
    if not any("gemm" in timed.plan.tags for timed in kept):
        kept += [timed for timed in ranked[count:] if "gemm" in timed.plan.tags][:1]
    for timed in ranked:
        if timed not in kept:
            offer.skipped[timed.title] = f"slower: {timed.time_us:.1f} us in a quick timing"
            offer.slower.append((timed.title, timed.contestant))
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
