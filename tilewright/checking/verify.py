"""Whether a candidate's answer is right: exact integers, an a-priori bound, canaries, run twice.

This module decides what is checked and in which order; ``device_inputs`` computes the references and
``compare`` the errors of an answer, both on the candidate's own device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from tilewright.checking.compare import Comparison, compare, differences
from tilewright.checking.device_inputs import DeviceInputs, upload
from tilewright.checking.fence import POISON, Fence
from tilewright.checking.inputs import (
    Inputs,
    exact_inputs,
    normal_inputs,
    stays_exact,
    sums_exact,
    with_nonfinite,
)
from tilewright.checking.launcher import Launcher
from tilewright.checking.stage import Stage
from tilewright.errors import CompileError, OutOfMemory, RunError, count
from tilewright.kernels.config import Config
from tilewright.kernels.error_bound import error_bound
from tilewright.plans.bound_run import BoundRun
from tilewright.plans.plan import Plan
from tilewright.problem import DTYPE_BYTES, Problem
from tilewright.record import Check
from tilewright.runtime.base import Memory, Runtime


class TooSlow(Exception):
    """A candidate that is not worth checking further; the text says how slow it is."""


class Candidate(BoundRun):
    """A config, compiled and loaded, with its guarded workspace; ``run`` is what is timed."""

    def __init__(self, plan: Plan, memories: Mapping[str, Memory], fence: Fence) -> None:
        super().__init__(plan, memories)
        self.fence = fence


class Verifier:
    """Checks candidates of one problem on one runtime."""

    def __init__(self, runtime: Runtime, problem: Problem, seed: int = 0) -> None:
        """Make the inputs and compute the references."""
        self.runtime, self.problem = runtime, problem
        self._seed = seed
        self.spoilt = False  # a candidate wrote where it must not: make a new Verifier
        self._fence = Fence(runtime)
        self._launcher = Launcher(runtime)
        self._y = self._fence.alloc(problem.y_bytes, "y")
        self._again = self._fence.alloc(problem.y_bytes, "y")
        self._exact = self._upload(exact_inputs(problem, seed), self._fence, sized=not stays_exact(problem))
        self._normal = self._upload(normal_inputs(problem, seed), self._fence, sized=True)

    def candidate(self, config: Config) -> Candidate:
        """Compile and load a config inside a fence of its own, and pack the filter to time it with.

        Raises:
            ConfigError, CompileError, OutOfMemory: as ``Plan.make``.
        """
        fence = Fence(self.runtime)
        plan = Plan.make(fence.guarded, self.problem, config)
        return Candidate(plan, {**self._normal.inputs, "y": self._y}, fence)

    def check(
        self,
        candidate: Candidate,
        full: bool = False,
        stage: Callable[[Stage], None] = lambda _: None,
        slow_us: float = math.inf,
    ) -> Check:
        """Check a candidate's answers.

        Args:
            candidate: what ``candidate`` made.
            full: in addition to exactness, bound, canaries, unwritten elements and repeatability, check one
                NaN and one infinity in x (z, bias), then in w, that the inputs are unchanged, and the variant
                for unaligned arrays.
            stage: is called before each run, before another reference is computed, before the unaligned
                variant is compiled, and before the host copies or reads inputs, so that deadlines can be set.
            slow_us: give up on a candidate slower than this.

        Raises:
            TooSlow: the candidate is slower than ``slow_us``.
            RunError: the device failed.
        """
        stage(Stage.RUN)
        packed = candidate.plan.pack(self._exact.inputs["w"])
        times = [time.perf_counter()]
        exact = self._figures(candidate, self._exact, packed)
        times.append(time.perf_counter())
        stage(Stage.RUN)
        found = self._figures(candidate, self._normal, candidate.packed)
        times.append(time.perf_counter())
        took_us = 1e6 * min(times[1] - times[0], times[2] - times[1])  # a host may be late, but not twice
        if took_us > slow_us:
            self.spoilt = any(self._outside(candidate, stage, thorough=True))
            raise TooSlow(f"a run took {took_us:.0f} us, too long after {slow_us:.0f} us")
        stage(Stage.RUN)
        self._answer(candidate, self._normal, candidate.packed, self._again)
        differ = differences(self._launcher, self.problem, self._y, self._again)
        reasons = [self._misses(exact, found, candidate), self._repeats(differ, candidate)]
        outside = []
        if full and not any(reasons):
            odd = ("x", "w") if self._has_nonfinite(candidate) else ()
            runs: list[Callable[..., str]] = [partial(self._nonfinite, where) for where in odd]
            for run in (*runs, self._unaligned):
                fence = Fence(self.runtime)
                reasons.append(run(candidate, stage, fence))
                outside.append(fence.damage())
        outside += self._outside(candidate, stage, thorough=full or any(reasons))
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

    def _misses(self, exact: Comparison, found: Comparison, candidate: Candidate) -> str:
        """Say how the answers differ from the references."""
        for figures, what in ((exact, "integers"), (found, "normal numbers")):
            if figures.nan:
                return f"{what}: {count(figures.nan, 'element')} not written, or NaN"
            if figures.misplaced:
                return f"{what}: {count(figures.misplaced, 'element')} infinite"
        if candidate.plan.family.exact and stays_exact(self.problem):
            if exact.unequal:
                return f"integers: {count(exact.unequal, 'element')} unlike the exact answer"
        elif candidate.plan.family.exact and sums_exact(self.problem) and exact.over:
            over = count(exact.over, "element")
            return f"integers: {over} beyond the bound of exact sums, at worst {exact.worst:.3g} times"
        if found.over:
            over = count(found.over, "element")
            return f"normal numbers: {over} beyond the bound, at worst {found.worst:.3g} times"
        return ""

    def _repeats(self, differ: int, candidate: Candidate) -> str:
        """Two runs must give the same bits, unless the config is not deterministic."""
        if differ == 0 or not candidate.plan.deterministic:
            return ""
        words = f"{count(differ, 'word')} of 4 bytes"
        return f"two runs differ in {words}, but the family says it is deterministic"

    def _has_nonfinite(self, candidate: Candidate) -> bool:
        """Whether the dtype has NaN and infinity, and the family must not spread them."""
        return not self.problem.is_integer and candidate.plan.family.plain

    def _nonfinite(
        self, where: str, candidate: Candidate, stage: Callable[[Stage], None], fence: Fence
    ) -> str:
        """One NaN and one infinity must appear in the output exactly where the reference has them.

        With x they are in z and the bias, too.
        """
        stage(Stage.REFERENCE)
        host, epilogue = self._normal.host, self.problem.epilogue
        odd = {where: with_nonfinite(getattr(host, where), self._seed, corners=where == "w")}
        if where == "x" and epilogue.add:
            odd["z"] = with_nonfinite(host.z, self._seed)
        if where == "x" and epilogue.bias and self.problem.k > 2:  # else no channel is left to see x's
            odd["bias"] = with_nonfinite(host.bias, self._seed)
        host = replace(host, **odd)
        data = self._upload(host, fence)
        stage(Stage.RUN)
        figures = self._figures(candidate, data, candidate.plan.pack(data.inputs["w"]))
        if figures.misplaced:
            wrong = count(figures.misplaced, "output")
            places = ", ".join(odd)
            return f"NaN and infinity in {places}: {wrong} not where, or not as, the reference has them"
        return ""

    def _unaligned(self, candidate: Candidate, stage: Callable[[Stage], None], fence: Fence) -> str:
        """Run once on arrays that are shifted by an element, if there is a variant for them.

        A variant that cannot be made is no fault: users with such arrays get an error. If addresses are not
        known, all arrays count as aligned.
        """
        if not self._y.address:
            return ""
        stage(Stage.COMPILE)
        try:
            if not candidate.plan.make_unaligned():
                return ""
            stage(Stage.INPUTS)
            data, y = self._shifted(fence, with_w=candidate.plan.blueprint.pack is None)
        except (CompileError, OutOfMemory, RunError):
            return ""
        stage(Stage.RUN)
        figures = self._figures(candidate, data, data.inputs.get("w", candidate.packed), y)
        candidate.plan.let_go_unaligned()  # it is timed with the memory that aligned arrays need
        wrong = figures.misplaced + figures.over
        return f"arrays that are not aligned: {count(wrong, 'element')} not within the bound" if wrong else ""

    def _shifted(self, fence: Fence, with_w: bool) -> tuple[DeviceInputs, Memory]:
        """Return the normal numbers, and an output, that start an element off an aligned address.

        ``with_w``: the filter, too, which the kernel reads as callers have it.
        """
        arrays = self._normal.host.given(self.problem)
        inputs = {
            name: fence.alloc(a.nbytes, name, a.itemsize, guard=POISON)
            for name, a in arrays.items()
            if with_w or name != "w"
        }
        for name, memory in inputs.items():
            self.runtime.upload(memory, arrays[name])
        y = fence.alloc(self.problem.y_bytes, "y", DTYPE_BYTES[self.problem.dtype_out])
        return replace(self._normal, inputs=inputs), y

    def _outside(self, candidate: Candidate, stage: Callable[[Stage], None], thorough: bool) -> list[str]:
        """Only y and the workspace may be written; ``thorough``: compare the inputs in any case."""
        found = [candidate.fence.damage(), self._fence.damage()]
        if thorough or any(found):
            stage(Stage.INPUTS)
            names = [data.changed(self.runtime) for data in (self._exact, self._normal)]
            found += [f"the kernel changed {name}" for name in names if name]
        return found

    def _figures(
        self, candidate: Candidate, data: DeviceInputs, packed: Memory, y: Memory | None = None
    ) -> Comparison:
        """Run on some data and compare y with its reference, by their bound or that of normal numbers."""
        y = y or self._y
        self._answer(candidate, data, packed, y)
        plan, device = candidate.plan, self.runtime.device
        chain, size = plan.family.chain(self.problem, device, plan.config), data.size or self._normal.size
        bound = error_bound(self.problem, chain, exact=data is self._exact and sums_exact(self.problem))
        assert size is not None
        return compare(self._launcher, self.problem, y, data.ref, size, bound)

    def _answer(self, candidate: Candidate, data: DeviceInputs, packed: Memory, y: Memory) -> None:
        """Poison y, then run: what is not written stays poison."""
        self.runtime.fill(y, POISON)
        candidate.plan.run({**data.inputs, "w": packed, "y": y})
        self.runtime.synchronize()

    def _upload(self, host: Inputs, fence: Fence, sized: bool = False) -> DeviceInputs:
        return upload(self._launcher, self.problem, host, fence, sized)
