"""The charts of a report: roofline, ratios, ladder, search curve, error over bound."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from math import ceil
from typing import Any

from tilewright.errors import shortened
from tilewright.problem import Problem
from tilewright.report.html.svg import (
    LEFT,
    RIGHT,
    SERIES,
    TOP,
    WIDTH,
    Axis,
    Bar,
    Point,
    frame,
    legend,
    mark,
    number,
    picture,
    rows_of,
    text,
    tip,
)
from tilewright.report.table import figure_text, whole_text

HEIGHT = 340
_ROW, _LABELS = 20, 250  # of horizontal bars: height of a row, width of the labels
_SLANTED, _APART = 12, 13  # of columns: characters of the longest label that is not upright; width of a label


def kernel_point(problem: str, us: float, series: int, said: str, hollow: bool = False) -> Point:
    """Return the point of a kernel in a roofline: what a layer's time makes of it."""
    layer = Problem.parse(problem)
    return Point(layer.flops / layer.bytes, layer.flops / us * 1e-6, series, said, hollow)


def roofline(points: Sequence[Point], names: Sequence[str], device: Mapping[str, Any]) -> str:
    """Draw points (flops per byte, TFLOP/s) below the ceilings of a device, both axes logarithmic."""
    rates = device.get("rates")
    if not points or not isinstance(rates, dict) or not {"read_gbs", "f32_tflops"} <= rates.keys():
        return ""
    peaks = device.get("peak_tflops") or {"f32": rates["f32_tflops"]}  # by dtype, of those measured
    read_gbs, (tflops, dtype) = rates["read_gbs"], max((peak, dtype) for dtype, peak in peaks.items())
    ridge = tflops * 1e3 / read_gbs
    x = Axis(min(0.5 * ridge, *(p.x / 2 for p in points)), max(4 * ridge, *(p.x * 2 for p in points)),
             LEFT, WIDTH - RIGHT, True)  # fmt: skip
    y = Axis(min(p.y for p in points) / 2, max(tflops, *(p.y for p in points)) * 1.6, HEIGHT - 66, TOP, True)
    slope = read_gbs * 1e-3  # TFLOP/s per (flop per byte)
    start = max(x.low, y.low / slope)
    roof = f"M{x.at(start):.1f} {y.at(start * slope):.1f}L{x.at(ridge):.1f} {y.at(tflops):.1f}H{x.end:.1f}"
    said = f"{whole_text(read_gbs, ',.0f')} GB/s"
    key, more = legend(names, HEIGHT - 8)
    body = [
        *frame(x, y, "flops per byte, each input and output once", "TFLOP/s"),
        f'<path class="roof" d="{roof}"/>',
        text(x.end - 4, y.at(tflops) - 6, f"{tflops:.3g} TFLOP/s in {dtype}", "end"),
        text(x.at((start * ridge) ** 0.5) + 12, y.at((start * ridge) ** 0.5 * slope) + 16, said),
        *(mark(x, y, point) for point in points),
        *key,
    ]
    return picture(body, HEIGHT + more, "Roofline")


def ratios(
    groups: Sequence[tuple[str, Mapping[str, tuple[float, str]]]], names: Sequence[str], title: str
) -> str:
    """Draw grouped columns, one group per layer, with tooltips; the line is at 1."""
    values = [value for _, peers in groups for value, _ in peers.values()]
    if not values:
        return ""
    y = Axis(min(0.5, min(values) * 0.9), max(2.0, max(values) * 1.1), HEIGHT - 86, TOP, True)
    x = Axis(0, len(groups), LEFT, WIDTH - RIGHT)
    each = (x.at(1) - x.at(0)) * 0.8 / len(names)
    labels, below = _labels([layer for layer, _ in groups], x, y)
    body = rows_of(y, LEFT, WIDTH - RIGHT, title) + labels
    for place, (_, peers) in enumerate(groups):
        for index, name in enumerate(names):
            if name in peers:
                value, said = peers[name]
                left = x.at(place + 0.1) + index * each
                top, bottom = sorted((y.at(value), y.at(1.0)))
                body.append(
                    f'<rect class="s{index % SERIES} full" x="{left:.1f}" y="{top:.1f}" '
                    f'width="{each * 0.9:.1f}" height="{max(1.0, bottom - top):.1f}" tabindex="0"'
                    f"{tip(said)}</rect>"
                )
    body.append(f'<path class="one" d="M{LEFT} {y.at(1.0):.1f}H{WIDTH - RIGHT}"/>')
    key, more = legend(names, HEIGHT + below - 8)
    return picture(body + key, HEIGHT + below + more, title)


def _labels(layers: Sequence[str], x: Axis, y: Axis) -> tuple[list[str], float]:
    """Return the names below columns, of many only some, and the height that long ones need besides."""
    texts = [shortened(layer, 38, "…") for layer in layers]
    longest = max(map(len, texts))
    turn, below = (-45, 0.0) if longest <= _SLANTED else (-90, 7.0 * longest - 54)
    every = ceil(_APART / (x.at(1) - x.at(0)))
    parts = [
        f'<text text-anchor="end" transform="translate({x.at(place + 0.5) + 4:.1f} {y.start + 14:.1f}) '
        f'rotate({turn})">{escape(texts[place])}</text>'
        for place in range(0, len(texts), every)
    ]
    return parts, below


def ladder(bars: Sequence[Bar], unit: str, outline: str = "", limit: float | None = None) -> str:
    """Draw horizontal bars, with outlines, on a logarithmic axis; ``limit`` is drawn as a line."""
    values = [v for bar in bars for v in (bar.value, bar.outline) if v]
    if not values:
        return ""
    low, high = min(*values, limit or values[0]) / 1.5, max(*values, limit or values[0]) * 1.2
    x = Axis(low, min(high, sys.float_info.max), _LABELS, WIDTH - 70, True)
    bottom = TOP + _ROW * len(bars)
    body = []
    for value in x.ticks():
        body.append(f'<path class="grid" d="M{x.at(value):.1f} {TOP}V{bottom}"/>')
        body.append(text(x.at(value), bottom + 16, number(value), "middle"))
    body.append(text((x.start + x.end) / 2, bottom + 34, unit, "middle", "title"))
    for row, bar in enumerate(bars):
        y = TOP + row * _ROW
        body.append(text(_LABELS - 8, y + 14, shortened(bar.label, 38, "…"), "end"))
        if bar.value:
            width = max(1.0, x.at(bar.value) - x.start)
            body.append(
                f'<rect class="s0 full" x="{x.start}" y="{y + 3}" width="{width:.1f}" '
                f'height="{_ROW - 6}" tabindex="0"{tip(bar.tip)}</rect>'
            )
            body.append(text(x.start + width + 5, y + 14, figure_text(bar.value, 3)))
        if bar.outline:
            width = max(1.0, x.at(bar.outline) - x.start)
            body.append(
                f'<rect class="outline" x="{x.start}" y="{y + 1}" width="{width:.1f}" height="{_ROW - 2}" '
                f'tabindex="0"{tip(bar.tip)}</rect>'
            )
    if limit:
        body.append(f'<path class="one" d="M{x.at(limit):.1f} {TOP}V{bottom}"/>')
    if outline:
        body += legend(["here"], bottom + 54, outline)[0]
    return picture(body, bottom + (60 if outline else 42), unit)


def curve(series: Mapping[str, Sequence[tuple[float, float]]], y_title: str) -> str:
    """Draw the best so far over seconds as a step line for each series; the time axis is logarithmic."""
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    x = Axis(min(p[0] for p in points) / 1.2, max(p[0] for p in points) * 1.1, LEFT, WIDTH - RIGHT, True)
    y = Axis(min(p[1] for p in points) * 0.9, max(p[1] for p in points) * 1.1, HEIGHT - 66, TOP)
    body = frame(x, y, "seconds", y_title)
    for index, (name, line) in enumerate(series.items()):
        path = f"M{x.at(line[0][0]):.1f} {y.at(line[0][1]):.1f}" + "".join(
            f"H{x.at(b[0]):.1f}V{y.at(b[1]):.1f}" for _, b in pairwise(line)
        )
        body.append(f'<path class="line s{index % SERIES}" d="{path}"/>')
        body += [mark(x, y, Point(a, b, index, f"{name}\n{b:.4g} us after {a:.3g} s")) for a, b in line]
    key, more = legend(list(series), HEIGHT - 8)
    return picture(body + key, HEIGHT + more, y_title)
