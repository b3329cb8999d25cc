"""One HTML page from sections: style and script inlined, nothing fetched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from tilewright import __version__
from tilewright.errors import count, shortened

_HERE = Path(__file__).parent
_OPEN = 6  # most remarks that are shown unfolded
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading and its blocks of HTML."""

    title: str
    blocks: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """The target of links to it."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Cell:
    """A cell of a table; ``value`` is its sort key, ``tip`` its tooltip."""

    text: str
    value: float | None = None
    tip: str = ""


def page(title: str, sections: Sequence[Section]) -> str:
    """Put a page together."""
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    links = "".join(f'<a href="#{s.anchor}">{escape(s.title)}</a>' for s in sections)
    body = "".join(
        f'<section id="{s.anchor}"><h2>{escape(s.title)}</h2>{"".join(s.blocks)}</section>' for s in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>\n{style}</style></head>\n<body><h1>{escape(title)}</h1>"
        f"<nav>{links}</nav>\n{body}\n"
        f'<p class="dim">Made by tilewright {__version__}.</p><script>\n{script}</script></body></html>\n'
    )


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]], words: Sequence[int] = ()) -> str:
    """Return a sortable table; ``words`` are columns of text, aligned left."""

    def align(column: int) -> str:
        return ' class="words"' if column in words else ""

    heads = "".join(
        f'<th scope="col"{align(i)}><button type="button">{escape(name)}</button></th>'
        for i, name in enumerate(head)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{align(i)}{_data(cell)}>{escape(cell.text)}</td>" for i, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )  # fmt: skip
    return (
        f'<div class="wide"><table class="sorts"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _data(cell: Cell) -> str:
    value = "" if cell.value is None else f' data-v="{cell.value!r}"'
    return value + (f' data-tip="{escape(cell.tip)}"' if cell.tip else "")


def notes(lines: Iterable[str]) -> str:
    """Return the remarks below a table, folded if there are many."""
    items = [f"<li>{escape(line)}</li>" for line in lines]
    first, rest = "".join(items[:_OPEN]), "".join(items[_OPEN:])
    more = f"<details><summary>{count(len(items) - _OPEN, 'more remark')}</summary><ul>{rest}</ul></details>"
    return f'<ul class="notes">{first}</ul>{more if rest else ""}' if items else ""


def heading(words: str) -> str:
    """Return a heading within a section."""
    return f"<h3>{escape(words)}</h3>"


def paragraph(words: str) -> str:
    """Return a paragraph of text."""
    return f'<p class="dim">{escape(words)}</p>'


def device_table(device: Mapping[str, Any]) -> str:
    """Return a table of all facts of the device: rates, clocks, versions."""
    return _details("Device, clocks and versions", device, "rates")


def protocol_table(protocol: Mapping[str, Any]) -> str:
    """Return a table of how results were measured: seed, budget, limits; empty if the file does not say."""
    return _details("How it was measured", protocol, "limits") if protocol else ""


def _details(title: str, facts: Mapping[str, Any], inner: str) -> str:
    """Return a folded table of facts, and of those of one that has facts itself."""
    flat = {k: v for k, v in facts.items() if not isinstance(v, Mapping)}
    if isinstance(more := facts.get(inner), Mapping):
        flat |= more
    told = {k: _fact(v) for k, v in flat.items() if v is not None}
    rows = [(Cell(str(k).replace("_", " ")), Cell(v)) for k, v in told.items() if v]
    return f"<details><summary>{title}</summary>{table(('', ''), rows, (1,))}</details>"


def _fact(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:,.6g}"
    return shortened(f"{value:,}", 30) if type(value) is int else str(value)
