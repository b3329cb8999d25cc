"""Records for ever: SQLite in the user's cache, and the winners that are shipped, read below it.

The key of a winner holds all that changes the answer: schema, kernels and what launches them (sources.py),
compiler, device name, architecture and unit count, problem (with its math), determinism. Driver and clocks
are recorded only.
"""

from tilewright.store.store import Info, Store

__all__ = ["Info", "Store"]
