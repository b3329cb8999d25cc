"""``tilewright report``: results files combined into one offline page, or Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import options, outputs
from tilewright.cli.screen import emit, wrote
from tilewright.report.table import Table

if TYPE_CHECKING:
    from tilewright.report.gather import Gathered

# The results as tables to print, and as text for the file of each option.
Shapes = tuple[Callable[[], Table | list[Table]], Mapping[str, Callable[[], str]]]

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RESULTS",
        parser=options.file,
        help="Files written by bench --json or study --json. Default: those in benchmarks/.",
    ),
]
Html = Annotated[Path | None, options.file_option("--html", "Write one HTML page of tables and charts.")]
Markdown = Annotated[Path | None, options.file_option("--markdown", "Write the tables as Markdown.")]
Csv = Annotated[Path | None, options.file_option("--csv", "Write the rows as CSV.")]
Worst = Annotated[
    int | None,
    typer.Option(
        "--worst",
        metavar="N",
        min=1,
        help="Only the N rows of all benchmarks where most is left to gain; not as HTML.",
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="KEY",
        # The names of ORDERS (a test compares): importing that takes too long for --help.
        help="Order of --worst: floor (lowest share of the floor; the default), ratio (lowest, beside the "
        "fastest peer) or time (most microseconds above the floor).",
    ),
]
Title = Annotated[
    str | None,
    typer.Option("--title", metavar="TEXT", help="Title of the HTML page. Default: tilewright: results."),
]


def report(
    files: Files = None,
    html: Html = None,
    markdown: Markdown = None,
    csv: Csv = None,
    json_file: options.JsonFile = None,
    worst: Worst = None,
    by: By = None,
    title: Title = None,
) -> None:
    """Combine results files into tables or one page of charts.

    The page is HTML and works offline. --worst lists the layers with most left to gain.
    """
    wanted = {"--html": html, "--markdown": markdown, "--csv": csv, "--json": json_file}
    _check_worst(worst, by, html)
    if title is not None and html is None:
        raise options.OptionError(f"--title {title}: is that of the HTML page; give --html FILE too")
    from tilewright.report import gather

    paths = files or gather.usual(Path())
    outputs.check(wanted, paths)
    if not paths:
        raise options.OptionError("report: there are no results files in benchmarks/ here; name some")
    found = gather.gather(paths)
    tables, texts = _everything(found, title) if worst is None else _worst(found, worst, by)
    outputs.write_all(wanted, {option: text() for option, text in texts.items() if wanted[option]})
    wrote(*wanted.values())
    if not any(wanted.values()):
        emit(tables(), None, None)


def _check_worst(worst: int | None, by: str | None, html: Path | None) -> None:
    """Check the options of --worst before anything is read.

    Raises:
        OptionError: --by names no key or comes without --worst, or --html is given.
    """
    from tilewright.report.worst import ORDERS

    if by is not None and by not in ORDERS:
        raise options.OptionError(f"--by {by!r}: must be one of {', '.join(ORDERS)}")
    if by is not None and worst is None:
        raise options.OptionError(f"--by {by}: is the order of --worst; give --worst N too")
    if worst is not None and html is not None:
        raise options.OptionError("--html and --worst: give only one of them")


def _everything(found: Sequence[Gathered], title: str | None) -> Shapes:
    """Return the full contents of the files."""
    from tilewright.report import gather

    return lambda: gather.tables(found), {
        "--html": lambda: gather.html(title or "tilewright: results", found),
        "--markdown": lambda: gather.as_markdown(found),
        "--csv": lambda: gather.as_csv(found),
        "--json": lambda: outputs.as_json({one.name: one.document for one in found}),
    }


def _worst(found: Sequence[Gathered], most: int, by: str | None) -> Shapes:
    """Return the benchmark rows with most left to gain."""
    from tilewright.report import worst
    from tilewright.report.table import markdown

    rows = worst.worst_of(found, most, by or "floor")
    return lambda: worst.table(rows), {
        "--markdown": lambda: markdown(worst.table(rows)) + "\n",
        "--csv": lambda: worst.as_csv(rows),
        "--json": lambda: outputs.as_json(worst.document(rows)),
    }
