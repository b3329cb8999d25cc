"""Named configs: the steps and the sweeps of the sources, each to be run and timed separately.

toy:…   a convolution, as in "Investigation of CUDA Optimizations for Accelerating a Toy CNN Architecture"
gemm:…  a matrix product, as in "Mapping and Accelerating a Convolutional Neural Network on a GPU"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.errors import ConfigError, shortened
from tilewright.kernels import FAMILIES
from tilewright.kernels.config import Config
from tilewright.kernels.textbook.spec import ROLLED, UNROLLED, Textbook, steps
from tilewright.kernels.textbook.work import (
    GEMM_COALESCED,
    GEMM_NAIVE,
    GEMM_UNCOALESCED,
    NAIVE,
    TENSOR_NAIVE,
    TENSOR_TILED,
    TILE,
    UNROLL,
)
from tilewright.problem import Problem


@dataclass(frozen=True)
class Named:
    """A config of the textbook family: a name, a step with its block of threads, and what it shows."""

    name: str
    doc: str
    step: int
    block: tuple[int, int, int] = (16, 16, 4)
    pool: int = ROLLED

    def fits(self, problem: Problem) -> bool:
        """Whether the layer can take this step."""
        return self.step in steps(problem)

    def config(self, problem: Problem) -> Config:
        """Return the config; without a pool it has no unrolled pool."""
        bw, bh, bk = self.block
        pool = self.pool if problem.epilogue.pool else ROLLED
        return Config.make(Textbook.name, dict(step=self.step, bw=bw, bh=bh, bk=bk, pool=pool))


def _named() -> Iterator[Named]:
    naive = "all from global memory"
    apart = "tiles in shared memory; neighbouring threads read addresses far apart"
    turned = "tiles in shared memory; a first launch transposes the filter: neighbours read neighbours"
    const = "const helpers: the same kernel as V2, since the compiler knows every size here"
    yield Named("toy:no-tiling", f"Table 2, baseline: {naive}, pool and epilogue fused", NAIVE)
    yield Named("toy:shared-tile", "Table 2, V1: the inputs under a block in shared memory", TILE)
    yield Named("toy:pool-unrolled", "Table 2, V2: all sums of a pool's window at once", TILE, pool=UNROLLED)
    yield Named("toy:const-helpers", f"Table 2, V3: {const}", TILE, pool=UNROLLED)
    yield Named("toy:unroll-pragma", "Table 2, V4: the filter's loops unrolled", UNROLL, pool=UNROLLED)
    for place, block in (("3", (16, 16, 4)), ("3", (16, 16, 2)), ("3", (16, 16, 1)), ("1", (16, 8, 4))):
        shape = "x".join(map(str, block))
        yield Named(f"toy:block-{shape}", f"Table {place}: V4 in blocks of {shape}", UNROLL, block, UNROLLED)
    square = (32, 32, 1)
    yield Named("gemm:naive", naive, GEMM_NAIVE, square)
    yield Named("gemm:tiled-uncoalesced", apart, GEMM_UNCOALESCED, square)
    yield Named("gemm:tiled-coalesced", turned, GEMM_COALESCED, square)
    one = "tensor cores, f16: a warp makes 16 x 16 outputs, all from global memory"
    yield Named("gemm:tensor-naive", one, TENSOR_NAIVE, (32, 1, 1))
    tiled = "tensor cores, f16: 8 warps make 64 x 128 outputs, from tiles in shared memory"
    yield Named("gemm:tensor-tiled", tiled, TENSOR_TILED, (32, 4, 2))
    for side in (4, 8, 16, 32):
        doc = f"tile size against time: gemm:tiled-coalesced in tiles of {side} x {side}"
        yield Named(f"gemm:tile-{side}", doc, GEMM_COALESCED, (side, side, 1))


NAMED = {one.name: one for one in _named()}


def find(text: str, problem: Problem) -> Config:
    """Read a config: its text, or a name that fits the layer.

    Raises:
        ConfigError: it cannot be read, or there is no such name, or none for this layer; lists the names.
    """
    if text in NAMED and NAMED[text].fits(problem):
        return NAMED[text].config(problem)
    if "=" in text:
        return Config.parse(text)
    names = ", ".join(one.name for one in NAMED.values() if one.fits(problem))
    what = "is made for other layers" if text in NAMED else "must be family:name=value.name=value, or a name"
    if any(text == one.name for one in FAMILIES):
        what = f"is a family (--family {text}, in Python family={text!r}), no family:name=value.name=value"
    if text == "reference":
        what = "is a family of one kernel, reference:v=1"
    raise ConfigError(f"config {shortened(text)!r}: {what}; names that fit {problem}: {names or 'none'}")
