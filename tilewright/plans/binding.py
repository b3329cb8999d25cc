"""Callers' arrays are validated and passed to a kernel in its layout, without a copy, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.arrays.look import look
from tilewright.arrays.use import (
    Outputs,
    contiguous,
    in_place,
    on_host,
    same_home,
    shaped,
    to_nhwc,
    typed,
    writable,
)
from tilewright.arrays.view import Array, ArrayView, Shape
from tilewright.errors import ArrayError
from tilewright.plans.plan import unlike
from tilewright.problem import Problem

MOST_SIGNATURES = 64  # that a layer remembers
_TURNED = "channels_last, as x is"

# The arrays of a call, by the names of its arguments: x, w unless it is packed, bias, z, out, scale.
Given = Mapping[str, ArrayView]


@dataclass(frozen=True, slots=True)
class _Fit:
    """How arrays that were found to fit are bound.

    Attributes:
        in_place: whether the kernel takes the arrays where they are: of nhwc on a GPU also those that the
            caller sees as (N, C, H, W).
        turned: whether the caller sees an input in nhwc as (N, C, H, W).
        back: whether the caller sees the output so, too.
        outputs: makes new ones, as the caller sees them.
    """

    in_place: bool
    turned: bool
    back: bool
    outputs: Outputs


class Binding:
    """Validates the arrays of a layer, and binds them to the operands of its kernel.

    Args:
        problem: the layer.
        home: where its kernel runs: cpu, or e.g. cuda:1.
    """

    def __init__(self, problem: Problem, home: str) -> None:
        self._problem, self._home = problem, home
        # Worked out once, since calls are short.
        self._name, self._operands = str(problem), problem.operands
        self._known: dict[tuple[object, ...], _Fit] = {}  # by the signatures of calls

    def filter(self, w: ArrayView) -> Array:
        """Return the filter as ``Plan.pack`` reads it.

        One that is not contiguous, as those of a model in channels_last, is copied.

        Raises:
            ArrayError: wrong dtype, shape or device.
            OutOfMemory: there is no room for the copy.
        """
        self._at_home(w)
        typed(w, self._problem.stored, f" for {self._name}")
        shaped(w, self._problem.w_shape, self._name)
        return contiguous(w)

    def bind(self, given: Given, layout: str) -> tuple[Mapping[str, Array], Array]:
        """Return the kernel's operands except the filter, and the output as the caller gets it.

        A call whose signature (layout, names and specs of its arrays) is known to fit is not validated again:
        calls are short.

        Args:
            given: the arrays.
            layout: in which the caller sees shapes; only with nchw a channels_last tensor is (N, C, H, W).

        Raises:
            ArrayError: something is missing, superfluous, elsewhere, of a wrong dtype, shape or strides; the
                output overlaps an input.
            OutOfMemory: there is no room for the output, or for the copy of an input on a CPU.
        """
        signature = (layout, *given, *[seen.spec for seen in given.values()])
        known = self._known.get(signature)
        fit = known or self._fit(given, layout)
        if "out" in given:
            writable(given["out"], *[seen for name, seen in given.items() if name != "out"])
        if fit.in_place and all([seen.aligned for seen in given.values()]):
            return self._as_they_are(given, fit)
        arrays, result = self._looked_at(given, fit)
        if known is None:
            fit = replace(fit, in_place=self._in_place(arrays, given, result))
            self._known = {**dict(list(self._known.items())[:MOST_SIGNATURES]), signature: fit}
        return arrays, result

    def _in_place(self, arrays: Mapping[str, Array], given: Given, result: Array) -> bool:
        """Whether the kernel's operands are the caller's arrays, or on a GPU views of the same memory."""
        theirs = [(arrays[name], seen) for name, seen in given.items() if name in arrays]
        if self._home == "cpu":
            return result is arrays["y"] and all(array is seen.array for array, seen in theirs)
        return all(look(seen.name, array).address == seen.address for array, seen in theirs)

    def _fit(self, given: Given, layout: str) -> _Fit:
        """Refuse what is missing, superfluous, elsewhere, or of another dtype or shape."""
        pr = self._problem
        if (names := {"w", "y", *given} - {"out"}) != self._operands.keys():
            raise unlike(pr, names)
        self._at_home(given["x"])
        same_home(*given.values())
        require_fit(pr, given, layout)
        turned = is_turned(pr, given["x"], layout)
        back = turned and pr.layout_out == "nhwc"
        return _Fit(False, turned, back, Outputs.of(given["x"], pr.y_shape, pr.dtype_out, back))

    def _at_home(self, seen: ArrayView) -> None:
        if seen.device != self._home:
            raise ArrayError(f"{seen.name}: is {seen.where()}; must be on {self._home}, where the plan runs")

    @staticmethod
    def _as_they_are(given: Given, fit: _Fit) -> tuple[dict[str, Array], Array]:
        """Bind arrays that need no conversion."""
        arrays = {name: seen.array for name, seen in given.items() if name not in ("w", "out")}
        out = given.get("out")
        y = arrays["y"] = out.array if out else fit.outputs.new(given["x"])
        return arrays, y

    def _looked_at(self, given: Given, fit: _Fit) -> tuple[dict[str, Array], Array]:
        """Bind arrays of any signature that fits."""
        pr, x, out = self._problem, given["x"], given.get("out")
        arrays = {"x": _input(pr, x, fit.turned)}
        arrays["y"], result = _output(x, out, fit)
        for name, seen in given.items():
            if name not in ("x", "w", "out"):
                arrays[name] = _residual(seen, fit.back) if name == "z" else in_place(seen)
        return arrays, result


def require_fit(pr: Problem, given: Given, layout: str) -> None:
    """Refuse arrays of a wrong dtype or shape, before a kernel is compiled.

    Raises:
        ArrayError: an array is; says what it must be.
    """
    name, operands, in_nchw = str(pr), pr.operands, dict[str, Shape]()
    if is_turned(pr, given["x"], layout):
        in_nchw = {"x": (pr.n, pr.c, pr.h, pr.w)}
        if pr.layout_out == "nhwc":
            in_nchw |= {"z": (pr.n, pr.k, pr.p, pr.q), "out": (pr.n, pr.k, pr.y_p, pr.y_q)}
    for key, seen in given.items():
        one = operands["y" if key == "out" else key]
        typed(seen, one.dtype, f" for {name}")
        if key in ("bias", "scale"):
            shaped(seen, one.shape, f"{name}: one for each filter")
        else:
            why = name + " in channels_last" * (key in in_nchw and key != "out")
            shaped(seen, in_nchw.get(key, one.shape), why + _turn_first(pr, seen) * (key == "x"))


def _turn_first(pr: Problem, x: ArrayView) -> str:
    """Say what to do with a tensor (N, C, H, W) for a layer in nhwc that does not lie so."""
    if x.library != "torch" or pr.layout_in != "nhwc" or x.shape != (pr.n, pr.c, pr.h, pr.w):
        return ""
    return f", or (N, C, H, W) in channels_last: call {x.name}.contiguous(memory_format=torch.channels_last)"


def is_turned(pr: Problem, x: ArrayView, layout: str) -> bool:
    """Whether the caller sees an input in nhwc as (N, C, H, W); if its strides fit both, by its shape."""
    if pr.layout_in != "nhwc" or layout != "nchw":
        return False
    by_shape = x.shape != pr.x_shape and x.shape == (pr.n, pr.c, pr.h, pr.w)
    return x.spec.channels_last or (by_shape and x.spec.both_ways)


def _input(pr: Problem, x: ArrayView, turned: bool) -> Array:
    """Return the kernel's input; ``turned``: the caller sees nhwc as (N, C, H, W)."""
    if turned:
        view = to_nhwc(x.array)
        return on_host(view) if x.device == "cpu" else view
    return in_place(x, " or plan for nhwc" if pr.layout_in == "nchw" and x.channels_last else "")


def _residual(z: ArrayView, turned: bool) -> Array:
    """Return the kernel's residual."""
    if not turned:
        return in_place(z)
    view = look("z", to_nhwc(z.array))
    if z.device != "cpu" and not view.contiguous:
        raise ArrayError(f"z: strides {z.strides} of shape {z.shape} were given; must be {_TURNED}")
    return in_place(view)


def _output(x: ArrayView, out: ArrayView | None, fit: _Fit) -> tuple[Array, Array]:
    """Return the kernel's output, and the same array as the caller gets it."""
    result = out.array if out else fit.outputs.new(x)
    view = to_nhwc(result) if fit.back else result
    if out and not (look("out", view) if fit.back else out).contiguous:
        how = _TURNED if fit.back else f"contiguous, as {x.library}.empty makes it"
        raise ArrayError(f"out: strides {out.strides} of shape {out.shape} were given; must be {how}")
    return (on_host(view) if x.device == "cpu" else view), result
