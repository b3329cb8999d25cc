"""Results files of any kind, and several combined: as one page, Markdown or CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.fields import read_document
from tilewright.report.html.bench import bench_section
from tilewright.report.html.page import page
from tilewright.report.html.study import study_section
from tilewright.report.results import Results, checked
from tilewright.report.results import parse as parse_results
from tilewright.report.results_table import results_table
from tilewright.report.study import origin, part_table, study_markdown
from tilewright.report.table import Table, markdown
from tilewright.studies.document import StudyResult, is_study
from tilewright.studies.document import parse as parse_study

USUAL = ("benchmarks/*/*.json", "benchmarks/*/studies/*.json")


@dataclass(frozen=True)
class Gathered:
    """One results file: its name, its document, and the parsed results."""

    name: str
    document: Any
    results: Results | StudyResult


def usual(folder: Path) -> list[Path]:
    """Return the committed results files in a folder."""
    return sorted(path for pattern in USUAL for path in folder.glob(pattern))


def gather(paths: Sequence[Path]) -> list[Gathered]:
    """Read results files of benchmarks and studies; one that is given twice is read once.

    Each is named by its folder and file name, or by its full path if another has the same.

    Raises:
        StoreError: a file cannot be read or is not a results file; says which and why.
    """
    found = []
    short = {path: f"{path.parent.name} {path.stem}".strip() for path in paths}
    shared = Counter(short.values())
    for path, name in short.items():
        named = partial(of_document, name if shared[name] == 1 else str(path))
        found.append(read_document(path, named, "results file", "'bench --json' or 'study --json'"))
    return found


def of_document(name: str, document: Any) -> Gathered:
    """Parse a document of either kind.

    Raises:
        StoreError: names what is missing or of the wrong type.
    """
    results = parse_study(document) if is_study(document) else parse_results(document)
    checked(results.device)
    return Gathered(name, document, results)


def html(title: str, found: Sequence[Gathered]) -> str:
    """Return everything as one HTML page; one of several files of a study is named by its file, too."""
    studies = Counter(one.results.name for one in found if isinstance(one.results, StudyResult))
    return page(
        title,
        [
            study_section(one.results, one.name if studies[one.results.name] > 1 else "")
            if isinstance(one.results, StudyResult)
            else bench_section(one.name, one.results)
            for one in found
        ],
    )  # fmt: skip


def as_markdown(found: Sequence[Gathered]) -> str:
    """Return everything as Markdown."""
    return "\n".join(
        study_markdown(one.results) if isinstance(one.results, StudyResult)
        else f"# {one.name}\n\n{markdown(results_table(one.results))}\n"
        for one in found
    )  # fmt: skip


def tables(found: Sequence[Gathered]) -> list[Table]:
    """Return everything as tables for the terminal."""
    laid: list[Table] = []
    for one in found:
        if isinstance(one.results, StudyResult):
            about = f"{one.results.name} ({origin(one.results)})"
            parts = [part_table(part, with_bars=True) for part in one.results.parts]
            laid += [replace(part, title=f"{about}: {part.title}") for part in parts]
        else:
            laid.append(results_table(one.results))
    return laid


def as_csv(found: Sequence[Gathered]) -> str:
    """Return everything as CSV lines of file, part, row, column, value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("file", "part", "row", "column", "value"))
    for one in found:
        writer.writerows((one.name, *line) for line in _lines(one.results))
    return out.getvalue()


def _lines(results: Results | StudyResult) -> Iterator[tuple[Any, ...]]:
    return _study_lines(results) if isinstance(results, StudyResult) else _bench_lines(results)


def _study_lines(results: StudyResult) -> Iterator[tuple[Any, ...]]:
    for part in results.parts:
        for number, row in enumerate(part.rows):
            told = {key: value for key, value in row.items() if value not in (None, "")}
            yield from ((part.title, number, key, value) for key, value in told.items())


def _bench_lines(results: Results) -> Iterator[tuple[Any, ...]]:
    for bench in results.rows:
        figures = {"tilewright": bench.to_json()["ours"]} | bench.to_json()["peers"]
        yield bench.name, bench.problem, "floor_us", bench.floor_us
        for who, figure in figures.items():
            for key, found in figure.items():
                if isinstance(found, int | float | str) and found != "":
                    yield bench.name, bench.problem, f"{who} {key}", found
