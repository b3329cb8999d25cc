"""The rules of the mma family: limits of the hardware and its kernel, and configs of no use."""

from __future__ import annotations

from tilewright.device import Device
from tilewright.device.architectures import MMA_E4M3
from tilewright.kernels.family import Rule, Values
from tilewright.kernels.limits import (
    MOST_COPIES,
    fits_shared,
    registers_rule,
    shared_rule,
    warps_rules,
)
from tilewright.kernels.mma.tile import (
    GATHERED,
    MOST_LOADS,
    MOST_PIECES,
    all_chunks,
    copies,
    image_pixels,
    pixels_on_m,
    products,
    registers,
    threads,
    tiling_of,
)
from tilewright.kernels.products import DOUBLE, E4M3, THREE, in_chunk
from tilewright.kernels.split_k import COMBINE_NONE, SECOND_POOLS
from tilewright.problem import Problem

DECLARED = 256  # most bytes that the kernel declares besides its tiles


def _shared_bytes(problem: Problem, cf: Values) -> int:
    return tiling_of(problem, dict(sc=1) | cf).shared_bytes


def _outputs(pr: Problem, way: int) -> tuple[int, int]:
    """Rows and columns of the product of one group."""
    pixels = max(1, image_pixels(pr, way))
    return (pixels, pr.kg) if pixels_on_m(pr) else (pr.kg, pixels)


def _gathers(problem: Problem, cf: Values) -> bool:
    """Whether all threads gather the same number of whole pixels, and not too many."""
    tiling = tiling_of(problem, cf | dict(chunks=2, stages=2, sc=1))
    loads = all_chunks(problem, GATHERED) * in_chunk(problem) * tiling.x_copies
    return cf["x"] != GATHERED or (tiling.pb % tiling.threads == 0 and loads <= MOST_LOADS)


def _has_product(problem: Problem, device: Device, x: int) -> bool:
    """Whether the device has the products that this way of reading needs; emulated without CUDA."""
    return products(problem, x) != E4M3 or not device.is_cuda or device.capability >= MMA_E4M3


RULES = (
    Rule("e4m3", _has_product, "products of e4m3 came with sm_89: it must be widened"),
    Rule("sums", lambda problem, x, mt, nt: 2 <= mt * nt <= MOST_PIECES[products(problem, x)]
         or mt == nt == 1,
         "more than 160 sums a thread do not fit its registers, nor 72 of accurate, 64 of f64, 96 of f8"),
    Rule("m_pieces", lambda problem, x, mt: 16 * (mt - 1) < _outputs(problem, x)[0],
         "pieces without outputs"),
    Rule("n_pieces", lambda problem, x, nt: 16 * (nt - 1) < _outputs(problem, x)[1],
         "pieces without outputs"),
    Rule("m_warps", lambda problem, x, mt, wm: 16 * mt * (wm - 1) < _outputs(problem, x)[0],
         "warps without outputs"),
    Rule("n_warps", lambda problem, x, nt, wn: 16 * nt * (wn - 1) < _outputs(problem, x)[1],
         "warps without outputs"),
    *warps_rules("wm wn sb"),
    Rule("gather_l1", lambda x, l1: x != GATHERED or l1 == 0, "what is gathered always comes through the L1"),
    Rule("gather", _gathers, "a thread that gathers takes whole pixels, and all of its loads are unrolled",
         needs="x mt nt wm wn sb"),
    Rule("shares_meet", lambda mt, nt, sb: 2 * mt * nt % sb == 0,
         "each share of a block finishes as many outputs"),
    Rule("promoted", lambda problem, x, fd: fd == 1 or products(problem, x) not in (THREE, E4M3),
         "a loop that is unrolled has more sums under way than there are registers"),
    Rule("fragments", lambda sb, fd, chunks: chunks % (2 * sb * fd) == 0,
         "each share takes whole buffers of a step's fragments, of two chunks each"),
    Rule("copies", lambda problem, cf: copies(problem, cf) <= MOST_COPIES,
         "a thread keeps the places of at most 16 pixels in registers", needs="x mt nt wm wn sb chunks"),
    registers_rule(registers, threads, "x mt nt wm wn sb mb fd chunks"),
    Rule("banks", lambda problem, x, chunks: products(problem, x) != DOUBLE or chunks >= 8
         or chunks >= all_chunks(problem, x),
         "of f64 a fragment of rows of fewer than 8 chunks is read from half of the banks"),
    Rule("in_flight", lambda problem, x, chunks, stages: stages == 2 or chunks * (stages - 2) < all_chunks(
        problem, x), "buffers without channels"),
    shared_rule(_shared_bytes, "x mt nt wm wn sb mb chunks stages", declared=DECLARED),
    Rule("cluster_meets", lambda problem, device, cf:
         2 * cf["mt"] * cf["nt"] % (cf["sb"] * cf["sc"]) == 0
         and fits_shared(device, _shared_bytes(problem, cf), cf["mb"], DECLARED),
         "each share of a cluster finishes as many outputs, and they meet in shared memory",
         needs="x mt nt wm wn sb mb chunks stages sc"),
    Rule("pieces", lambda problem, x, chunks, sc, sg: chunks * (sc * sg - 1) < all_chunks(problem, x),
         "shares of the sum without channels"),
    Rule("gather_shares", lambda x, sc, sg: x != GATHERED or sc * sg == 1, "few channels have no shares"),
    COMBINE_NONE,
    SECOND_POOLS,
)  # fmt: skip
