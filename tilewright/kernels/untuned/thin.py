"""The kernel that copies the pixels of x that 1x1 filters with a stride meet, plane by plane."""

from __future__ import annotations

from math import gcd

from tilewright.arithmetic import ceil_div, offset64, round_up
from tilewright.kernels.blueprint import Launch
from tilewright.kernels.products import in_chunk
from tilewright.kernels.untuned.nhwc import COPY_THREADS, Copy
from tilewright.problem import DTYPE_BYTES, Problem

PIECE = 16  # bytes, the most that a thread loads at once
ITEMS = 4  # loads of a thread


def plane_thinned(pr: Problem) -> int:
    """Pixels from one copied plane to the next: as many as y has, up to a multiple of 16 bytes."""
    return round_up(pr.p * pr.q, in_chunk(pr))


def thinned_bytes(pr: Problem) -> int:
    """Bytes of the copied planes."""
    return pr.n * pr.c * plane_thinned(pr) * DTYPE_BYTES[pr.dtype]


def thin(pr: Problem, aligned: bool) -> Copy:
    """Return the copy of what a layer of 1x1 filters without padding, in nchw, reads of x.

    ``aligned``: x begins at a multiple of 16 bytes.
    """
    each = _neighbours(pr) if aligned else 1
    nbytes, planes = thinned_bytes(pr), pr.n * pr.c
    blocks = ceil_div(planes * pr.p * pr.q // each, ITEMS * COPY_THREADS)
    launch = Launch("thin", (blocks, 1, 1), (COPY_THREADS, 1, 1), ("x", "copied"))
    return Copy(launch, nbytes, dict(
        SIZE=DTYPE_BYTES[pr.dtype], ITEMS=ITEMS, EACH=each, WIDE=each * pr.stride[1], PLANES=planes,
        H=pr.h, W=pr.w, P=pr.p, Q=pr.q, STR_H=pr.stride[0], STR_W=pr.stride[1], PLANE_OUT=plane_thinned(pr),
        OFFSET64=offset64(pr.x_bytes, nbytes),
    ), "thin.cu")  # fmt: skip


def _neighbours(pr: Problem) -> int:
    """Outputs of a thread, of a row: as many as one load of their pixels holds wherever rows begin."""
    wide = pr.stride[1] * DTYPE_BYTES[pr.dtype]
    if wide & (wide - 1) or wide > PIECE or pr.w % pr.stride[1]:
        return 1
    return gcd(pr.q, pr.w // pr.stride[1], PIECE // wide)
