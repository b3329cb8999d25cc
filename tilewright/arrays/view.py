"""What an array is: its library, device, dtype, and how it lies in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright.problem import DTYPE_BYTES

Array = Any  # numpy.ndarray, torch.Tensor or cupy.ndarray
Shape = tuple[int, ...]
_NHWC = (0, 2, 3, 1)  # of dimensions seen as (N, C, H, W)


@dataclass(frozen=True, eq=False)
class ArraySpec:
    """What many arrays have in common; those of one layer have it call after call.

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
    def contiguous(self) -> bool:
        """Rows one after the other, last index fastest."""
        return _dense(self.shape, self.strides, range(len(self.shape)))

    @cached_property
    def channels_last(self) -> bool:
        """A tensor seen as (N, C, H, W) that lies as (N, H, W, C), and not also as the former."""
        if self.library != "torch" or len(self.shape) != 4 or self.contiguous:
            return False
        return _dense(self.shape, self.strides, _NHWC)

    @cached_property
    def both_ways(self) -> bool:
        """A tensor that lies as (N, C, H, W) and as (N, H, W, C): of C and H x W one is 1, or it is empty."""
        if self.library != "torch" or len(self.shape) != 4 or not self.contiguous:
            return False
        return _dense(self.shape, self.strides, _NHWC)

    @cached_property
    def reach(self) -> tuple[int, int]:
        """From the first element to the first byte and past the last one, in bytes."""
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
        spec: what it has in common with others; its parts are here, too.
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

    @property
    def index(self) -> int:
        """Number of the CUDA device; 0 on a CPU."""
        return int(self.device.partition(":")[2] or 0)

    @property
    def aligned(self) -> bool:
        """Whether it starts at a multiple of its elements' size."""
        return self.address % DTYPE_BYTES[self.dtype] == 0

    @property
    def span(self) -> tuple[int, int]:
        """Addresses of the first byte and past the last one."""
        low, high = self.spec.reach
        return self.address + low, self.address + high

    def where(self) -> str:
        """Say what it is, for an error."""
        return f"a {self.library} array on {self.device}"


def _dense(shape: Shape, strides: Shape, order: Sequence[int]) -> bool:
    """Whether the dimensions lie without gaps in this order; those of size 1 may lie anyhow."""
    want = 1
    if 0 in shape:
        return True
    for d in reversed(order):
        if shape[d] != 1 and strides[d] != want:
            return False
        want *= shape[d]
    return True
