"""The figures of a profile, and the limiter in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BUSY = 60.0  # % of a pipe's peak from which it counts as the limiter
_SHOWN = 3  # kinds of instructions named beside the issue slots


@dataclass(frozen=True)
class Figure:
    """One named figure; ``unit`` is %, us, bytes, GB/s, or empty for a plain count or ratio."""

    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True)
class KernelProfile:
    """The figures of one launch (or, from the model, of the whole run), and its limiter."""

    kernel: str
    figures: tuple[Figure, ...]
    limiter: str


@dataclass(frozen=True)
class Profile:
    """A profile of one config.

    Attributes:
        source: "ncu" (counters, measured) or "model" (predicted).
        why: why there are no counters; empty if there are.
        kernels: one per launch, in order.
    """

    source: str
    why: str
    kernels: tuple[KernelProfile, ...]


def limiter(
    pipes: Mapping[str, float], instructions: Mapping[str, float], stalls: Mapping[str, float]
) -> str:
    """Say in one sentence what limits a kernel, from counters.

    Args:
        pipes: % of its peak that each pipe or memory reached.
        instructions: how often each kind was issued; empty if unknown.
        stalls: warps waiting for each reason, in any unit; empty if unknown.
    """
    if not pipes:
        return "not known: no counter of a pipe could be read"
    name = max(pipes, key=lambda key: pipes[key])
    if pipes[name] >= BUSY or not any(stalls.values()):
        return f"{name}: {pipes[name]:.0f}% of its peak" + mix(name, instructions)
    reason = max(stalls, key=lambda key: stalls[key])
    share = 100 * stalls[reason] / sum(stalls.values())
    busiest = f"no pipe is busier than {name}, {pipes[name]:.0f}%"
    return f"latency: {share:.0f}% of waiting warps wait for {reason}; {busiest}"


def mix(pipe: str, instructions: Mapping[str, float]) -> str:
    """Name the instructions that fill the issue slots."""
    if pipe != "issue slots" or not any(instructions.values()):
        return ""
    total = sum(instructions.values())
    ranked = sorted(instructions.items(), key=lambda item: -item[1])[:_SHOWN]
    return " (" + ", ".join(f"{kind} {100 * count / total:.0f}%" for kind, count in ranked if count) + ")"
