"""The kernel that copies an input to nhwc in whole chunks of 16 bytes, for families that read those."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tilewright.arithmetic import ceil_div, offset64
from tilewright.kernels.blueprint import FOLLOWS, Blueprint, Buffer, Launch
from tilewright.kernels.products import in_chunk, products_define
from tilewright.kernels.word import dtype_code
from tilewright.problem import DTYPE_BYTES, DTYPES, Problem

COPY_THREADS = 256
WORD = 4  # bytes that a thread loads at once in nchw: consecutive pixels
MOST_CHUNKS = 16  # most chunks of a pixel that a block copies


class Copy(NamedTuple):
    """A launch of a kernel file: x to the buffer ``copied``, of ``nbytes`` bytes."""

    launch: Launch
    nbytes: int
    defines: dict[str, int]
    source: str = "nhwc.cu"


def tap_chunks(pr: Problem) -> int:
    """Chunks of a pixel of one group."""
    return ceil_div(pr.cg, in_chunk(pr))


def copied_bytes(pr: Problem, chunks: int, parts: int = 1) -> int:
    """Bytes of the copied input, with ``chunks`` whole chunks per part, pixel and group."""
    return 16 * pr.n * pr.h * pr.w * pr.groups * chunks * parts


def copied_first(blueprint: Blueprint, copy: Copy) -> Blueprint:
    """Return the blueprint with the copy before its first launch, which then reads the copy, not x."""
    main, *behind = blueprint.launches
    args = tuple("copied" if arg == "x" else arg for arg in main.args)
    return replace(
        blueprint, defines=(*blueprint.defines, FOLLOWS),
        launches=(copy.launch, replace(main, args=args, chained=True), *behind),
        workspace=(*blueprint.workspace, Buffer("copied", copy.nbytes)),
        parts=(Blueprint(copy.source, tuple(copy.defines.items()), (), packed_bytes=0), *blueprint.parts),
    )  # fmt: skip


def copy_of(pr: Problem, chunks: int, product: int, parts: int = 1, aligned: bool = True) -> Copy:
    """Return the copy to nhwc, of words as ``product`` multiplies them.

    ``parts``: 2 if numbers are split; ``aligned``: x begins at a multiple of 4 bytes.
    """
    pixels, wide, nbytes = pr.n * pr.h * pr.w, _chunks_wide(pr, chunks), copied_bytes(pr, chunks, parts)
    tiles = ceil_div(pixels, COPY_THREADS // wide * _neighbours(pr)) * ceil_div(pr.groups * chunks, wide)
    blocks = ceil_div(pixels * pr.groups * chunks, COPY_THREADS) if pr.layout_in == "nhwc" else tiles
    return Copy(_launch(blocks), nbytes, dict(
        THREAD_PIXELS=_neighbours(pr), CHUNKS_WIDE=wide, X_ALIGNED=int(aligned),
        DTYPE=dtype_code(pr.portable), N=pr.n, H=pr.h, W=pr.w, C=pr.cg, GROUPS_=pr.groups, CC=chunks,
        X_NHWC=int(pr.layout_in == "nhwc"), OFFSET64=offset64(nbytes),
        **(dict(SPLIT=1) if parts == 2 else {}), **products_define("COPIED_AS", product),
    ))  # fmt: skip


def copy_as_is(pr: Problem) -> Copy:
    """Return the copy of x, whole chunks, to an aligned buffer.

    To nhwc.cu they are pixels of a chunk each in a row, of numbers of 2 bytes, or of 1 if those of x are.
    """
    nbytes, dtype = pr.x_bytes, "i8" if DTYPE_BYTES[pr.dtype] == 1 else "f16"
    return Copy(_launch(ceil_div(nbytes // 16, COPY_THREADS)), nbytes, dict(
        THREAD_PIXELS=1, CHUNKS_WIDE=2, X_ALIGNED=0, DTYPE=DTYPES.index(dtype), N=1, H=1, W=nbytes // 16,
        C=16 // DTYPE_BYTES[dtype], GROUPS_=1, CC=1, X_NHWC=1, OFFSET64=offset64(nbytes),
    ))  # fmt: skip


def _launch(blocks: int) -> Launch:
    return Launch("nhwc", (blocks, 1, 1), (COPY_THREADS, 1, 1), ("x", "copied"))


def _neighbours(pr: Problem) -> int:
    """Pixels of a thread: as many as one load holds, if every plane begins at a word."""
    in_word = max(1, WORD // DTYPE_BYTES[pr.dtype])
    return 1 if pr.layout_in == "nhwc" or pr.h * pr.w % in_word else in_word


def _chunks_wide(pr: Problem, chunks: int) -> int:
    """Chunks of a pixel that a block copies: a power of two, at most as many as there are."""
    return min(MOST_CHUNKS, max(2, 1 << (pr.groups * chunks - 1).bit_length()))


def copy_remark(pr: Problem, chunks: int, parts: int = 1) -> dict[str, str]:
    """Report the size of the copy."""
    what = "the input in nhwc, whole chunks of 16 bytes" + (", high parts and low ones" if parts == 2 else "")
    return {"copied": f"{what}: {copied_bytes(pr, chunks, parts):,} bytes"}
