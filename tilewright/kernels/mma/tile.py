"""Sizes of the mma kernel: how it reads the input, its tiles, stages and registers."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.kernels.family import Values
from tilewright.kernels.limits import MOST_GATHERED, tap_words
from tilewright.kernels.products import DOUBLE, E4M3, PLAIN, TF32, THREE, in_chunk
from tilewright.kernels.tile import ProductTiling, channels_together, pointwise
from tilewright.kernels.word import word_bytes
from tilewright.problem import DTYPE_BYTES, Problem

AS_IS, COPIED, GATHERED, WIDENED, PLANES = range(5)
WAYS = ("as it is", "copied to nhwc by a first kernel", "gathered number by number",
        "copied to nhwc and widened to f16 by a first kernel",
        "as it is, channels as rows of pixels")  # fmt: skip
COPIES = (COPIED, WIDENED)
# Of a warp: more would not fit a thread's registers.
MOST_PIECES = {PLAIN: 20, TF32: 20, THREE: 9, E4M3: 12, DOUBLE: 8}
MOST_LOADS = 512  # of a thread that gathers: more would overflow the instruction cache


def products(pr: Problem, way: int) -> int:
    """What is multiplied: numbers as they are, rounded to tf32, split (three products for one), e4m3, f64."""
    if pr.dtype == "f64":
        return DOUBLE
    if pr.math != "strict":
        return TF32 if pr.math == "tf32" else THREE
    return E4M3 if pr.dtype == "f8" and way != WIDENED else PLAIN


def numbers(pr: Problem, way: int) -> int:
    """Numbers in a chunk of what is multiplied."""
    return 8 if way == WIDENED else in_chunk(pr)


def ways(pr: Problem) -> tuple[int, ...]:
    """How the input can be read: whole chunks of channels as they are; otherwise copied or, if few, gathered.

    For pointwise layers in nchw, planes can also be read as they are.
    """
    nhwc = pr.layout_in == "nhwc" or pr.h * pr.w == 1
    first: tuple[int, ...] = (AS_IS if nhwc and pr.cg % in_chunk(pr) == 0 else COPIED,)
    if first != (AS_IS,) and pr.dtype != "f64" and pr.terms <= MOST_GATHERED:
        first += (GATHERED,)
    if pr.dtype == "f8":
        first += (WIDENED,)
    planes = pointwise(pr) and pr.layout_in == pr.layout_out == "nchw" and pr.p * pr.q > 1
    return (*first, PLANES) if planes else first


def image_pixels(pr: Problem, way: int) -> int:
    """Pixels that are tiled together: of all images, or of one (ONE_IMAGE of mma_planes.h)."""
    return pr.p * pr.q if way == PLANES and pr.p * pr.q % in_chunk(pr) else pr.n * pr.p * pr.q


def chunks_of(pr: Problem, way: int) -> int:
    """Chunks of one tap of one group."""
    return ceil_div(pr.cg, numbers(pr, way))


def all_chunks(pr: Problem, way: int) -> int:
    """Chunks of the whole sum; a gathered input has no gaps between taps."""
    if way == GATHERED:
        return ceil_div(pr.terms, in_chunk(pr))
    return pr.r * pr.s * chunks_of(pr, way)


def run_chunks(pr: Problem, chunks: int, way: int) -> int:
    """Chunks of a tap that are consecutive in the sum: those of a step, if a tap fills whole steps."""
    return chunks if chunks_of(pr, way) % chunks == 0 else chunks_of(pr, way)


def pixels_on_m(pr: Problem) -> bool:
    """Whether the M side of the product is pixels: outputs contiguous in y lie along the N side."""
    return channels_together(pr)


def stores_fours(pr: Problem) -> bool:
    """Whether a thread's four neighbouring outputs are never cut by an edge of y (Y_VECTOR)."""
    return (pr.kg if pixels_on_m(pr) else pr.p * pr.q) % 4 == 0


def threads(cf: Values) -> int:
    """Threads of a block."""
    return 32 * cf["wm"] * cf["wn"] * cf["sb"]


def tiling_of(pr: Problem, cf: Values) -> ProductTiling:
    """Return the tiling of a config."""
    mb, nb = 16 * cf["mt"] * cf["wm"], 16 * cf["nt"] * cf["wn"]
    kb, pb = (nb, mb) if pixels_on_m(pr) else (mb, nb)
    pixels = image_pixels(pr, cf["x"])
    k_tiles, q_tiles = ceil_div(pr.kg, kb), ceil_div(pixels, pb)
    tiles = k_tiles * q_tiles * pr.groups * (pr.n * pr.p * pr.q // max(1, pixels))
    stage = 16 * cf["chunks"] * kb + x_stage_bytes(pr, cf, pb)
    meeting = word_bytes(pr) * mb * nb * cf["sb"] if cf["sb"] * cf["sc"] > 1 else 0
    return ProductTiling(
        kb=kb, pb=pb, threads=threads(cf), k_tiles=k_tiles, q_tiles=q_tiles,
        tiles=tiles, steps=ceil_div(all_chunks(pr, cf["x"]), cf["chunks"]),
        x_copies=copies(pr, cf), shared_bytes=max(cf["stages"] * stage, meeting),
    )  # fmt: skip


def x_stage_bytes(pr: Problem, cf: Values, pb: int) -> int:
    """Bytes of a stage's input: chunks of each pixel, or rows of pixels (X_BYTES of the kernel)."""
    if cf["x"] != PLANES:
        return 16 * cf["chunks"] * pb
    nbytes = DTYPE_BYTES[pr.dtype]
    apart = 32 if nbytes >= 4 or (nbytes == 1 and pb // 16 % 2) else 16  # other banks; APART of mma_planes.h
    return cf["chunks"] * in_chunk(pr) * (pb * nbytes + apart)


def row_pieces(pr: Problem, pb: int) -> int:
    """16-byte pieces to copy a channel's row of a tile, which may begin up to a piece early."""
    early = in_chunk(pr) - 1 if pr.p * pr.q % in_chunk(pr) else 0
    return ceil_div(min(image_pixels(pr, PLANES), pb) + early, in_chunk(pr))


def copies(pr: Problem, cf: Values) -> int:
    """Copies of a thread in a step: of a chunk of a pixel, all chunks of a pixel, or a piece of a row."""
    pb = 16 * (cf["mt"] * cf["wm"] if pixels_on_m(pr) else cf["nt"] * cf["wn"])
    if cf["x"] == PLANES:
        return ceil_div(cf["chunks"] * in_chunk(pr) * row_pieces(pr, pb), threads(cf))
    return ceil_div(pb, threads(cf)) if cf["x"] == GATHERED else ceil_div(pb * cf["chunks"], threads(cf))


def registers(pr: Problem, cf: Values) -> int:
    """Estimate of the registers a thread needs: accumulators, fragments, pixel positions, addresses."""
    gathers = 24 + min(64, pr.terms // 4) if cf["x"] == GATHERED else 0  # in flight at once
    product = products(pr, cf["x"])
    if product == THREE:  # the low halves of fragments, and sums not promoted yet
        gathers += 4 * (cf["mt"] + cf["nt"]) + 32 + (32 if cf["x"] == GATHERED else 0)
    elif product == E4M3:
        gathers += 2 * cf["mt"] * cf["nt"] + 16
    places = (1 + tap_words(pr)) * copies(pr, cf)
    sums = 8 * cf["mt"] * cf["nt"] * word_bytes(pr) // 4
    return sums + 4 * cf["fd"] * (cf["mt"] + cf["nt"]) + places + gathers + 42
