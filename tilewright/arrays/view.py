"""Descriptions of arrays: library, device, dtype and memory layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright.problem import DTYPE_BYTES

Array = Any  # numpy.ndarray, torch.Tensor or cupy.ndarray
Shape = tuple[int, ...]
_NHWC = (0, 2, 3, 1)  # as axes of (N, C, H, W)


@dataclass(frozen=True, eq=False)
class ArraySpec:
    """The properties that arrays share: those of one layer have the same in every call.

    Attributes:
        library: numpy, torch or cupy.
        device: cpu, or cuda:N.
        dtype: f64, f32, f16, bf16, f8, i8 or i32.
        shape: sizes as the caller sees them.
        strides: in elements, as the caller sees them.
    """

    library: str
    device: str
    dtype: str
    shape: Shape
    strides: Shape

    @cached_property
    def index(self) -> int:
        """Number of the CUDA device; 0 on a CPU."""
        return int(self.device.partition(":")[2] or 0)

    @cached_property
    def contiguous(self) -> bool:
        """Whether it is dense, with the last index fastest."""
        return _dense(self.shape, self.strides, range(len(self.shape)))

    @cached_property
    def channels_last(self) -> bool:
        """Whether its shape is (N, C, H, W) but its memory order (N, H, W, C), and not both."""
        if self.library != "torch" or len(self.shape) != 4 or self.contiguous:
            return False
        return _dense(self.shape, self.strides, _NHWC)

    @cached_property
    def both_ways(self) -> bool:
        """Whether its memory order is both (N, C, H, W) and (N, H, W, C): C or H x W is 1, or it is empty."""
        if self.library != "torch" or len(self.shape) != 4 or not self.contiguous:
            return False
        return _dense(self.shape, self.strides, _NHWC)

    @cached_property
    def reach(self) -> tuple[int, int]:
        """Offsets from the first element to the lowest byte, and past the highest one, in bytes."""
        size = DTYPE_BYTES[self.dtype]
        if 0 in self.shape:
            return 0, 0
        steps = [s * (n - 1) for n, s in zip(self.shape, self.strides, strict=True)]
        return size * sum(s for s in steps if s < 0), size * (sum(s for s in steps if s > 0) + 1)


class ArrayView:
    """One argument as it was given.

    Attributes:
        name: the argument's name, for errors.
        array: the array itself (a detached view of a tensor).
        spec: the properties that arrays share; also attributes of the view itself.
        address: of the first element.
    """

    __slots__ = ("address", "array", "name", "spec")

    def __init__(self, name: str, array: Array, spec: ArraySpec, address: int) -> None:
        self.name, self.array, self.spec, self.address = name, array, spec, address

    library = property(lambda self: self.spec.library)
    device = property(lambda self: self.spec.device)
    dtype = property(lambda self: self.spec.dtype)
    shape = property(lambda self: self.spec.shape)
    strides = property(lambda self: self.spec.strides)
    contiguous = property(lambda self: self.spec.contiguous)
    channels_last = property(lambda self: self.spec.channels_last)
    index = property(lambda self: self.spec.index)

    @property
    def aligned(self) -> bool:
        """Whether its address is a multiple of the element size."""
        return self.address % DTYPE_BYTES[self.dtype] == 0

    @property
    def span(self) -> tuple[int, int]:
        """Addresses of its lowest byte and past its highest."""
        low, high = self.spec.reach
        return self.address + low, self.address + high

    def where(self) -> str:
        """Describe it for an error."""
        return f"a {self.library} array on {self.device}"


def _dense(shape: Shape, strides: Shape, order: Sequence[int]) -> bool:
    """Whether the dimensions are dense in this order; strides of dimensions of size 1 do not matter."""
    want = 1
    if 0 in shape:
        return True
    for d in reversed(order):
        if shape[d] != 1 and strides[d] != want:
            return False
        want *= shape[d]
    return True
