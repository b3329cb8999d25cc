"""Kernels that are not tuned, and their defines (``packing.py``)."""

from tilewright.kernels.untuned.packing import COLUMNS, IN_ORDER, PAIRS, pack, pack_rows, sizes, spread

__all__ = ["COLUMNS", "IN_ORDER", "PAIRS", "pack", "pack_rows", "sizes", "spread"]
