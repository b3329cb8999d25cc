"""One convolution layer as a value; ``grammar.py`` has the one-line text that names it.

``n1c512h7w7k512r3s3p1-f32`` is a CLI argument, a test id, a log line and a reproduction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.arithmetic import with_ints
from tilewright.errors import ProblemError, shown
from tilewright.hashed import hashed_once
from tilewright.problem.checks import SIZES, check_names, check_sizes
from tilewright.problem.epilogue import NOTHING, Epilogue
from tilewright.problem.grammar import read, write
from tilewright.problem.precision import ARRAY_DTYPES, DTYPE_BYTES, MATHS, TIMED_AS


@dataclass(frozen=True)
class Operand:
    """One tensor of a layer.

    Attributes:
        name: x, w, bias, z, scale or y.
        shape: in elements, in the layer's own layout; w is (K, C / groups, R, S).
        dtype: one of ``DTYPE_BYTES``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


@hashed_once
@dataclass(frozen=True)
class Problem:
    """One layer: y = pool(act(alpha * conv + beta * z + bias)), conv[n,k,p,q] = sum of x * w over c,r,s.

    Attributes:
        c, h, w: channels of all groups, height and width of x, in elements.
        k, r, s: output channels of all groups, height and width of the filter, whose shape is
            (k, c / groups, r, s).
        n: batch.
        pad: rows and columns of zeros around x: (top, bottom, left, right).
        stride, dilation: (height, width).
        groups: groups of channels; c for depthwise.
        dtype: of x and w, see below.
        layout_in, layout_out: of x, and of y and z: nchw or nhwc.
        math: how f32 tensors are multiplied, see below.
        epilogue: what follows the convolution; see ``Epilogue``.
        p, q: height and width of the convolution's output; the p of a problem string is ``pad``.
        y_p, y_q: height and width of y, which a pool may have made smaller.

    ``dtype`` is one of these:

    - f64, f32, f16, bf16: y, the bias and z have the same dtype.
    - i8: sums are i32, and so are y, the bias and z.
    - f8 is e4m3 (float8_e4m3fn): sums are f32; y, the bias and z are f16.
    - q8, written ``-i8…+requant`` in a problem string: the i8 layer with its i32 result v requantised to i8,
      y = clamp(round(scale[k] * (f32) v), -128, 127). ``scale`` holds K numbers of f32. The product is
      rounded to f32, then to the nearest integer (ties to even).

    ``math`` says how f32 tensors are multiplied:

    - strict: every product and every sum is f32.
    - tf32, written ``-tf32``: x and w are first rounded to tf32 (11 significant bits).
    - accurate, written ``-accurate``: on tensor cores. Each number is split into two parts of 11 bits, three
      products of the parts stand for one, and partial sums are added in f32 every 8 to 32 products. The error
      is no larger than that of plain f32 sums, added one product after the other. The parts are tf32 or f16:

      - tf32 parts have the range of f32, but denormals of x and w may count as 0, numbers above 3.401e38 may
        count as infinity, and a sum that overflows may be NaN.
      - f16 parts have a smaller range, so every run is guarded: y is recomputed in strict f32, on the device
        and in the same run, if x holds a number that is not finite, or one that is not 0 and below 2^-39 of
        the largest, or if more than 1 + 1/4096 of all its numbers are below 2^-28 of it. Output channels
        whose filter is like that are recomputed too, 64 at a time.

      It is never chosen unless you ask for it.

    Raises:
        ProblemError: a size is out of range, words contradict each other, or the output would be empty.

    Example:
        >>> Problem.parse("n1c64h56w56k128r3s3p1u2-f32").q
        28
    """

    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    n: int = 1
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    dtype: str = "f32"
    layout_in: str = "nchw"
    layout_out: str = "nchw"
    math: str = "strict"
    epilogue: Epilogue = NOTHING

    def __post_init__(self) -> None:
        if isinstance(self.dtype, str) and self.dtype in MATHS[1:]:  # named as dtypes are
            if not isinstance(self.math, str) or self.math not in ("strict", self.dtype):
                given = f"dtype={shown(self.dtype)}, math={shown(self.math)}"
                raise ProblemError(f"{given}: they contradict each other")
            object.__setattr__(self, "math", self.dtype)
            object.__setattr__(self, "dtype", "f32")
        for name in SIZES:
            object.__setattr__(self, name, with_ints(getattr(self, name)))
        check_sizes(self)
        check_names(self)
        if self.dtype != "f64" and self.epilogue:
            object.__setattr__(self, "epilogue", self.epilogue.rounded())

    @property
    def p(self) -> int:
        """Height of the convolution's output, before any pool."""
        span = self.dilation[0] * (self.r - 1) + 1
        return (self.h + self.pad[0] + self.pad[1] - span) // self.stride[0] + 1

    @property
    def q(self) -> int:
        """Width of the convolution's output, before any pool."""
        span = self.dilation[1] * (self.s - 1) + 1
        return (self.w + self.pad[2] + self.pad[3] - span) // self.stride[1] + 1

    @property
    def y_p(self) -> int:
        """Height of y, after any pool."""
        return self.epilogue.pool.out(self.p) if self.epilogue.pool else self.p

    @property
    def y_q(self) -> int:
        """Width of y, after any pool."""
        return self.epilogue.pool.out(self.q) if self.epilogue.pool else self.q

    @property
    def stored(self) -> str:
        """Dtype in which x and w are stored."""
        return ARRAY_DTYPES[self.dtype].stored

    @property
    def dtype_added(self) -> str:
        """Dtype of bias and z."""
        return ARRAY_DTYPES[self.dtype].added

    @property
    def dtype_out(self) -> str:
        """Dtype of y."""
        return ARRAY_DTYPES[self.dtype].out

    @property
    def is_integer(self) -> bool:
        """Whether x, w and all sums are integers."""
        return self.dtype in ("i8", "q8")

    @property
    def requantised(self) -> bool:
        """Whether the i32 sums of i8 are scaled back to i8, with one scale for each output channel."""
        return self.dtype == "q8"

    @property
    def precision(self) -> str:
        """f64, f32, f16, bf16, i8, f8, q8, tf32 or accurate: ``dtype``, or ``math`` if that is not strict."""
        return self.dtype if self.math == "strict" else self.math

    @property
    def timed_as(self) -> str:
        """The precision, or the one whose kernels take the same time, or nearly."""
        return TIMED_AS.get(self.precision, self.precision)

    @property
    def portable(self) -> Problem:
        """The same layer in a dtype of DTYPES that holds the same numbers, strict, not requantised."""
        return replace(self, dtype=ARRAY_DTYPES[self.dtype].portable, math="strict")

    @property
    def cg(self) -> int:
        """Input channels of one group."""
        return self.c // self.groups

    @property
    def kg(self) -> int:
        """Output channels of one group."""
        return self.k // self.groups

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        """Shape of the input in its own layout."""
        return _laid_out(self.layout_in, self.n, self.c, self.h, self.w)

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        """Shape of the filter, always kcrs: (K, C / groups, R, S)."""
        return (self.k, self.cg, self.r, self.s)

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        """Shape of the output in its own layout."""
        return _laid_out(self.layout_out, self.n, self.k, self.y_p, self.y_q)

    @property
    def z_shape(self) -> tuple[int, int, int, int]:
        """Shape of the convolution before any pool, and of the residual z, in the output's layout."""
        return _laid_out(self.layout_out, self.n, self.k, self.p, self.q)

    @property
    def terms(self) -> int:
        """Products that an output of the convolution is the sum of; those with padding count."""
        return self.cg * self.r * self.s

    @property
    def flops(self) -> int:
        """Multiplies and adds of the convolution itself; products with padding count."""
        return 2 * self.z_elements * self.terms

    @property
    def x_elements(self) -> int:
        """Elements of the input."""
        return self.n * self.c * self.h * self.w

    @property
    def x_bytes(self) -> int:
        """Bytes of the input."""
        return self.x_elements * DTYPE_BYTES[self.dtype]

    @property
    def w_elements(self) -> int:
        """Elements of the filter."""
        return self.k * self.terms

    @property
    def w_bytes(self) -> int:
        """Bytes of the filter."""
        return self.w_elements * DTYPE_BYTES[self.dtype]

    @property
    def y_elements(self) -> int:
        """Elements of the output."""
        return self.n * self.k * self.y_p * self.y_q

    @property
    def y_bytes(self) -> int:
        """Bytes of the output."""
        return self.y_elements * DTYPE_BYTES[self.dtype_out]

    @property
    def z_elements(self) -> int:
        """Elements of the convolution before any pool, and of the residual z."""
        return self.n * self.k * self.p * self.q

    @property
    def z_bytes(self) -> int:
        """Size in bytes of the residual z, whether the layer has one or not."""
        return self.z_elements * DTYPE_BYTES[self.dtype_added]

    @property
    def operands(self) -> dict[str, Operand]:
        """The tensors of this layer, by name: x, w, then bias, z and scale where it has them, and y."""
        added = self.dtype_added
        found = [Operand("x", self.x_shape, self.stored), Operand("w", self.w_shape, self.stored)]
        found += [Operand("bias", (self.k,), added)] * self.epilogue.bias
        found += [Operand("z", self.z_shape, added)] * self.epilogue.add
        found += [Operand("scale", (self.k,), "f32")] * self.requantised
        found += [Operand("y", self.y_shape, self.dtype_out)]
        return {operand.name: operand for operand in found}

    @property
    def bytes(self) -> int:
        """Size in bytes of all inputs and the output together."""
        return sum(operand.nbytes for operand in self.operands.values())

    def with_dtype(self, name: str) -> Problem:
        """Return the same layer in another dtype or math (as ``precision`` names them)."""
        epilogue = Epilogue.parse(self.epilogue.text(self.dtype).split("+")[1:])
        return replace(self, dtype=name, math="strict", epilogue=epilogue)

    def with_layout(self, layout: str) -> Problem:
        """Return the same layer with input and output in another layout."""
        return replace(self, layout_in=layout, layout_out=layout)

    def __str__(self) -> str:
        return write(self)

    @classmethod
    def parse(cls, text: str) -> Problem:
        """Read a problem string.

        Args:
            text: a string of the grammar ``tilewright.problem.GRAMMAR``.

        Raises:
            ProblemError: the text is malformed; the error names it and the part.
        """
        values = read(text)
        try:
            return cls(**values)  # type: ignore[arg-type]
        except ProblemError as error:
            raise ProblemError(f"problem {shown(text)}: {error}") from None


def _laid_out(layout: str, n: int, c: int, h: int, w: int) -> tuple[int, int, int, int]:
    return (n, c, h, w) if layout == "nchw" else (n, h, w, c)
