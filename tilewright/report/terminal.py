"""Tables on a terminal: no figure is truncated, however narrow the terminal."""

from __future__ import annotations

from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING

from tilewright.report.table import Table, column_widths, pad

if TYPE_CHECKING:
    from rich.console import RenderableType

_GAP = 2  # characters between columns
_LEAST = 20  # characters for a column of words: with less room it begins on a line of its own


def pieces(table: Table, width: int) -> list[Table]:
    """Split a table of figures that is too wide into some that fit; each repeats the first column.

    Bars, a last column without a title, are dropped first.
    """
    widths = column_widths(table)
    if sum(widths) + _GAP * len(widths) - 1 <= width:
        return [table]
    drawn = len(table.head) > 1 and not table.head[-1]
    groups: list[list[int]] = [[0]]
    taken = widths[0]
    for index in range(1, len(widths) - drawn):
        taken += _GAP + widths[index]
        if taken >= width and len(groups[-1]) > 1:
            groups.append([0])
            taken = widths[0] + _GAP + widths[index]
        groups[-1].append(index)
    return [_columns(table, group) for group in groups]


def word_lines(table: Table, width: int) -> list[str]:
    """Lay out a table of words, without its title and notes: the last column wraps between words.

    No word is broken, so that a config or a command can be copied; one that is too long overflows.
    """
    *firsts, last = column_widths(table)
    indent = sum(firsts) + _GAP * len(firsts)
    rule = "─" * min(width, indent + last)
    if width - indent < _LEAST:
        indent = _GAP
    found = [*_word_line(table.head, firsts, indent, width), rule] if any(table.head) else []
    return found + [line for row in table.body for line in _word_line(row, firsts, indent, width)]


def _word_line(row: tuple[str, ...], firsts: list[int], indent: int, width: int) -> list[str]:
    """Lay out a row of words; without room beside the first cells, the last one begins on a new line."""
    *cells, last = row
    head = "".join(pad(cell, one) + " " * _GAP for cell, one in zip(cells, firsts, strict=True))
    wrapped = wrap(last, max(width - indent, 1), break_long_words=False, break_on_hyphens=False)
    first, *more = wrapped or [""] if indent >= sum(firsts) else ["", *wrapped]
    return [(head + first).rstrip(), *(" " * indent + line for line in more)]


def _columns(table: Table, group: list[int]) -> Table:
    """Return a table of some columns."""
    head, *body = (tuple(row[index] for index in group) for row in (table.head, *table.body))
    return replace(table, head=head, body=tuple(body))


def rich_table(table: Table) -> RenderableType:
    """Return the table for a terminal, without its title and notes; long cells are wrapped."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(
        box=box.SIMPLE_HEAD if any(table.head) else None,
        show_edge=False,
        show_header=any(table.head),
        padding=(0, 1, 0, 0),
    )
    for index, name in enumerate(table.head):
        shown.add_column(Text(name), justify="right" if table.right(index) else "left", overflow="fold")
    for row in table.body:
        shown.add_row(*(Text(cell) for cell in row))
    return shown
