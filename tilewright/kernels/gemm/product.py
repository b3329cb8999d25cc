"""Sizes of the gemm kernel: the matrix products of a layer, its tiles, staging and registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.arithmetic import ceil_div, round_up
from tilewright.kernels.family import Values
from tilewright.kernels.limits import MOST_BODY, MOST_COPIES, tap_words
from tilewright.kernels.tile import ProductTiling, channels_together, lines, quad_pitch
from tilewright.problem import Problem

FEW = 16  # channels of a group: fewer are summed over all taps at once
MOST_ENTRIES = 2048  # of the table of where they lie


@dataclass(frozen=True)
class Product:
    """The matrix products of a layer: K x C filters times C x pixels, once for each group and each tap.

    Attributes:
        k, c, groups: output and input channels of a group (for columns: c * r * s), and groups.
        taps: of the filter; the products of all of them are added up.
        pixels: output pixels of all images.
        columns: whether the input is the columns written by im2col.cu, not x itself.
        x_nhwc, y_nhwc: whether the channels of a pixel are contiguous.
        pitch: floats from one channel of the input to the next, if they are not contiguous.
        quads: whether four pixels of the input are always 16 aligned bytes (nchw).
        strided: whether an input pixel is found by its row and column, since some are skipped or ``tapped``.
        tapped: whether a pixel of the input differs from tap to tap, or may be padding.
        flat: whether ``c`` counts channels at each tap (then ``taps`` is 1), since there are few channels.
        tap_words: registers for the taps that meet the image at a place; 0 unless ``tapped``.
    """

    k: int
    c: int
    groups: int
    taps: int
    pixels: int
    columns: bool
    x_nhwc: bool
    y_nhwc: bool
    pitch: int
    quads: bool
    strided: bool
    tapped: bool
    flat: bool
    tap_words: int

    @property
    def length(self) -> int:
        """Products that an output is the sum of."""
        return self.taps * self.c

    @property
    def column_floats(self) -> int:
        """Floats of the columns."""
        return self.c * self.groups * self.pitch


def _reach(pr: Problem) -> int:
    """Floats from the first input under an output to the last, or a little more."""
    rows, columns = pr.r * pr.dilation[0] * pr.w, pr.s * pr.dilation[1]
    return (rows + columns) * (pr.c if pr.layout_in == "nhwc" else 1) + pr.cg * pr.h * pr.w


def is_product(pr: Problem) -> bool:
    """Whether a layer is a single matrix product as it is: a 1x1 filter, and no padding."""
    return pr.r * pr.s == 1 and not any(pr.pad)


@lru_cache(maxsize=4096)
def product(pr: Problem) -> Product:
    """Return the matrix products of a layer, one for each tap, with the input where it lies in x."""
    tapped = not is_product(pr)
    flat = tapped and pr.cg < FEW and pr.terms <= MOST_ENTRIES and _reach(pr) < 1 << 31
    strided = pr.stride != (1, 1) or tapped
    x_nhwc, pitch = pr.layout_in == "nhwc" or pr.h * pr.w == 1, pr.h * pr.w
    return Product(
        k=pr.kg, c=pr.terms if flat else pr.cg, groups=pr.groups, taps=1 if flat else pr.r * pr.s,
        pixels=pr.n * pr.p * pr.q, columns=False, x_nhwc=x_nhwc,
        y_nhwc=channels_together(pr), pitch=pitch,
        quads=not x_nhwc and not strided and pitch % 4 == 0, strided=strided, tapped=tapped, flat=flat,
        tap_words=tap_words(pr) if tapped else 0,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def column_product(pr: Problem) -> Product:
    """Return the matrix product of a layer's columns, as im2col.cu writes them."""
    pixels = pr.n * pr.p * pr.q
    return Product(
        k=pr.kg, c=pr.terms, groups=pr.groups, taps=1, pixels=pixels, columns=True,
        x_nhwc=False, y_nhwc=channels_together(pr), pitch=round_up(pixels, 4),
        quads=True, strided=False, tapped=False, flat=False, tap_words=0,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GemmTiling(ProductTiling):
    """Tiles of the gemm kernel.

    Attributes:
        kt, pt: output channels and pixels of a thread.
        run: channels unrolled into one loop body.
        x_pitch: floats from one row of the staged input to the next.
        x_floats: of the whole staged input.
        wide: floats of a copy of the input.
        table_at: where the table of a flat sum begins in shared memory, in floats.
    """

    kt: int
    pt: int
    run: int
    x_pitch: int
    x_floats: int
    wide: int
    table_at: int


def threads(cf: Values) -> int:
    """Threads of a block."""
    return 32 * cf["wk"] * cf["wp"] * cf["sb"]


def run_of(cf: Values) -> int:
    """Channels unrolled into one loop body: whole fragment buffers that fit the instruction cache."""
    least, channels = cf["fd"] * cf["cv"], cf["cs"] // cf["sb"]
    run = channels
    while run % 2 == 0 and run // 2 % least == 0 and run * 4 * cf["tk"] * cf["v"] * cf["tp"] > MOST_BODY:
        run //= 2
    return run


def tiling_of(pd: Product, cf: Values, aligned: bool = True) -> GemmTiling:
    """Return the tiling of a config."""
    kt, pt = 4 * cf["tk"], cf["v"] * cf["tp"]
    kb, pb = cf["wk"] * cf["lk"] * kt, cf["wp"] * 32 // cf["lk"] * pt
    cs = cf["cs"]
    across = pb + (4 - pb) % 32 if pd.x_nhwc else pb  # 8 channels x 4 pixels lie in 32 banks
    x_pitch = quad_pitch(cs) if cf["cv"] == 4 else across
    x_floats = lines((pb if cf["cv"] == 4 else cs) * x_pitch)
    wide = 4 if cf["cv"] == 4 or (pd.quads and pb % 4 == 0 and aligned) else 1
    k_tiles, q_tiles = ceil_div(pd.k, kb), ceil_div(pd.pixels, pb)
    meeting = cf["sb"] * kb * pb if cf["sb"] > 1 else 0
    table_at = max(cf["stages"] * (cs * kb + x_floats), meeting)
    return GemmTiling(
        kt=kt, pt=pt, kb=kb, pb=pb, threads=threads(cf), k_tiles=k_tiles, q_tiles=q_tiles,
        tiles=k_tiles * q_tiles * pd.groups, steps=pd.taps * ceil_div(pd.c, cs), run=run_of(cf),
        x_pitch=x_pitch, x_floats=x_floats, wide=wide, x_copies=ceil_div(cs * pb // wide, threads(cf)),
        shared_bytes=4 * (table_at + (2 * round_up(pd.c, cs) if pd.flat else 0)), table_at=table_at,
    )  # fmt: skip


def registers(cf: Values) -> int:
    """Estimate of the registers a thread needs: accumulators, fragments, addresses."""
    kt, pt = 4 * cf["tk"], cf["v"] * cf["tp"]
    return kt * pt + cf["fd"] * (kt + pt * cf["cv"]) + 30


def kept_places(pd: Product, tiling: GemmTiling) -> int:
    """Places of the input that a thread remembers: one if all its copies are of the same pixels (nchw)."""
    one_column = not pd.x_nhwc and tiling.threads % (tiling.pb // tiling.wide) == 0
    return 1 if one_column else tiling.x_copies


def few_copies(pd: Product, tiling: GemmTiling) -> bool:
    """Whether a thread's copies are few, with the taps that meet the image at the place of each."""
    kept = kept_places(pd, tiling) * (1 + pd.tap_words)
    return max(kept, tiling.x_copies) <= MOST_COPIES
