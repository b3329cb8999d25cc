"""``tilewright report``: results files as one offline page, or as Markdown, CSV or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import options, outputs
from tilewright.cli.screen import emit, remark

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RESULTS", help="Files of bench --json or study --json. Default: those in benchmarks/."
    ),
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write one page of tables and charts.")
]
Markdown = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write the tables.")]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows.")]
Title = Annotated[str, typer.Option("--title", metavar="TEXT", help="Title of the page.")]


def report(
    files: Files = None,
    html: Html = None,
    markdown: Markdown = None,
    csv: Csv = None,
    json_file: options.JsonFile = None,
    title: Title = "tilewright: results",
) -> None:
    """Put results files together: tables, or one page of charts.

    The page needs no network.
    """
    outputs.check({"--html": html, "--markdown": markdown, "--csv": csv, "--json": json_file})
    from tilewright.report import gather

    paths = files or gather.usual(Path())
    if not paths:
        raise options.OptionError("report: no results files in benchmarks/ here; name some")
    found = gather.gather(paths)
    written = {}
    if html is not None:
        written["--html"] = (html, gather.html(title, found))
    if markdown is not None:
        written["--markdown"] = (markdown, gather.as_markdown(found))
    if csv is not None:
        written["--csv"] = (csv, gather.as_csv(found))
    for option, (path, text) in written.items():
        outputs.write(path, text, option)
        if not outputs.is_stdout(path):
            remark(f"wrote {path}")
    if json_file is not None:
        emit([], {one.name: one.document for one in found}, json_file)
    elif not written:
        emit(gather.tables(found), None, None)
