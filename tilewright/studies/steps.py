"""Run a part of steps: each checked, those of a layer timed interleaved, beside the source's figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.errors import TilewrightError, count
from tilewright.floor import floor_us
from tilewright.measuring.rounds import measure
from tilewright.peers import release
from tilewright.profiling.modelled import modelled
from tilewright.record import Measurement
from tilewright.search.model import estimate
from tilewright.studies.lab import Entry, Lab
from tilewright.studies.study import Column, PartResult, Step, Steps, StudyLayer, Value, to_do

Row = dict[str, Value]
SUM = "sum"
ON_A_CPU = (
    "On a CPU a core runs the threads of a block one after the other: what a step gains on a GPU, it may "
    "lose here. Times of an H100 are in benchmarks/h100/studies."
)

COLUMNS = (
    Column("layer", "layer"), Column("step", "step"), Column("time_us", "time", "us"),
    Column("ci95_us", "±", "us"), Column("speedup", "speed-up", "x"), Column("gflops", "GFLOP/s"),
    Column("floor_share", "of floor"), Column("error_over_bound", "error/bound"),
    Column("published", "published"), Column("published_speedup", "its speed-up", "x"),
)  # fmt: skip
MODEL_COLUMNS = (
    Column("predicted_us", "predicted", "us"), Column("register_intensity", "flops/element, registers"),
    Column("block_intensity", "flops/element, block"), Column("limiter", "limiter by the model"),
)  # fmt: skip


def run_steps(part: Steps, lab: Lab, before: PartResult | None) -> Iterator[PartResult]:
    """Measure every step on every layer, continuing ``before``; yield the results after each layer."""
    rows: list[Row] = [dict(row) for row in before.rows] if before else []
    if not lab.runtime.device.is_gpu and sum(bool(step.config) for step in part.steps) > 1:
        part = replace(part, note=f"{part.note}\n{ON_A_CPU}".strip())
    for layer, left in to_do(part.layers, lab.quick, before):
        rows += _on_layer(part, layer, lab)
        yield _result(part, rows, left)


def _result(part: Steps, measured: list[Row], left: tuple[str, ...]) -> PartResult:
    rows = [dict(row) for row in measured]
    if part.total and not left:
        rows += _sums(part, rows)
    named = part.baseline if any(r["step"] == part.baseline and r.get("time_us") for r in rows) else ""
    for row in rows:
        first = _baseline([r for r in rows if r["layer"] == row["layer"]], named)
        row["speedup"] = _over(first.get("time_us"), row.get("time_us"))
        row["published_speedup"] = _over(first.get("published_us"), row.get("published_us"))
    columns = COLUMNS + (MODEL_COLUMNS if part.model else ())
    used = tuple(c for c in columns if any(row.get(c.key) not in (None, "") for row in rows))
    return PartResult(part.title, part.chart, part.note, used, tuple(rows), left)


def _baseline(rows: list[Row], name: str) -> Row:
    """Return the row that is the baseline of speed-ups: the named step's, even without a time, since all
    layers share a chart and its title; if none is named, the first with a time.
    """
    found = [row for row in rows if row["step"] == name or (not name and row.get("time_us"))]
    return (found or rows)[0]


def _on_layer(part: Steps, layer: StudyLayer, lab: Lab) -> list[Row]:
    rows, entries = list[Row](), dict[str, Entry]()
    for step in part.steps:
        lab.say(f"{part.title}: {layer.name}, {step.name}")
        row = _row(step, layer, lab)
        rows.append(row)
        try:
            entries[step.name] = lab.enter(step, layer)
        except TilewrightError as error:
            row["reason"] = str(error)
    if entries:
        lab.say(f"{part.title}: {layer.name}, timing {count(len(entries), 'step')}")
    for name, figure in _times(entries, lab).items():
        row = next(row for row in rows if row["step"] == name)
        row |= _measured(entries[name], figure) | (_modelled(entries[name]) if part.model else {})
    entries.clear()
    lab.forget()
    release()
    return rows


def _times(entries: dict[str, Entry], lab: Lab) -> dict[str, Measurement]:
    """Time the entries of each device, interleaved."""
    found: dict[str, Measurement] = {}
    for runtime in {id(e.runtime): e.runtime for e in entries.values()}.values():
        runs = {name: entry.run for name, entry in entries.items() if entry.runtime is runtime}
        found |= measure(runs, runtime, lab.limits)
    return found


def _row(step: Step, layer: StudyLayer, lab: Lab) -> Row:
    return {
        "layer": layer.name, "step": step.name, "what": step.what,
        "problem": str(layer.at(lab.quick, step.dtype)), **step.published_cells(layer.name),
    }  # fmt: skip


def _measured(entry: Entry, figure: Measurement) -> Row:
    problem, device = entry.problem, entry.runtime.device
    floor = floor_us(problem, device) if device.rates.source == "calibrated" else None
    return {
        "time_us": round(figure.cold_us, 3), "ci95_us": round(figure.ci95_us, 3), "stolen": figure.stolen,
        "gflops": problem.flops / figure.cold_us * 1e-3, "floor_us": floor and round(floor, 3),
        "floor_share": floor and floor / figure.cold_us,
        "error_over_bound": entry.check.worst if entry.check else None,
        "config": str(entry.plan.config) if entry.plan else "", "note": entry.note,
        "workspace_bytes": entry.plan.workspace_bytes if entry.plan else None,
        "flops": problem.flops, "bytes": problem.bytes, "device": device.name,
    }  # fmt: skip


def _modelled(entry: Entry) -> Row:
    if entry.plan is None or not entry.plan.family.tunable:
        return {}
    family, config, device = entry.plan.family, entry.plan.config, entry.runtime.device
    said = estimate(family, entry.problem, device, config)
    return {
        "predicted_us": said.total_us,
        "register_intensity": said.facts.get("register_intensity_flops_per_element"),
        "block_intensity": said.facts.get("block_intensity_flops_per_element"),
        "limiter": modelled(family, entry.problem, device, config, "").kernels[0].limiter,
    }


def _sums(part: Steps, rows: list[Row]) -> list[Row]:
    """Sum each step's times over the layers, if all have one; and their intervals, as if all erred alike."""
    found: list[Row] = []
    for step in part.steps:
        mine = [row for row in rows if row["step"] == step.name]
        sums = {key: [row.get(key) for row in mine] for key in ("time_us", "ci95_us")}
        row: Row = {"layer": SUM, "step": step.name, "what": step.what, **step.published_cells(SUM)}
        for key, terms in sums.items():
            if all(isinstance(term, float) for term in terms):
                row[key] = sum(term for term in terms if isinstance(term, float))
        row["stolen"] = max(float(one.get("stolen") or 0.0) for one in mine)
        found.append(row)
    return found


def _over(first: Value, time: Value) -> float | None:
    if isinstance(first, float) and isinstance(time, float) and time:
        return first / time
    return None
