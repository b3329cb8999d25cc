"""Turns arrays and a layer's parameters into a Problem and a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import NoneType

import numpy as np

from tilewright.arithmetic import as_integer, ceil_div
from tilewright.arrays.look import cast
from tilewright.arrays.use import same_home, typed
from tilewright.arrays.view import ArrayView
from tilewright.device import parse_selector
from tilewright.dtypes import FULL
from tilewright.errors import ArrayError, ProblemError, shown
from tilewright.plans.binding import Given, require_fit
from tilewright.problem import LAYOUTS, MATHS, STORED, Problem
from tilewright.problem.activations import ACTIVATIONS, SHORT, meant
from tilewright.problem.epilogue import POOLS, Epilogue, Pool
from tilewright.problem.numbers import finite
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime

ACTIVATIONS_TAKEN = ", ".join(one.taken for word, one in ACTIVATIONS.items() if word)
POOLS_TAKEN = 'a Pool, or its word: "maxpool2", "maxpool3u2p1" (window 3, stride 2, pad 1), "avgpool7"'
_WORDS = (*filter(None, ACTIVATIONS), *SHORT, *(f"{mode}pool" for mode in POOLS))
PADDINGS = 'an integer, (height, width), (top, bottom, left, right), "same" or "valid"'

Pad = tuple[int, int, int, int]
Pair = tuple[int, int]
_IMMUTABLE = frozenset(  # types whose values cannot change, nor keep memory alive
    (int, float, bool, str, NoneType, Pool, np.int32, np.int64, np.float32, np.float64)
)
_IMMUTABLE_OR_ROW = _IMMUTABLE | {tuple, list}
MOST_PROBLEMS = 1024  # most problems that are cached
_problems: dict[tuple[object, ...], Problem] = {}


def _integers(value: object) -> list[int] | None:
    """Return one integer, or a tuple or list of them, as a list."""
    items = list(value) if isinstance(value, (tuple, list)) else [value]
    numbers = [as_integer(item) for item in items]
    return None if None in numbers else [n for n in numbers if n is not None]


def pair(name: str, value: object) -> Pair:
    """Parse a stride or dilation.

    Raises:
        ProblemError: it is neither an integer nor a pair of integers, or less than 1.
    """
    numbers = _integers(value)
    expected = 2 if isinstance(value, (tuple, list)) else 1
    if not numbers or len(numbers) != expected or min(numbers) < 1:
        want = "an integer or a pair (height, width), each 1 or more"
        raise ProblemError(f"{name}={shown(value)}: must be {want}")
    return numbers[0], numbers[-1]


def pads(value: object, extent: Pair, taps: Pair, stride: Pair, dilation: Pair) -> Pad:
    """Parse a padding: "same" gives ceil(extent / stride) outputs, with an odd row or column at the end.

    Raises:
        ProblemError: it has none of the forms of ``PADDINGS``, or is negative.
    """
    if isinstance(value, str) and value == "valid":
        return 0, 0, 0, 0
    if isinstance(value, str) and value == "same":
        total = [
            max((ceil_div(e, u) - 1) * u + d * (t - 1) + 1 - e, 0)
            for e, t, u, d in zip(extent, taps, stride, dilation, strict=True)
        ]
        return total[0] // 2, total[0] - total[0] // 2, total[1] // 2, total[1] - total[1] // 2
    numbers = None if isinstance(value, str) else _integers(value)
    if not numbers or len(numbers) not in (1, 2, 4) or min(numbers) < 0:
        raise ProblemError(f"padding={shown(value)}: must be {PADDINGS}, without negative numbers")
    if len(numbers) == 4:
        return numbers[0], numbers[1], numbers[2], numbers[3]
    return numbers[0], numbers[0], numbers[-1], numbers[-1]


def problem_of(arrays: Given, **words: object) -> Problem:
    """Build the Problem from the arrays and the other arguments of ``conv2d``.

    The result is cached, so that later calls with arguments of the same kinds skip the checks.

    Raises:
        ProblemError: an argument is malformed, or the output would be empty.
        ArrayError: shapes, dtypes, libraries or devices of the arrays do not match.
    """
    what = _fixed(words.values())
    if what is None:
        return _read(arrays, **words)
    key = (*arrays, *[seen.spec for seen in arrays.values()], what)
    found = _problems.get(key)
    if found is None:
        found = _read(arrays, **words)
        if len(_problems) >= MOST_PROBLEMS:
            _problems.clear()
        _problems[key] = found
    return found


def _fixed(values: Iterable[object]) -> tuple[object, ...] | None:
    """Return a key for values, with their types, since 1, 1.0 and True are equal.

    None if one may change in place, such as an array as a factor.
    """
    given = tuple(values)
    types = tuple(map(type, given))
    if _IMMUTABLE.issuperset(types):
        return given, types
    rows = tuple(tuple(one) if type(one) is list else one for one in given)
    inner = tuple(type(part) for row in rows if type(row) is tuple for part in row)
    fixed = _IMMUTABLE_OR_ROW.issuperset(types) and _IMMUTABLE.issuperset(inner)
    return (rows, types, inner) if fixed else None


def _read(
    arrays: Given, *, alpha: object, beta: object, activation: object, pool: object, stride: object,
    padding: object, dilation: object, groups: object, layout: object, math: object,
) -> Problem:  # fmt: skip
    same_home(*arrays.values())
    x, w, (bias, z, scale) = arrays["x"], arrays["w"], (name in arrays for name in ("bias", "z", "scale"))
    epilogue = _epilogue(bias, z, alpha, beta, activation, pool)
    found = _layer(x, w, epilogue, stride, padding, dilation, groups, layout, math, scale)
    require_fit(found, arrays, str(layout))
    return found


def _epilogue(bias: bool, z: bool, alpha: object, beta: object, activation: object, pool: object) -> Epilogue:
    """Build the epilogue from its arguments."""
    factors = Epilogue(alpha=alpha, beta=beta)  # type: ignore[arg-type]  # it says which is no number
    if not z and factors.beta != 1.0:
        raise ProblemError(f"beta={shown(beta)}: scales z, but no z was given")
    if z and not factors.add:
        raise ProblemError(f"beta={shown(beta)}: would discard z; leave z out instead")
    act = Epilogue() if activation is None else _word("activation", activation, ACTIVATIONS_TAKEN)
    if pool is not None and not isinstance(pool, Pool):
        pool = _word("pool", pool, POOLS_TAKEN).pool
    return replace(act, alpha=factors.alpha, bias=bias, beta=factors.beta if z else 0.0, pool=pool)


def _word(name: str, value: object, taken: str) -> Epilogue:
    """Parse one word of the epilogue's grammar; in a tuple, its numbers follow it."""
    wrong = ProblemError(f"{name}={shown(value)}: must be {taken}")
    head, *numbers = value if isinstance(value, (tuple, list)) and value else (value,)
    if not isinstance(head, str) or (numbers and not head.isalpha()):  # ("leaky0", 0.5) is not leaky00.5
        raise wrong
    try:
        found = Epilogue.parse([head + ":".join(f"{finite(name, n)!r}".replace("e+", "e") for n in numbers)])
    except ProblemError as error:
        why = f"; {error}" if head.startswith(_WORDS) else ""
        known = meant(head) if name == "activation" else None
        why = f'; did you mean "{known}"?' if known else why
        raise ProblemError(f"{wrong}{why}") from None
    act = Epilogue(act=found.act, low=found.low, high=found.high)
    if not found or found != (Epilogue(pool=found.pool) if name == "pool" else act):
        raise wrong
    return found


def _layer(
    x: ArrayView, w: ArrayView, epilogue: Epilogue, stride: object, padding: object, dilation: object,
    groups: object, layout: object, math: object, requantised: bool,
) -> Problem:  # fmt: skip
    """Build the Problem, without caching."""
    _one_of("layout", layout, LAYOUTS)
    count = as_integer(groups)
    if count is None or count < 1:
        raise ProblemError(f"groups={shown(groups)}: must be an integer of 1 or more")
    _one_of("math", math, MATHS)
    if requantised and x.dtype != "i8":
        raise ArrayError(f"scale: is for int8 layers only, but x is {FULL[x.dtype]}; leave scale out")
    if x.dtype not in STORED:
        known = ", ".join(FULL[short] for short in STORED)
        call = cast("x", x.library, "f32")
        raise ArrayError(f"x: dtype {FULL[x.dtype]} was given; must be one of {known}: call e.g. {call}")
    typed(w, x.dtype, ", as x is")
    axes = "(N, C, H, W)" if layout == "nchw" else "(N, H, W, C)"
    n, a, b, c = _four(x, axes)
    channels, extent = (a, (b, c)) if layout == "nchw" else (c, (a, b))
    k, cg, r, s = _four(w, "(K, C / groups, R, S)")
    if channels % count or k % count:
        why = f"groups={count}: must divide C={channels} of x and K={k} of w"
        raise ProblemError(why + _other_layout(x, layout, cg * count))
    if cg * count != channels:
        want = f"C / groups = {channels} / {count} = {channels // count}"
        raise ArrayError(
            f"w: shape {w.shape} was given; its second size must be {want}, as x has shape {x.shape}"
            + _other_layout(x, layout, cg * count)
        )
    steps, spread = pair("stride", stride), pair("dilation", dilation)
    lies = "nhwc" if layout == "nhwc" or x.channels_last else "nchw"
    return Problem(
        n=n, c=channels, h=extent[0], w=extent[1], k=k, r=r, s=s, groups=count, stride=steps, dilation=spread,
        pad=pads(padding, extent, (r, s), steps, spread), dtype="q8" if requantised else x.dtype,
        layout_in=lies, layout_out=lies, epilogue=epilogue, math=str(math),
    )  # fmt: skip


def _other_layout(x: ArrayView, layout: object, channels: int) -> str:
    """Return a hint for the error if x has its channels where the other layout has them."""
    other, axes, at = ("nhwc", "(N, H, W, C)", 3) if layout == "nchw" else ("nchw", "(N, C, H, W)", 1)
    return f'; is x {axes}? then give layout="{other}"' if x.shape[at] == channels else ""


def _one_of(name: str, value: object, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:  # comparing an array would give an array
        raise ProblemError(f"{name}={shown(value)}: must be one of {', '.join(known)}")


def _four(seen: ArrayView, meaning: str) -> tuple[int, int, int, int]:
    if len(seen.shape) != 4:
        raise ArrayError(f"{seen.name}: shape {seen.shape} was given; must have 4 dimensions, {meaning}")
    a, b, c, d = seen.shape
    return a, b, c, d


def runtime_for(x: ArrayView, device: object) -> Runtime:
    """Open the chosen device, or by default the one that the array is on.

    Raises:
        ArrayError: the array cannot be used on the chosen device.
        DeviceError: there is no such device.
    """
    backend, index = parse_selector(device)
    if x.device == "cpu":
        if backend == "cuda":
            open_runtime(backend, index)  # is there one to move it to?
            hint = f"torch.from_numpy({x.name}).cuda()" if x.library == "numpy" else f"{x.name}.cuda()"
            raise ArrayError(f"{x.name}: is on cpu, but device={device!r}; move it there first: {hint}")
        return open_runtime(backend or "cpu", index)
    if backend not in (None, "cuda") or (":" in str(device) and index != x.index):
        raise ArrayError(
            f"{x.name}: is on {x.device}, but device={device!r}; leave device out, or move the array"
        )
    return open_runtime("cuda", x.index)
