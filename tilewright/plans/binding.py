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
            self._fit(x, given, beside, layout)
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

    def _fit(
        self, x: ArrayView, given: Mapping[str, ArrayView], beside: Mapping[str, ArrayView], layout: str
    ) -> None:
        """Refuse what is missing, superfluous, elsewhere, or of another dtype or shape."""
        if (names := {"w", "y", *given} - {"out"}) != self._operands.keys():
            raise unlike(self._problem, names)
        self._at_home(x)
        same_home(*given.values())
        for name in ("x", "w"):
            if name in given:
                typed(given[name], self._problem.stored, f" for {self._name}")
        _shaped_input(self._problem, self._name, x, layout)
        require_fit(self._problem, x, beside, layout)

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
        """Bind arrays of any signature that fits."""
        pr = self._problem
        source, turned = _input(pr, x, layout)
        target, result = _output(pr, x, beside.get("out"), turned)
        arrays = {"x": source, "y": target}
        for key, seen in beside.items():
            if key != "out":
                arrays[key] = _residual(seen, turned) if key == "z" else in_place(seen)
        return arrays, result


def require_fit(pr: Problem, x: ArrayView, beside: Mapping[str, ArrayView], layout: str) -> None:
    """Refuse bias, z, out or scale of a wrong dtype or shape, before a kernel is compiled.

    Raises:
        ArrayError: an array is; says what it must be.
    """
    name, turned = str(pr), _turned(pr, x, layout) and pr.layout_out == "nhwc"
    operands, in_nchw = pr.operands, {"z": (pr.n, pr.k, pr.p, pr.q), "out": (pr.n, pr.k, pr.y_p, pr.y_q)}
    for key, seen in beside.items():
        one = operands["y" if key == "out" else key]
        typed(seen, one.dtype, f" for {name}")
        if key in ("bias", "scale"):
            shaped(seen, one.shape, f"{name}: one for each filter")
        elif turned:
            shaped(seen, in_nchw[key], name + " in channels_last" * (key == "z"))
        else:
            shaped(seen, one.shape, name)


def _shaped_input(pr: Problem, name: str, x: ArrayView, layout: str) -> None:
    if _turned(pr, x, layout):
        shaped(x, (pr.n, pr.c, pr.h, pr.w), name + " in channels_last")
    else:
        shaped(x, pr.x_shape, name)


def _input(pr: Problem, x: ArrayView, layout: str) -> tuple[Array, bool]:
    """Return the kernel's input, and whether the caller sees an output in nhwc as (N, C, H, W)."""
    if _turned(pr, x, layout):
        view = to_nhwc(x.array)
        return (on_host(view) if x.device == "cpu" else view), pr.layout_out == "nhwc"
    return in_place(x, " or plan for nhwc" if pr.layout_in == "nchw" and x.channels_last else ""), False


def _turned(pr: Problem, x: ArrayView, layout: str) -> bool:
    """Whether the caller sees an input in nhwc as (N, C, H, W); if its strides fit both, by its shape."""
    if pr.layout_in != "nhwc" or layout != "nchw":
        return False
    by_shape = x.shape != pr.x_shape and x.shape == (pr.n, pr.c, pr.h, pr.w)
    return x.spec.channels_last or (by_shape and x.spec.both_ways)


def _residual(z: ArrayView, turned: bool) -> Array:
    """Return the kernel's residual; ``turned``: the caller sees nhwc as (N, C, H, W)."""
    if not turned:
        return in_place(z)
    view = look("z", to_nhwc(z.array))
    if z.device != "cpu" and not view.contiguous:
        raise ArrayError(f"z: strides {z.strides} of shape {z.shape} were given; must be {_TURNED}")
    return in_place(view)


def _output(pr: Problem, x: ArrayView, out: ArrayView | None, turned: bool) -> tuple[Array, Array]:
    """Return the kernel's output, and the same array as the caller gets it."""
    if out is None:
        y = empty(x, pr.y_shape, pr.dtype_out)
        return (on_host(y) if x.device == "cpu" else y), (to_nchw(y) if turned else y)
    view = to_nhwc(out.array) if turned else out.array
    if not (look("out", view) if turned else out).contiguous:
        how = _TURNED if turned else f"contiguous, as {x.library}.empty makes it"
        raise ArrayError(f"out: strides {out.strides} of shape {out.shape} were given; must be {how}")
    return (on_host(view) if x.device == "cpu" else view), out.array
