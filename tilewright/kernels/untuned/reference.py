"""The reference family: the formula in f64, never tuned, and the same in NumPy."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.errors import ProblemError
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch, Param, Rule
from tilewright.kernels.requant import scale_operand
from tilewright.kernels.untuned import sizes, spread
from tilewright.problem import PRECISIONS, Problem
from tilewright.problem.epilogue import Epilogue

if TYPE_CHECKING:
    import numpy as np

    F64 = np.ndarray[Any, np.dtype[np.float64]]

_FEW = 4  # channels of a group; and the most elements of the matrix of all taps, relative to the outputs
_INPUTS = ("x", "w", "bias", "z")


class Reference(Family):
    """f64 sums directly from the formula; supports every problem on every device."""

    name = "reference"
    precisions = PRECISIONS
    tunable = races = False
    examples = tuple(f"n1c5h7w6k4r3s3p1-{precision}+bias" for precision in PRECISIONS)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support every problem."""
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return one parameter with one value, since a config must have something to print."""
        return (Param("v", (1,), "nothing to choose"),)

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return no rules."""
        return ()

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch that writes y in its dtype, or two if there is a pool."""
        full = reference_f64(problem, device)
        if problem.epilogue.pool:
            sums, pool = full.launches
            last = replace(pool, kernel="pool", args=("sums", "y", *scale_operand(problem)))
            return replace(full, launches=(sums, last))
        main = replace(full.launches[0], kernel="reference", args=(*_INPUTS, "y", *scale_operand(problem)))
        return replace(full, launches=(main,))

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Return 1: f64 sums are rounded once, to the output's dtype."""
        return 1


def reference_f64(problem: Problem, device: Device) -> Blueprint:
    """Return the launches that write y and its size (see ``numpy_conv``), both f64, in y's layout.

    Their buffers are x, w (kcrs), bias, z, ref, size; a pool's input is workspace.
    """
    strip = 1 if device.is_gpu else 8
    items = problem.n * problem.k * problem.p * ceil_div(problem.q, strip)
    blocks, defines = spread(device, items)
    one = Launch("reference_f64", (blocks, 1, 1), (defines["MAX_THREADS"], 1, 1), (*_INPUTS, "ref", "size"))
    full = Blueprint(
        source="reference.cu",
        defines=tuple((sizes(problem) | defines | dict(STRIP=strip)).items()),
        launches=(one,),
        packed_bytes=problem.w_bytes,
        problem=str(problem),
    )
    if not problem.epilogue.pool:
        return full
    first = replace(one, args=(*_INPUTS, "sums", "sizes"))
    second = replace(one, kernel="pool_f64", args=("sums", "sizes", "ref", "size"))
    room = tuple(Buffer(name, 8 * problem.z_elements) for name in ("sums", "sizes"))
    return replace(full, launches=(first, second), workspace=room)


def numpy_conv(
    problem: Problem, x: Any, w: Any, bias: Any = None, z: Any = None, sized: bool = True
) -> tuple[F64, F64]:
    """Compute y and its size, |alpha| conv(|x|, |w|) + |beta z| + |bias|, with NumPy in f64.

    A pool takes the largest size of a window, or their mean, as it does with the values: so a multiple
    of the size bounds the error of y for any pool (see ``error_bound.py``).

    Args:
        problem: the layer with its epilogue.
        x: input of shape ``problem.x_shape``.
        w: filter of shape ``problem.w_shape`` (kcrs).
        bias: shape (K,), if the problem has one.
        z: residual of shape ``problem.z_shape``, if the problem adds one.
        sized: False: the size is not needed, and y is returned instead.

    Returns:
        Two f64 arrays of shape ``problem.y_shape``.
    """
    return numpy_pool(problem, *numpy_sums(problem, x, w, bias, z, sized))


def numpy_sums(problem: Problem, x: Any, w: Any, bias: Any, z: Any, sized: bool = True) -> tuple[F64, F64]:
    """Return the pool's input, or y if there is no pool, and its size, of shape ``problem.z_shape``."""
    import numpy as np

    pr, e = problem, problem.epilogue
    x, w = np.asarray(x, np.float64).reshape(pr.x_shape), np.asarray(w, np.float64).reshape(pr.w_shape)
    with np.errstate(all="ignore"):
        y = _conv(pr, x, w) * e.alpha
        size = _conv(pr, np.abs(x), np.abs(w)) * abs(e.alpha) if sized else y
        if pr.layout_out == "nhwc":
            y, size = y.transpose(0, 2, 3, 1), size.transpose(0, 2, 3, 1)
        if e.add:
            more = e.beta * np.asarray(z, np.float64).reshape(pr.z_shape)
            y, size = y + more, size + np.abs(more)
        if e.bias:
            b = np.asarray(bias, np.float64).reshape((pr.k, 1, 1) if pr.layout_out == "nchw" else (pr.k,))
            y, size = y + b, size + np.abs(b)
        if pr.stored == "i8":
            y = (y + 2**31) % 2**32 - 2**31  # as i32 wraps; up to 2^53 f64 has every integer
        return np.ascontiguousarray(_activated(e, y)), np.ascontiguousarray(size)


def _activated(e: Epilogue, v: F64) -> F64:
    """Apply the activation; NaN stays NaN."""
    import numpy as np

    if e.act == "":
        return v
    if e.act == "relu":
        return np.where(v < 0, 0.0, v)
    if e.act == "leaky":
        return np.where(v < 0, v * e.low, v)
    if e.act == "silu":
        return np.asarray(v / (1 + np.exp(-v)))
    if e.act == "clamp":
        return np.where(v < e.low, e.low, np.where(v > e.high, e.high, v))
    raise ProblemError(f"+{e.act}: the reference has no formula of it; docs/new_activation.md says where")


def numpy_pool(problem: Problem, sums: Any, sizes: Any) -> tuple[F64, F64]:
    """Pool values and sizes of shape ``problem.z_shape``; without a pool, return them unchanged."""
    import numpy as np

    pool = problem.epilogue.pool
    if pool is None:
        return sums, sizes
    axes = (2, 3) if problem.layout_out == "nchw" else (1, 2)
    padding = [(pool.pad, pool.pad) if axis in axes else (0, 0) for axis in range(4)]
    step = tuple(slice(None, None, pool.stride if axis in axes else 1) for axis in range(4))

    def pooled(values: F64) -> F64:
        padded = np.pad(values, padding, constant_values=-np.inf)  # less than any value; a mean has no pad
        windows = np.lib.stride_tricks.sliding_window_view(padded, (pool.size, pool.size), axis=axes)[step]
        over = np.max if pool.mode == "max" else np.mean
        return np.ascontiguousarray(over(windows, axis=(4, 5)))

    with np.errstate(all="ignore"):
        return pooled(sums), pooled(sizes)


def _conv(pr: Problem, x: F64, w: F64) -> F64:
    """Sum a matrix product per filter tap, or do one of all if channels are few; x in its layout, y nchw."""
    import numpy as np

    x = x.transpose(0, 3, 1, 2) if pr.layout_in == "nhwc" else x
    try:
        padded = np.pad(x, ((0, 0), (0, 0), pr.pad[:2], pr.pad[2:]))
    except ValueError as error:  # what NumPy raises if the size overflows
        raise MemoryError(error) from error

    def under(r: int, s: int) -> F64:
        top, left = r * pr.dilation[0], s * pr.dilation[1]
        rows = slice(top, top + (pr.p - 1) * pr.stride[0] + 1, pr.stride[0])
        columns = slice(left, left + (pr.q - 1) * pr.stride[1] + 1, pr.stride[1])
        return padded[:, :, rows, columns].reshape(pr.n, pr.groups, pr.cg, pr.p * pr.q)

    taps = list(product(range(pr.r), range(pr.s)))
    y: F64 = np.zeros((pr.n, pr.groups, pr.kg, pr.p * pr.q))
    if pr.cg <= _FEW and len(taps) * pr.cg <= _FEW * pr.kg:
        columns = np.concatenate([under(r, s) for r, s in taps], axis=2)
        np.matmul(w.transpose(0, 2, 3, 1).reshape(1, pr.groups, pr.kg, -1), columns, out=y)
    else:
        for r, s in taps:
            y += w[:, :, r, s].reshape(1, pr.groups, pr.kg, pr.cg) @ under(r, s)
    return y.reshape(pr.n, pr.k, pr.p, pr.q)
