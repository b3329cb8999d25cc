"""How fast each search strategy finds good configs: the best so far over seconds and trials."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.store import Store
from tilewright.studies.lab import Lab
from tilewright.studies.study import Column, PartResult, StudyLayer, TuningCurves, Value, to_do
from tilewright.tuning.budget import Budget
from tilewright.tuning.events import Event, Tried
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.tuner import tune

COLUMNS = (
    Column("layer", "layer"), Column("strategy", "strategy"), Column("elapsed_s", "after s"),
    Column("trials", "trials"), Column("best_us", "best so far", "us"),
)  # fmt: skip


def run_search(part: TuningCurves, lab: Lab, before: PartResult | None) -> Iterator[PartResult]:
    """Search every layer from scratch with every strategy; each improvement of the best so far is a row.

    Continues from ``before``; yields the results so far after each layer.
    """
    said = [f"The source on {strategy!r}: {text}." for strategy, text in part.published.items()]
    note, rows = " ".join([part.note, *said]), list(before.rows if before else ())
    for layer, left in to_do(part.layers, lab.quick, before):
        for strategy in part.strategies:
            lab.say(f"{part.title}: {layer.name}, {strategy}")
            rows += _curve(part, layer, strategy, lab)
        yield PartResult(part.title, "curve", note, COLUMNS, tuple(rows), left)


def _curve(part: TuningCurves, layer: StudyLayer, strategy: str, lab: Lab) -> list[dict[str, Value]]:
    seen: list[tuple[float, int, float]] = []

    def tell(event: Event) -> None:
        if isinstance(event, Tried) and event.best_us and (not seen or event.best_us < seen[-1][2]):
            seen.append((event.elapsed_s, event.trials, event.best_us))

    head: dict[str, Value] = {"layer": layer.name, "strategy": strategy}
    budget = Budget(trials=part.quick_trials) if lab.quick else Budget(seconds=part.seconds)
    with tempfile.TemporaryDirectory() as folder:  # an empty store, so that known results do not help
        store = Store(Path(folder) / "records.sqlite", shipped=False)
        try:
            wanted = TuneOptions(budget, strategy, families=(part.family,))
            result = tune(layer.at(lab.quick), lab.runtime, wanted, store=store, progress=tell)
        except TilewrightError as error:
            return [{**head, "reason": str(error)}]
    if seen:
        seen.append((result.seconds, len(result.records), seen[-1][2]))
    points = [dict(elapsed_s=round(s, 2), trials=float(n), best_us=us) for s, n, us in seen]
    return [{**head, **point} for point in points]
