"""Problem: the grammar both ways, sizes against a count by hand, and what is refused with which words."""

from __future__ import annotations

import pickle
import string
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import ConfigError, ProblemError
from tilewright.kernels.config import MAX_VALUE
from tilewright.kernels.family import Config, Launch
from tilewright.problem import DTYPE_BYTES, DTYPES, EXAMPLE, LAYOUTS, MAX_EXTENT, Problem
from tilewright.problem.activations import ACTIVATIONS
from tilewright.problem.epilogue import Epilogue, Pool

LAYER = Problem.parse("n1c4h5w6k8r3s3p1-f32")
small = st.integers(1, 9)
pads = st.integers(0, 4)


floats = st.floats(-1e3, 1e3, width=32)
WHOLE = [name for name, one in ACTIVATIONS.items() if one.whole and not one.numbers]  # what i8 takes
factors = floats.filter(lambda f: f != 0.0)


@st.composite
def epilogues(draw: st.DrawFn, most: int = 3) -> Epilogue:
    """All that fit an image of ``most`` rows and columns."""
    act = draw(st.sampled_from(list(ACTIVATIONS)))
    numbers = len(ACTIVATIONS[act].numbers)
    low, high = (sorted((draw(floats), draw(floats)))[:numbers] + [0.0, 0.0])[:2]
    kind, size = draw(st.sampled_from(["", "max", "avg"])), draw(st.integers(1, min(3, most)))
    pad = draw(st.integers(0, size // 2)) if kind == "max" else 0
    return Epilogue(
        alpha=draw(factors), bias=draw(st.booleans()), beta=draw(floats), act=act, low=low, high=high,
        pool=Pool(kind, size, draw(st.integers(1, 4)), pad) if kind else None,
    )  # fmt: skip


@st.composite
def whole_epilogues(draw: st.DrawFn, most: int = 3) -> Epilogue:
    """Those of them that sums of i8 can take."""
    pool = draw(st.sampled_from([None, Pool("max", min(2, most), 2), Pool("max", 1, 3)]))
    act, beta = draw(st.sampled_from(WHOLE)), draw(st.sampled_from([0.0, 1.0]))
    return Epilogue(bias=draw(st.booleans()), beta=beta, act=act, pool=pool)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    groups = draw(st.integers(1, 3))
    sizes = {name: draw(small) for name in "hwrs"}
    pad = (draw(pads), draw(pads), draw(pads), draw(pads))
    stride, dilation = (draw(small), draw(small)), (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    for i, (extent, taps) in enumerate(("hr", "ws")):  # one filter at least fits
        span = dilation[i] * (sizes[taps] - 1) + 1
        sizes[extent] += max(0, span - sizes[extent] - pad[2 * i] - pad[2 * i + 1])
    dtype = draw(st.sampled_from(DTYPES))
    most = min(
        count_outputs(sizes[e], pad[2 * i], pad[2 * i + 1], sizes[t], stride[i], dilation[i])
        for i, (e, t) in enumerate(("hr", "ws"))
    )
    epilogue = draw(whole_epilogues(most) if dtype == "i8" else epilogues(most))
    return Problem(
        **sizes, n=draw(st.integers(0, 3)), c=groups * draw(small), k=groups * draw(small), groups=groups,
        pad=pad, stride=stride, dilation=dilation, dtype=dtype, layout_in=draw(st.sampled_from(LAYOUTS)),
        layout_out=draw(st.sampled_from(LAYOUTS)), epilogue=epilogue,
    )  # fmt: skip


@given(problems())
def test_round_trip(problem: Problem) -> None:
    assert Problem.parse(str(problem)) == problem
    assert str(Problem.parse(f"  {problem}\n")) == str(problem)


@given(problems(), problems())
def test_two_problems_have_two_names(a: Problem, b: Problem) -> None:
    assert (a == b) == (str(a) == str(b))


def count_outputs(extent: int, before: int, after: int, taps: int, stride: int, dilation: int) -> int:
    """Count the places where a whole filter fits, one by one."""
    places = 0
    for start in range(0, before + extent + after, stride):
        places += all(start + t * dilation < before + extent + after for t in range(taps))
    return places


@given(problems())
def test_output_size_by_brute_force(p: Problem) -> None:
    assert p.p == count_outputs(p.h, p.pad[0], p.pad[1], p.r, p.stride[0], p.dilation[0])
    assert p.q == count_outputs(p.w, p.pad[2], p.pad[3], p.s, p.stride[1], p.dilation[1])
    pool = p.epilogue.pool
    if pool is None:
        assert (p.y_p, p.y_q) == (p.p, p.q)
    else:
        for extent, out in ((p.p, p.y_p), (p.q, p.y_q)):
            assert out == count_outputs(extent, pool.pad, pool.pad, pool.size, pool.stride, 1)


@given(problems())
def test_counts(p: Problem) -> None:
    x, w, y, z = (a * b * c * d for a, b, c, d in (p.x_shape, p.w_shape, p.y_shape, p.z_shape))
    size, size_out = DTYPE_BYTES[p.dtype], DTYPE_BYTES[p.dtype_out]
    assert p.dtype_out == ("i32" if p.dtype == "i8" else p.dtype)
    assert (p.x_bytes, p.w_bytes, p.y_bytes, p.z_bytes) == (size * x, size * w, size_out * y, size_out * z)
    more = p.k * p.epilogue.bias + z * p.epilogue.add
    assert p.bytes == size * (x + w) + size_out * (y + more)
    assert (p.x_elements, p.w_elements, p.y_elements, p.z_elements) == (x, w, y, z)
    read = [name for name, has in (("bias", p.epilogue.bias), ("z", p.epilogue.add)) if has]
    assert [*p.operands] == ["x", "w", *read, "y"]
    assert p.terms * p.k == w and p.flops == 2 * z * p.terms
    assert p.cg * p.groups == p.c and p.kg * p.groups == p.k
    swapped = p.with_layout("nhwc")
    assert swapped.x_shape == (p.n, p.h, p.w, p.c) and swapped.y_shape == (p.n, p.y_p, p.y_q, p.k)


alphabet = st.text(alphabet="nchwkrspudgxf32.-+:bieaslumovd 0123456789\x00²٣１", max_size=40)


@settings(max_examples=400)
@given(st.one_of(st.text(max_size=60), alphabet, problems().map(str).flatmap(lambda t: mutated(t))))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        problem = Problem.parse(text)
    except ProblemError as error:
        assert "\n" not in str(error) and len(str(error)) < 1500
    else:
        assert Problem.parse(str(problem)) == problem


def mutated(text: str) -> st.SearchStrategy[str]:
    """Take out, double or replace one character."""
    place = st.integers(0, len(text) - 1)
    extra = st.sampled_from(string.printable)
    return st.tuples(place, extra, st.integers(0, 2)).map(
        lambda m: text[: m[0]] + (m[1] if m[2] else "") + text[m[0] + (m[2] < 2) :]
    )


@given(st.one_of(st.none(), st.integers(), st.binary(max_size=5), st.lists(st.text(), max_size=2)))
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(ProblemError, match="must be text"):
        Problem.parse(value)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be text"):
        Config.parse(value)  # type: ignore[arg-type]


def test_huge_text_is_refused_quickly_and_briefly() -> None:
    for text in ("n1" * 200_000, "c" + "9" * 500_000, "-" * 300_000, "c1x" * 100_000, "a=1." * 100_000):
        for parse, error in ((Problem.parse, ProblemError), (Config.parse, ConfigError)):
            with pytest.raises(error) as caught:
                parse(text)
            assert len(str(caught.value)) < 1500


GOOD = "n1c64h56w56k128r3s3p1-f32"
WRONG = {
    "": "expected a letter and a number",
    "   ": "expected a letter and a number",
    "resnet50": "'resnet50'",
    "c64h56w56k128r3s3q2": "'q2' (unknown letter: sizes are n c h w",
    "c64c64h56w56k128r3s3": "'c64' (given twice)",
    "c64h56w56k128r3s3p1p2": "'p2' (given twice)",
    "n1h56w56k128r3s3": "missing c",
    "n1c64w56": "missing h, k, r",
    "n1c64h56w56k128": "missing r",
    "c64h56w56kr3s3": "'kr3s3'",
    "c64h56w56k-128r3s3": "'k'",
    "c64h5.5w56k128r3s3": "'h5.5' (takes 1 number)",
    "c64x2h56w56k128r3s3": "'c64x2' (takes 1 number)",
    "c64h56w56k128r3s3p1x2x3": "'p1x2x3' (takes 1 or 2 or 4 numbers)",
    "c64h56w56k128r3s3p1x2x3x4": "'p1x2x3x4'",
    "c64h56w56k128r3s3p1.2": "'p1.2'",
    "c64h56w56k128r3s3u1.2.3.4": "'u1.2.3.4' (takes 1 or 2 numbers)",
    "c64h56w56k128r3s3u0": "stride=(0, 0)",
    "c64h56w56k128r3s3d0": "dilation=(0, 0)",
    "c64h56w56k128r3s3u99999999999": "u=99999999999: must be",
    "c0h56w56k128r3s3": "c=0",
    "c64h56w56k128r0s3": "r=0",
    "c64h56w56k128r3s3g0": "groups=0",
    "c64h56w56k128r3s3g3": "groups=3: must divide c=64 and k=128",
    "c64h56w56k99999999r3s3": "k=99999999",
    "c64h5w5k128r7s7": "filter spans 7x7 but the padded input is only 5x5",
    "c64h5w5k128r3s3d3": "filter spans 7x7",
    "c64h56w56k128r3s3-f99": "'-f99' (known: f64, f32",
    "c64h56w56k128r3s3-": "'-'",
    "c64h56w56k128r3s3-nhcw": "'-nhcw'",
    "c64h56w56k128r3s3-nchw2": "'-nchw2'",
    "c64h56w56k128r3s3-nchw2nhwc2nchw": "'-nchw2nhwc2nchw'",
    "c64h56w56k128r3s3-f32-f32": "'-f32' (given twice)",
    "c64h56w56k128r3s3-nchw-nhwc": "'-nhwc' (given twice)",
    "c64h56w56k128r3s3-strict-strict": "'-strict' (given twice)",
    "c64h56w56k128r3s3+gelu": "+gelu: unknown word; known are alpha, bias",
    "c64h56w56k128r3s3+SiLU": "+SiLU: unknown word; known are alpha, bias, add, relu, leaky, silu, clamp, ",
    "c64h56w56k128r3s3+swish": "did you mean +silu?",
    "c64h56w56k128r3s3+ReLU6": "did you mean +relu6?",
    "c64h56w56k128r3s3+LeakyReLU0.1": "did you mean +leaky?",
    "c64h56w56k128r3s3+": "a + with no word behind it",
    "c64h56w56k128r3s3+relu+bias": "+bias: given twice or out of order",
    "c64h56w56k128r3s3+bias+bias": "+bias: given twice or out of order",
    "c64h56w56k128r3s3+bias+silu+add": "a pool. For z added behind an activation or a pool: leave +add out",
    "c64h56w56k128r3s3+add+add": "+add: given twice or out of order; the order is alpha, bias, add, an activ",
    "c64h56w56k128r3s3+relu+silu": "+silu: given twice or out of order",
    "c64h56w56k128r3s3+clamp0": "+clamp0: takes 2 numbers",
    "c64h56w56k128r3s3+clamp6:0": "clamp6:0: low is above high",
    "c64h56w56k128r3s3+alpha": "+alpha: takes 1 number",
    "c64h56w56k128r3s3+alpha0": "+alpha0: the factor must not be 0",
    "c64h56w56k128r3s3+add1e-60": "+add1e-60: beta=1e-60 is 0 in f32",
    "c64h56w56k128r3s3+add1e39": "add=1e+39: must be a finite number",
    "c64h56w56k128r3s3+leakynan": "+leakynan: needs a finite number",
    "c64h56w56k128r3s3+alpha-inf": "+alpha-inf: needs a finite number",
    "c64h56w56k128r3s3+clamp0:INF": "+clamp0:INF: needs a finite number",
    "c64h56w56k128r3s3+relunan": "+relunan: unknown word",
    "c64h56w56k128r3s3-f33": "tf32, accurate, nchw, nhwc, nchw2nhwc, nhwc2nchw)",
    "c64h56w56k128r3s3+leakyx": "+leakyx: must be written +leaky[<slope>]",
    "c64h56w56k128r3s3+maxpool": "+maxpool: must be written +maxpool<size>[u<stride>][p<pad>]",
    "c64h56w56k128r3s3+avgpool2x2": "+avgpool2x2: must be written +avgpool<size>[u<stride>]",
    "c64h56w56k128r3s3+maxpool0": "must be a max or avg pool, size and stride from 1 to 64",
    "c64h56w56k128r3s3+maxpool65": "from 1 to 64",
    "c64h56w56k128r3s3+maxpool2u0": "from 1 to 64",
    "c64h56w56k128r3s3+maxpool3p2": "by at most half their size",
    "c64h56w56k128r3s3+avgpool3p1": "only max pools can be padded",
    "c64h56w56k128r3s3+maxpool55": "no window fits into the convolution's 54x54 output",
    "c64h56w56k128r3s3-i8+silu": "bias, add (no factor), relu, maxpool and requant (last)",
    "c64h56w56k128r3s3-i8+avgpool2": "i8 layers accept only bias",
    "c64h56w56k128r3s3-i32": "'-i32' (known: ",
    "c64h56w56k128r3s3 -f32": "' '",
    "C64H56W56K128R3S3": "'C64H56W56K128R3S3'",
    "c64h56w56k128r３s3": "'r３s3'",
    "c64h56w56k128r3s3p-1": "'p'",
    "direct:bk=8": "'direct:bk=8'",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_string_names_its_part(text: str) -> None:
    with pytest.raises(ProblemError) as error:
        Problem.parse(text)
    assert WRONG[text] in str(error.value)
    assert "cannot read" not in str(error.value) or EXAMPLE in str(error.value)


ODD = [np.ones(3, int), np.ones((2, 2)), np.array(["f32", "f16"]), "a\nb", "\x1b[2J", ["max"], None, {}]


@pytest.mark.parametrize("value", ODD, ids=[str(place) for place in range(len(ODD))])
def test_a_field_of_any_kind_is_refused_in_a_line(value: object) -> None:
    """Arrays are compared by element; texts may break a line, or steer a terminal."""
    right: dict[type, dict[str, object]] = {
        Pool: {"mode": "max", "size": 3, "stride": 2, "pad": 1}, Epilogue: {"act": "relu", "bias": True},
        Problem: {name: getattr(LAYER, name) for name in Problem.__dataclass_fields__},
    }  # fmt: skip
    for cls, fields in right.items():
        for name in fields:
            if name == "stride" and value is None:
                continue  # it is the size then
            with pytest.raises(ProblemError) as error:
                cls(**fields | {name: value})
            assert str(error.value).isprintable() and len(str(error.value)) < 300, name
    if value is not None:
        with pytest.raises(ProblemError, match="must be a Pool"):
            Epilogue(pool=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.array])
def test_numbers_of_numpy_are_those_of_python(kind: Callable[[object], Any]) -> None:
    """Shapes of arrays and the like: the layer is the same, and so are its text, its hash and its pickle."""
    text = "n2c4h9w8k6r3s2p0.1.2.3u2x1d1x2g2-f32+bias+maxpool3u2p1"
    layer = Problem.parse(text)
    sizes = {name: kind(getattr(layer, name)) for name in ("n", "c", "h", "w", "k", "r", "s", "groups")}
    rows = {name: tuple(map(kind, getattr(layer, name))) for name in ("pad", "stride", "dilation")}
    epilogue = Epilogue(bias=np.True_, pool=Pool("max", kind(3), kind(2), kind(1)))  # type: ignore[arg-type]
    found = Problem(**sizes, **rows, epilogue=epilogue)
    assert (found, str(found), hash(found)) == (layer, text, hash(layer))
    assert repr(pickle.loads(pickle.dumps(found))) == repr(layer)
    assert found.operands == layer.operands


def test_shorthand_and_defaults() -> None:
    assert Problem.parse("c64h56k128r3p1") == Problem.parse("n1c64h56w56k128r3s3p1-f32-nchw-strict")
    assert Problem.parse("k128r3s3p1c64h56w56n1") == Problem.parse(GOOD)
    assert Problem.parse("c8h9k8r3p1x2u2x1d1x2g2").pad == (1, 1, 2, 2)
    assert str(Problem.parse("c8h9k8r3p1.2.3.4-nhwc2nchw+bias+relu")) == (
        "n1c8h9w9k8r3s3p1.2.3.4-f32-nhwc2nchw+bias+relu"
    )


FIELDS: list[tuple[dict[str, object], str]] = [
    ({"c": 0}, "c=0"),
    ({"n": -1}, "n=-1"),
    ({"h": 2.0}, "h=2.0"),
    ({"h": "5"}, "h='5'"),
    ({"k": None}, "k=None"),
    ({"r": True}, "r=True"),
    ({"w": MAX_EXTENT + 1}, "w="),
    ({"pad": 1}, "pad=1"),
    ({"pad": (1, 1)}, "pad=(1, 1)"),
    ({"pad": [1, 1, 1, 1]}, "pad=[1, 1, 1, 1]: must be a tuple of 4 integers"),
    ({"pad": (np.float32(1), 1, 1, 1)}, "pad=(np.float32(1.0), 1, 1, 1): must be 4 integers"),
    ({"c": np.True_}, "c=np.True_"),
    ({"pad": (0, 0, 0, -1)}, "pad="),
    ({"stride": (1, 0)}, "stride=(1, 0)"),
    ({"stride": (1, 1.0)}, "stride="),
    ({"dilation": (False, 1)}, "dilation="),
    ({"groups": 2}, "groups=2"),
    ({"dtype": "f4"}, "dtype='f4'"),
    ({"dtype": "i32"}, "dtype='i32'"),
    ({"layout_in": "NCHW"}, "layout_in='NCHW'"),
    ({"math": "fast"}, "math='fast'"),
    ({"dtype": "tf32", "math": "accurate"}, "dtype='tf32', math='accurate': they contradict"),
    ({"layout_out": None}, "layout_out=None"),
    ({"epilogue": ["bias"]}, "epilogue="),
    ({"epilogue": None}, "epilogue=None"),
    ({"epilogue": "bias"}, "epilogue='bias'"),
    ({"epilogue": (1,)}, "epilogue="),
]


@pytest.mark.parametrize(("fields", "words"), FIELDS, ids=[str(f) for f, _ in FIELDS])
def test_wrong_field_is_named(fields: dict[str, object], words: str) -> None:
    good: dict[str, object] = dict(c=3, h=8, w=8, k=5, r=3, s=3)
    with pytest.raises(ProblemError) as error:
        Problem(**(good | fields))  # type: ignore[arg-type]
    assert words in str(error.value)


names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@given(names, st.dictionaries(names, st.integers(0, MAX_VALUE), max_size=6))
def test_config_round_trip(family: str, values: dict[str, int]) -> None:
    config = Config.make(family, values)
    assert Config.parse(str(config)) == config
    assert config.values == values


LAUNCH = Launch("k", (1, 1, 1), (32, 1, 1), ("x", "y"))


@pytest.mark.parametrize("thing", [Config("direct", (("v", 4),)), LAUNCH])
def test_a_hash_stays_in_its_process(thing: Config | Launch) -> None:
    """Texts hash otherwise in every process."""
    assert hash(thing) == hash(replace(thing)) and "_hash" in vars(thing)
    there = pickle.loads(pickle.dumps(thing))
    assert there == thing and "_hash" not in vars(there) and hash(there) == hash(thing)


configs = st.text(alphabet="direct:abk=8.,-_ \n\x00１2", max_size=30)


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=40), configs))
def test_any_config_text_is_read_or_refused(text: str) -> None:
    try:
        config = Config.parse(text)
    except ConfigError as error:
        assert "\n" not in str(error)
    else:
        assert Config.parse(str(config)) == config


WRONG_CONFIGS = {
    "": "must look like",
    "direct": "must look like",
    ":bk=8": "must look like",
    "Direct:bk=8": "must look like",
    "di rect:bk=8": "must look like",
    "../direct:bk=8": "must look like",
    "direct:bk": "cannot read 'bk'",
    "direct:bk=": "cannot read 'bk='",
    "direct:bk=8.": "cannot read ''",
    "direct:.bk=8": "cannot read ''",
    "direct:bk=8.bk=8": "cannot read 'bk=8'",
    "direct:bk=8,bh=1": "cannot read 'bk=8,bh=1'",
    "direct:bk=-8": "cannot read 'bk=-8'",
    "direct:bk=+8": "cannot read 'bk=+8'",
    "direct:bk=8\nbh=1": "cannot read",
    "direct:bk=0x10": "cannot read 'bk=0x10'",
    "direct:bk=1e3": "cannot read 'bk=1e3'",
    "direct:bk=８": "cannot read 'bk=８'",
    "direct:bk=123456789": "cannot read 'bk=123456789'",
    "direct:BK=8": "cannot read 'BK=8'",
    "direct:bk =8": "cannot read 'bk =8'",
    "direct:_bk=8": "cannot read '_bk=8'",
    "direct:8bk=8": "cannot read '8bk=8'",
    "direct:bk=8;system=1": "cannot read 'bk=8;system=1'",
    "direct:bk=8\n#include <x>": "cannot read",
    "direct:direct:bk=8": "cannot read",
}


@pytest.mark.parametrize("text", WRONG_CONFIGS)
def test_wrong_config_names_its_part(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config.parse(text)
    assert WRONG_CONFIGS[text] in str(error.value)


@pytest.mark.parametrize(
    ("text", "dtype", "math", "stored", "added", "out"),
    [
        ("n1c8h5w4k8r3s3-f8", "f8", "strict", "f8", "f16", "f16"),
        ("n1c8h5w4k8r3s3-i8-nhwc+bias+relu+requant", "q8", "strict", "i8", "i32", "i8"),
        ("n1c8h5w4k8r3s3-tf32+bias", "f32", "tf32", "f32", "f32", "f32"),
        ("n1c8h5w4k8r3s3-accurate-nhwc", "f32", "accurate", "f32", "f32", "f32"),
        ("n1c8h5w4k8r3s3-i8", "i8", "strict", "i8", "i32", "i32"),
    ],
)
def test_kinds(text: str, dtype: str, math: str, stored: str, added: str, out: str) -> None:
    p = Problem.parse(text)
    assert (p.dtype, p.math, p.stored, p.dtype_added, p.dtype_out) == (dtype, math, stored, added, out)
    assert str(p) == text and Problem.parse(str(p)) == p and p.with_dtype(p.precision) == p
    assert [one.nbytes for one in p.operands.values() if one.name == "scale"] == [32] * p.requantised
    assert p.portable.math == "strict" and p.portable.dtype in DTYPES and p.portable.epilogue == p.epilogue
    assert p.with_dtype("f16").portable == p.with_dtype("f16")


def test_kinds_in_other_words() -> None:
    plain = Problem.parse("n1c8h5w4k8r3s3-f32")
    tf32 = Problem.parse("n1c8h5w4k8r3s3-f32-tf32")
    assert replace(plain, dtype="tf32") == tf32 == plain.with_dtype("tf32")
    assert Problem.parse("n1c8h5w4k8r3s3-q8") == Problem.parse("n1c8h5w4k8r3s3-i8+requant")
    assert plain.with_dtype("tf32").with_dtype("f32") == plain != plain.with_dtype("tf32")
    for text, says in (
        ("n1c8h5w4k8r3s3-f16+requant", "it needs -i8"),
        ("n1c8h5w4k8r3s3-i8+requant+relu", "must be the last word"),
        ("n1c8h5w4k8r3s3-f16-tf32", "math='tf32' needs dtype f32, got f16"),
        ("n1c8h5w4k8r3s3-i8+silu+requant", "i8 layers accept only bias"),
    ):
        with pytest.raises(ProblemError, match=says):
            Problem.parse(text)
