"""Use callers' arrays in place: arrays that do not fit are refused, and none on a GPU is ever copied."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.arrays.look import cast
from tilewright.arrays.view import Array, ArrayView, Shape
from tilewright.dtypes import FULL, name_of, numpy_dtype
from tilewright.errors import ArrayError, OutOfMemory, printable, shortened
from tilewright.problem import DTYPE_BYTES

_COPY = {
    "numpy": "np.ascontiguousarray({})",
    "torch": "{}.contiguous()",
    "cupy": "cupy.ascontiguousarray({})",
}


def typed(seen: ArrayView, dtype: str, why: str) -> None:
    """Refuse an array that does not have the given dtype.

    Raises:
        ArrayError: names the dtype that it must have, and what to do.
    """
    if seen.dtype != dtype:
        # A copy of an output would be written and lost.
        advice = "make it so" if seen.name == "out" else f"call {cast(seen.name, seen.library, dtype)}"
        given = FULL[seen.dtype]
        raise ArrayError(f"{seen.name}: dtype {given} was given; must be {FULL[dtype]}{why}: {advice}")


def same_home(x: ArrayView, *others: ArrayView) -> None:
    """Refuse arrays of several libraries or devices.

    Raises:
        ArrayError: names the first that is not where ``x`` is.
    """
    for other in others:
        if (other.library, other.device) != (x.library, x.device):
            raise ArrayError(
                f"{other.name}: is {other.where()}, but {x.name} is {x.where()}; must be the same"
            )


def shaped(seen: ArrayView, shape: Shape, why: str) -> None:
    """Refuse an array of another shape.

    Raises:
        ArrayError: names both shapes.
    """
    if seen.shape != shape:
        raise ArrayError(f"{seen.name}: shape {seen.shape} was given; must be {shape} for {why}")


def in_place(seen: ArrayView, advice: str = "") -> Array:
    """Return the array if it is contiguous; on a CPU, an input that is not is copied.

    Raises:
        ArrayError: it cannot be used in place on a GPU; says what to call.
        OutOfMemory: there is no room for the copy, which may be far larger than a broadcast array.
    """
    if seen.device == "cpu":
        host = on_host(seen.array)
        if seen.contiguous and seen.aligned:
            return host
        try:
            return host.copy(order="C")
        except MemoryError as error:
            wanted = f"{host.nbytes:,} bytes on cpu, which is made where its rows have gaps"
            raise OutOfMemory(f"no room for a copy of {seen.name} of {wanted}") from error
    if seen.contiguous:
        return seen.array
    call = _COPY[seen.library].format(seen.name)
    raise ArrayError(
        f"{seen.name}: strides {seen.strides} of shape {seen.shape} are not contiguous; call {call}{advice}"
    )


def contiguous(seen: ArrayView) -> Array:
    """Return the array, or a contiguous copy: for a filter, which is packed anyway.

    On a GPU its library makes the copy, on its current stream.

    Raises:
        OutOfMemory: there is no room for it.
    """
    if seen.device == "cpu" or seen.contiguous:
        return in_place(seen)
    try:
        if seen.library == "torch":
            return seen.array.contiguous()
        module = sys.modules[seen.library]
        with module.cuda.Device(seen.index):
            return module.ascontiguousarray(seen.array)
    except (MemoryError, RuntimeError) as error:
        if "OutOfMemory" not in type(error).__name__:
            raise
        wanted = f"{math.prod(seen.shape) * DTYPE_BYTES[seen.dtype]:,} bytes on {seen.device}"
        raise OutOfMemory(f"no room for a copy of {seen.name} of {wanted}") from error


def on_host(array: Array) -> Array:
    """Return a CPU array as a NumPy array over the same bytes."""
    if isinstance(array, np.ndarray):
        return array
    torch, name = sys.modules["torch"], name_of(array.dtype)  # its numpy() refuses these dtypes
    if name == "bfloat16":
        return array.view(torch.int16).numpy().view(numpy_dtype("bf16"))
    if name == "float8_e4m3fn":
        return array.view(torch.int8).numpy().view(numpy_dtype("f8"))
    return array.numpy()


def to_nhwc(array: Array) -> Array:
    """Return the view (N, H, W, C) of an array seen as (N, C, H, W)."""
    return array.permute(0, 2, 3, 1) if hasattr(array, "permute") else array.transpose(0, 2, 3, 1)


def to_nchw(array: Array) -> Array:
    """Return the view (N, C, H, W) of an array seen as (N, H, W, C)."""
    return array.permute(0, 3, 1, 2) if hasattr(array, "permute") else array.transpose(0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Makes the outputs of calls whose arrays are alike.

    Attributes:
        make: makes one, of an input's library, where that is.
        nbytes: size of each.
        device: where they are.
    """

    make: Callable[[Array], Array]
    nbytes: int
    device: str

    @classmethod
    def of(cls, x: ArrayView, shape: Shape, dtype: str, turned: bool) -> Outputs:
        """Return what makes the outputs of calls with inputs like x.

        Args:
            x: the input.
            shape: of an output in memory, which is dense.
            dtype: its short name.
            turned: whether the caller sees (N, H, W, C) as (N, C, H, W): as a tensor in channels_last.
        """
        module, nbytes = sys.modules[x.library], math.prod(shape) * DTYPE_BYTES[dtype]
        if x.library == "torch":
            return cls(_maker_of_tensors(shape, getattr(module, FULL[dtype]), turned), nbytes, x.device)
        there = partial(module.cuda.Device, x.index) if x.library == "cupy" else nullcontext
        return cls(_maker_of_arrays(module.empty, there, shape, numpy_dtype(dtype), turned), nbytes, x.device)

    def new(self, x: ArrayView) -> Array:
        """Return a new one, for an input.

        Raises:
            OutOfMemory: there is no room for it; says how much is needed.
        """
        try:
            return self.make(x.array)
        except (MemoryError, ValueError, RuntimeError, TypeError) as error:  # its library's; a size overflows
            if self.device != "cpu" and "OutOfMemory" not in type(error).__name__:
                raise
            what = f"an output of {self.nbytes:,} bytes on {self.device}"
            why = printable(shortened(str(error)))
            raise OutOfMemory(f"no room for {what}{why and ': '}{why}") from error


def _maker_of_arrays(
    empty: Callable[..., Array], there: Callable[[], Any], shape: Shape, dtype: Any, turned: bool
) -> Callable[[Array], Array]:
    def make(_: Array) -> Array:
        with there():
            y = empty(shape, dtype)
        return to_nchw(y) if turned else y

    return make


def _maker_of_tensors(shape: Shape, dtype: Any, turned: bool) -> Callable[[Array], Array]:
    """With its strides said, an output needs no second view of it in channels_last."""
    strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    if turned:
        (n, h, w, c), (by_n, by_h, by_w, by_c) = shape, strides
        shape, strides = (n, c, h, w), (by_n, by_c, by_h, by_w)
    return lambda x: x.new_empty_strided(shape, strides, dtype=dtype)


def writable(seen: ArrayView, *inputs: ArrayView) -> None:
    """Refuse an output that is read-only, misaligned, or overlaps an input.

    Raises:
        ArrayError: says which.
    """
    flags = getattr(seen.array, "flags", None)
    if seen.library == "numpy" and not flags.writeable:  # type: ignore[union-attr]
        raise ArrayError(f"{seen.name}: is read-only; must be writable")
    if not seen.aligned:
        size = DTYPE_BYTES[seen.dtype]
        raise ArrayError(f"{seen.name}: starts at no multiple of {size} bytes; must, as a new array does")
    low, high = seen.span
    for other in inputs:
        its_low, its_high = other.span
        if low < its_high and its_low < high:
            raise ArrayError(f"{seen.name}: overlaps {other.name} in memory; must be an array of its own")


def tell_written(seen: ArrayView) -> None:
    """Tell PyTorch that an output is written to, so that autograd does not use saved values of it."""
    if seen.library == "torch" and not seen.array.is_inference():
        increment = getattr(sys.modules["torch"].autograd.graph, "increment_version", None)
        if increment is not None:  # since 2.1
            increment(seen.array)


def current_stream(x: ArrayView) -> int | None:
    """Return the handle of the caller's current stream on the array's device; None on a CPU."""
    if x.device == "cpu":
        return None
    if x.library == "torch":
        torch = sys.modules["torch"]
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # it creates no object: 0.2 us, not 6
        return int(raw(x.index) if raw else torch.cuda.current_stream(x.array.device).cuda_stream)
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(x.index):
        return int(cupy.cuda.get_current_stream().ptr)
