"""The tables of the README, made from committed results: never edited by hand.

Between ``<!-- table: cpu/resnet-f32 -->`` and ``<!-- end -->`` stands a short table of
``benchmarks/cpu/resnet-f32.json``; between ``<!-- summary: h100 -->`` and ``<!-- end -->`` one line
for each results file of ``benchmarks/h100``. The long tables, with every peer, go to ``TABLES.md`` beside
the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tilewright.errors import StoreError
from tilewright.report.results import Results, geometric_mean, load
from tilewright.report.table import Table, markdown, ratio_text, results_table, short_table

_MARKED = re.compile(r"(<!-- (table|summary): ([a-z0-9_/.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(text: str, benchmarks: Path) -> str:
    """Return a document with every marked table made anew.

    A table whose results are not there yet says so in its place.

    Raises:
        StoreError: a results file is malformed, or a marker names a path outside ``benchmarks``.
    """
    make = {"table": _table, "summary": _summary}
    return _MARKED.sub(lambda match: match[1] + make[match[2]](match[3], benchmarks) + match[4], text)


def update(document: Path, benchmarks: Path) -> bool:
    """Rewrite a document's tables, and the long ones beside the results; say whether anything changed."""
    changed = _rewrite(document, with_tables(document.read_text(encoding="utf-8"), benchmarks))
    for folder in sorted({path.parent for path in benchmarks.glob("*/*.json")}):
        changed |= _rewrite(folder / "TABLES.md", long_tables(sorted(folder.glob("*.json"))))
    return changed


def _rewrite(path: Path, text: str) -> bool:
    changed = not path.exists() or path.read_text(encoding="utf-8") != text
    if changed:
        path.write_text(text, encoding="utf-8")
    return changed


def long_tables(paths: Iterable[Path]) -> str:
    """Return the tables of results files, with every peer."""
    parts = [f"## {path.stem}\n\n{markdown(results_table(load(path)))}\n" for path in paths]
    return "# Results in full\n\nMade by `python benchmarks/make_tables.py`.\n\n" + "\n".join(parts)


def _path(name: str, benchmarks: Path) -> Path:
    if ".." in name or name.startswith("/"):
        raise StoreError(f"table marker {name!r}: must name a file under {benchmarks}")
    return benchmarks / name


def _table(name: str, benchmarks: Path) -> str:
    path = _path(name + ".json", benchmarks)
    if not path.exists():
        return f"*No results yet: `{benchmarks.name}/{name}.json` is not there.*\n"
    return markdown(short_table(load(path))) + "\n"


def _summary(name: str, benchmarks: Path) -> str:
    paths = sorted(_path(name, benchmarks).glob("*.json"))
    head = ("results", "rows", "peer / ours, geometric mean", "lowest", "floor / ours, geometric mean")
    return markdown(Table("", head, tuple(_line(path.stem, load(path)) for path in paths))) + "\n"


def _line(name: str, results: Results) -> tuple[str, ...]:
    ratios = [row.ratio for row in results.rows if row.ratio]
    share = geometric_mean([row.floor_share for row in results.rows])
    lowest = ratio_text(min(ratios, default=None))
    return (name, str(len(results.rows)), ratio_text(results.geomean), lowest, f"{share or 0:.0%}")
