"""What limits a kernel: from hardware counters if they can be read, else the model's figures, marked so."""

from __future__ import annotations

from tilewright.plans.plan import Plan
from tilewright.profiling import ncu
from tilewright.profiling.figures import Profile
from tilewright.profiling.modelled import modelled


def profile(plan: Plan) -> Profile:
    """Return the counters of each launch of a plan; if they cannot be read, the model's figures, and why."""
    try:
        return ncu.profiled(plan)
    except ncu.NoCounters as error:
        return modelled(plan.family, plan.problem, plan.device, plan.config, str(error))
