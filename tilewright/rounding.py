"""Whole numbers rounded up."""

from __future__ import annotations


def ceil_div(a: int, b: int) -> int:
    """Smallest integer not below a / b."""
    return -(-a // b)


def round_up(a: int, step: int) -> int:
    """Smallest multiple of ``step`` not below a."""
    return ceil_div(a, step) * step
