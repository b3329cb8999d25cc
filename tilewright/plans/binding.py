"""Callers' arrays are validated and passed to a kernel in its layout, without a copy, or refused."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arrays.look import look
from tilewright.arrays.use import (
    empty,
    in_place,
    on_host,
    same_home,
    shaped,
    to_nchw,
    to_nhwc,
    typed,
    writable,
)
from tilewright.arrays.view import Array, ArrayView
from tilewright.errors import ArrayError
from tilewright.plans.plan import unlike
from tilewright.problem import Problem

MOST_SIGNATURES = 64  # that a layer remembers
_TURNED = "channels_last, as x is"


class Binding:
    """Validates the arrays of a layer, and binds them to the operands of its kernel.

    Args:
        problem: the layer.
        home: where its kernel runs: cpu, or e.g. cuda:1.
    """

    def __init__(self, problem: Problem, home: str) -> None:
        self._problem, self._home = problem, home
        self._name = str(problem)  # for errors; worked out once, since calls are short
        self._operands = problem.operands
        # By the signatures of calls that fit: whether the kernel has their arrays as they are.
        self._known: dict[tuple[object, ...], bool] = {}

    def filter(self, w: ArrayView) -> Array:
        """Return the filter as ``Plan.pack`` reads it.

        Raises:
            ArrayError: wrong dtype, shape, device or strides.
        """
        self._at_home(w)
        typed(w, self._problem.stored, f" for {self._name}")
        shaped(w, self._problem.w_shape, self._name)
        return in_place(w)

    def bind(
        self, x: ArrayView, given: Mapping[str, ArrayView], beside: Mapping[str, ArrayView], layout: str
    ) -> tuple[Mapping[str, Array], Array]:
        """Return the kernel's operands except the filter, and the output as the caller gets it.

        A call whose signature (layout, names and specs of its arrays) is known to fit is not validated again:
        calls are short.

        Args:
            x: the input.
            given: all arrays of the call, by name.
            beside: of these bias, z, out, scale.
            layout: in which the caller sees shapes; only with nchw a channels_last tensor is (N, C, H, W).

        Raises:
            ArrayError: something is missing, superfluous, elsewhere, of a wrong dtype, shape or strides; the
                output overlaps an input.
            OutOfMemory: there is no room for the output, or for the copy of an input on a CPU.
        """
        signature = (layout, *given, *[seen.spec for seen in given.values()])
        known = self._known.get(signature)
        if known is None:
            self._fit(given)
        if "out" in given:
            writable(given["out"], *[seen for name, seen in given.items() if name != "out"])
        if known and all([seen.aligned for seen in given.values()]):
            return self._as_they_are(x, beside)
        arrays, result = self._looked_at(x, beside, layout)
        if known is None:
            same = [arrays[name] is given[name].array for name in arrays if name in given]
            most = list(self._known.items())[:MOST_SIGNATURES]
            self._known = {**dict(most), signature: all(same) and result is arrays["y"]}
        return arrays, result

    def _fit(self, given: Mapping[str, ArrayView]) -> None:
        """Refuse what is missing, superfluous, elsewhere, of another dtype, or of another length than K."""
        if (names := {"w", "y", *given} - {"out"}) != self._operands.keys():
            raise unlike(self._problem, names)
        self._at_home(given["x"])
        same_home(*given.values())
        for name, seen in given.items():
            typed(seen, self._operands["y" if name == "out" else name].dtype, f" for {self._name}")
        for name in ("bias", "scale"):
            if name in given:
                shaped(given[name], self._operands[name].shape, f"{self._name}: one for each filter")

    def _at_home(self, seen: ArrayView) -> None:
        if seen.device != self._home:
            raise ArrayError(f"{seen.name}: is {seen.where()}; must be on {self._home}, where the plan runs")

    def _as_they_are(self, x: ArrayView, beside: Mapping[str, ArrayView]) -> tuple[dict[str, Array], Array]:
        """Bind arrays of a signature that is known to need no conversion."""
        arrays = {name: seen.array for name, seen in beside.items()}
        y = arrays.pop("out") if "out" in arrays else empty(x, self._problem.y_shape, self._problem.dtype_out)
        return {"x": x.array, "y": y, **arrays}, y

    def _looked_at(
        self, x: ArrayView, beside: Mapping[str, ArrayView], layout: str
    ) -> tuple[dict[str, Array], Array]:
        """Bind arrays of any signature."""
        pr = self._problem
        source, seen_as_nchw = _input(pr, self._name, x, layout == "nchw")
        turned = seen_as_nchw and pr.layout_out == "nhwc"
        target, result = _output(pr, self._name, x, beside.get("out"), turned)
        arrays = {"x": source, "y": target}
        for key, seen in beside.items():
            if key != "out":
                arrays[key] = _residual(pr, self._name, seen, turned) if key == "z" else in_place(seen)
        return arrays, result


def require_fit(pr: Problem, x: ArrayView, beside: Mapping[str, ArrayView], layout: str) -> None:
    """Refuse bias, z, out or scale of a wrong dtype or shape, before a kernel is compiled.

    Raises:
        ArrayError: an array is; says what it must be.
    """
    name, operands = str(pr), pr.operands
    turned = _turned(pr, x, layout == "nchw") and pr.layout_out == "nhwc"
    for key, seen in beside.items():
        one = operands["y" if key == "out" else key]
        typed(seen, one.dtype, f" for {name}")
        if key in ("bias", "scale"):
            shaped(seen, one.shape, f"{name}: one for each filter")
        elif key == "z":
            _shaped_residual(pr, name, seen, turned)
        else:
            shaped(seen, _output_shape(pr, turned), name)


def _input(pr: Problem, name: str, x: ArrayView, may_turn: bool) -> tuple[Array, bool]:
    """Return the kernel's input, and whether the caller sees nhwc as (N, C, H, W)."""
    if _turned(pr, x, may_turn):
        shaped(x, (pr.n, pr.c, pr.h, pr.w), name + " in channels_last")
        view = to_nhwc(x.array)
        return (on_host(view) if x.device == "cpu" else view), True
    shaped(x, pr.x_shape, name)
    return in_place(x, " or plan for nhwc" if pr.layout_in == "nchw" and x.channels_last else ""), False


def _turned(pr: Problem, x: ArrayView, may_turn: bool) -> bool:
    """Whether the caller sees an input in nhwc as (N, C, H, W)."""
    return pr.layout_in == "nhwc" and may_turn and _in_channels_last(pr, x)


def _in_channels_last(pr: Problem, x: ArrayView) -> bool:
    """Whether a tensor is (N, C, H, W) in channels_last; if its strides fit both layouts, by its shape."""
    by_shape = x.shape != pr.x_shape and x.shape == (pr.n, pr.c, pr.h, pr.w)
    return x.spec.channels_last or (by_shape and x.spec.both_ways)


def _residual(pr: Problem, name: str, z: ArrayView, turned: bool) -> Array:
    """Return the kernel's residual; ``turned``: the caller sees nhwc as (N, C, H, W)."""
    _shaped_residual(pr, name, z, turned)
    if not turned:
        return in_place(z)
    view = look("z", to_nhwc(z.array))
    if z.device != "cpu" and not view.contiguous:
        raise ArrayError(f"z: strides {z.strides} of shape {z.shape} were given; must be {_TURNED}")
    return in_place(view)


def _shaped_residual(pr: Problem, name: str, z: ArrayView, turned: bool) -> None:
    if turned:
        shaped(z, (pr.n, pr.k, pr.p, pr.q), name + " in channels_last")
    else:
        shaped(z, pr.z_shape, name)


def _output_shape(pr: Problem, turned: bool) -> tuple[int, ...]:
    return (pr.n, pr.k, pr.y_p, pr.y_q) if turned else pr.y_shape


def _output(
    pr: Problem, name: str, x: ArrayView, out: ArrayView | None, turned: bool
) -> tuple[Array, Array]:
    """Return the kernel's output, and the same array as the caller gets it."""
    if out is None:
        y = empty(x, pr.y_shape, pr.dtype_out)
        return (on_host(y) if x.device == "cpu" else y), (to_nchw(y) if turned else y)
    shaped(out, _output_shape(pr, turned), name)
    view = to_nhwc(out.array) if turned else out.array
    if not (look("out", view) if turned else out).contiguous:
        how = _TURNED if turned else f"contiguous, as {x.library}.empty makes it"
        raise ArrayError(f"out: strides {out.strides} of shape {out.shape} were given; must be {how}")
    return (on_host(view) if x.device == "cpu" else view), out.array
