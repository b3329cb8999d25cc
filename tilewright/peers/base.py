"""The interface of peers: each offers the bench contestants that run one problem on given inputs."""

from __future__ import annotations

import importlib
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.checking.inputs import Inputs
from tilewright.device import Device
from tilewright.dtypes import numpy_dtype
from tilewright.errors import PeerError, count, shortened
from tilewright.problem import DTYPE_BYTES, Problem
from tilewright.problem.epilogue import Epilogue
from tilewright.runtime.base import Run, Runtime
from tilewright.runtime.capacity import cores

Array = NDArray[Any]  # of a problem's dtypes
_MISSING = "cannot be imported"
_MOST_REASONS = 3  # most that are listed for a peer without contestants


@dataclass(frozen=True)
class Setting:
    """Where and how peers run.

    Attributes:
        device: the device; determines which peers apply.
        threads: CPU threads of each contestant.
        stream: returns the CUDA stream on which contestants enqueue now, as the driver's integer handle: it
            differs while a runtime records a graph.
        timed: returns the time of one cold run in us (``Runtime.timed`` with a flush); None: the wall clock,
            which is right on a CPU only.
        engines: number of a peer's engines that are kept for the careful measurement.
    """

    device: Device
    threads: int = 1
    stream: Callable[[], int] = lambda: 0
    timed: Callable[[Run], float] | None = None
    engines: int = 3

    @classmethod
    def of(cls, runtime: Runtime) -> Setting:
        """Return the setting of a runtime: its device, cores, clock and current stream."""
        threads = min(runtime.device.units, cores())
        return cls(runtime.device, threads, lambda: runtime.stream, runtime.timed)

    def quick_us(self, run: Run) -> float:
        """Return a rough time of one run: the least of three, after one to warm up.

        It decides which contestants are measured, so a delayed run must not count: by the median of three,
        cuDNN's fastest engine for R6 in i8 was left out once, at 368 us instead of 24.
        """
        run()
        return min((self.timed or wall_us)(run) for _ in range(3))


@dataclass
class Contestant:
    """One way of a peer to compute the problem, bound to its inputs and ready to run.

    Attributes:
        peer: the peer's name.
        name: unique among all contestants of the problem.
        detail: what runs, one line: the engine, its numerical notes, which steps of the epilogue are fused.
        layout: the layout that it reads and writes: nchw, nhwc or blocked.
        run: enqueues one run on the setting's current stream (CUDA), or does one run (CPU).
        output: returns the last run's output on the host, in the problem's output layout.
        workspace_bytes: device memory in addition to inputs and output.
        pack_us: time to rearrange the filter once; None if the peer does not tell.
        convert_us: time to convert x, z and y between its layouts and the problem's; 0 if they are the same.
        tags: its properties: "gemm", "winograd", "fft", "nondeterministic".
    """

    peer: str
    name: str
    detail: str
    layout: str
    run: Run
    output: Callable[[], Array]
    workspace_bytes: int = 0
    pack_us: float | None = None
    convert_us: float = 0.0
    tags: tuple[str, ...] = ()


@dataclass
class Offer:
    """What a peer can do for a problem.

    Attributes:
        contestants: those that may be the fastest.
        skipped: ways that failed or are slower, with the reason.
        slower: those of ``skipped`` to try one after the other, if no contestant is correct.
    """

    contestants: list[Contestant] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    slower: list[tuple[str, Callable[[], Contestant]]] = field(default_factory=list)

    def attempt(self, name: str, make: Callable[[], Contestant]) -> None:
        """Add the contestant that ``make`` returns, after one run of it; if either fails, keep the reason."""
        try:
            contestant = make()
            contestant.run()
        except Exception as error:  # a peer's library may raise anything; its failure is data
            self.skipped[name] = one_line(error)
        else:
            self.contestants.append(contestant)

    @property
    def refusal(self) -> str:
        """Return why there are no contestants, the most common reasons first."""
        reasons = Counter(self.skipped.values()).most_common()
        told = [f"{reason} ({ways} ways)" if ways > 1 else reason for reason, ways in reasons]
        rest = [count(len(told) - _MOST_REASONS, "more reason")] if len(told) > _MOST_REASONS else []
        return "; ".join(told[:_MOST_REASONS] + rest) or "it offers no engine"

    def attempt_layouts(self, name: str, make: Callable[[str], Contestant]) -> None:
        """Attempt the contestants that ``make`` returns for each layout of x and y."""
        for layout in ("nchw", "nhwc"):
            self.attempt(f"{name} {layout}", partial(make, layout))


class Peer(ABC):
    """Base of every peer. Importing a peer's module imports no library; ``prepare`` does.

    Attributes:
        usual: whether it runs by default.
        dtypes: the precisions that it computes (``Problem.precision``; f32 includes tf32 and accurate).
    """

    name: str = ""
    backends: tuple[str, ...] = ()
    usual: bool = True
    dtypes: tuple[str, ...] = ("f64", "f32", "f16", "bf16")

    @abstractmethod
    def absent(self, device: Device) -> str | None:
        """Say in one line why the peer cannot run on the device and what to install; None if it can."""

    def prepare(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        """Bind the problem to its inputs in every way that the peer knows.

        Raises:
            PeerError: the peer is absent or cannot compute the problem; the text says why.
        """
        reason = self.absent(setting.device)
        if reason:
            raise PeerError(reason)
        if problem.n == 0:
            raise PeerError(f"{self.name}: the batch is empty, there is nothing to run")
        if problem.dtype not in self.dtypes:
            raise PeerError(f"{self.name}: it computes {', '.join(self.dtypes)}, not {problem.precision}")
        offer = self.offer(problem, inputs, setting)
        if not offer.contestants:
            raise PeerError(f"{self.name}: {offer.refusal}")
        return offer

    @abstractmethod
    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        """Make the contestants; the peer is present and the problem not empty."""


def was_missing(reason: str) -> bool:
    """Whether a peer had no time because something has to be installed."""
    return _MISSING in reason


def needs(peer: str, *modules: tuple[str, str]) -> str | None:
    """Say which (module, what to install) cannot be imported, in one line; None if all can."""
    for module, install in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            return f"{peer}: {module} {_MISSING} ({one_line(error)}); pip install {install}"
        except Exception as error:  # a broken native library may raise anything
            return f"{peer}: importing {module} failed: {one_line(error)}"
    return None


def unknown(epilogue: Epilogue, library: str) -> PeerError:
    """Return the error for an activation that a peer does not have."""
    return PeerError(f"+{epilogue.act}: has no operation of {library} yet; docs/new_activation.md says where")


def load(module: str) -> Any:
    """Import an optional, untyped library."""
    found: ModuleType = importlib.import_module(module)
    return found


def one_line(error: BaseException, limit: int = 200) -> str:
    """Return an error's text as one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return shortened(text, limit, "…")


def wall_us(run: Run) -> float:
    """Time one blocking run by the wall clock."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e6


def unwritten(problem: Problem, pooled: bool = True) -> Array:
    """Return an unwritten y of axes n, k, h, w: every float is NaN, every integer -1.

    ``pooled=False`` gives the array before any pool and requantisation.
    """
    p, q = (problem.y_p, problem.y_q) if pooled else (problem.p, problem.q)
    dtype = problem.dtype_out if pooled else problem.dtype_added
    raw = np.full((problem.n, problem.k, p, q * DTYPE_BYTES[dtype]), 0xFF, np.uint8)
    y: Array = raw.view(numpy_dtype(dtype))
    return y


def as_nchw(array: Array, layout: str) -> Array:
    """View an array of either layout with its axes in the order n, c, h, w."""
    return array if layout == "nchw" else array.transpose(0, 3, 1, 2)


def as_output(y_nchw: Array, problem: Problem) -> Array:
    """Return a result of axes n, k, h, w in the layout of the problem's output, contiguous."""
    return np.ascontiguousarray(y_nchw if problem.layout_out == "nchw" else y_nchw.transpose(0, 2, 3, 1))


def foreign(problem: Problem, layout: str) -> tuple[bool, bool]:
    """Return whether a contestant of this layout needs x converted, and whether y and z."""
    return layout != problem.layout_in, layout != problem.layout_out


def symmetric(problem: Problem) -> bool:
    """Return whether the padding is the same on opposite sides, which some libraries require."""
    top, bottom, left, right = problem.pad
    return top == bottom and left == right
