"""``tilewright configs``: list the named configs that ``--config`` accepts."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli import options, outputs
from tilewright.cli.screen import emit
from tilewright.report.table import Table

Layer = Annotated[
    str | None,
    typer.Argument(metavar="LAYER", help="Show only those that fit this layer, with their parameters."),
]


def configs(layer: Layer = None, json_file: options.JsonFile = None) -> None:
    """List the kernels that have a name, for --config.

    They are the steps of published optimisation ladders, from plain to fast. Run one with
    'tilewright run LAYER --config NAME'.
    """
    from tilewright.arguments.named import NAMED

    problem = None if layer is None else options.layer(layer).problem
    outputs.check({"--json": json_file})
    rows = [
        {"name": one.name, "config": str(one.config(problem)) if problem else "", "what": one.doc}
        for one in NAMED.values()
        if problem is None or one.fits(problem)
    ]
    shown = ("name", "config", "what") if problem else ("name", "what")
    notes = () if rows else (f"no named config fits {problem}",)
    body = tuple(tuple(row[key] for key in shown) for row in rows)
    emit(Table("", shown, body, notes, words=True), rows, json_file)
