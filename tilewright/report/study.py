"""A study's results as tables: for the terminal and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from math import ceil

from tilewright.plans.provenance import GUESSED
from tilewright.record import is_noisy
from tilewright.report.table import (
    BEATS_NOTE,
    NOISY_MARK,
    NONE,
    Table,
    beats_floor,
    bytes_text,
    figure_text,
    floor_text,
    markdown,
    noisy_notes,
    whole_text,
)
from tilewright.studies.document import StudyResult
from tilewright.studies.study import Column, PartResult, Value

_BAR = 24  # characters of the longest bar
_MOST_NAMED = 6
_TO_TUNE = "; --budget 20s tunes these first"
_FIRST = ("layer", "step", "strategy", "activity")  # columns that share the first one


def part_table(part: PartResult, with_bars: bool = False) -> Table:
    """Lay out one part; notes say what could not run. ``with_bars`` draws the times of each layer."""
    columns = [column for column in part.columns if column.key not in _FIRST and column.key != "problem"]
    width = max((len(str(row.get(_FIRST[0], ""))) for row in part.rows), default=0)
    drawn = bars(part) if with_bars else []
    body = [
        (_named(row, width), *cells, *drawn[i : i + 1])
        for i, (row, cells) in enumerate(zip(part.rows, texts(part, columns), strict=True))
    ]
    first = " ".join(column.title for column in part.columns if column.key in _FIRST)
    head = (first, *(column.title for column in columns), *([""] if drawn else []))
    return Table(part.title, head, tuple(body), tuple(notes(part)))


def texts(part: PartResult, columns: Sequence[Column]) -> list[list[str]]:
    """Return the values of each row as text; noisy times, and speed-ups with one in them, are marked."""
    unsure = {row.get("layer") for row in part.rows if row.get("speedup") == 1.0 and _noisy(row)}
    return [[_marked(column, row, unsure) for column in columns] for row in part.rows]


def _marked(column: Column, row: Mapping[str, Value], unsure: Set[Value]) -> str:
    """Return the text of a row's value, marked if it is a noisy time, or a speed-up with one in it.

    Args:
        column, row: which value.
        unsure: the layers whose baseline of speed-ups has a noisy time.
    """
    if column.key == "ci95_us" and row.get("ci95_us") == row.get("time_us"):
        return NONE  # too few runs
    noisy = _noisy(row) or column.key == "speedup" and row.get("layer") in unsure
    marked = column.key in ("time_us", "speedup") and row.get(column.key) is not None and noisy
    return cell(column, row.get(column.key)) + NOISY_MARK * marked


def _named(row: Mapping[str, Value], width: int) -> str:
    """Return the name of a row in one cell: the layer, then its step."""
    layer, *rest = [str(row[key]) for key in _FIRST if row.get(key)] or [""]
    return "  ".join([f"{layer:<{width if rest else 0}}", *rest])


def notes(part: PartResult) -> list[str]:
    """Return the notes: what the steps are here, the part's own, and why steps have no time."""
    found = _what_ran(part) + part.note.splitlines() + _peers(part)
    found += noisy_notes((_noisy(row), _stolen(row)) for row in part.rows)
    found += [BEATS_NOTE] if any(map(_beats_floor, part.rows)) else []
    found += [f"not measured yet: {_some(list(part.left))}"] if part.left else []
    reasons: dict[str, list[str]] = {}
    for row in part.rows:
        if row.get("reason"):
            why = re.sub(r"^config \S+: ", "", str(row["reason"]))  # several configs fail for one reason
            reasons.setdefault(why, []).append(" ".join(_named(row, 0).split()))
    for basis in GUESSED:
        untuned = [" ".join(_named(row, 0).split()) for row in part.rows if row.get("note") == basis]
        found += [f"{basis.replace(':', ',')}: {_some(untuned)}{_TO_TUNE}"] if untuned else []
    return found + [f"no time for {_some(names)}: {why}" for why, names in reasons.items()]


def _what_ran(part: PartResult) -> list[str]:
    """Say what each step is here; once for all steps of which the same is said."""
    named: dict[Value, dict[str, None]] = {}
    for row in part.rows:
        if row.get("what"):
            named.setdefault(row["what"], {})[f"'{row['step']}'"] = None
    return [f"{_some(list(names))} here: {what}" for what, names in named.items()]


def _peers(part: PartResult) -> list[str]:
    """Say which peer a step without a config is, where its name does not."""
    found: dict[str, list[str]] = {}
    for row in part.rows:
        peer, colon, _ = str(row.get("note") or "").partition(": ")
        if colon and row.get("config") == "" and peer not in str(row["step"]).lower():
            found.setdefault(peer, []).append(" ".join(_named(row, 0).split()))
    return [f"by {peer}: {_some(names)}" for peer, names in found.items()]


def _noisy(row: Mapping[str, Value]) -> bool:
    time, width = row.get("time_us"), row.get("ci95_us")
    return isinstance(time, float) and isinstance(width, float) and is_noisy(time, width, _stolen(row))


def _stolen(row: Mapping[str, Value]) -> float:
    """Return the share of the CPU's time that its host took; older files do not have it."""
    value = row.get("stolen")
    return value if isinstance(value, float) else 0.0


def _beats_floor(row: Mapping[str, Value]) -> bool:
    share = row.get("floor_share")
    return isinstance(share, float) and beats_floor(share)


def _some(names: list[str]) -> str:
    """Name a few of many; names may have commas in them."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return "; ".join(names[:_MOST_NAMED]) + more


def cell(column: Column, value: Value) -> str:
    """Return a value as text, in its column's unit."""
    if value is None or value == "":
        return NONE
    if isinstance(value, str):
        return value
    if column.unit == "us":
        return duration(value)
    if column.unit == "bytes":
        return bytes_text(round(value))
    if column.unit == "x":
        return f"{value:.3g}x" if value < 100 else f"{whole_text(value)}x"
    if column.key == "floor_share":
        return floor_text(value)
    if column.unit == "%":
        return f"{whole_text(value)}%"
    return figure_text(value, 3)


def duration(us: float) -> str:
    """Return a time with three digits, in a suitable unit."""
    for factor, unit in ((1.0, "us"), (1e3, "ms")):
        if us < 999.5 * factor:  # what rounds to 1000 is shown as 1 of the next unit
            return f"{us / factor:.3g} {unit}"
    return f"{us / 1e6:.3g} s" if us < 999.5e6 else f"{whole_text(us / 1e6)} s"


def heading(result: StudyResult) -> str:
    """Return one line: the study, the device, the dates, and the device of the published figures."""
    return f"{result.title} ({origin(result)}); published figures: {result.published_on}"


def origin(result: StudyResult) -> str:
    """Say where and when a study was run, and at which sizes."""
    device = result.device.get("name", "unknown device")
    quick = ", quick sizes: not the source's" if result.quick else ""
    days = sorted({part.date[:10] for part in result.parts if part.date} or {result.date[:10]})
    return f"{device}, {' to '.join(dict.fromkeys((days[0], days[-1])))}{quick}"


def bars(part: PartResult) -> list[str]:
    """Draw the times of the steps as bars of characters; each layer's longest has full length."""
    longest: dict[Value, float] = {}
    for row in part.rows:
        longest[row.get("layer")] = max(longest.get(row.get("layer"), 0.0), _time(row))
    if not any(longest.values()):
        return []
    lengths = [ceil(_BAR * (_time(row) / (longest[row.get("layer")] or 1.0))) for row in part.rows]
    return ["█" * length + " " * (_BAR - length) for length in lengths]


def _time(row: Mapping[str, Value]) -> float:
    value = row.get("time_us")
    return value if isinstance(value, float) else 0.0


def study_markdown(result: StudyResult) -> str:
    """Return the whole study as Markdown."""
    about = ["# " + result.title, "", f"{heading(result)}.", "", f"Source: {result.source}.", ""]
    parts = [f"## {one.title}\n\n{markdown(replace(part_table(one), title=''))}\n" for one in result.parts]
    return "\n".join(about) + "\n" + "\n".join(parts)
