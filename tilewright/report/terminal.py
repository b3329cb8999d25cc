"""Tables on a terminal: no figure is cut short, however narrow it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.report.table import Table, column_widths

if TYPE_CHECKING:
    from rich.console import RenderableType

_GAP = 2  # characters between columns


def pieces(table: Table, width: int) -> list[Table]:
    """Cut a table of figures that is too wide into some that fit, the first column before each.

    Bars, a last column without a title, are left out first. A table of words stays whole: its words wrap.
    """
    widths = column_widths(table)
    if table.words or sum(widths) + _GAP * len(widths) - 1 <= width:
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


def _columns(table: Table, group: list[int]) -> Table:
    """Keep some columns."""
    head, *body = (tuple(row[index] for index in group) for row in (table.head, *table.body))
    return Table(table.title, head, tuple(body), table.notes, table.words)


def rich_table(table: Table) -> RenderableType:
    """The table for a terminal, without its title and notes; what does not fit is wrapped."""
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
