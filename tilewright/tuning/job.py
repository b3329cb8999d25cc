"""The values that a worker and its child exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.record import Check, Measurement, Outcome
from tilewright.tuning.channel import Json

Stage = Callable[[str], None]  # told what comes next, so that a deadline can be set for it


@dataclass(frozen=True)
class Job:
    """What a worker is for: one problem on one device.

    ``facts`` of a device make a worker that only compiles for it, and opens no CUDA device.
    """

    problem: str
    kind: str | None = None
    index: int = 0
    seed: int = 0
    facts: Json | None = None


@dataclass(frozen=True)
class Compiled:
    """What became of compiling one config ahead of its trial; ``outcome`` is None if all went well."""

    outcome: Outcome | None
    reason: str = ""
    compile_s: float = 0.0


@dataclass(frozen=True)
class Final:
    """One contestant of the last comparison; ``check`` is there if it was verified in full."""

    config: str
    measurement: Measurement
    check: Check | None = None
