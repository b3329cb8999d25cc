"""A family of one naive kernel with a planted fault each: what the guards must catch. Tests only.

Run as a program, it is a worker's child that knows this family beside our own.
"""

from __future__ import annotations

import os
from dataclasses import replace

from tilewright import kernels
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch, Param, Rule
from tilewright.kernels.untuned.reference import reference_f64
from tilewright.problem import Problem
from tilewright.tuning import child

FAULTS = (
    "none", "hang", "past_end", "before_start", "unwritten", "corner", "crash", "unsteady",
    "admitted_unsteady", "past_workspace", "spreads_nan", "hides_nan", "changes_x", "no_compile",
    "inexact", "slow", "stale_workspace", "hides_bias", "illegal",
)  # fmt: skip

# The right answer is computed like the reference's; then the thread that has the last element errs.
TEXT = """
#include "reference.cu"
#define FLOATS (SIZE_N * SIZE_K * SIZE_P * SIZE_Q)
#define IS(fault) (FAULT == fault)

INLINE void err(GLOBAL float *x, GLOBAL float *y, GLOBAL float *work, GLOBAL unsigned *zeros) {
    volatile GLOBAL unsigned *flag = zeros;
    if (IS(HANG)) while (flag[0] == 0) {}
    if (IS(PAST_END)) y[FLOATS] = 1.0f;
    if (IS(BEFORE_START)) y[-1] = 1.0f;
    if (IS(CORNER)) y[FLOATS - 1] += 1.0f;
    if (IS(CRASH)) ((GLOBAL float *)((GLOBAL char *)y + (1L << 45)))[0] = 1.0f;
    if (IS(UNSTEADY) || IS(ADMITTED_UNSTEADY)) {
        zeros[1] += 1;
        if (zeros[1] % 2) y[FLOATS - 1] *= 1.0f + 1.2e-7f;
    }
    if (IS(PAST_WORKSPACE)) work[WORK_FLOATS] = 1.0f;
    if (IS(SPREADS_NAN)) {
        float sum = 0.0f;
        for (int i = 0; i < SIZE_N * SIZE_C * SIZE_H * SIZE_W; i++) sum += 0.0f * x[i];
        for (int i = 0; i < FLOATS; i++) y[i] += sum;
    }
    if (IS(HIDES_NAN)) for (int i = 0; i < FLOATS; i++) y[i] = y[i] == y[i] ? y[i] : 0.0f;
    if (IS(CHANGES_X)) x[0] = x[0] + 1.0f;
    if (IS(INEXACT)) for (int i = 0; i < FLOATS; i++) y[i] *= 1.0f + 2e-7f;
    if (IS(SLOW)) for (int i = 0; i < SLOW_STEPS; i++) if (flag[0]) break;
    if (IS(STALE_WORKSPACE)) y[FLOATS - 1] += 0.0f * work[0];
}

KERNEL(faulty)(GLOBAL float *x, GLOBAL const float *RESTRICT w, GLOBAL const float *RESTRICT bias,
               GLOBAL float *y, GLOBAL float *work, GLOBAL unsigned *zeros) {
    if (GROUP(0) || THREAD(0)) return;
    const Epilogue ep = {bias, bias, y};
    for (int item = 0; item < ITEMS; item++) {
        double sum[STRIP], size[STRIP];
        Strip at = find_strip(item);
        make_strip(sum, size, x, w, ep, at);
        for (int i = 0; i < STRIP; i++) {
            int place = Z_AT(at.n, at.k, at.p, at.q + i);
            if (at.q + i < SIZE_Q && !(IS(UNWRITTEN) && place == FLOATS / 2)) y[place] = (float)sum[i];
            if (IS(HIDES_BIAS) && bias[at.k] != bias[at.k]) y[place] = 0.0f;
        }
    }
    err(x, y, work, zeros);
#if FAULT == NO_COMPILE
    this is no C
#endif
}
"""

WORK_FLOATS = 33


class Faulty(Family):
    """``faulty:kind=n`` has the n-th fault; kind 0 is right."""

    name = "faulty"

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take everything."""
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the one choice."""
        return (Param("kind", tuple(range(len(FAULTS))), "which fault", FAULTS),)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return one rule, so that breaking rules can be tested too."""
        return (Rule("no_illegal", lambda kind: FAULTS[kind] != "illegal", "to have a rule to break"),)

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out one launch of one thread that works."""
        base = reference_f64(problem, device)
        names = {fault.upper(): number for number, fault in enumerate(FAULTS)}
        defines = dict(base.defines) | names | dict(FAULT=config["kind"], WORK_FLOATS=WORK_FLOATS)
        defines["SLOW_STEPS"] = 300_000 if device.is_gpu else 200_000_000  # some 0.1 s
        launch = Launch("faulty", (1, 1, 1), base.launches[0].block, ("x", "w", "bias", "y", "work", "zeros"))
        return replace(
            base, source=TEXT, defines=tuple(defines.items()), launches=(launch,),
            workspace=(Buffer("work", 4 * WORK_FLOATS), Buffer("zeros", 64, zeroed=True)),
        )  # fmt: skip

    def deterministic(self, config: Config) -> bool:
        """Say so unless this fault is to be admitted."""
        return FAULTS[config["kind"]] != "admitted_unsteady"

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Return the chain of the naive sum; as some libraries do, say something on stdout."""
        os.write(1, b"noise that must not get into the worker's answers\n")
        return problem.cg * problem.r * problem.s


def faulty(fault: str) -> Config:
    """Return the config of a named fault."""
    return Config.make("faulty", {"kind": FAULTS.index(fault)})


if __name__ == "__main__":
    kernels.FAMILIES += (Faulty(),)
    child.main()
