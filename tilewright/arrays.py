"""Callers' arrays: what library, dtype, where, how they lie in memory; used in place, never converted.

A library is only ever looked up among those that the caller has imported already.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.dtypes import FULL, SHORT, name_of, numpy_dtype
from tilewright.errors import ArrayError, OutOfMemory
from tilewright.problem import DTYPE_BYTES, STORED

Array = Any  # numpy.ndarray, torch.Tensor or cupy.ndarray
Shape = tuple[int, ...]

_LIBRARIES = (("numpy", "ndarray"), ("torch", "Tensor"), ("cupy", "ndarray"))
_COPY = {
    "numpy": "np.ascontiguousarray({})",
    "torch": "{}.contiguous()",
    "cupy": "cupy.ascontiguousarray({})",
}
_NHWC = (0, 2, 3, 1)  # of dimensions seen as (N, C, H, W)
_MOST_KINDS, _MOST_TYPES = 4096, 64  # that are remembered
_kinds: dict[tuple[Any, ...], Kind] = {}
_looks: dict[type, Callable[[str, Array], Seen]] = {}  # by the types of arrays that were met
_CAST = {"numpy": "{}.astype(np.{})", "torch": "{}.to(torch.{})", "cupy": "{}.astype(cupy.{})"}


@dataclass(frozen=True, eq=False)
class Kind:
    """What many arrays have in common; those of one layer have it call after call.

    Attributes:
        library: numpy, torch or cupy.
        place: cpu, or cuda:N.
        dtype: f64, f32, f16, bf16, f8, i8 or i32.
        shape: sizes as the caller sees them.
        strides: in elements, as the caller sees them.
    """

    library: str
    place: str
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


class Seen:
    """One argument as it was given.

    Attributes:
        name: the argument's name, for errors.
        array: the array itself (a detached view of a tensor).
        kind: what it has in common with others; its parts are here, too.
        address: of the first element.
    """

    __slots__ = ("address", "array", "kind", "name")

    def __init__(self, name: str, array: Array, kind: Kind, address: int) -> None:
        self.name, self.array, self.kind, self.address = name, array, kind, address

    library = property(lambda self: self.kind.library)
    place = property(lambda self: self.kind.place)
    dtype = property(lambda self: self.kind.dtype)
    shape = property(lambda self: self.kind.shape)
    strides = property(lambda self: self.kind.strides)

    @property
    def index(self) -> int:
        """Number of the CUDA device; 0 on a CPU."""
        return int(self.place.partition(":")[2] or 0)

    @property
    def aligned(self) -> bool:
        """Whether it starts at a multiple of its elements' size."""
        return self.address % DTYPE_BYTES[self.dtype] == 0

    @property
    def contiguous(self) -> bool:
        """Rows one after the other, last index fastest."""
        return self.kind.contiguous

    @property
    def channels_last(self) -> bool:
        """A tensor seen as (N, C, H, W) that lies as (N, H, W, C), and not also as the former."""
        return self.kind.channels_last

    @property
    def both_ways(self) -> bool:
        """A tensor that lies as (N, C, H, W) and as (N, H, W, C)."""
        return self.kind.both_ways

    @property
    def span(self) -> tuple[int, int]:
        """Addresses of the first byte and past the last one."""
        low, high = self.kind.reach
        return self.address + low, self.address + high

    def where(self) -> str:
        """Say what it is, for an error."""
        return f"a {self.library} array on {self.place}"


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


def look(name: str, array: Array) -> Seen:
    """Find out what an argument is, without importing anything.

    Raises:
        ArrayError: it is no array of a library or dtype that we know, it is sparse, nested, traced, masked,
            on a device that is neither a CPU nor a CUDA GPU, it wants a gradient, or has yet to be negated.
    """
    looks = _looks.get(type(array)) or _look_for(array)
    if looks is not None:
        return looks(name, array)
    what = f"{type(array).__module__.partition('.')[0]}.{type(array).__name__}"
    if hasattr(array, "__dlpack__"):
        raise ArrayError(
            f"{name}: a {what} was given; pass torch.from_dlpack({name}) or cupy.from_dlpack({name}): no copy"
        )
    what = type(array).__name__
    raise ArrayError(f"{name}: a {what} was given; must be an array, e.g. np.asarray({name}, np.float32)")


def _look_for(array: Array) -> Callable[[str, Array], Seen] | None:
    """Return what looks at arrays of its library; None: it is none that we know."""
    for library, kind in _LIBRARIES:
        module = sys.modules.get(library)
        if module is not None and isinstance(array, getattr(module, kind, ())):
            looks = {"numpy": _numpy, "torch": _torch, "cupy": _cupy}[library]
            if issubclass(type(array), getattr(module, kind)) and len(_looks) < _MOST_TYPES:  # no proxy
                _looks[type(array)] = looks
            return looks
    return None


def look_at(**arrays: Array) -> dict[str, Seen]:
    """Look at arguments by their names, but for those that are None."""
    return {name: look(name, array) for name, array in arrays.items() if array is not None}


def _known(key: tuple[Any, ...], make: Callable[[], Kind]) -> Kind:
    """Return the kind of arrays with the same key; one that was refused is made again, for its error."""
    try:
        found = _kinds.get(key)
    except TypeError:  # a dtype without a hash: none that we know
        return make()
    if found is None:
        found = make()
        if len(_kinds) >= _MOST_KINDS:
            _kinds.clear()
        _kinds[key] = found
    return found


def _numpy(name: str, array: Array) -> Seen:
    if hasattr(array, "mask"):
        raise ArrayError(f"{name}: a masked array was given; fill it first: {name}.filled(0)")

    def make() -> Kind:
        if not array.dtype.isnative:
            native = f"{name}.astype(np.{array.dtype.newbyteorder('=')})"
            raise ArrayError(f"{name}: dtype {array.dtype} (other byte order) was given; call {native}")
        dtype = _dtype(name, array, "numpy")
        return Kind("numpy", "cpu", dtype, tuple(array.shape), _in_elements(name, array, dtype))

    kind = _known(("numpy", array.dtype, array.shape, array.strides), make)
    return Seen(name, array, kind, array.__array_interface__["data"][0])


def _in_elements(name: str, array: Array, dtype: str) -> Shape:
    size = DTYPE_BYTES[dtype]
    if any(stride % size for stride in array.strides) and array.size:
        text = f"strides {array.strides} are no multiple of {size} bytes"
        raise ArrayError(f"{name}: {text}; call {name}.copy()")
    return tuple(stride // size for stride in array.strides)


def _torch(name: str, tensor: Array) -> Seen:
    try:
        key = (tensor.dtype, tensor.layout, tensor.device, tensor.shape, tensor.stride())
        address = int(tensor.data_ptr())  # int: else torch.compile looks into this, once for each shape
    except RuntimeError as error:  # it has none of these
        raise _odd(name, tensor) from error
    kind = _known(key, lambda: _kind_of_tensor(name, tensor))
    if tensor.is_neg():  # its memory is as it was; the conjugate bit is of complex dtypes alone
        raise ArrayError(
            f"{name}: a view that has yet to be negated was given (its negative bit is set); "
            f"call {name}.resolve_neg()"
        )
    if tensor.requires_grad:
        if sys.modules["torch"].is_grad_enabled():
            raise _wants_grad(name)
        tensor = tensor.detach()
    if not address and 0 not in kind.shape:
        raise _odd(name, tensor)
    return Seen(name, tensor, kind, address)


def _kind_of_tensor(name: str, tensor: Array) -> Kind:
    device = tensor.device
    if device.type not in ("cpu", "cuda"):
        raise ArrayError(f"{name}: a tensor on {device} was given; must be on cpu or cuda")
    if tensor.layout != sys.modules["torch"].strided:
        raise _not_strided(name, tensor)
    place = "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"
    return Kind("torch", place, _dtype(name, tensor, "torch"), tuple(tensor.shape), tuple(tensor.stride()))


def _not_strided(name: str, tensor: Array) -> ArrayError:
    return ArrayError(f"{name}: a tensor of layout {tensor.layout} was given; call {name}.to_dense()")


def _wants_grad(name: str) -> ArrayError:
    return ArrayError(
        f"{name}: requires grad, but tilewright computes none; use torch.no_grad() or {name}.detach()"
    )


def _odd(name: str, tensor: Array) -> ArrayError:
    """Return the error of a tensor that has no memory to read."""
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided:
        return _not_strided(name, tensor)
    if tensor.requires_grad and torch.is_grad_enabled():
        return _wants_grad(name)
    what = "a tensor without memory of its own was given (nested, traced as torch.vmap does, fake, or freed)"
    return ArrayError(f"{name}: {what}; must be a plain tensor")


def _cupy(name: str, array: Array) -> Seen:
    index = int(array.device.id)

    def make() -> Kind:
        dtype = _dtype(name, array, "cupy")
        strides = _in_elements(name, array, dtype)
        return Kind("cupy", f"cuda:{index}", dtype, tuple(array.shape), strides)

    kind = _known(("cupy", array.dtype, tuple(array.shape), tuple(array.strides), index), make)
    return Seen(name, array, kind, int(array.data.ptr))


def _dtype(name: str, array: Array, library: str) -> str:
    """Return the short name of an array's dtype."""
    full = name_of(array.dtype)
    if full not in SHORT:
        known = ", ".join(FULL[short] for short in (STORED if name in ("x", "w") else FULL))
        call = _cast(name, library, "f32")
        raise ArrayError(f"{name}: dtype {full} was given; must be one of {known}: call e.g. {call}")
    return SHORT[full]


def _cast(name: str, library: str, dtype: str) -> str:
    """Return the call that converts an array."""
    if dtype in ("bf16", "f8") and library == "numpy":
        return f"{name}.astype(ml_dtypes.{FULL[dtype]})"
    return _CAST[library].format(name, FULL[dtype])


def typed(seen: Seen, dtype: str, why: str) -> None:
    """Refuse an array of another dtype than the problem's or that of its output."""
    if seen.dtype != dtype:
        given, call = FULL[seen.dtype], _cast(seen.name, seen.library, dtype)
        raise ArrayError(f"{seen.name}: dtype {given} was given; must be {FULL[dtype]}{why}: call {call}")


def same_home(x: Seen, *others: Seen) -> None:
    """Refuse arrays of several libraries or devices.

    Raises:
        ArrayError: names the first that is not where ``x`` is.
    """
    for other in others:
        if (other.library, other.place) != (x.library, x.place):
            raise ArrayError(
                f"{other.name}: is {other.where()}, but {x.name} is {x.where()}; must be the same"
            )


def shaped(seen: Seen, shape: Shape, why: str) -> None:
    """Refuse an array of another shape."""
    if seen.shape != shape:
        raise ArrayError(f"{seen.name}: shape {seen.shape} was given; must be {shape} for {why}")


def in_place(seen: Seen, advice: str = "") -> Array:
    """Return the array if its rows lie one after the other; on a CPU an input that does not, is copied.

    Raises:
        ArrayError: it cannot be used in place on a GPU; says what to call.
    """
    if seen.place == "cpu":
        host = on_host(seen.array)
        return host if seen.contiguous and seen.aligned else host.copy(order="C")
    if seen.contiguous:
        return seen.array
    call = _COPY[seen.library].format(seen.name)
    raise ArrayError(
        f"{seen.name}: strides {seen.strides} of shape {seen.shape} are not contiguous; call {call}{advice}"
    )


def on_host(array: Array) -> Array:
    """Return a CPU array as a NumPy array over the same bytes."""
    if isinstance(array, np.ndarray):
        return array
    torch, name = sys.modules["torch"], name_of(array.dtype)  # which hands out none of these
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


def empty(like: Seen, shape: Shape, dtype: str) -> Array:
    """Return a new contiguous array of the caller's library, where ``like`` is.

    Raises:
        OutOfMemory: there is no room for it; says how much was needed.
    """
    try:
        return _empty(like, shape, dtype)
    except (MemoryError, ValueError, RuntimeError) as error:  # each library's own, past what it can count too
        if like.place != "cpu" and "OutOfMemory" not in type(error).__name__:
            raise
        nbytes = math.prod(shape) * DTYPE_BYTES[dtype]
        raise OutOfMemory(f"no room for an output of {nbytes:,} bytes on {like.place}") from error


def _empty(like: Seen, shape: Shape, dtype: str) -> Array:
    module = sys.modules[like.library]
    if like.library == "torch":
        return like.array.new_empty(shape, dtype=getattr(module, FULL[dtype]))
    if like.library == "cupy":
        with module.cuda.Device(like.index):
            return module.empty(shape, numpy_dtype(dtype))
    return module.empty(shape, numpy_dtype(dtype))


def writable(seen: Seen, *inputs: Seen | None) -> None:
    """Refuse an output that is read-only, has gaps, or lies over an input.

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
        if other is not None and low < other.span[1] and other.span[0] < high:
            raise ArrayError(f"{seen.name}: overlaps {other.name} in memory; must be an array of its own")


def current_stream(x: Seen) -> int | None:
    """Return the handle of the caller's current stream on the array's device; None on a CPU."""
    if x.place == "cpu":
        return None
    if x.library == "torch":
        torch = sys.modules["torch"]
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # which makes no object: 0.2 us, not 6
        return int(raw(x.index) if raw else torch.cuda.current_stream(x.array.device).cuda_stream)
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(x.index):
        return int(cupy.cuda.get_current_stream().ptr)
