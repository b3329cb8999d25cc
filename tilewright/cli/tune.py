"""``tilewright tune``: find the fastest correct kernel of each layer, and store it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tilewright.cli import opened, options, outputs, stopping
from tilewright.cli.screen import ProgressBar, emit, foretell, remark
from tilewright.cli.session import TuningSession
from tilewright.errors import CompileError, ProblemError, RunError
from tilewright.kernels import family_of
from tilewright.problem.shapes import Layer
from tilewright.report.results import told_apart
from tilewright.report.table import (
    BEATS_NOTE,
    NOISY_MARK,
    NONE,
    Table,
    beats_floor,
    bytes_text,
    floor_text,
    noisy_notes,
    time_text,
    width_text,
)
from tilewright.tuning.options import TuneOptions

if TYPE_CHECKING:
    from tilewright.runtime.base import Runtime

Row = dict[str, Any]

_AGAIN = "; run the same command again to continue"


def tune(
    layers: options.Problems,
    device: options.Device = None,
    dtype: options.Dtype = None,
    layout: options.Layout = None,
    batch: options.Batch = None,
    budget: options.BudgetText = None,
    strategy: options.Strategy = None,
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    family: options.Families = None,
    again: options.Again = False,
    json_file: options.JsonFile = None,
) -> None:
    """Search for the fastest correct kernel of each layer.

    The winner is stored, and used from then on. A layer with a known winner is not tuned again, unless
    --again is given. Ctrl-C keeps all trials so far.
    """
    found, families = options.layers(layers, dtype, layout, batch), options.families(family)
    limit, way = options.budget(budget), options.strategy(strategy)
    wanted = TuneOptions(limit, way, seed, deterministic, families, again)
    outputs.check({"--json": json_file}, layers)
    from tilewright.dispatch.once import known

    store, runtime = opened.store_and_device(found, device, wanted)
    opened.make_ready(runtime, found, "tune")
    rows: list[Row] = []

    def report() -> None:
        if rows:
            document = _document(runtime, wanted, rows) if json_file else None
            emit(_table(rows), document, json_file)
        if len(rows) < len(found):
            remark(stopping.layers_done(len(rows), len(found)) + _AGAIN)

    with ProgressBar(len(found), "tuning") as progress:
        session = TuningSession(runtime, store, progress, wanted)
        with session.children, stopping.until_stopped(report) as stop:
            for layer in found:
                progress.now(layer.name)
                if known(layer.problem, runtime, store, wanted) is None:
                    foretell([layer], runtime)
                rows.append(_row(session, layer, alone=len(found) == 1))
                progress.finished(_line(rows[-1]))
    report()
    stop.leave()
    if any("reason" in row for row in rows):
        raise typer.Exit(1)


def _document(runtime: Runtime, wanted: TuneOptions, rows: list[Row]) -> dict[str, Any]:
    """Return the rows for JSON, with what is needed to search in the same way again."""
    from tilewright.bench.environment import commits, now

    return {
        "device": runtime.device.name, "key": runtime.device.key, "versions": runtime.versions(),
        "date": now(), "commit": commits(""), "budget": str(wanted.budget or ""),
        "strategy": wanted.strategy, "seed": wanted.seed, "deterministic": wanted.deterministic,
        "families": list(wanted.families), "rows": rows,
    }  # fmt: skip


def _row(session: TuningSession, layer: Layer, alone: bool) -> Row:
    """Tune one layer; if it is one of many and fails, its row has the reason."""
    from tilewright.measuring.calibrate import outdone

    problem, runtime = layer.problem, session.runtime
    row = {"name": layer.name, "problem": str(problem)}
    try:
        result, note = session.winner(problem, layer.name)
    except (ProblemError, CompileError, RunError) as error:
        if alone:
            raise
        return {**row, "reason": str(error)}
    record = result.winner
    assert record.measurement is not None and record.check is not None
    return {
        **row,
        "config": record.config,
        "cold_us": record.measurement.cold_us,
        "ci95_us": record.measurement.ci95_us,
        "warm_us": record.measurement.warm_us,
        "floor_us": outdone(
            runtime, problem, record.measurement.cold_us, family_of(record.family).multiplies(problem)
        ),
        "worst": record.check.worst,
        "workspace_bytes": record.workspace_bytes,
        "deterministic": record.deterministic,
        "trials": len(result.records),
        "tune_s": result.seconds,
        "note": note,
        "noisy": record.measurement.noisy,
        "stolen": record.measurement.stolen,
        "stopped": "" if result.known else result.stopped,
    }


def _line(row: Row) -> str:
    if "reason" in row:
        return f"{row['name']}: failed"
    return f"{row['name']}: {time_text(row['cold_us'])} us, {row['note']}"


def _table(rows: list[Row]) -> Table:
    names = told_apart([(row["name"], row["problem"]) for row in rows])
    rows = [{**row, "name": name} for row, name in zip(rows, names, strict=True)]
    head = ("layer", "us", "±", "floor", "of floor", "error/bound", "workspace", "tried", "s")
    notes = tuple(f"{row['name']}: {_became(row)}" for row in rows)
    notes += noisy_notes((row["noisy"], row["stolen"]) for row in rows if "noisy" in row)
    notes += (BEATS_NOTE,) if any(beats_floor(_share(row)) for row in rows) else ()
    return Table("", head, tuple(map(_cells, rows)), notes)


def _became(row: Row) -> str:
    """Return a row's config, or why it has none."""
    return str(row["config"] if "config" in row else row["reason"]).removeprefix(f"{row['name']}: ")


def _share(row: Row) -> float | None:
    """Return floor / time of a row's winner."""
    return None if "reason" in row else float(row["floor_us"] / row["cold_us"])


def _cells(row: Row) -> tuple[str, ...]:
    if "reason" in row:
        return (row["name"], *[NONE] * 8)
    return (
        row["name"], time_text(row["cold_us"]) + NOISY_MARK * row["noisy"],
        width_text(row["cold_us"], row["ci95_us"]), time_text(row["floor_us"]),
        floor_text(_share(row)), f"{row['worst']:.2g}",
        bytes_text(row["workspace_bytes"]),
        str(row["trials"]) if row["tune_s"] else "known", f"{row['tune_s']:.1f}",
    )  # fmt: skip
