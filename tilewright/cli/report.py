"""``tilewright report``: results files as one offline page, or as Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import options, outputs
from tilewright.cli.screen import emit, wrote

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RESULTS",
        help="Files written by bench --json or study --json. Default: those in benchmarks/.",
    ),
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML page of tables and charts.")
]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write the tables as Markdown.")
]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows as CSV.")]
Title = Annotated[str, typer.Option("--title", metavar="TEXT", help="Title of the HTML page.")]


def report(
    files: Files = None,
    html: Html = None,
    markdown: Markdown = None,
    csv: Csv = None,
    json_file: options.JsonFile = None,
    title: Title = "tilewright: results",
) -> None:
    """Combine results files into tables or one page of charts.

    The page is HTML and works offline.
    """
    wanted = {"--html": html, "--markdown": markdown, "--csv": csv, "--json": json_file}
    from tilewright.report import gather

    paths = files or gather.usual(Path())
    outputs.check(wanted, paths)
    if not paths:
        raise options.OptionError("report: there are no results files in benchmarks/ here; name some")
    found = gather.gather(paths)
    texts: dict[str, Callable[[], str]] = {
        "--html": lambda: gather.html(title, found),
        "--markdown": lambda: gather.as_markdown(found),
        "--csv": lambda: gather.as_csv(found),
        "--json": lambda: outputs.as_json({one.name: one.document for one in found}),
    }
    outputs.write_all(wanted, {option: text() for option, text in texts.items() if wanted[option]})
    wrote(*wanted.values())
    if not any(wanted.values()):
        emit(gather.tables(found), None, None)
