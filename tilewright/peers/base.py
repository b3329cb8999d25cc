"""What a peer is, and what it hands to the bench: contestants that run one problem on given inputs."""

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
_MOST_REASONS = 3  # told of a peer that has no way at all


def _default_stream() -> int:
    return 0


@dataclass(frozen=True)
class Setting:
    """Where and how peers run.

    Attributes:
        device: the device; decides which peers apply.
        threads: CPU threads of each contestant.
        stream: gives the CUDA stream that contestants enqueue on now, as the driver's integer handle: a
            runtime has another one while it records a graph.
        timed: time of one cold run in us (``Runtime.timed`` with a flush); None falls back on the wall
            clock, which is right on a CPU only.
        engines: how many of a peer's own engines are kept for the careful measurement.
    """

    device: Device
    threads: int = 1
    stream: Callable[[], int] = _default_stream
    timed: Callable[[Run], float] | None = None
    engines: int = 3

    @classmethod
    def of(cls, runtime: Runtime) -> Setting:
        """Return that of a runtime: its device, cores, clock, and stream of the moment."""
        threads = min(runtime.device.units, cores())
        return cls(runtime.device, threads, lambda: runtime.stream, runtime.timed)

    def quick_us(self, run: Run) -> float:
        """Return a rough time of one run: the least of three, after one to warm up.

        It says which ways of a peer are worth measuring, so what held a run up must not count: by the median
        of three cuDNN's fastest engine for R6 in i8 was left out once, at 368 us instead of 24.
        """
        run()
        return min((self.timed or wall_us)(run) for _ in range(3))


@dataclass
class Contestant:
    """One way of a peer to compute the problem, bound to its inputs and ready to run.

    Attributes:
        peer: the peer's name.
        name: unique among all contestants of the problem.
        detail: what runs, one line: the engine, its numerical notes, what of the epilogue is fused.
        layout: the layout that it reads and writes: nchw, nhwc or blocked.
        run: enqueues one run on the setting's stream of the moment (CUDA), or does one run (CPU).
        output: the last run's output on the host, in the problem's output layout.
        workspace_bytes: device memory beyond inputs and output.
        pack_us: time to rearrange the filter once; None where the peer does not tell.
        convert_us: time to bring x, z and y from and to the problem's layouts; 0 where they are its own.
        tags: column labels beyond the peer's best: "gemm", "winograd", "fft", "nondeterministic".
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
        contestants: its ways that may be the fastest.
        skipped: what it could not do, or not as fast, with the reason.
        slower: those of ``skipped`` to go on with, one after the other, where no contestant is right.
    """

    contestants: list[Contestant] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    slower: list[tuple[str, Callable[[], Contestant]]] = field(default_factory=list)

    def attempt(self, name: str, make: Callable[[], Contestant]) -> None:
        """Add what ``make`` returns after one run of it; keep the reason where either fails."""
        try:
            contestant = make()
            contestant.run()
        except Exception as error:  # a peer's library may raise anything; its failure is data
            self.skipped[name] = one_line(error)
        else:
            self.contestants.append(contestant)

    @property
    def refusal(self) -> str:
        """What stood in the way, the commonest reasons first."""
        reasons = Counter(self.skipped.values()).most_common()
        told = [f"{reason} ({ways} ways)" if ways > 1 else reason for reason, ways in reasons]
        rest = [count(len(told) - _MOST_REASONS, "more reason")] if len(told) > _MOST_REASONS else []
        return "; ".join(told[:_MOST_REASONS] + rest) or "it offers no engine"

    def attempt_layouts(self, name: str, make: Callable[[str], Contestant]) -> None:
        """Attempt what ``make`` makes for each layout of x and y."""
        for layout in ("nchw", "nhwc"):
            self.attempt(f"{name} {layout}", partial(make, layout))


class Peer(ABC):
    """Base of every peer. Importing a peer's module imports no library; ``prepare`` does.

    Attributes:
        usual: whether it runs without being asked for by name.
        dtypes: what it computes: of ``Problem.precision``, but that tf32 and accurate go with f32.
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
            PeerError: if the peer is absent or has no way at all; the text says why.
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
        """Make the contestants; called with the peer present and something to compute."""


def needs(peer: str, *modules: tuple[str, str]) -> str | None:
    """Say which (module, what to install) cannot be imported, in one line; None if all can."""
    for module, install in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            return f"{peer}: {module} cannot be imported ({one_line(error)}); pip install {install}"
        except Exception as error:  # a broken native library raises what it likes
            return f"{peer}: importing {module} failed: {one_line(error)}"
    return None


def unknown(epilogue: Epilogue, library: str) -> PeerError:
    """Return the error of an activation that a peer has no operation for."""
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
    """Return a y of axes n, k, h, w that nothing was written to: every number NaN, every integer -1.

    ``pooled=False`` gives what goes into the pool, if there is one, and what is requantised, if it is.
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
    """Lay out a result with axes n, k, h, w as the problem's output, contiguous."""
    return np.ascontiguousarray(y_nchw if problem.layout_out == "nchw" else y_nchw.transpose(0, 2, 3, 1))


def foreign(problem: Problem, layout: str) -> tuple[bool, bool]:
    """Say whether a contestant of this layout needs x, and y with z, converted."""
    return layout != problem.layout_in, layout != problem.layout_out


def symmetric(problem: Problem) -> bool:
    """Say whether the padding is the same on opposite sides, which some libraries demand."""
    top, bottom, left, right = problem.pad
    return top == bottom and left == right
