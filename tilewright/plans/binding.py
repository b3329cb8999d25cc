"""Callers' arrays as a kernel reads and writes them: in its layout, without a copy, or refused."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arrays.look import look
from tilewright.arrays.use import empty, in_place, on_host, shaped, to_nchw, to_nhwc
from tilewright.arrays.view import Array, ArrayView
from tilewright.errors import ArrayError
from tilewright.problem import Problem

_TURNED = "channels_last, as x is"


def bind(
    pr: Problem, name: str, x: ArrayView, beside: Mapping[str, ArrayView], layout: str
) -> tuple[dict[str, Array], Array]:
    """Return what the kernel reads and writes beside the filter; and the output as the caller gets it.

    Args:
        pr: the layer.
        name: what errors call it.
        x: the input.
        beside: what is given of bias, z, out, scale.
        layout: how the caller reads shapes; only by nchw a tensor in channels_last is (N, C, H, W).

    Raises:
        ArrayError: wrong shape or strides.
        OutOfMemory: there is no room for the output, or for the copy of an input on a CPU.
    """
    source, seen_as_nchw = _input(pr, name, x, layout == "nchw")
    turned = seen_as_nchw and pr.layout_out == "nhwc"
    target, result = _output(pr, name, x, beside.get("out"), turned)
    arrays = {"x": source, "y": target}
    for key, seen in beside.items():
        if key != "out":
            arrays[key] = _residual(pr, name, seen, turned) if key == "z" else in_place(seen)
    return arrays, result


def as_they_are(
    pr: Problem, x: ArrayView, beside: Mapping[str, ArrayView]
) -> tuple[dict[str, Array], Array]:
    """Return what ``bind`` does of arrays that it has returned as they are: others of the same kinds.

    Raises:
        OutOfMemory: there is no room for the output.
    """
    arrays = {name: seen.array for name, seen in beside.items()}
    y = arrays.pop("out") if "out" in arrays else empty(x, pr.y_shape, pr.dtype_out)
    return {"x": x.array, "y": y, **arrays}, y


def _input(pr: Problem, name: str, x: ArrayView, may_turn: bool) -> tuple[Array, bool]:
    """Return what the kernel reads, and whether the caller sees nhwc as (N, C, H, W)."""
    if pr.layout_in == "nhwc" and may_turn and _in_channels_last(pr, x):
        shaped(x, (pr.n, pr.c, pr.h, pr.w), name + " in channels_last")
        view = to_nhwc(x.array)
        return (on_host(view) if x.device == "cpu" else view), True
    shaped(x, pr.x_shape, name)
    return in_place(x, " or plan for nhwc" if pr.layout_in == "nchw" and x.channels_last else ""), False


def _in_channels_last(pr: Problem, x: ArrayView) -> bool:
    """Whether a tensor is (N, C, H, W) in channels_last; of one that lies both ways the shape tells."""
    by_shape = x.shape != pr.x_shape and x.shape == (pr.n, pr.c, pr.h, pr.w)
    return x.spec.channels_last or (by_shape and x.spec.both_ways)


def _residual(pr: Problem, name: str, z: ArrayView, turned: bool) -> Array:
    """Return what the kernel adds; ``turned``: the caller sees nhwc as (N, C, H, W)."""
    if not turned:
        shaped(z, pr.z_shape, name)
        return in_place(z)
    shaped(z, (pr.n, pr.k, pr.p, pr.q), name + " in channels_last")
    view = look("z", to_nhwc(z.array))
    if z.device != "cpu" and not view.contiguous:
        raise ArrayError(f"z: strides {z.strides} of shape {z.shape} were given; must be {_TURNED}")
    return in_place(view)


def _output(
    pr: Problem, name: str, x: ArrayView, out: ArrayView | None, turned: bool
) -> tuple[Array, Array]:
    """Return what the kernel writes, and the same as the caller gets it."""
    if out is None:
        y = empty(x, pr.y_shape, pr.dtype_out)
        return (on_host(y) if x.device == "cpu" else y), (to_nchw(y) if turned else y)
    shaped(out, (pr.n, pr.k, pr.y_p, pr.y_q) if turned else pr.y_shape, name)
    view = to_nhwc(out.array) if turned else out.array
    if not (look("out", view) if turned else out).contiguous:
        how = _TURNED if turned else f"contiguous, as {x.library}.empty makes it"
        raise ArrayError(f"out: strides {out.strides} of shape {out.shape} were given; must be {how}")
    return (on_host(view) if x.device == "cpu" else view), out.array
