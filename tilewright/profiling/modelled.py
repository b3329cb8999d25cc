"""The model's figures of a kernel, for when counters cannot be read: predicted, and marked as such."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem
from tilewright.profiling.figures import Figure, KernelProfile, Profile, mix
from tilewright.search.model import estimate

# Facts of the model that are times: the pipe or memory of each.
_GPU_PIPES = {
    "issue_slots_us": "issue slots", "shared_port_us": "shared-memory port", "l2_us": "L2 cache",
    "tensor_us": "tensor cores", "dram_us": "device memory", "stalls_us": "latency",
}  # fmt: skip
_CPU_PIPES = {
    "multiply_add_us": "multiply-add pipes", "load_ports_us": "load ports", "issue_slots_us": "issue slots",
    "latency_us": "latency", "caches_us": "caches", "dram_us": "main memory",
}  # fmt: skip
# Terms of the model that belong to no pipe.
_BESIDE = {
    "launch_us": "the launch", "first_loads_us": "the first loads", "copying_us": "copying the input",
    "stores_us": "stores", "combine_us": "the meeting of shares of C", "other_launches_us": "other launches",
}  # fmt: skip

_SHARES = ("occupancy", "useful_outputs", "tail")


def modelled(family: Family, problem: Problem, device: Device, config: Config, why: str) -> Profile:
    """Predict a profiler's figures; ``why`` says why no profiler was used."""
    if not family.tunable:
        text = "not known: the model does not know this family"
        return Profile("model", why, (KernelProfile(family.name, (), text),))
    found = estimate(family, problem, device, config)
    names = _GPU_PIPES if device.is_gpu else _CPU_PIPES
    pipes = {name: found.facts[key] for key, name in names.items() if key in found.facts}
    figures = [Figure("time", found.total_us, "us"), Figure("TFLOP/s", problem.flops / found.total_us * 1e-6)]
    figures += [Figure(name, 100 * us / found.total_us, "% of the time") for name, us in pipes.items()]
    for key, value in found.facts.items():
        if key not in names:
            unit = "bytes" if "bytes" in key else "%" if key in _SHARES else ""
            figures.append(Figure(key.replace("_", " "), value * (100 if unit == "%" else 1), unit))
    beside = {name: found.terms_us[key] for key, name in _BESIDE.items() if key in found.terms_us}
    said = _limiter(family, problem, device, config, pipes | beside, found.total_us)
    return Profile("model", why, (KernelProfile(family.name, tuple(figures), said),))


def _limiter(
    family: Family, problem: Problem, device: Device, config: Config, times: dict[str, float], total_us: float
) -> str:
    """Name what takes longest: a pipe, or the work before and after the main loop."""
    name = max(times, key=lambda key: times[key])
    text = f"{name}: {100 * times[name] / total_us:.0f}% of the predicted time"
    work = family.work(problem, device, config)
    if name != "issue slots" or not isinstance(work, GpuWork):
        return text
    instructions = {
        "multiply-adds": work.fma, "shared-memory loads": work.shared_loads,
        "global loads": work.global_loads, "staging": work.staging, "the epilogue": work.epilogue,
    }  # fmt: skip
    return text + mix(name, instructions)
