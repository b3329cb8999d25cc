"""``tilewright tune``: find the fastest right kernel of each layer, and remember it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tilewright.cli import options
from tilewright.cli.screen import Progress, emit, remark
from tilewright.report.table import Table, time_text
from tilewright.shapes import Layer
from tilewright.tuning.budget import Budget

if TYPE_CHECKING:
    from tilewright.runtime.base import Runtime


def tune(
    layers: options.Problems,
    device: options.Device = None,
    dtype: options.Dtype = None,
    layout: options.Layout = None,
    budget: options.BudgetText = options.DEFAULT_BUDGET,
    strategy: options.Strategy = "model",
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    json_file: options.JsonFile = None,
) -> None:
    """Search for the fastest right kernel of each layer. Ctrl-C keeps what was found so far."""
    found = options.layers(layers, dtype, layout)
    limit, search = Budget.parse(budget), options.strategy(strategy)
    options.writable(json_file, "--json")
    runtime = options.open_device(device)
    rows: list[dict[str, Any]] = []
    try:
        with Progress(len(found), "tuning") as progress:
            for layer in found:
                rows.append(_tuned(layer, runtime, limit, search, seed, progress))
                progress.finished(_line(rows[-1]))
    except KeyboardInterrupt:
        remark(f"stopped: {len(rows)} of {len(found)} layers are done, and every trial so far is kept; "
               "the same command goes on from there")  # fmt: skip
        raise typer.Exit(130) from None
    document = {"device": runtime.device.name, "budget": str(limit), "seed": seed, "rows": rows}
    emit(_table(rows), document, json_file)


def _tuned(
    layer: Layer,
    runtime: Runtime,
    budget: Budget,
    strategy: str,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    from tilewright.store import Store
    from tilewright.tuning.tuner import tune as search

    result = search(
        layer.problem,
        runtime,
        budget=budget,
        strategy=strategy,
        seed=seed,
        store=Store(),
        progress=lambda *facts: progress.now(layer.name),
    )
    best = result.best
    return {
        "name": layer.name,
        "problem": str(layer.problem),
        "config": best.config,
        "cold_us": best.measurement.cold_us,
        "ci95_us": best.measurement.ci95_us,
        "warm_us": best.measurement.warm_us,
        "floor_us": runtime.device.floor_us(layer.problem.flops, layer.problem.bytes),
        "worst": best.check.worst,
        "deterministic": best.deterministic,
        "trials": len(result.records),
        "tune_s": result.seconds,
    }


def _line(row: dict[str, Any]) -> str:
    return f"{row['name']}: {time_text(row['cold_us'])} us, {row['trials']} trials in {row['tune_s']:.1f} s"


def _table(rows: list[dict[str, Any]]) -> Table:
    head = ("layer", "us", "±", "floor", "of floor", "error/bound", "trials", "s", "config")
    body = [
        (
            row["name"], time_text(row["cold_us"]), time_text(row["ci95_us"]), time_text(row["floor_us"]),
            f"{row['floor_us'] / row['cold_us']:.0%}", f"{row['worst']:.2g}", str(row["trials"]),
            f"{row['tune_s']:.1f}", row["config"],
        )
        for row in rows
    ]  # fmt: skip
    return Table("", head, tuple(body))
