"""Cores and memory that this process may use, and the largest arrays that a device accepts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tilewright.arithmetic import ceil_div
from tilewright.errors import ProblemError
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

# Limits of a container, in version 2 and in version 1 of control groups.
_CGROUP = Path("/sys/fs/cgroup")
_LIMIT = _CGROUP / "memory.max"
_OLDER_LIMIT = "memory/memory.limit_in_bytes"
_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))


def cores() -> int:
    """CPU cores that this process may use: more threads than these would only slow down."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(there, *_time_of_cores())


def _time_of_cores() -> Iterator[int]:
    """Yield a large number, then for each limit set the cores whose time a container gets, rounded up."""
    yield 1 << 30
    for names in _QUOTAS:
        with suppress(OSError, ValueError):  # without a quota the file says "max" or -1
            texts = [(_CGROUP / name).read_text(encoding="ascii") for name in names]
            quota_us, period_us = map(int, " ".join(texts).split())
            if quota_us > 0 < period_us:
                yield ceil_div(quota_us, period_us)


def host_bytes() -> int:
    """Memory of the host, or of the container, in bytes; a very large number if unknown."""
    found = [1 << 62]
    with suppress(AttributeError, ValueError, OSError):  # not POSIX
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in (_LIMIT, _CGROUP / _OLDER_LIMIT):
        with suppress(OSError, ValueError):  # without a limit the file says "max" or a huge number
            found.append(int(limit.read_text(encoding="ascii")))
    return min(found)


def require_arrays(problem: Problem, runtime: Runtime) -> None:
    """Refuse a problem with an array larger than the device accepts: OpenCL devices limit the size of each.

    Raises:
        ProblemError: names the array, its size and the limit.
    """
    for operand in problem.operands.values():
        if operand.nbytes > runtime.array_bytes:
            raise ProblemError(
                f"{problem}: too large: {operand.name} of shape {operand.shape} has {operand.nbytes:,} "
                f"bytes; {runtime.device.name} takes at most {runtime.array_bytes:,} in one array; "
                "make the layer or its batch smaller"
            )
