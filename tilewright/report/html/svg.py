"""Charts as SVG text. Colours are classes of ``page.css``; tooltips are in ``data-tip``."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP = 720, 64, 16, 14
SERIES = 6  # number of colours in page.css


@dataclass(frozen=True)
class Axis:
    """Maps values to positions along one side, linearly or logarithmically."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value; values outside the range are clamped."""
        value = min(max(value, self.low), self.high)
        if self.log:
            share = _logs(value, self.low) / _logs(self.high, self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values for the tick marks."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            decades = range(first, min(last, sys.float_info.max_10_exp) + 1, 1 + (last - first) // 20)
            steps = (1, 2, 5) if len(decades) <= 4 else (1,)
            found = [step * 10.0**decade for decade in decades for step in steps]
        else:
            step = _round_step((self.high - self.low) / 6)
            first = math.ceil(self.low / step)
            found = [step * i for i in range(first, math.floor(self.high / step) + 1)]
        return [value for value in found if self.low <= value <= self.high]


@dataclass(frozen=True)
class Point:
    """One mark of a chart: its position, its series and its tooltip."""

    x: float
    y: float
    series: int
    tip: str
    hollow: bool = False


@dataclass(frozen=True)
class Bar:
    """One horizontal bar: its label, its value, a second value as an outline, and its tooltip."""

    label: str
    value: float | None
    tip: str
    outline: float | None = None


def picture(body: Iterable[str], height: float, title: str) -> str:
    """Return the parts of a chart as one SVG element."""
    return (
        f'<div class="chart"><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        + "".join(body)
        + "</svg></div>"
    )


def number(value: float) -> str:
    """Return the label of a tick: 0.5, 20, 1k, 1e+30."""
    if abs(value) >= 1e15:
        return f"{value:.0e}"
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:.3g}"


def frame(x: Axis, y: Axis, x_title: str, y_title: str) -> list[str]:
    """Return grid lines, tick labels and titles of two axes."""
    parts = []
    for value in x.ticks():
        at = x.at(value)
        parts.append(f'<path class="grid" d="M{at:.1f} {y.start:.1f}V{y.end:.1f}"/>')
        parts.append(text(at, y.start + 16, number(value), "middle"))
    parts.append(text((x.start + x.end) / 2, y.start + 34, x_title, "middle", "title"))
    return parts + rows_of(y, x.start, x.end, y_title)


def rows_of(y: Axis, left: float, right: float, title: str) -> list[str]:
    """Return grid lines, tick labels and title of a vertical axis."""
    parts = []
    for value in y.ticks():
        at = y.at(value)
        parts.append(f'<path class="grid" d="M{left:.1f} {at:.1f}H{right:.1f}"/>')
        parts.append(text(left - 6, at + 4, number(value), "end"))
    middle = (y.start + y.end) / 2
    parts.append(
        f'<text class="title" text-anchor="middle" transform="translate(14 {middle:.1f}) rotate(-90)">'
        f"{escape(title)}</text>"
    )
    return parts


def text(x: float, y: float, words: str, anchor: str = "start", css_class: str = "") -> str:
    """Return a text element."""
    named = f' class="{css_class}"' if css_class else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def mark(x: Axis, y: Axis, point: Point) -> str:
    """Return a point that can be hovered over and focused."""
    css_class = f"s{point.series % SERIES} {'hollow' if point.hollow else 'full'}"
    return (
        f'<circle class="{css_class}" cx="{x.at(point.x):.1f}" cy="{y.at(point.y):.1f}" r="5" tabindex="0"'
        f"{tip(point.tip)}</circle>"
    )


def tip(words: str) -> str:
    """Return the end of an opening tag with a tooltip, and an SVG title for readers without scripts."""
    return f' data-tip="{escape(words)}"><title>{escape(words)}</title>'


def legend(names: Sequence[str], y: float, hollow: str = "") -> tuple[list[str], float]:
    """Return the names of the series, in rows from ``y`` on, and the height of those after the first."""
    parts, at, down = [], float(LEFT), 0.0
    entries = [(name, f"s{i % SERIES} full") for i, name in enumerate(names)]
    for name, css_class in entries + ([(hollow, "outline")] if hollow else []):
        if at > LEFT and at + 14 + 7.2 * len(name) > WIDTH:
            at, down = float(LEFT), down + 18.0
        row = y + down
        parts.append(f'<rect class="{css_class}" x="{at:.1f}" y="{row - 9:.1f}" width="10" height="10"/>')
        parts.append(text(at + 14, row, name))
        at += 36 + 7.2 * len(name)
    return parts, down


def _logs(value: float, low: float) -> float:
    """Return log(value / low), where the quotient may be larger than any float."""
    return math.log(value) - math.log(low)


def _round_step(rough: float) -> float:
    """Return the next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)
