"""The rules of the gemm kernel: limits of the hardware and the kernel, and configs of no use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tilewright.device import Device
from tilewright.kernels.family import Rule, Values
from tilewright.kernels.gemm.product import (
    Product,
    few_copies,
    kept_places,
    registers,
    run_of,
    threads,
    tiling_of,
)
from tilewright.kernels.gemm.work import REST, stream_of
from tilewright.kernels.limits import MOST_BODY, registers_rule, shared_rule, warps_rules
from tilewright.kernels.split_k import ATOMIC_EPILOGUE, LAST_ORDER, SECOND_POOLS, may_combine
from tilewright.kernels.tile import LAST
from tilewright.problem import Problem

Products = Callable[[Problem], Product]  # of a layer


@cache
def rules_of(product: Products) -> tuple[Rule, ...]:
    """Return the rules of a family whose layers are such products."""
    return (*_of_tiles(product), *_of_staging(product), *_of_shares(product))


def _of_tiles(product: Products) -> tuple[Rule, ...]:
    """Return the rules of the tiles of a block and a thread, and of its registers."""
    return (
        Rule("accumulators", lambda tk, v, tp: 16 <= 4 * tk * v * tp <= 192,
             "fewer than 16 sums a thread are all loads, more than 192 do not fit its registers"),
        Rule("k_pieces", lambda problem, tk, lk: 4 * lk * (tk - 1) < product(problem).k,
             "pieces of K without outputs"),
        Rule("k_lanes", lambda problem, lk: 4 * (lk - 1) < product(problem).k,
             "lanes along K without outputs"),
        Rule("p_pieces", lambda problem, v, tp, lk: v * (32 // lk) * (tp - 1) < product(problem).pixels,
             "pieces of pixels without outputs"),
        Rule("p_lanes", lambda problem, v, lk: v * (32 // lk - 1) < max(128, product(problem).pixels),
             "lanes along pixels without outputs"),
        Rule("k_warps", lambda problem, tk, lk, wk: 4 * tk * lk * (wk - 1) < product(problem).k,
             "warps along K without outputs"),
        Rule("p_warps", lambda problem, v, tp, lk, wp:
             v * tp * (32 // lk) * (wp - 1) < product(problem).pixels,
             "warps along pixels without outputs"),
        *warps_rules("wk wp sb"),
        registers_rule(lambda problem, cf: registers(cf | dict(fd=1, cv=1)), threads, "tk v tp wk wp sb mb"),
        Rule("shares_meet", lambda tk, v, tp, sb: min(tk * v * tp, 4 * tk * tp) >= sb,
             "each share of a block finishes some outputs"),
        registers_rule(lambda problem, cf: registers(cf), threads, "tk v tp wk wp sb mb fd cv", "fragments"),
        Rule("channel_vector", lambda v, cv: cv == 1 or v == 1,
             "four channels of one pixel are read at once, or one channel of several"),
        Rule("channels", lambda sb, fd, cv, cs: cs % (sb * fd * cv) == 0 and cs // sb >= 2,
             "each share takes whole buffers of a step's channels"),
        Rule("body", lambda cf: 4 * cf["tk"] * cf["v"] * cf["tp"] * run_of(cf) <= MOST_BODY,
             "the loop's body overflows the instruction cache", needs="tk v tp sb fd cv cs"),
    )  # fmt: skip


def _of_staging(product: Products) -> tuple[Rule, ...]:
    """Return the rules of what is staged in a step, and of its buffers."""
    return (
        Rule("x_copies", lambda problem, cf: _keeps_places(product(problem), cf),
             "a thread keeps the places of at most 16 copies in registers, of 8 if their taps may be padding",
             needs="tk v tp lk wk wp sb fd cv cs"),
        registers_rule(lambda problem, cf: _with_taps(product(problem), cf), threads,
                       "tk v tp lk wk wp sb mb fd cv cs", "wide_taps"),
        shared_rule(lambda problem, cf: _most_shared(product(problem), cf),
                    "tk v tp lk wk wp sb mb fd cv cs stages"),
        Rule("in_flight", lambda problem, cs, stages: cs * (stages - 2) < max(product(problem).length, 1),
             "buffers without channels"),
    )  # fmt: skip


def _of_shares(product: Products) -> tuple[Rule, ...]:
    """Return the rules of a stream, of shares of the sum, and of how they meet."""
    return (
        Rule("stream_order", lambda device, stream: not stream or device.orders_blocks,
             LAST_ORDER.reason),
        Rule("stream", lambda problem, device, cf: _shares_out(product(problem), device, cf),
             "what the blocks share out is too little, or whole tiles by itself",
             needs="tk v tp lk wk wp sb mb fd cv cs stream"),
        Rule("stream_share", lambda stream, sg: not stream or sg == 1, "the stream splits C by itself"),
        Rule("pieces", lambda problem, cs, sg: cs * (sg - 1) < product(problem).length,
             "shares of C without channels"),
        Rule("combine_none", lambda problem, stream, sg, combine:
             may_combine(problem, sg + stream, combine),
             "shares across the grid need combining"),
        LAST_ORDER,
        SECOND_POOLS,
        Rule("stream_last", lambda stream, combine: not stream or combine == LAST,
             "blocks of the stream end anywhere in a tile: the last to arrive adds them up"),
        ATOMIC_EPILOGUE,
    )  # fmt: skip


def _most_shared(pd: Product, cf: Values) -> int:
    return max(tiling_of(pd, cf | dict(cv=cv)).shared_bytes for cv in {1, cf["cv"]})


def _keeps_places(pd: Product, cf: Values) -> bool:
    return few_copies(pd, tiling_of(pd, cf | dict(stages=2)))


def _with_taps(pd: Product, cf: Values) -> int:
    """Registers, with those for the taps of a wide filter that meet the image at each place."""
    if pd.tap_words < 2:
        return registers(cf)
    return registers(cf) + pd.tap_words * kept_places(pd, tiling_of(pd, cf | dict(stages=2)))


def _shares_out(pd: Product, device: Device, cf: Values) -> bool:
    """Whether a stream has steps for all blocks, not whole tiles, and (REST) full waves before the rest."""
    tiling = tiling_of(pd, cf | dict(stages=2))
    stream = stream_of(device, tiling, cf)
    if stream is None:
        return True
    uneven = tiling.tiles % stream.blocks != 0 and stream.each >= 2 and tiling.tiles * tiling.steps < 1 << 31
    return uneven and (cf["stream"] != REST or stream.full_tiles > 0)
