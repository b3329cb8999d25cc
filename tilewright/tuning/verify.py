"""Whether a candidate's answer is right: exact integers, an a-priori bound, canaries, run twice.

The reference is computed once for each problem, in f64, on the candidate's own device, and the
comparison is made there too, so large layers are checked whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tilewright.execution import Plan
from tilewright.kernels import tools
from tilewright.kernels.family import Blueprint, Config, Launch
from tilewright.kernels.reference import reference_f64, spread
from tilewright.problem import Problem
from tilewright.record import Check
from tilewright.runtime.base import Loaded, Memory, Runtime
from tilewright.tuning.fence import POISON, Fence
from tilewright.tuning.inputs import Inputs, exact_inputs, normal_inputs, with_nonfinite

LEVELS = ("quick", "full")
_U_F32 = 2.0**-24  # unit roundoff of f32: of the accumulator and of the output; f32 inputs add none
_BIG = 1e300

Array = Any  # numpy.ndarray


class TooSlow(Exception):
    """A candidate that is not worth checking further; the text says how slow it is."""


@dataclass(frozen=True)
class Figures:
    """What the check kernel found over all elements."""

    worst: float
    bound: float
    max_error: float
    over: int
    unequal: int
    nan: int
    inf: int
    missed: int

    @property
    def misplaced(self) -> int:
        """Elements that are finite where the reference is not, or the other way round."""
        return self.nan + self.inf + self.missed


@dataclass(frozen=True, eq=False)
class _Data:
    """Inputs on the device with their reference (f64, in y's layout)."""

    host: Inputs
    x: Memory
    w: Memory
    bias: Memory | None
    ref: Memory


@dataclass(frozen=True, eq=False)
class Candidate:
    """A config, compiled and loaded, with its guarded workspace; ``run`` is what is timed."""

    plan: Plan
    fence: Fence
    packed: Memory
    run: Callable[[], None]


class Verifier:
    """Checks candidates of one problem on one runtime."""

    def __init__(self, runtime: Runtime, problem: Problem, seed: int = 0) -> None:
        """Make the inputs and compute the references."""
        self.runtime, self.problem = runtime, problem
        self._seed = seed
        self.spoilt = False  # a candidate wrote where it must not: make a new Verifier
        self._fence = Fence(runtime)
        self._kernels: dict[Blueprint, Loaded] = {}
        self._y = self._fence.alloc(problem.y_bytes, "y")
        self._again = self._fence.alloc(problem.y_bytes, "y")
        self._size = runtime.alloc(2 * problem.y_bytes)
        self._limits = runtime.alloc(16)
        self._exact = self._place(exact_inputs(problem, seed), self._size, self._fence)
        # Last, so that _size is conv(|x|, |w|) of these inputs: the exact ones need no bound.
        self._normal = self._place(normal_inputs(problem, seed), self._size, self._fence)

    def candidate(self, config: Config) -> Candidate:
        """Compile and load a config inside a fence of its own, and pack the filter to time it with.

        Raises:
            ConfigError, CompileError, OutOfMemory: as ``Plan.make``.
        """
        fence = Fence(self.runtime)
        plan = Plan.make(fence.guarded, self.problem, config)
        packed = plan.pack(self._normal.w)
        data = self._normal
        return Candidate(plan, fence, packed, lambda: plan.run(data.x, packed, self._y, data.bias))

    def check(
        self,
        candidate: Candidate,
        level: str = "quick",
        stage: Callable[[str], None] = lambda _: None,
        slow_us: float = math.inf,
    ) -> Check:
        """Check a candidate's answers.

        Args:
            candidate: what ``candidate`` made.
            level: "quick" is exactness, bound, canaries, unwritten elements and repeatability;
                "full" adds one NaN and one infinity in x, then in w, and that the inputs are unchanged.
            stage: is told "run" before each run, so that a deadline can be set.
            slow_us: give up on a candidate slower than this.

        Raises:
            TooSlow: as said.
            RunError: the device failed.
        """
        stage("run")
        exact = self._figures(candidate, self._exact, candidate.plan.pack(self._exact.w))
        stage("run")
        start = time.perf_counter()
        found = self._figures(candidate, self._normal, candidate.packed)
        took_us = (time.perf_counter() - start) * 1e6
        if took_us > slow_us:
            raise TooSlow(f"a run took {took_us:.0f} us, too long after {slow_us:.0f} us")
        stage("run")
        self._enqueue(candidate, self._normal, candidate.packed, self._again)
        differ = self._differences(self._y, self._again)
        reasons = [self._misses(exact, found, candidate), self._repeats(differ, candidate)]
        if level == "full" and not any(reasons) and not candidate.plan.family.spreads_nonfinite:
            reasons += [self._nonfinite(candidate, stage, where) for where in ("x", "w")]
        outside = [candidate.fence.damage(), self._fence.damage()]
        if level == "full" or any(reasons) or any(outside):
            outside += [self._unchanged(data) for data in (self._exact, self._normal)]
        self.spoilt = any(outside)
        reason = "; ".join(text for text in reasons + outside if text)
        return Check(
            ok=not reason,
            max_error=found.max_error,
            bound=found.bound,
            worst=found.worst,
            exact=exact.unequal + exact.misplaced == 0,
            repeatable=differ == 0,
            reason=reason,
        )

    def _misses(self, exact: Figures, found: Figures, candidate: Candidate) -> str:
        """Say how the answers differ from the references."""
        for figures, what in ((exact, "integers"), (found, "normal numbers")):
            if figures.nan:
                return f"{what}: {figures.nan} elements were not written or are NaN"
            if figures.misplaced:
                return f"{what}: {figures.misplaced} elements are infinite"
        if exact.unequal and candidate.plan.family.exact:
            return f"integers: {exact.unequal} elements differ from the exact answer"
        if found.over:
            return f"normal numbers: {found.over} elements beyond the bound, at worst {found.worst:.3g} times"
        return ""

    def _repeats(self, differ: int, candidate: Candidate) -> str:
        """Two runs must give the same bits, unless the family says that they may not."""
        if differ == 0 or not candidate.plan.deterministic:
            return ""
        return f"two runs differ in {differ} elements, but the family says it is deterministic"

    def _nonfinite(self, candidate: Candidate, stage: Callable[[str], None], where: str) -> str:
        """One NaN and one infinity: they must show where the reference has them, nowhere else."""
        stage("run")
        x, w, bias = self._normal.host.x, self._normal.host.w, self._normal.host.bias
        if where == "x":
            x = with_nonfinite(x, self._seed)
        else:
            w = with_nonfinite(w, self._seed)
        fence = Fence(self.runtime)
        data = self._place(Inputs(x, w, bias), self.runtime.alloc(2 * self.problem.y_bytes), fence)
        figures = self._figures(candidate, data, candidate.plan.pack(data.w))
        if damage := fence.damage():
            return damage
        if figures.misplaced:
            return f"NaN and infinity in {where}: {figures.misplaced} outputs differ in being finite"
        return ""

    def _unchanged(self, data: _Data) -> str:
        """Say which inputs a candidate changed."""
        import numpy as np

        for name, memory, host in (("x", data.x, data.host.x), ("w", data.w, data.host.w)):
            now = np.empty_like(host)
            self.runtime.download(memory, now)
            if not np.array_equal(now.view(np.uint32), host.view(np.uint32)):
                return f"the kernel changed {name}"
        return ""

    # ------------------------------------------------------------------------- on the device

    def _place(self, host: Inputs, size: Memory, fence: Fence) -> _Data:
        """Put inputs between canaries on the device and compute their reference there."""
        runtime, problem = self.runtime, self.problem
        placed = []
        for array, name in ((host.x, "x"), (host.w, "w"), (host.bias, "bias")):
            placed.append(fence.alloc(array.nbytes, name))
            runtime.upload(placed[-1], array)
        x, w, bias = placed
        ref = runtime.alloc(2 * problem.y_bytes)
        blueprint = reference_f64(problem, runtime.device)
        self._launch(blueprint, [x, w, bias, ref, size])
        runtime.synchronize()  # size may go as soon as this returns
        return _Data(host, x, w, bias if problem.epilogue.bias else None, ref)

    def _enqueue(self, candidate: Candidate, data: _Data, packed: Memory, y: Memory) -> None:
        """Poison y and run."""
        self.runtime.fill(y, POISON)
        candidate.plan.run(data.x, packed, y, data.bias)
        self.runtime.synchronize()

    def _figures(self, candidate: Candidate, data: _Data, packed: Memory) -> Figures:
        """Run on some data and compare y with its reference."""
        self._enqueue(candidate, data, packed, self._y)
        chain = candidate.plan.family.chain(self.problem, candidate.plan.config)
        return self._compare(data.ref, 4 * math.sqrt(chain) * _U_F32)

    def _compare(self, ref: Memory, slope: float) -> Figures:
        """Compare y with a reference: |y - ref| <= slope * size + u_out * |ref|."""
        import numpy as np

        runtime = self.runtime
        runtime.upload(self._limits, np.array([slope, _U_F32], np.float64))
        blueprint = _few_threads(tools.check(runtime.device, self.problem.y_bytes // 4), runtime)
        threads = _threads(blueprint.launches[0])
        found = runtime.alloc(8 * tools.CHECK_FIGURES * threads)
        self._launch(blueprint, [self._y, ref, self._size, self._limits, found])
        rows = np.empty((threads, tools.CHECK_FIGURES), np.float64)
        runtime.download(found, rows)
        worst = rows[rows[:, 0].argmax()]
        totals = rows[:, 3:].sum(axis=0)
        return Figures(
            min(float(worst[0]), _BIG), float(worst[1]), float(rows[:, 2].max()), *(int(t) for t in totals)
        )

    def _differences(self, a: Memory, b: Memory) -> int:
        """Count the words in which two outputs differ."""
        import numpy as np

        blueprint = _few_threads(same(self.runtime, self.problem.y_bytes // 4), self.runtime)
        threads = _threads(blueprint.launches[0])
        found = self.runtime.alloc(4 * threads)
        self._launch(blueprint, [a, b, found])
        counts = np.empty(threads, np.uint32)
        self.runtime.download(found, counts)
        return int(counts.sum(dtype=np.int64))

    def _launch(self, blueprint: Blueprint, memories: list[Memory]) -> None:
        if blueprint not in self._kernels:
            self._kernels[blueprint] = self.runtime.load(self.runtime.compile(blueprint))
        self.runtime.launch(self._kernels[blueprint], blueprint.launches[0], memories)


def same(runtime: Runtime, words: int) -> Blueprint:
    """Return the launch that counts differing words: buffers a, b, found."""
    blocks, defines = spread(runtime.device, words)
    launch = Launch("same", (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1), ("a", "b", "found"))
    defines |= dict(ELEMENTS=words, OFFSET64=int(words >= 1 << 28))
    return Blueprint("same.cu", tuple(defines.items()), (launch,), packed_bytes=0)


def _few_threads(blueprint: Blueprint, runtime: Runtime) -> Blueprint:
    """Launch at most one block a unit: each thread's figures go to the host, and these must be few."""
    launch = blueprint.launches[0]
    blocks = min(launch.grid[0], max(runtime.device.units, 8))
    defines = {**dict(blueprint.defines), "THREADS_ALL": blocks * launch.block[0]}
    small = replace(launch, grid=(blocks, 1, 1))
    return replace(blueprint, defines=tuple(defines.items()), launches=(small,))


def _threads(launch: Launch) -> int:
    return math.prod(launch.grid) * math.prod(launch.block)
