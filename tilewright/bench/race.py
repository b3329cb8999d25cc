"""The best time of each family on a layer, from the store's records."""

from __future__ import annotations

from tilewright.dispatch.choices import sources_for
from tilewright.plans.request import Request
from tilewright.record import Record, tally
from tilewright.runtime.base import Runtime
from tilewright.store import Store


def raced(request: Request, runtime: Runtime, store: Store | None) -> dict[str, float | str]:
    """Return the best time, in us, of every family that may run a layer and takes it; or why it has none.

    Args:
        request: the layer, and which families to report.
        runtime: its device and its compiler.
        store: has the trials; only those of the current kernels count.
    """
    sources = sources_for(request, runtime)
    known = store.records(request.problem, runtime.device.key) if store else []
    now = [record for record in known if sources.has(record)]
    return {name: _best([r for r in now if r.family == name]) for name in sources.names}


def _best(records: list[Record]) -> float | str:
    """Return the best time of a family's records, oldest first; or their outcomes, if none was correct."""
    newest = {record.config: record for record in records}.values()
    times = [record.cold_us for record in newest if record.is_right]
    if times:
        return round(min(times), 3)
    return f"none right: {tally(newest)}" if newest else "not tried"
