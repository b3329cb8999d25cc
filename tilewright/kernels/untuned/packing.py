"""Defines and geometry of kernels that are not tuned; how filters are packed."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.blueprint import Blueprint, Launch
from tilewright.kernels.products import products_define
from tilewright.kernels.requant import requant_defines
from tilewright.kernels.word import dtype_code
from tilewright.problem import Problem

IN_ORDER, COLUMNS, PAIRS = range(3)  # PACK_ORDER: of the output channels in a packed tile (filter.h)


def spread(device: Device, items: int, most: int = 0) -> tuple[int, dict[str, int]]:
    """Return the blocks of an untuned kernel, at most ``most`` if given, and the defines of ``loop.h``."""
    cpu = not device.is_gpu
    threads = 1 if cpu else 256
    blocks = max(1, min(most or device.units * (8 if cpu else 16), ceil_div(items, threads)))
    return blocks, dict(MAX_THREADS=threads, THREADS_ALL=blocks * threads, CHUNKED=int(cpu))


def _filter_sizes(problem: Problem) -> dict[str, int]:
    """Return the defines of a filter: all that a packer depends on, so that it serves any batch."""
    pr = problem
    return dict(
        SIZE_R=pr.r, SIZE_S=pr.s, CG=pr.cg, KG=pr.kg, GROUP_COUNT=pr.groups, DTYPE=dtype_code(pr)
    )


def sizes(problem: Problem) -> dict[str, int]:
    """Return the defines of a problem for the untuned kernels (sizes.h)."""
    pr = problem
    return dict(
        SIZE_N=pr.n, SIZE_C=pr.c, SIZE_H=pr.h, SIZE_W=pr.w, SIZE_K=pr.k, SIZE_P=pr.p, SIZE_Q=pr.q,
        Y_P=pr.y_p, Y_Q=pr.y_q,
        PAD_TOP=pr.pad[0], PAD_LEFT=pr.pad[2],
        STRIDE_H=pr.stride[0], STRIDE_W=pr.stride[1],
        DILATION_H=pr.dilation[0], DILATION_W=pr.dilation[1],
        X_NHWC=int(pr.layout_in == "nhwc"), Y_NHWC=int(pr.layout_out == "nhwc"),
        **pr.epilogue.defines(pr.dtype),
        OFFSET64=offset64(pr.x_bytes, pr.z_bytes, pr.w_bytes), **_filter_sizes(pr),
        **requant_defines(pr),
    )  # fmt: skip


def pack_rows(product: int, chunks: int, bn: int, steps: int, channels: int) -> tuple[tuple[str, int], ...]:
    """Return ``Blueprint.pack`` of a filter in swizzled rows (pack_tensor.h).

    Args:
        product: what is multiplied (products.py).
        chunks: pieces of 16 bytes of a row in a step.
        bn: rows of a tile, output channels in order.
        steps: of the sum, all taps.
        channels: of a tap, after which the next tap follows.
    """
    return (
        ("PACK_CHUNKS", chunks), ("PACK_K", bn), ("PACK_STEPS", steps), ("PACK_C", channels),
        ("PACK_ORDER", IN_ORDER), ("PACK_APART", 0), *products_define("PACK_PRODUCTS", product).items(),
    )  # fmt: skip


def pack(problem: Problem, device: Device, kernel: Blueprint) -> Blueprint:
    """Return the launch that packs a kcrs filter for a kernel: buffers w, packed."""
    nbytes = kernel.packed_bytes
    blocks, defines = spread(device, nbytes // (8 if problem.dtype == "f64" else 4))
    big = dict(OFFSET64=offset64(nbytes))
    return Blueprint(
        source=kernel.packer,
        defines=tuple((_filter_sizes(problem.portable) | dict(kernel.pack or ()) | defines | big).items()),
        launches=(Launch("pack", (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1), ("w", "packed")),),
        packed_bytes=0,
    )
