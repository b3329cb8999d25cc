"""Epilogue: its words both ways, its defines, what it refuses, and what it says of whole numbers."""

from __future__ import annotations

import math
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_problem import epilogues

from tilewright.errors import ProblemError
from tilewright.problem import Problem, activations
from tilewright.problem.activations import ACTIVATIONS
from tilewright.problem.epilogue import NOTHING, Epilogue, Pool


def of(text: str) -> Epilogue:
    return Epilogue.parse(text.split("+")[1:])


def number(bits: int, dtype: str) -> float:
    """What a kernel makes of a define."""
    value, kind = ("q", "d") if dtype == "f64" else ("I", "f")
    return float(struct.unpack(kind, struct.pack(value, bits))[0])


@pytest.mark.parametrize(("dtype", "most"), [("f32", 1 << 32), ("f64", 1 << 63)])
@given(epilogues())
def test_words_and_defines_round_trip(dtype: str, most: int, epilogue: Epilogue) -> None:
    defines = epilogue.defines(dtype)
    assert of(str(epilogue)) == epilogue and of(epilogue.text(dtype)).rounded() == epilogue
    names = dict(ALPHA=epilogue.alpha, BETA=epilogue.beta, ACT_LOW=epilogue.low, ACT_HIGH=epilogue.high)
    assert {name: number(defines[name], dtype) for name in names} == names
    assert all(type(value) is int and -most < value < most for value in defines.values())
    assert bool(epilogue) == (str(epilogue) != "")


@given(epilogues(), epilogues())
def test_two_epilogues_have_two_texts(a: Epilogue, b: Epilogue) -> None:
    assert (a == b) == (str(a) == str(b))


@given(st.floats(-(2.0**127), 2.0**127).filter(lambda f: f != 0))
def test_numbers_keep_all_their_bits(value: float) -> None:
    epilogue = Epilogue(alpha=value)
    assert of(str(epilogue)).alpha == value
    assert number(epilogue.defines("f64")["ALPHA"], "f64") == value


def test_shorthand() -> None:
    assert of("+relu6") == of("+clamp0:6") and str(of("+relu6")) == "+clamp0:6"
    assert of("+leaky") == of("+leaky0.01") and str(of("+leaky")) == "+leaky0.01"
    assert of("+add") == of("+add1") and str(of("+add0.5")) == "+add0.5"
    assert of("+alpha1") == NOTHING and not NOTHING and str(NOTHING) == ""
    assert of("+maxpool3u3") == of("+maxpool3") and str(of("+maxpool3u2p1")) == "+maxpool3u2p1"
    assert of("+alpha-0.25+bias+add2+silu+avgpool7").pool == Pool("avg", 7, 7) == Pool("avg", 7)


def test_numbers_are_those_of_f32_unless_the_problem_is_of_f64() -> None:
    text = "n1c2h4w4k3r1s1-{}+alpha0.1+add0.7+clamp-0.3:0.9"
    for dtype in ("f32", "f16", "bf16"):
        problem = Problem.parse(text.format(dtype))
        assert problem.epilogue.alpha == float(np.float32(0.1)) and str(problem) == text.format(dtype)
    wide = Problem.parse(text.format("f64"))
    assert (wide.epilogue.alpha, wide.epilogue.beta) == (0.1, 0.7) and str(wide) == text.format("f64")
    assert problem.with_dtype("f64") == wide and wide.with_dtype("bf16") == problem
    assert str(Epilogue(act="leaky", low=-0.0)) == "+leaky0"


def test_a_factor_that_f32_does_not_have() -> None:
    assert Problem.parse("n1c2h4w4k3r1s1-f64+alpha1e-60+add1e-60").epilogue.beta == 1e-60
    for word, named in (("alpha1e-60", "alpha=1e-60: is 0 in f32"), ("add1e-60", "is 0 in f32")):
        with pytest.raises(ProblemError, match=named):
            Problem.parse(f"n1c2h4w4k3r1s1-f32+{word}")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (dict(alpha=0), "alpha=0: would discard the convolution"),
        (dict(alpha=math.nan), "alpha=nan: must be a finite number"),
        (dict(beta=math.inf), "beta=inf"),
        (dict(beta=1e39), "beta=1e"),
        (dict(beta=10**400), "beta=1000"),
        (dict(beta=True), "beta=True"),
        (dict(beta="1"), "beta='1': must be a finite number"),
        (dict(low=None), "low=None"),
        (dict(bias="no"), "bias='no': must be True or False"),
        (dict(act=["relu"]), "activation ['relu']: must be one of relu"),
        (dict(act="gelu"), "activation 'gelu': must be one of relu, leaky, silu, clamp"),
        (dict(act="clamp", low=6, high=0), "clamp6:0: low is above high"),
        (dict(act="relu", high=6), "low=0.0, high=6.0: do not fit act='relu'"),
        (dict(act="leaky", low=1, high=6), "do not fit act='leaky'; clamp takes both"),
        (dict(low=1), "low=1.0, high=0.0: do not fit act=''"),
    ],
)
def test_wrong_field_is_named(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ProblemError) as error:
        Epilogue(**fields)  # type: ignore[arg-type]
    assert words in str(error.value)


@pytest.mark.parametrize(
    "pool",
    [("min", 2, 2), ("max", 0, 1), ("max", 65, 1), ("max", 2, 0), ("max", 3, 1, 2), ("avg", 3, 1, 1),
             ("max", 2.0, 2), ("max", 2, True), ("max", 2, 2, -1), ("max", "2", 2), (None, 2, 2)],
)
def test_wrong_pools(pool: tuple[object, ...]) -> None:
    with pytest.raises(ProblemError):
        Pool(*pool)  # type: ignore[arg-type]


@pytest.mark.parametrize(("extent", "pool", "out"), [
    (4, Pool("max", 2, 2), 2), (5, Pool("max", 2, 2), 2), (5, Pool("max", 3, 2, 1), 3),
    (7, Pool("avg", 7, 7), 1), (6, Pool("avg", 7, 7), 0), (3, Pool("max", 1, 2), 2),
])  # fmt: skip
def test_windows_are_counted(extent: int, pool: Pool, out: int) -> None:
    assert pool.out(extent) == out


@pytest.mark.parametrize(("text", "integer", "exact"), [
    ("", True, True),
    ("+bias+add+relu+maxpool3u2p1", True, True),
    ("+alpha0.5+add-2", False, True),
    ("+alpha0.3", False, False),
    ("+add3", False, False),
    ("+leaky0.01", False, True),  # one rounding of an exact product, in the kernel as in the reference
    ("+silu", False, False),
    ("+clamp0.1:6", False, True),
    ("+avgpool2", False, True),
    ("+avgpool3", False, False),
    ("+clamp0:6+avgpool4", False, True),
    ("+clamp0.1:6+avgpool4", False, False),  # sums of 0.1 are rounded
    ("+clamp0:0.3+avgpool4", False, False),
    ("+leaky0.5+avgpool2", False, False),
    ("+silu+avgpool2", False, False),
    ("+alpha0.3+avgpool2", False, False),
])  # fmt: skip
def test_what_stays_integer_and_exact(text: str, integer: bool, exact: bool) -> None:
    assert (of(text).keeps_integers, of(text).exact) == (integer, exact)


ONE_MORE = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("tilewright.problem.activations", Path({file!r}))
rows = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rows)
rows.ACTIVATIONS["bent"] = rows.Activation("bent", ("slope",), 3.0, steepest=2.0, own=5, exact=False)

from tilewright.arguments.layer import ACTIVATIONS_TAKEN
from tilewright.kernels.error_bound import error_bound
from tilewright.problem import GRAMMAR, Problem
layer = Problem.parse("n1c2h4w4k3r1s1-f32+bent+maxpool2")
assert str(layer).endswith("+bent3+maxpool2") and Problem.parse(str(layer)) == layer
assert layer.epilogue.defines("f32")["ACT"] == len(rows.ACTIVATIONS) - 1
assert not layer.epilogue.exact and not layer.epilogue.keeps_integers
plain = error_bound(Problem.parse("n1c2h4w4k3r1s1-f32"), 2).slope
assert error_bound(layer, 2).slope == 3 * plain + 5 * 2**-24
assert " or +bent[<slope>]" in GRAMMAR
assert ACTIVATIONS_TAKEN.endswith('"bent" or ("bent", slope)')
"""


def test_one_more_row_is_all_that_the_package_reads_of_an_activation() -> None:
    code = ONE_MORE.format(file=activations.__file__)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr


def test_the_rows_of_activations_hold_together() -> None:
    for name, one in ACTIVATIONS.items():
        assert one.word == name and len(one.numbers) <= 2 and one.steepest >= 1
        assert one.default is None or len(one.numbers) == 1
        assert one.short is None or of(f"+{one.short[0]}").act == name
