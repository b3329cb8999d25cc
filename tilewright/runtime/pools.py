"""Memory of a GPU that PyTorch and CuPy keep in this process for arrays to come."""

from __future__ import annotations

import sys
from contextlib import suppress


def trim_pools() -> None:
    """Have them free what no array uses, for who gets no memory otherwise; not while a graph is recorded."""
    with suppress(Exception):  # one that is only half imported, say: the memory stays where it is
        cuda = sys.modules["torch"].cuda
        if cuda.is_initialized() and not cuda.is_current_stream_capturing():
            cuda.empty_cache()
    with suppress(Exception):
        sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
