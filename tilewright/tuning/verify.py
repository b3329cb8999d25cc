"""Whether a candidate's answer is right: exact integers, an a-priori bound, canaries, run twice.

The reference is computed once for each problem, in f64, on the candidate's own device (on a CPU by NumPy's
matrix products, ten times as fast there), and the comparison is made there too, so large layers are checked
whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any

from tilewright.dtypes import numpy_dtype
from tilewright.errors import count
from tilewright.execution import Plan, wanted
from tilewright.kernels import tools
from tilewright.kernels.bound import Bound, bound
from tilewright.kernels.family import Blueprint, Config, Launch
from tilewright.kernels.reference import reference_f64
from tilewright.kernels.requant import numpy_requantised
from tilewright.problem import Problem
from tilewright.record import Check
from tilewright.runtime.base import Loaded, Memory, Runtime
from tilewright.tuning.fence import POISON, Fence
from tilewright.tuning.inputs import Inputs, exact_inputs, normal_inputs, stays_exact, with_nonfinite
from tilewright.tuning.reference import reference

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
    """Inputs on the device with their reference (f64, in y's layout).

    ``bias`` and ``z`` are None where the problem has none.
    """

    host: Inputs
    ref: Memory
    x: Memory
    w: Memory
    bias: Memory | None = None
    z: Memory | None = None
    scale: Memory | None = None


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
        self._size = runtime.alloc(8 * problem.y_elements)
        self._limits = runtime.alloc(32)
        self._exact = self._place(exact_inputs(problem, seed), self._fence)
        self._normal = self._place(normal_inputs(problem, seed), self._fence, self._size)

    def candidate(self, config: Config) -> Candidate:
        """Compile and load a config inside a fence of its own, and pack the filter to time it with.

        Raises:
            ConfigError, CompileError, OutOfMemory: as ``Plan.make``.
        """
        fence = Fence(self.runtime)
        plan = Plan.make(fence.guarded, self.problem, config)
        packed = plan.pack(self._normal.w)
        data = self._normal
        run = partial(plan.run, data.x, packed, self._y, data.bias, data.z, scale=data.scale)
        return Candidate(plan, fence, packed, run)

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
            stage: is told "run" before each run and "reference" before one more of these is made, so that a
                deadline can be set.
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
        if level == "full" and not any(reasons) and self._has_nonfinite(candidate):
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
                return f"{what}: {count(figures.nan, 'element')} not written, or NaN"
            if figures.misplaced:
                return f"{what}: {count(figures.misplaced, 'element')} infinite"
        if exact.unequal and candidate.plan.family.exact and stays_exact(self.problem):
            return f"integers: {count(exact.unequal, 'element')} unlike the exact answer"
        if found.over:
            over = count(found.over, "element")
            return f"normal numbers: {over} beyond the bound, at worst {found.worst:.3g} times"
        return ""

    def _repeats(self, differ: int, candidate: Candidate) -> str:
        """Two runs must give the same bits, unless the family says that they may not."""
        if differ == 0 or not candidate.plan.deterministic:
            return ""
        return f"two runs differ in {count(differ, 'element')}, but the family says it is deterministic"

    def _has_nonfinite(self, candidate: Candidate) -> bool:
        """Whether NaN and infinity can be put in, and must stay where they have a part."""
        return not self.problem.whole and not candidate.plan.family.spreads_nonfinite

    def _nonfinite(self, candidate: Candidate, stage: Callable[[str], None], where: str) -> str:
        """One NaN and one infinity: they must show where the reference has them, nowhere else."""
        stage("reference")
        host = self._normal.host
        host = replace(host, **{where: with_nonfinite(getattr(host, where), self._seed)})
        fence = Fence(self.runtime)
        data = self._place(host, fence)
        stage("run")
        figures = self._figures(candidate, data, candidate.plan.pack(data.w))
        if damage := fence.damage():
            return damage
        if figures.misplaced:
            wrong = count(figures.misplaced, "output")
            return f"NaN and infinity in {where}: {wrong} finite where the reference is not, or the reverse"
        return ""

    def _unchanged(self, data: _Data) -> str:
        """Say which inputs a candidate changed."""
        import numpy as np

        for name in ("x", "w", "bias", "z", "scale"):
            memory, host = getattr(data, name), getattr(data.host, name)
            if memory is None:
                continue
            now = np.empty(host.nbytes, np.uint8)
            self.runtime.download(memory, now)
            if not np.array_equal(now, host.reshape(-1).view(np.uint8)):
                return f"the kernel changed {name}"
        return ""

    # ------------------------------------------------------------------------- on the device

    def _place(self, host: Inputs, fence: Fence, size: Memory | None = None) -> _Data:
        """Put inputs between canaries on the device and compute their reference there.

        ``size`` becomes that of these inputs: only normal numbers need a bound.
        """
        runtime, problem = self.runtime, self.problem
        names = ["x", "w", *(name for name, want in wanted(problem).items() if want)]
        placed = {name: fence.alloc(getattr(host, name).nbytes, name) for name in names}
        for name, memory in placed.items():
            runtime.upload(memory, getattr(host, name))
        ref = runtime.alloc(8 * problem.y_elements)
        if runtime.unified:
            sums, sizes = reference(problem, host, sized=size is not None)
            y = numpy_requantised(problem, sums, host.scale) if problem.requantised else sums
            runtime.upload(ref, y)
            if size is not None:
                runtime.upload(size, sizes)
            return _Data(host, ref, **placed)
        unused, unread = runtime.alloc(64), size or runtime.alloc(8 * problem.y_elements)
        known = {"bias": unused, "z": unused, **placed, **self._widened(host), "ref": ref, "size": unread}
        self._launch(reference_f64(problem.plain, runtime.device), known)
        runtime.synchronize()  # unread may go as soon as this returns
        if problem.requantised:
            self._requantise(ref, host)
        return _Data(host, ref, **placed)

    def _widened(self, host: Inputs) -> dict[str, Memory]:
        """Return x and w in the plain dtype, where that is another one."""
        plain, found = self.problem.plain.dtype, {}
        if plain != self.problem.stored:
            for name in ("x", "w"):
                array = getattr(host, name).astype(numpy_dtype(plain))
                found[name] = self.runtime.alloc(array.nbytes)
                self.runtime.upload(found[name], array)
        return found

    def _requantise(self, ref: Memory, host: Inputs) -> None:
        """Turn sums into the i8 that they become."""
        import numpy as np

        sums = np.empty(self.problem.y_shape, np.float64)
        self.runtime.download(ref, sums)
        self.runtime.upload(ref, numpy_requantised(self.problem, sums, host.scale))

    def _enqueue(self, candidate: Candidate, data: _Data, packed: Memory, y: Memory) -> None:
        """Poison y and run."""
        self.runtime.fill(y, POISON)
        candidate.plan.run(data.x, packed, y, data.bias, data.z, scale=data.scale)
        self.runtime.synchronize()

    def _figures(self, candidate: Candidate, data: _Data, packed: Memory) -> Figures:
        """Run on some data and compare y with its reference."""
        self._enqueue(candidate, data, packed, self._y)
        chain = candidate.plan.family.chain(self.problem, candidate.plan.config)
        return self._compare(data.ref, bound(self.problem, chain))

    def _compare(self, ref: Memory, limits: Bound) -> Figures:
        """Compare y with a reference."""
        import numpy as np

        runtime = self.runtime
        runtime.upload(self._limits, np.array(astuple(limits), np.float64))
        blueprint = _few_threads(tools.check(self.problem, runtime.device), runtime)
        threads = _threads(blueprint.launches[0])
        found = runtime.alloc(8 * tools.CHECK_FIGURES * threads)
        bound_to = dict(y=self._y, ref=ref, size=self._size, limits=self._limits, found=found)
        self._launch(blueprint, bound_to)
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

        blueprint = _few_threads(tools.same(self.problem, self.runtime.device), self.runtime)
        threads = _threads(blueprint.launches[0])
        found = self.runtime.alloc(4 * threads)
        self._launch(blueprint, dict(a=a, b=b, found=found))
        counts = np.empty(threads, np.uint32)
        self.runtime.download(found, counts)
        return int(counts.sum(dtype=np.int64))

    def _launch(self, blueprint: Blueprint, memories: dict[str, Memory]) -> None:
        """Run a blueprint on buffers by name."""
        runtime = self.runtime
        if blueprint not in self._kernels:
            self._kernels[blueprint] = runtime.load(runtime.compile(blueprint))
        held = memories | {b.name: runtime.alloc(b.nbytes) for b in blueprint.workspace}
        for launch in blueprint.launches:
            runtime.launch(self._kernels[blueprint], launch, [held[name] for name in launch.args])
        if blueprint.workspace:
            runtime.synchronize()  # the workspace goes as soon as this returns


def _few_threads(blueprint: Blueprint, runtime: Runtime) -> Blueprint:
    """Launch at most one block a unit: each thread's figures go to the host, and these must be few."""
    launch = blueprint.launches[0]
    blocks = min(launch.grid[0], max(runtime.device.units, 8))
    defines = {**dict(blueprint.defines), "THREADS_ALL": blocks * launch.block[0]}
    small = replace(launch, grid=(blocks, 1, 1))
    return replace(blueprint, defines=tuple(defines.items()), launches=(small,))


def _threads(launch: Launch) -> int:
    return math.prod(launch.grid) * math.prod(launch.block)
