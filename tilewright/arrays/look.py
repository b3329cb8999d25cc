"""Identify callers' arrays, without importing anything.

Only libraries that the caller has imported already are considered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from tilewright.arrays.view import Array, ArraySpec, ArrayView, Shape
from tilewright.dtypes import FULL, SHORT, name_of
from tilewright.errors import ArrayError, a_kind
from tilewright.problem import DTYPE_BYTES, STORED

_LIBRARIES = (("numpy", "ndarray"), ("torch", "Tensor"), ("cupy", "ndarray"))
_CAST = {"numpy": "{}.astype(np.{})", "torch": "{}.to(torch.{})", "cupy": "{}.astype(cupy.{})"}
_MOST_SPECS, _MOST_TYPES = 4096, 64  # most that are cached
_specs: dict[tuple[Any, ...], ArraySpec] = {}
_looks: dict[type, Callable[[str, Array], ArrayView]] = {}  # by the types of arrays that were seen


def look(name: str, array: Array) -> ArrayView:
    """Identify an argument, without importing anything.

    Raises:
        ArrayError: it is not an array of a known library and dtype, or it is sparse, nested, traced or
            masked, is on neither a CPU nor a CUDA GPU, requires a gradient, has a tangent, or has its
            negative bit set.
    """
    looks = _looks.get(type(array)) or _look_for(array)
    if looks is not None:
        return looks(name, array)
    what = f"{type(array).__module__.partition('.')[0]}.{type(array).__name__}"
    if hasattr(type(array), "__dlpack__"):  # of the type: a torch.fx.Proxy pretends to have every attribute
        raise ArrayError(
            f"{name}: a {what} was given; pass torch.from_dlpack({name}) or cupy.from_dlpack({name}): no copy"
        )
    must = f"must be an array: {_instead(name, f'np.asarray({name}, np.float32)', 'e.g.')}"
    raise ArrayError(f"{name}: {a_kind(array)} was given; {must}")


def _look_for(array: Array) -> Callable[[str, Array], ArrayView] | None:
    """Return the function that identifies arrays of this library; None if it is unknown."""
    for library, class_name in _LIBRARIES:
        module = sys.modules.get(library)
        if module is not None and isinstance(array, getattr(module, class_name, ())):
            looks = {"numpy": _numpy, "torch": _torch, "cupy": _cupy}[library]
            if issubclass(type(array), getattr(module, class_name)) and len(_looks) < _MOST_TYPES:  # no proxy
                _looks[type(array)] = looks
            return looks
    return None


def look_at(**arrays: Array) -> dict[str, ArrayView]:
    """Identify arguments, by name; those that are None are left out."""
    return {name: look(name, array) for name, array in arrays.items() if array is not None}


def _known(key: tuple[Any, ...], make: Callable[[], ArraySpec]) -> ArraySpec:
    """Return the cached spec of arrays with this key; a refused one is made again, for its error."""
    try:
        found = _specs.get(key)
    except TypeError:  # a dtype without a hash: an unknown one
        return make()
    if found is None:
        found = make()
        if len(_specs) >= _MOST_SPECS:
            _specs.clear()
        _specs[key] = found
    return found


def _numpy(name: str, array: Array) -> ArrayView:
    if hasattr(array, "mask"):
        raise ArrayError(f"{name}: a masked array was given; {_instead(name, f'{name}.filled(0)')}")

    def make() -> ArraySpec:
        if not array.dtype.isnative:
            native = _instead(name, f"{name}.astype(np.{array.dtype.newbyteorder('=')})")
            raise ArrayError(f"{name}: dtype {array.dtype} (other byte order) was given; {native}")
        dtype = _dtype(name, array, "numpy")
        return ArraySpec("numpy", "cpu", dtype, tuple(array.shape), _in_elements(name, array, dtype))

    spec = _known(("numpy", array.dtype, array.shape, array.strides), make)
    return ArrayView(name, array, spec, array.__array_interface__["data"][0])


def _in_elements(name: str, array: Array, dtype: str) -> Shape:
    size = DTYPE_BYTES[dtype]
    if any(stride % size for stride in array.strides) and array.size:
        text = f"strides {array.strides} are no multiple of {size} bytes"
        raise ArrayError(f"{name}: {text}; {_instead(name, f'{name}.copy()')}")
    return tuple(stride // size for stride in array.strides)


def _torch(name: str, tensor: Array) -> ArrayView:
    try:
        key = (tensor.dtype, tensor.layout, tensor.device, tensor.shape, tensor.stride())
        address = int(tensor.data_ptr())  # int: otherwise torch.compile traces this, once for each shape
        spec = _specs.get(key)
    except (RuntimeError, TypeError) as error:  # it has no strides, no address, or sizes that are symbols
        raise _odd(name, tensor) from error
    if spec is None:
        spec = _known(key, partial(_spec_of_tensor, name, tensor))
    if tensor.requires_grad or tensor.is_neg() or _is_followed():
        tensor = _plain(name, tensor)
    if not address and 0 not in spec.shape:
        raise _odd(name, tensor)
    return ArrayView(name, tensor, spec, address)


def _plain(name: str, tensor: Array) -> Array:
    """Return a tensor detached from autograd; refuse one whose value, or use, only PyTorch knows."""
    torch = sys.modules["torch"]
    if tensor.is_neg():  # its memory is not negated yet; only complex dtypes have a conjugate bit
        raise ArrayError(
            f"{name}: a view that has yet to be negated was given (its negative bit is set); "
            + _instead(name, f"{name}.resolve_neg()")
        )
    if tensor.requires_grad:
        if torch.is_grad_enabled():
            raise _wants_grad(name)
        tensor = tensor.detach()
    if _has_tangent(tensor):
        text = "has a tangent of forward-mode differentiation, but tilewright computes none"
        raise ArrayError(f"{name}: {text}; call {name}.detach()")
    if _is_recorded():
        raise _odd(name, tensor)
    return tensor


@cache
def _modes() -> tuple[Any, Callable[[], int], Callable[[], bool]]:
    """PyTorch's forward-mode differentiation, and two functions: how many modes see each operation, and
    whether make_fx does so early. Found once, since each tensor of each call asks.
    """
    torch = sys.modules["torch"]
    state = torch._C
    early = partial(state._dispatch_tls_is_dispatch_key_included, state.DispatchKey.PreDispatch)
    return torch.autograd.forward_ad, state._len_torch_dispatch_stack, early


def _is_followed() -> bool:
    """Whether anything may follow even plain tensors: forward-mode differentiation, make_fx, another mode."""
    forward, count, early = _modes()
    return getattr(forward, "_current_level", 0) >= 0 or count() > 0 or early()


def _is_recorded() -> bool:
    """Whether make_fx records what is done with tensors, even plain ones: it would see no kernel of ours."""
    _, count, early = _modes()
    if not count() and not early():
        return False
    tracing = sys.modules.get("torch.fx.experimental.proxy_tensor")  # not loaded: another mode is on
    return tracing is not None and tracing.get_proxy_mode() is not None


def _has_tangent(tensor: Array) -> bool:
    """Whether forward-mode differentiation tracks a tensor, which no_grad does not prevent."""
    forward, _, _ = _modes()
    if getattr(forward, "_current_level", 0) < 0 or sys.modules["torch"].is_inference_mode_enabled():
        return False
    return forward.unpack_dual(tensor).tangent is not None


def _spec_of_tensor(name: str, tensor: Array) -> ArraySpec:
    where = tensor.device
    if where.type not in ("cpu", "cuda"):
        raise ArrayError(f"{name}: a tensor on {where} was given; must be on cpu or cuda")
    if tensor.layout != sys.modules["torch"].strided:
        raise _not_strided(name, tensor)
    if any(type(size) is not int for size in tensor.shape):  # torch.jit.trace has sizes that record each use
        raise _odd(name, tensor)
    device = "cpu" if where.type == "cpu" else f"cuda:{where.index or 0}"
    dtype = _dtype(name, tensor, "torch")
    return ArraySpec("torch", device, dtype, tuple(tensor.shape), tuple(tensor.stride()))


def _not_strided(name: str, tensor: Array) -> ArrayError:
    dense = _instead(name, f"{name}.to_dense()")
    return ArrayError(f"{name}: a tensor of layout {tensor.layout} was given; {dense}")


def _wants_grad(name: str) -> ArrayError:
    return ArrayError(
        f"{name}: requires grad, but tilewright computes none; use torch.no_grad() or {name}.detach()"
    )


def _odd(name: str, tensor: Array) -> ArrayError:
    """Return the error for a tensor that has no memory to read."""
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided:
        return _not_strided(name, tensor)
    if tensor.requires_grad and torch.is_grad_enabled():
        return _wants_grad(name)
    what = "a tensor without memory of its own was given (nested, traced as torch.vmap does, fake, or freed)"
    if _is_recorded():
        within = "a kernel of ours only within a torch.library.custom_op"
        what = f"make_fx, or torch.export, follows this tensor, but records {within}"
    if torch.jit.is_tracing():
        what = "torch.jit.trace, or torch.onnx.export, follows this tensor, but records no kernel of ours"
    return ArrayError(f"{name}: {what}; must be a plain tensor")


def _cupy(name: str, array: Array) -> ArrayView:
    index = int(array.device.id)

    def make() -> ArraySpec:
        dtype = _dtype(name, array, "cupy")
        strides = _in_elements(name, array, dtype)
        return ArraySpec("cupy", f"cuda:{index}", dtype, tuple(array.shape), strides)

    spec = _known(("cupy", array.dtype, tuple(array.shape), tuple(array.strides), index), make)
    return ArrayView(name, array, spec, int(array.data.ptr))


def _dtype(name: str, array: Array, library: str) -> str:
    """Return the short name of an array's dtype."""
    full = name_of(array.dtype)
    if full not in SHORT:
        main = name in ("x", "w")  # the dtypes of others depend on these
        known = ", ".join(FULL[short] for short in (STORED if main else FULL))
        call = f": {_instead(name, cast(name, library, 'f32'), 'call e.g.')}" if main or name == "out" else ""
        raise ArrayError(f"{name}: dtype {full} was given; must be one of {known}{call}")
    return SHORT[full]


def _instead(name: str, call: str, how: str = "call") -> str:
    """Suggest a call whose result to pass instead; not for an output, since the copy would be lost."""
    return "leave it out, or give an array as a call without it returns" if name == "out" else f"{how} {call}"


def cast(name: str, library: str, dtype: str) -> str:
    """Return the call that converts an array."""
    if dtype in ("bf16", "f8") and library == "numpy":
        return f"{name}.astype(ml_dtypes.{FULL[dtype]})"
    return _CAST[library].format(name, FULL[dtype])
