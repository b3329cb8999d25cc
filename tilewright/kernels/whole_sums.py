"""Shared by specs whose blocks compute whole sums: no shares are combined across the grid.

If the kernel cannot pool, a second one does.
"""

from __future__ import annotations

from tilewright.kernels.family import Blueprint, Launch, Values
from tilewright.kernels.products import tf32_or_plain
from tilewright.kernels.requant import scale_operand
from tilewright.kernels.split_k import operands, partial_sums, second_pass, share_defines
from tilewright.kernels.word import dtype_code
from tilewright.problem import Problem


def input_defines(pr: Problem, shared_bytes: int) -> Values:
    """The defines of a block's shared memory, and of how tensor cores multiply the input."""
    return dict(SHARED_BYTES=shared_bytes, DTYPE=dtype_code(pr), PRODUCTS=tf32_or_plain(pr))


def tiles_defines(combine: int, k: int, p: int, q: int, k_fastest: int = 1) -> Values:
    """The defines of tile.h for k, p and q tiles of channels, rows and columns."""
    return dict(
        K_TILES=k, P_TILES=p, Q_TILES=q, K_FASTEST=k_fastest, **share_defines(combine)
    )


def whole_sums(
    name: str, pr: Problem, combine: int, blocks: int, threads: int, defines: Values, packed_bytes: int,
    pack: tuple[tuple[str, int], ...] | None = None, *, packer: str = "pack.cu", packing: str = "",
    source: str = "", chained: bool = True,
) -> Blueprint:  # fmt: skip
    """Return the launch of kernel ``name``, and the launch that pools if ``combine`` leaves it to that.

    Args:
        defines: with SHARED_BYTES if a block has shared memory.
        pack, packer, packing: of the filter, as in a Blueprint.
        source: file of the kernel, if it is not that of its name.
        chained: whether the second launch may begin while the kernel still runs.
    """
    main = Launch(
        name, (blocks, 1, 1), (threads, 1, 1), (*operands(combine), *scale_operand(pr)),
        shared_bytes=defines.get("SHARED_BYTES", 0),
    )  # fmt: skip
    return Blueprint(
        source=source or f"{name}.cu", defines=tuple(defines.items()),
        launches=(main, *second_pass(pr, combine, chained)), packed_bytes=packed_bytes,
        pack=pack, packer=packer, packing=packing, workspace=partial_sums(pr, combine),
    )  # fmt: skip
