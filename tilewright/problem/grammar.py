"""The one-line text of a layer: its grammar, reading it into the fields of a Problem, and writing it."""

from __future__ import annotations

import re
from itertools import permutations
from typing import TYPE_CHECKING

from tilewright.errors import ProblemError, count, shortened, shown
from tilewright.problem.epilogue import WORDS, Epilogue
from tilewright.problem.precision import LAYOUTS, MATHS, MAX_EXTENT, PRECISIONS

if TYPE_CHECKING:
    from tilewright.problem import Problem

REQUANT = "requant"

# Parts in [] are optional. Sizes in any order, then -words, then +words in this order.
GRAMMAR = f"""\
  [n<batch>] c<in channels> h<height> [w<width>] k<out channels>
  r<filter height> [s<filter width>] [u<stride>[x<stride w>]]
  [p<pad> or p<pad h>x<pad w> or p<top>.<bottom>.<left>.<right>]
  [d<dilation>[x<dilation w>]] [g<groups>]
  -f64 -f32 -tf32 -accurate -f16 -bf16 -f8 -i8
  -nchw -nhwc -nchw2nhwc -nhwc2nchw
{WORDS}
  +requant (i8 only, and last)"""
EXAMPLE = "n1c64h56w56k128r3s3p1u2-f32-nhwc+bias+relu"
_HINT = f"write it like {EXAMPLE}; 'tilewright --help' has the grammar"

_SIZES = re.compile(r"([a-z])([0-9]+(?:[x.][0-9]+)*)")


def read(text: str) -> dict[str, object]:
    """Read a problem string into the fields of a Problem.

    Raises:
        ProblemError: names the part that could not be read.
    """
    if not isinstance(text, str):
        raise ProblemError(f"problem {shown(text)}: must be text; {_HINT}")
    body, *words = text.strip().split("+")
    sizes, *names = body.split("-")
    values = _parse_sizes(text, sizes) | _parse_names(text, names)
    if words[-1:] == [REQUANT]:
        if values.get("dtype") not in ("i8", "q8"):
            raise _bad(text, "+" + REQUANT, "it needs -i8")
        words.pop()
        values["dtype"] = "q8"
    if REQUANT in words:
        raise _bad(text, "+" + REQUANT, "it must be the last word, and stand once")
    try:
        epilogue = Epilogue.parse(words)
    except ProblemError as error:
        raise ProblemError(f"problem {shown(text)}: {error}") from None
    return values | {"epilogue": epilogue}


def write(p: Problem) -> str:
    """Return the problem string of a layer."""
    text = f"n{p.n}c{p.c}h{p.h}w{p.w}k{p.k}r{p.r}s{p.s}"
    top, bottom, left, right = p.pad
    if (top, left) != (bottom, right):
        text += f"p{top}.{bottom}.{left}.{right}"
    elif any(p.pad):
        text += "p" + _pair((top, left))
    text += "u" + _pair(p.stride) if p.stride != (1, 1) else ""
    text += "d" + _pair(p.dilation) if p.dilation != (1, 1) else ""
    text += f"g{p.groups}" if p.groups != 1 else ""
    text += f"-{p.stored if p.requantised else p.precision}"
    if (p.layout_in, p.layout_out) != ("nchw", "nchw"):
        same = p.layout_in == p.layout_out
        text += f"-{p.layout_in}" if same else f"-{p.layout_in}2{p.layout_out}"
    return text + p.epilogue.text(p.dtype) + (f"+{REQUANT}" if p.requantised else "")


def _pair(values: tuple[int, int]) -> str:
    return str(values[0]) if values[0] == values[1] else f"{values[0]}x{values[1]}"


def _parse_sizes(text: str, sizes: str) -> dict[str, object]:
    found: dict[str, list[int]] = {}
    end = 0
    for match in _SIZES.finditer(sizes):
        if match.start() != end:
            break
        letter, end = match[1], match.end()
        if letter not in "nchwkrspudg" or letter in found:
            why = "given twice" if letter in found else "unknown letter: sizes are n c h w k r s u p d g"
            raise _bad(text, match[0], why)
        found[letter] = _numbers(text, letter, match[2])
    if end != len(sizes) or not sizes:
        raise _bad(text, sizes[end:] or text, "expected a letter and a number, such as c64")
    missing = [name for name in "chkr" if name not in found]
    if missing:
        raise _bad(text, sizes, f"missing {', '.join(missing)}")
    found.setdefault("w", found["h"])
    found.setdefault("s", found["r"])
    values: dict[str, object] = {name: found[name][0] for name in "nchwkrs" if name in found}
    values["pad"] = _pad(found.get("p", [0]))
    for letter, name in (("u", "stride"), ("d", "dilation")):
        pair = found.get(letter, [1])
        values[name] = (pair[0], pair[-1])
    values["groups"] = found.get("g", [1])[0]
    return values


def _numbers(text: str, letter: str, digits: str) -> list[int]:
    numbers = [_number(text, letter, one) for one in re.split(r"[x.]", digits)]
    counts = {"p": (1, 2, 4), "u": (1, 2), "d": (1, 2)}.get(letter, (1,))
    joint = "." if len(numbers) == 4 else "x"
    if len(numbers) not in counts or joint.join(re.split(r"[x.]", digits)) != digits:
        wanted = [*map(str, counts[:-1]), count(counts[-1], "number")]
        raise _bad(text, letter + digits, f"takes {' or '.join(wanted)}")
    return numbers


def _number(text: str, letter: str, digits: str) -> int:
    if len(digits) > 9:
        size = f"{letter}={shortened(digits, 40)}"
        raise ProblemError(f"problem {shown(text)}: {size}: must be an integer no larger than {MAX_EXTENT}")
    return int(digits)


def _pad(p: list[int]) -> tuple[int, int, int, int]:
    if len(p) == 4:
        return (p[0], p[1], p[2], p[3])
    return (p[0], p[0], p[-1], p[-1])


def _parse_names(text: str, names: list[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name in names:
        ends = name.split("2") if "2" in name else [name, name]
        if name in MATHS:
            new: dict[str, object] = {"math": name}
        elif name in PRECISIONS:
            new = {"dtype": name}
        elif len(ends) == 2 and set(ends) <= set(LAYOUTS):
            new = {"layout_in": ends[0], "layout_out": ends[1]}
        else:
            known = [*PRECISIONS, *LAYOUTS, *map("2".join, permutations(LAYOUTS))]
            raise _bad(text, "-" + name, f"known: {', '.join(known)}")
        if set(new) & set(values):
            raise _bad(text, "-" + name, "given twice")
        values |= new
    return values


def _bad(text: str, part: str, why: str) -> ProblemError:
    return ProblemError(f"problem {shown(text)}: cannot read {shown(part)} ({why}); {_HINT}")
