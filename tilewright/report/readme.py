"""The tables of the README, made from committed results: never edited by hand.

A table stands between ``<!-- table: cpu/resnet-f32 -->`` and ``<!-- end -->``; what is between
them is replaced by the table of ``benchmarks/cpu/resnet-f32.json``.
"""

from __future__ import annotations

import re
from pathlib import Path

from tilewright.errors import StoreError
from tilewright.report.results import load
from tilewright.report.table import markdown, results_table

_MARKED = re.compile(r"(<!-- table: ([a-z0-9_/.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(text: str, benchmarks: Path) -> str:
    """Return a document with every marked table made anew.

    A table whose results are not there yet says so in its place.

    Raises:
        StoreError: a results file is malformed, or a marker names a path outside ``benchmarks``.
    """
    return _MARKED.sub(lambda match: match[1] + _table(match[2], benchmarks) + match[3], text)


def update(document: Path, benchmarks: Path) -> bool:
    """Rewrite the tables of a document; say whether anything changed."""
    before = document.read_text(encoding="utf-8")
    after = with_tables(before, benchmarks)
    if after != before:
        document.write_text(after, encoding="utf-8")
    return after != before


def _table(name: str, benchmarks: Path) -> str:
    if ".." in name or name.startswith("/"):
        raise StoreError(f"table marker {name!r}: must name a file under {benchmarks}")
    path = benchmarks / f"{name}.json"
    if not path.exists():
        return f"*No results yet: `{benchmarks.name}/{name}.json` is not there.*\n"
    return markdown(results_table(load(path))) + "\n"
