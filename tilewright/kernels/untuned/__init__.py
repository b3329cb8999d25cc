"""Kernels that nobody tunes, and what they are given (``packing.py``)."""

from tilewright.kernels.untuned.packing import COLUMNS, IN_ORDER, PAIRS, filter_sizes, pack, sizes, spread

__all__ = ["COLUMNS", "IN_ORDER", "PAIRS", "filter_sizes", "pack", "sizes", "spread"]
