"""Tables as aligned text for pipes and logs, and as Markdown for files; figures as text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.errors import printable
from tilewright.record import NOISY, STOLEN

NONE = "–"
NOISY_MARK = "~"
NOISY_NOTE = f"~ noisy: ± is over {NOISY:.0%} of the time; measure again when the machine is idle"
_HUGE = 1e15  # figures from here on get an exponent: none was measured, but a file may hold any
BEATS_MARK = "‡"
BEATS_NOTE = f"{BEATS_MARK} beats the floor: fast algorithms multiply less; else the calibration was too low"


@dataclass(frozen=True)
class Table:
    """Cells to print. The first column and those of ``words`` are left-aligned, the others right-aligned.

    Control characters, which names and reasons may contain, are made visible.
    """

    title: str
    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    words: bool = False

    def __post_init__(self) -> None:
        for name in ("head", "notes"):
            object.__setattr__(self, name, tuple(map(printable, getattr(self, name))))
        object.__setattr__(self, "title", printable(self.title))
        object.__setattr__(self, "body", tuple(tuple(map(printable, row)) for row in self.body))

    def right(self, column: int) -> bool:
        """Whether a column is right-aligned."""
        return column > 0 and not self.words


def as_text(table: Table) -> str:
    """Return the table as aligned lines of text."""
    rows = [table.head, *table.body] if any(table.head) else list(table.body)
    widths = column_widths(table)
    lines = [
        "  ".join(pad(cell, widths[i], table.right(i)) for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    title = [table.title] if table.title else []
    return "\n".join([*title, *lines, *table.notes])


def markdown(table: Table) -> str:
    """Return the table as GitHub Markdown, the title above it and the notes below."""
    rule = ("---", *("---:" if table.right(1) else "---" for _ in table.head[1:]))
    rows = [
        "| " + " | ".join(_escape(cell) for cell in row) + " |" for row in (table.head, rule, *table.body)
    ]
    title = [_escape(table.title), ""] if table.title else []
    notes = ["", *(f"- {_escape(note)}" for note in table.notes)] if table.notes else []
    return "\n".join([*title, *rows, *notes])


def time_text(value_us: float | None) -> str:
    """Return a time in us with three significant digits."""
    if value_us is None:
        return NONE
    return whole_text(value_us) if value_us >= 100 else f"{value_us:.3g}"


def whole_text(value: float, form: str = ".0f") -> str:
    """Return a figure as ``form`` says, without decimals by default; an absurdly large one as 1e+30."""
    return f"{value:{form}}" if abs(value) < _HUGE else f"{value:.3g}"


def figure_text(value: float, digits: int = 4) -> str:
    """Return a figure with at least this many significant digits, and no exponent if large: 0.125, 12,345."""
    return whole_text(value, ",.0f") if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def percent_text(share: float) -> str:
    """Return a share in percent."""
    return f"{share:.0%}" if abs(share) < _HUGE / 100 else f"{share:.3g}x"


def floor_text(share: float | None) -> str:
    """Return floor / time as text, marked if it is over 100%."""
    return NONE if share is None else percent_text(share) + BEATS_MARK * beats_floor(share)


def beats_floor(share: float | None) -> bool:
    """Whether a time is below its floor by more than rounding."""
    return share is not None and share > 1.005


def bytes_text(count: int) -> str:
    """Return a number of bytes with two or three significant digits: 512, 1.5k, 20M."""
    value, unit = float(count), ""
    for larger in ("k", "M", "G"):
        if value < 1000:
            break
        value, unit = value / 1024, larger
    return f"{whole_text(value)}{unit}" if value >= 10 or not unit else f"{value:.1f}{unit}"


def width_text(time_us: float | None, ci95_us: float | None) -> str:
    """Return the half width of a time's interval; a dash if it is the time itself (too few runs)."""
    return time_text(None if ci95_us == time_us else ci95_us)


def ratio_text(value: float | None) -> str:
    """Return a ratio with two decimals."""
    return NONE if value is None else whole_text(value, ".2f")


def noisy_notes(figures: Iterable[tuple[bool, float]]) -> tuple[str, ...]:
    """Explain the mark of noisy times, from whether each is noisy and how much a CPU's host took."""
    stolen = [share for noisy, share in figures if noisy]
    wide = (NOISY_NOTE,) if any(share <= STOLEN for share in stolen) else ()
    if (most := max(stolen, default=0.0)) <= STOLEN:
        return wide
    taken = percent_text(most) if len(stolen) == 1 else f"up to {percent_text(most)}"
    return *wide, f"{NOISY_MARK} the host took {taken} of the CPU's time while this was measured"


def column_widths(table: Table) -> list[int]:
    """Return the characters that each column needs."""
    rows = (table.head, *table.body)
    return [max(_width(row[i]) for row in rows) for i in range(len(table.head))]


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def pad(text: str, width: int, right: bool = False) -> str:
    """Pad a cell to the width of its column."""
    gap = " " * (width - _width(text))
    return gap + text if right else text + gap


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("__", "\\_\\_")
