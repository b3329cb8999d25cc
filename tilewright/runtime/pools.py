"""Memory of a GPU that PyTorch and CuPy keep in this process for arrays to come."""

from __future__ import annotations

import sys
from contextlib import nullcontext, suppress

from tilewright.runtime.cuda_context import beside_captures


def trim_pools() -> None:
    """Have them free what no array uses, for who gets no memory otherwise; not while this thread's stream is
    recording a graph. Another thread may be recording one.
    """
    driver = sys.modules.get("cuda.bindings.driver")
    for trim in (_trim_torch, _trim_cupy):
        # One that is not there, or half imported, or has no GPU: the memory stays where it is.
        with suppress(Exception), beside_captures(driver) if driver else nullcontext():
            trim()


def _trim_torch() -> None:
    cuda = sys.modules["torch"].cuda
    if cuda.is_initialized() and not cuda.is_current_stream_capturing():
        cuda.empty_cache()


def _trim_cupy() -> None:
    sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
