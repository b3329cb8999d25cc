"""What the specs of tiled families share: the problem as a kernel walks it, and how shares of C meet."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.problem import Problem

NONE, ATOMIC, TWO_PASS, LAST = range(4)
COMBINE_NAMES = ("none", "atomic", "two_pass", "last")
SUM_THREADS = 256


def ceil_div(a: int, b: int) -> int:
    """Smallest integer not below a / b."""
    return -(-a // b)


def up_to(limit: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """The values that are at most ``limit``, or the first one."""
    return tuple(v for v in values if v <= limit) or values[:1]


@dataclass(frozen=True)
class View:
    """The problem as the kernel walks it: pixels of a 1x1 layer lie in one row."""

    n: int
    h: int
    w: int
    p: int
    q: int

    @classmethod
    def of(cls, pr: Problem) -> View:
        """Flatten the image where every output pixel needs just its own input pixel."""
        plain = (pr.r, pr.s, pr.stride, pr.pad) == (1, 1, (1, 1), (0, 0, 0, 0))
        if not plain:
            return cls(pr.n, pr.h, pr.w, pr.p, pr.q)
        if (pr.layout_in, pr.layout_out) == ("nhwc", "nhwc"):
            return cls(1, 1, pr.n * pr.h * pr.w, 1, pr.n * pr.p * pr.q)
        return cls(pr.n, 1, pr.h * pr.w, 1, pr.p * pr.q)
