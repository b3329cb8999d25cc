"""The kernel that copies an input to nhwc in whole chunks of 16 bytes, before a family that reads those."""

from __future__ import annotations

from tilewright.kernels.blueprint import Launch
from tilewright.kernels.tile import ceil_div
from tilewright.problem import DTYPE_BYTES, DTYPES, Problem

COPY_THREADS = 256


def each(pr: Problem) -> int:
    """Numbers of a chunk."""
    return 16 // DTYPE_BYTES[pr.dtype]


def tap_chunks(pr: Problem) -> int:
    """Chunks of a pixel of one group."""
    return ceil_div(pr.cg, each(pr))


def copied_bytes(pr: Problem, chunks: int, parts: int = 1) -> int:
    """Bytes of the input in nhwc, of so many whole chunks for each part of a pixel of one group."""
    return 16 * pr.n * pr.h * pr.w * pr.groups * chunks * parts


def copy(pr: Problem, chunks: int) -> Launch:
    """Return the launch: buffers x, copied."""
    pixels, chunks = pr.n * pr.h * pr.w, pr.groups * chunks
    tiles = ceil_div(pixels, 32) * ceil_div(chunks, 8)
    blocks = ceil_div(pixels * chunks, COPY_THREADS) if pr.layout_in == "nhwc" else tiles
    return Launch("nhwc", (blocks, 1, 1), (COPY_THREADS, 1, 1), ("x", "copied"))


def copy_defines(pr: Problem, chunks: int, parts: int = 1) -> dict[str, int]:
    """Return the defines of nhwc.cu; DTYPE is what is moved, unless COPIED_AS is added; of two parts both."""
    return dict(
        DTYPE=DTYPES.index(pr.plain.dtype), N=pr.n, H=pr.h, W=pr.w, C=pr.cg, GROUPS_=pr.groups, CC=chunks,
        X_NHWC=int(pr.layout_in == "nhwc"), OFFSET64=int(copied_bytes(pr, chunks, parts) >= 1 << 31),
        **(dict(SPLIT=1) if parts == 2 else {}),
    )  # fmt: skip


def copy_remark(pr: Problem, chunks: int, parts: int = 1) -> dict[str, str]:
    """Spell out what the copy takes."""
    what = "the input in nhwc, whole chunks of 16 bytes" + (", high parts and low ones" if parts == 2 else "")
    return {"copied_bytes": f"{what}: {copied_bytes(pr, chunks, parts):,}"}
