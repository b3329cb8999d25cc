"""Results as a plot: for each layer and peer, the peer's time / ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.bench.rows import BenchRow
from tilewright.errors import OutputError, how_to_get
from tilewright.report.results import Results

# A middle grey and six middle tones, visible on a white page and on a black one.
INK = "#808080"
COLOURS = ("#3b8ed0", "#e0823d", "#35a37c", "#b06fc4", "#c9a227", "#d1605e")


FORMATS = (".svg", ".png", ".pdf")


def draw(results: Results, path: Path) -> None:
    """Write grouped bars, one group per layer, one bar per peer; the line at 1 is our own time.

    The file's suffix gives the format, one of ``FORMATS``.

    Raises:
        OutputError: matplotlib is missing, no layer has a ratio to draw, or the file cannot be written.
    """
    rows = [row for row in results.told_apart().rows if row.ratio is not None]
    if not rows:
        raise OutputError("plot: no layer has both our time and a peer's; nothing to draw")

    def ratios(axes: Any) -> None:
        _bars(axes, rows, [name for name in results.peer_names if any(row.over_ours(name) for row in rows)])
        _dress(axes, rows, results)

    save(path, (max(6.0, 0.7 * len(rows) + 2), 4.0), ratios)


def save(path: Path, size: tuple[float, float], fill: Callable[[Any], None]) -> None:
    """Write a plot that ``fill`` draws on axes; ``size`` is in inches.

    Raises:
        OutputError: matplotlib is missing, or the file cannot be written.
    """
    plt, suffix = _pyplot(), path.suffix.lower().lstrip(".")
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "tilewright",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.parse_math": False,  # names of layers may have a $ in them
    }
    with plt.rc_context({**style, "text.color": INK, "axes.labelcolor": INK}):
        figure, axes = plt.subplots(figsize=size)
        try:
            fill(axes)
            dated = {"CreationDate": None} if suffix == "pdf" else {"Date": None} if suffix == "svg" else {}
            how = dict(transparent=True, bbox_inches="tight", dpi=150, metadata=dated)
            figure.savefig(path, format=suffix, **how)
        except OSError as error:
            raise OutputError(f"plot {path}: {error.strerror or error}") from None
        finally:
            plt.close(figure)


def drawable(path: Path) -> None:
    """Check, before anything slow is done, that a plot can be drawn in the file's format.

    Raises:
        OutputError: the file's name does not end in one of ``FORMATS``, or matplotlib is missing.
    """
    if path.suffix.lower() not in FORMATS:
        raise OutputError(f"plot {path}: the name must end in {', '.join(FORMATS)}, which says the format")
    _require_matplotlib()


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise OutputError(f"plot: matplotlib is not installed; {how_to_get('plot')}") from None


def _pyplot() -> Any:  # matplotlib is optional, so it has no types here
    _require_matplotlib()
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def _bars(axes: Any, rows: list[BenchRow], peers: list[str]) -> None:
    width = 0.8 / len(peers)
    for index, peer in enumerate(peers):
        heights = [row.over_ours(peer) or math.nan for row in rows]
        places = [at + (index - (len(peers) - 1) / 2) * width for at in range(len(rows))]
        axes.bar(places, heights, width * 0.9, label=peer, color=COLOURS[index % len(COLOURS)])


def _dress(axes: Any, rows: list[BenchRow], results: Results) -> None:
    axes.axhline(1, color=INK, linewidth=1.2, linestyle="--")
    axes.set_xticks(range(len(rows)), [row.name for row in rows], rotation=45 if len(rows) > 12 else 0)
    axes.set_ylabel("peer time / tilewright time\n(above 1: tilewright is faster)")
    axes.set_title(str(results.device.get("name", "")), fontsize=10)
    bare_axes(axes, "y", "bottom")
    axes.legend(frameon=False, labelcolor=INK, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4)


def bare_axes(axes: Any, grid: str, base: str) -> None:
    """Remove all spines but the one that bars start from, and draw grid lines."""
    axes.tick_params(colors=INK)
    axes.set_axisbelow(True)
    axes.grid(axis=grid, color=INK, alpha=0.3, linewidth=0.6)
    for side, spine in axes.spines.items():
        spine.set_visible(side == base)
        spine.set_color(INK)
