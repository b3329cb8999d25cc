"""How a block stages its tile of the input in shared memory (stage.h)."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arithmetic import ceil_div
from tilewright.kernels.tile import lines, quad_pitch


@dataclass(frozen=True)
class Staging:
    """Strides and extent of a staged tile, in words, and the copies that fill it (see stage.h).

    Attributes:
        strides: from a channel, a row, a column to the next.
        xw: words of a row.
        size: words of the tile.
        copies: copies of a thread, whose addresses it computes once; 0: at every step.
        items: copies of a block.
        run: words of a copy.
        lead: words of a row before the first that is needed.
    """

    strides: tuple[int, int, int]
    xw: int
    size: int
    copies: int
    items: int
    run: int = 1
    lead: int = 0

    def defines(self) -> dict[str, int]:
        """The defines of stage.h for this tile."""
        return dict(
            TX_C=self.strides[0], TX_H=self.strides[1], TX_W=self.strides[2], XW=self.xw, X_FLOATS=self.size,
            X_COPIES=self.copies, X_ITEMS=self.items, X_RUN=self.run, X_LEAD=self.lead,
        )  # fmt: skip


def staged_quads(channels: int, rows: int, columns: int, threads: int, kept: bool = True) -> Staging:
    """Lay out a tile whose channels (nhwc) are copied four at a time; ``kept``: addresses are kept."""
    pitch, pixels = quad_pitch(channels), rows * columns
    items = pixels * channels // 4
    copies = ceil_div(items, threads) if kept else 0
    return Staging((1, columns * pitch, pitch), columns, lines(pixels * pitch), copies, items, run=4)
