"""Records for ever: SQLite in the user's cache, with the winners that ship as a fallback.

The key of a winner holds all that may change the answer: schema, kernels and what launches them (sources.py),
compiler, device name, architecture and unit count, problem (with its math), determinism. Driver and clocks
are recorded, but are not part of the key.
"""

from tilewright.store.store import Store

__all__ = ["Store"]
