"""cuDNN: every strict engine of its front end, in both layouts, the epilogue fused as far as possible."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.arithmetic import round_up
from tilewright.checking.inputs import Inputs
from tilewright.device import Device
from tilewright.errors import PeerError
from tilewright.peers.base import Contestant, Offer, Peer, Setting, load, needs, one_line
from tilewright.peers.cudnn_layout import CudnnLayout
from tilewright.peers.cudnn_plans import ExecutionPlan, Way, ways
from tilewright.peers.gpu import gpu_arrays
from tilewright.problem import Problem

# An engine's other settings are not tried if its first, which cuDNN recommends, takes this many times as long
# as the fastest engine's: each takes some 30 ms to build, and there are hundreds.
SLOW = 1.5
# Dtypes in which a setting of cuDNN 9.19 is a segmentation fault (n1c256h14w14k512r3s3p1u2-f64 on an H100).
CRASHES = ("f64",)

# Integer engines read channels by fours or sixteens, and give wrong sums for other numbers of channels.
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
            gpu_arrays(Setting(device))
        except PeerError as error:
            return f"{self.name}: {error}"
        except Exception as error:  # e.g. the front end's RuntimeError without libcudnn
            return f"{self.name}: {one_line(error)}; pip install nvidia-cudnn-cu13"
        return None

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        offer, engines = Offer(), list[_Engine]()
        for layout in ("nchw", "nhwc"):
            for channels in _channels(problem):
                try:
                    arrays = CudnnLayout(problem, inputs, setting, layout, channels)
                except Exception as error:  # out of memory, most likely
                    offer.skipped[f"cudnn {layout}"] = one_line(error)
                    continue
                for way in ways(problem):
                    engines += [_Engine(arrays, way, plans) for plans in arrays.engines(way, offer)]
        for engine in engines:
            engine.try_first(offer)
        fastest = min((engine.best_us for engine in engines), default=math.inf)
        for engine in engines:
            if problem.dtype in CRASHES:
                engine.leave_others("not tried: of this dtype some are segmentation faults", offer)
            else:
                engine.try_others(SLOW * fastest, offer)
        quick = [timed for engine in engines for timed in engine.timed]
        for timed in _best(quick, setting.engines, offer):
            offer.attempt(timed.title, timed.contestant)
        return offer


def _channels(problem: Problem) -> list[int]:
    """Return the numbers of channels to try for x, padded with zeros as users of cuDNN would."""
    if problem.dtype not in ("i8", "q8") or problem.groups > 1:
        return [problem.c]
    return sorted({problem.c} | {round_up(problem.c, step) for step in _CHANNELS_AT_ONCE})


@dataclass(frozen=True, eq=False)
class _TimedPlan:
    """A plan that ran, and its rough time."""

    time_us: float
    arrays: CudnnLayout
    plan: ExecutionPlan
    way: Way

    @property
    def title(self) -> str:
        return self.arrays.title(self.plan, self.way)

    def contestant(self) -> Contestant:
        return self.arrays.contestant(self.plan, self.way)


class _Engine:
    """One engine in one layout: its settings, and the rough times of those that were tried."""

    def __init__(self, arrays: CudnnLayout, way: Way, plans: list[ExecutionPlan]) -> None:
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
        """Time the other settings, unless the first took longer than ``most_us``."""
        if self.best_us > most_us:
            self.leave_others(f"slower: the first took {self.best_us:.1f} us in a quick timing", offer)
            return
        for plan in self._left:
            self._try(plan, offer)

    def leave_others(self, why: str, offer: Offer) -> None:
        """Note that the other settings are not tried, and why."""
        if self._left:  # after one that was timed
            offer.skipped[f"{self.timed[0].title} in {len(self._left)} other settings"] = why

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


def _preload() -> None:
    """Load the libraries that libcudnn opens by name, and aborts without: PyTorch's or pip's."""
    try:
        load("torch")
    except Exception:  # absent or broken: then the CUDA wheels must be there
        try:
            find = load("cuda.pathfinder").load_nvidia_dynamic_lib
            for name in ("cublas", "cublasLt", "nvrtc"):
                find(name)
        except Exception:
            return
