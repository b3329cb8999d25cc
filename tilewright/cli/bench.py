"""``tilewright bench``: tune layers, verify them, and compare with every peer on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import options
from tilewright.cli.screen import Progress, emit, remark
from tilewright.cli.search import Search
from tilewright.report.plot import require_matplotlib, svg
from tilewright.report.results import parse
from tilewright.report.table import markdown as as_markdown
from tilewright.report.table import results_table, time_text
from tilewright.shapes import Layer

if TYPE_CHECKING:
    from tilewright.bench import Bench
    from tilewright.rows import BenchRow

Peers = Annotated[
    str | None,
    typer.Option(
        "--peers", metavar="NAMES", help="onednn,onnxruntime,…; all; none. Default: all but inductor."
    ),
]
Markdown = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write the table there.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Write an SVG plot there.")]
AllFamilies = Annotated[
    bool, typer.Option("--all-families", help="A column for each kernel family: its best time.")
]
NoTune = Annotated[bool, typer.Option("--no-tune", help="Measure what is known already.")]


def bench(
    layers: options.Problems,
    device: options.Device = None,
    dtype: options.Dtype = None,
    layout: options.Layout = None,
    batch: options.Batch = None,
    peers: Peers = None,
    budget: options.BudgetText = None,
    strategy: options.Strategy = "model",
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    family: options.Families = None,
    all_families: AllFamilies = False,
    again: options.Again = False,
    no_tune: NoTune = False,
    json_file: options.JsonFile = None,
    markdown: Markdown = None,
    plot: Plot = None,
) -> None:
    """Tune each layer (or take it from the store), check it, and time it beside its peers."""
    found, families = options.layers(layers, dtype, layout, batch), options.families(family)
    limit, strategy = options.budget(budget), options.strategy(strategy)
    outputs = {"--json": json_file, "--markdown": markdown, "--plot": plot}
    for option, file in outputs.items():
        options.writable(file, option)
    if plot is not None:
        require_matplotlib()
    runtime = options.open_device(device)
    options.measure(runtime)
    from tilewright.bench import Bench
    from tilewright.peers import named, usual
    from tilewright.store import Store

    store = Store()
    with Progress(len(found), "bench") as progress:
        search = Search(
            runtime, store, progress, limit, strategy, seed, deterministic, again, 0.6, families
        )
        work = Bench(
            runtime=runtime,
            peers=usual(runtime.device) if peers is None else named(peers),
            store=store,
            tune=None if no_tune else search.seconds,
            deterministic=deterministic,
            families=families,
            seed=seed,
            threads=min(runtime.device.units, options.cores()),
            progress=progress.now,
        )
        rows = _measured(work, found, progress)
    if rows:
        _report(work.document(rows, str(limit or "")), outputs, all_families)
    if len(rows) < len(found):
        remark(options.STOPPED.format(done=len(rows), all=len(found)))
        raise typer.Exit(130)


def _measured(work: Bench, layers: list[Layer], progress: Progress) -> list[BenchRow]:
    """Measure layer after layer; Ctrl-C ends it and keeps those that are done."""
    rows: list[BenchRow] = []
    with suppress(KeyboardInterrupt):
        for layer in layers:
            row = work.row(layer)
            rows.append(row)
            said = f"{time_text(row.ours.cold_us)} us" if row.ours.cold_us else row.ours.reason
            progress.finished(f"{layer.name}: {said}, floor {time_text(row.floor_us)} us")
    return rows


def _report(document: dict[str, Any], outputs: Mapping[str, Path | None], all_families: bool) -> None:
    """Print the table, and write what was asked for."""
    results = parse(document)
    table = results_table(results, all_families)
    emit(table, document, outputs["--json"])
    markdown, plot = outputs["--markdown"], outputs["--plot"]
    if markdown is not None:
        options.write(markdown, as_markdown(table) + "\n", "--markdown")
    if plot is not None and results.geomean is None:
        remark("no plot: no peer has a time on any layer")
    elif plot is not None:
        svg(results, plot)
    written = [str(file) for file in outputs.values() if file is not None and file.exists()]
    if written:
        remark(f"wrote {', '.join(written)}")
