"""At least thirty ways to call the array interface wrongly: the error's class and its key words."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from api_samples import B, F, W, X, expected, near, own_cache, some
from fake_cuda import FakeCuda, FakeCupy, cupy

import tilewright as tw
from tilewright import arguments
from tilewright.dtypes import numpy_dtype
from tilewright.errors import (
    ArrayError,
    BudgetError,
    ConfigError,
    DeviceError,
    ProblemError,
    StoreError,
    TilewrightError,
)
from tilewright.kernels import FAMILIES
from tilewright.kernels.family import Config
from tilewright.plans.layer import LayerPlan
from tilewright.plans.plan import Plan
from tilewright.tuning.budget import Budget

__all__ = ["cupy", "own_cache"]  # fixtures

ATOMIC = "direct:combine=1.cs=1"  # atomics add in any order
CHOICES = [one.name for one in FAMILIES if one.tunable]
OUT = (2, 6, 5, 8)
ANEW = "leave it out, or give an array as a call without it returns$"  # nobody would see a copy of it written
Z = np.zeros(OUT, F)
BF16 = numpy_dtype("bf16")


def masked() -> Any:
    return np.ma.masked_array(X, mask=X > 0)


def frozen() -> Any:
    out = np.empty(OUT, F)
    out.flags.writeable = False
    return out


def lying_over_x() -> Any:
    room = np.zeros(1000, F)
    return tw.conv2d(room[:504].reshape(X.shape), W, out=room[400 : 400 + 480].reshape(OUT))


class Exported:
    """Something that speaks DLPack, of a library that we do not know."""

    def __dlpack__(self) -> None: ...


def conv(*arrays: Any, **options: Any) -> Callable[[], object]:
    return lambda: tw.conv2d(*(arrays or (X, W)), **options)


WRONG: dict[str, tuple[Callable[[], object], type[TilewrightError], str]] = {
    "x list": (conv([[1.0]], W), ArrayError, r"x: a list was given; must be an array.*np.asarray"),
    "x None": (conv(None, W), ArrayError, "x: None was given"),
    "x text": (conv("image.png", W), ArrayError, "x: a str was given"),
    "x scalar": (conv(np.float32(1), W), ArrayError, "x: a float32 was given"),
    "x unknown dlpack": (conv(Exported(), W), ArrayError, r"Exported was given; pass torch.from_dlpack\(x\)"),
    "x int": (
        conv(X.astype(int), W),
        ArrayError,
        r"x: dtype int64 was given; must be one of float64, .*e4m3fn: call e.g. x.astype\(np.float32\)",
    ),
    "x int32": (conv(X.astype("i4"), W), ArrayError, r"x: dtype int32 .*call e.g. x.astype\(np.float32\)"),
    "x unsigned": (conv(X.astype("u1"), W), ArrayError, "x: dtype uint8"),
    "x long double": (conv(X.astype("g"), W), ArrayError, "x: dtype (float128|longdouble)"),
    "x half, w single": (
        conv(X.astype("e"), W),
        ArrayError,
        r"w: dtype float32 was given; must be float16, as x is: call w.astype\(np.float16\)",
    ),
    "x brain": (
        conv(X.astype(BF16), W),
        ArrayError,
        r"w: dtype float32.*bfloat16, as x is: call w.astype\(ml_dtypes.bfloat16\)",
    ),
    "x complex": (conv(X.astype("F"), W), ArrayError, "x: dtype complex64"),
    "x object": (conv(X.astype(object), W), ArrayError, "x: dtype object"),
    "x byte order": (
        conv(X.astype(">f4"), W),
        ArrayError,
        r"x: dtype >f4 .other byte order.*call x.astype\(np.float32\)",
    ),
    "x byte order of half": (conv(X.astype(">f2"), W), ArrayError, r"call x.astype\(np.float16\)"),
    "x masked": (conv(masked(), W), ArrayError, r"x: a masked array.*x.filled\(0\)"),
    "x odd strides": (
        conv(
            np.zeros(X.size * 5 + 5, np.uint8)[: X.size * 5]
            .view([("f", F), ("b", "u1")])["f"]
            .reshape(X.shape),
            W,
        ),
        ArrayError,
        "x: strides .* no multiple of 4 bytes",
    ),
    "x 3d": (conv(X[0], W), ArrayError, r"x: shape \(4, 7, 9\).*4 dimensions, \(N, C, H, W\)"),
    "x 3d nhwc": (conv(X[0], W, layout="nhwc"), ArrayError, r"4 dimensions, \(N, H, W, C\)"),
    "x 5d": (conv(X[None], W), ArrayError, "x: shape .*4 dimensions"),
    "w float64": (conv(X, W.astype(float)), ArrayError, "w: dtype float64"),
    "w 2d": (conv(X, W[0, 0]), ArrayError, r"w: shape \(3, 2\).*\(K, C / groups, R, S\)"),
    "w channels": (conv(X, W[:, :3]), ArrayError, r"w: .*second size must be C / groups = 4 / 1 = 4"),
    "w channels of groups": (conv(X, W, groups=2), ArrayError, "C / groups = 4 / 2 = 2"),
    "w list": (conv(X, W.tolist()), ArrayError, "w: a list was given"),
    "w no channels": (conv(X[:, :0], W[:, :0]), ProblemError, "c=0"),
    "w no filters": (conv(X, W[:0]), ProblemError, "k=0"),
    "bias rank": (conv(X, W, B[None]), ArrayError, r"bias: shape \(1, 6\).*must be \(6,\)"),
    "bias length": (conv(X, W, B[:5]), ArrayError, r"bias: shape \(5,\).*one for each filter"),
    "bias dtype": (conv(X, W, B.astype(int)), ArrayError, "bias: dtype int64"),
    "bias dtype of i8": (
        conv(X.astype("b"), W.astype("b"), B),
        ArrayError,
        r"bias: dtype float32 was given; must be int32 for n2c4.*call bias.astype\(np.int32\)",
    ),
    "z shape": (
        conv(z=np.zeros((2, 6, 5, 9), F)),
        ArrayError,
        r"z: shape \(2, 6, 5, 9\) was given; must be \(2, 6, 5, 8\) for n2c4",
    ),
    "z shape of the pooled": (
        conv(z=np.zeros((2, 6, 2, 4), F), pool="maxpool2"),
        ArrayError,
        r"z: shape .* must be \(2, 6, 5, 8\)",
    ),
    "z dtype": (conv(z=np.zeros(OUT)), ArrayError, "z: dtype float64 was given; must be float32 for n2c4"),
    "z list": (conv(z=[]), ArrayError, "z: a list was given"),
    "z number": (conv(z=1.0), ArrayError, "z: a float was given"),
    "beta without z": (conv(beta=0.5), ProblemError, "beta=0.5: scales z, but no z was given"),
    "beta zero without z": (conv(beta=0), ProblemError, "beta=0: scales z"),
    "beta zero": (conv(z=Z, beta=0.0), ProblemError, "beta=0.0: would discard z; leave z out"),
    "beta tiny": (conv(z=Z, beta=1e-60), ProblemError, "beta=1e-60 is 0 in f32"),
    "beta text": (conv(z=Z, beta="1"), ProblemError, "beta='1': must be a finite number"),
    "beta array": (conv(z=Z, beta=np.ones(2)), ProblemError, "beta=.*: must be a finite number"),
    "beta nan": (conv(z=Z, beta=np.nan), ProblemError, "beta=nan: must be a finite number"),
    "alpha zero": (conv(alpha=0), ProblemError, "alpha=0: would discard the convolution"),
    "alpha None": (conv(alpha=None), ProblemError, "alpha=None: must be a finite number"),
    "alpha bytes": (conv(alpha=b"1"), ProblemError, "alpha=b'1': must be a finite number"),
    "alpha numpy bool": (conv(alpha=np.True_), ProblemError, "alpha=np.True_: must be a finite number"),
    "alpha numpy complex": (conv(alpha=np.complex64(2 + 3j)), ProblemError, "alpha=np.complex64.*: must be"),
    "alpha numpy text": (conv(alpha=np.array("1")), ProblemError, r"alpha=array\('1'.*: must be"),
    "alpha bool": (conv(alpha=True), ProblemError, "alpha=True: must be a finite number"),
    "alpha infinite": (conv(alpha=float("inf")), ProblemError, "alpha=inf: must be a finite number"),
    "alpha complex": (conv(alpha=1j), ProblemError, "alpha=1j: must be a finite number"),
    "activation name": (conv(activation="gelu"), ProblemError, 'activation=\'gelu\': must be "relu", "leak'),
    "activation letters": (conv(activation="SiLU"), ProblemError, 'did you mean "silu"[?]$'),
    "activation elsewhere": (conv(activation="swish"), ProblemError, 'did you mean "silu"[?]$'),
    "activation relu letters": (conv(activation="ReLU6"), ProblemError, 'did you mean "relu6"[?]$'),
    "activation empty": (conv(activation=""), ProblemError, "activation=''"),
    "activation is no activation": (conv(activation="bias"), ProblemError, "activation='bias': must be"),
    "activation two": (conv(activation="relu+silu"), ProblemError, r"activation='relu\+silu'"),
    "activation function": (conv(activation=abs), ProblemError, "activation=<built-in function abs>:"),
    "activation list": (conv(activation=["relu", 1]), ProblemError, r"activation=\['relu', 1\]"),
    "activation ()": (conv(activation=()), ProblemError, r"activation=\(\)"),
    "activation relu of": (conv(activation=("relu", 1)), ProblemError, r"activation=\('relu', 1\)"),
    "activation clamp": (conv(activation="clamp"), ProblemError, r"clamp.*\(\"clamp\", low, high\)"),
    "activation leaky bool": (conv(activation=("leaky", True)), ProblemError, r"\('leaky', True\): must be"),
    "activation clamp text": (conv(activation=("clamp", "0", "6")), ProblemError, r"'0', '6'\): must be"),
    "activation clamp large": (conv(activation=("clamp", 0, 1e39)), ProblemError, r"1e\+39\): must be"),
    "alpha large": (conv(alpha=1e300), ProblemError, r"alpha=1e\+300: must be .* less than 3e\+38 in size"),
    "deterministic": (conv(deterministic="no"), ConfigError, "deterministic='no': must be True or False"),
    "activation clamp order": (conv(activation=("clamp", 6, 0)), ProblemError, r"\('clamp', 6, 0\): must be"),
    "activation slope": (conv(activation=("leaky", "x")), ProblemError, r"\('leaky', 'x'\): must be"),
    "activation slope nan": (conv(activation=("leaky", np.nan)), ProblemError, r"'leaky', nan\): must be"),
    "activation slope split": (conv(activation=("leaky-", 0.5)), ProblemError, r"\('leaky-', 0.5\): must be"),
    "pool number": (conv(pool=2), ProblemError, 'pool=2: must be a Pool, or its word: "maxpool2"'),
    "pool short": (conv(pool="max2"), ProblemError, "pool='max2': must be a Pool"),
    "pool is an activation": (conv(pool="relu"), ProblemError, "pool='relu': must be a Pool"),
    "pool padded mean": (conv(pool="avgpool3p1"), ProblemError, "pool='avgpool3p1': must be"),
    "pool too large": (conv(pool="maxpool6"), ProblemError, "maxpool6: no window fits .* 5x8 output"),
    "pool of nothing": (lambda: tw.Pool("max", 0, 1), ProblemError, "must be a max or avg pool"),
    "i8 silu": (
        conv(X.astype("b"), W.astype("b"), activation="silu"),
        ProblemError,
        r"\+silu: i8 layers accept only bias",
    ),
    "i8 alpha": (conv(X.astype("b"), W.astype("b"), alpha=0.5), ProblemError, r"\+alpha0.5: i8 layers"),
    "bias number": (conv(X, W, 0.5), ArrayError, "bias: a float was given"),
    "groups divide": (conv(groups=3), ProblemError, "groups=3: must divide C=4 of x and K=6"),
    "groups nhwc": (
        lambda: tw.conv2d(some(1, 28, 28, 96), some(96, 1, 3, 3), groups=96), ProblemError,
        r'groups=96: must divide C=28 of x and K=96 of w; is x \(N, H, W, C\)[?] then give layout="nhwc"$',
    ),
    "channels nhwc": (
        lambda: tw.conv2d(some(1, 9, 8, 6), some(5, 6, 3, 3)), ArrayError, 'then give layout="nhwc"$'
    ),
    "channels nchw": (
        lambda: tw.conv2d(some(1, 6, 9, 8), some(5, 6, 3, 3), layout="nhwc"), ArrayError,
        r'is x \(N, C, H, W\)[?] then give layout="nchw"$',
    ),
    "groups zero": (conv(groups=0), ProblemError, "groups=0: must be an integer of 1 or more"),
    "groups text": (conv(groups="2"), ProblemError, "groups='2'"),
    "groups float": (conv(groups=2.0), ProblemError, "groups=2.0"),
    "groups bool": (conv(groups=True), ProblemError, "groups=True"),
    "stride zero": (
        conv(stride=0),
        ProblemError,
        r"stride=0: must be an integer or a pair \(height, width\)",
    ),
    "stride negative": (conv(stride=(1, -1)), ProblemError, r"stride=\(1, -1\)"),
    "stride three": (conv(stride=(1, 1, 1)), ProblemError, r"stride=\(1, 1, 1\)"),
    "stride none": (conv(stride=()), ProblemError, r"stride=\(\)"),
    "stride float": (conv(stride=1.0), ProblemError, "stride=1.0"),
    "stride text": (conv(stride="2"), ProblemError, "stride='2'"),
    "stride None": (conv(stride=None), ProblemError, "stride=None"),
    "stride huge": (conv(stride=1 << 40), ProblemError, "stride="),
    "dilation zero": (conv(dilation=(0, 1)), ProblemError, r"dilation=\(0, 1\)"),
    "dilation of one": (conv(dilation=(1,)), ProblemError, r"dilation=\(1,\): must be an integer or a pair"),
    "dilation bool": (conv(dilation=True), ProblemError, "dilation=True"),
    "padding negative": (conv(padding=-1), ProblemError, "padding=-1.*without negative numbers"),
    "padding three": (
        conv(padding=(1, 1, 1)),
        ProblemError,
        r"padding=\(1, 1, 1\).*top, bottom, left, right",
    ),
    "padding full": (conv(padding="full"), ProblemError, "padding='full'.*\"same\" or \"valid\""),
    "padding SAME": (conv(padding="SAME"), ProblemError, "padding='SAME'"),
    "padding pairs": (conv(padding=((1, 1), (1, 1))), ProblemError, r"padding=\(\(1, 1\)"),
    "padding array": (conv(padding=np.ones(2)), ProblemError, "padding="),
    "padding matrix": (conv(padding=np.ones((99, 99), int)), ProblemError, "padding=array.*: must be an int"),
    "stride matrix": (conv(stride=np.eye(2)), ProblemError, "stride=array.*: must be an integer"),
    "groups matrix": (conv(groups=np.eye(2)), ProblemError, "groups=array.*: must be an integer"),
    "output empty": (conv(X[:, :, :2], W), ProblemError, "filter spans 3x2 but the padded input is only 2x9"),
    "output empty dilated": (conv(dilation=9), ProblemError, "would be empty"),
    "layout": (conv(layout="NHWC"), ProblemError, "layout='NHWC': must be one of nchw, nhwc"),
    "layout mixed": (conv(layout="nchw2nhwc"), ProblemError, "layout='nchw2nhwc'"),
    "layout None": (conv(layout=None), ProblemError, "layout=None"),
    "layout array": (conv(layout=np.array(["nchw", "nhwc"])), ProblemError, "layout=.*: must be one of nchw"),
    "math array": (conv(math=np.array(["strict", "tf32"])), ProblemError, "math=.*: must be one of strict"),
    "out shape": (conv(out=np.empty((2, 6, 5, 9), F)), ArrayError, r"out: shape .* must be \(2, 6, 5, 8\)"),
    "out dtype": (conv(out=np.empty(OUT)), ArrayError, "out: dtype float64 .* for n2c4.*: make it so$"),
    "out dtype of i8": (
        conv(X.astype("b"), W.astype("b"), out=np.empty(OUT, "b")),
        ArrayError,
        "out: dtype int8 was given; must be int32",
    ),
    "out shape of the pooled": (
        conv(pool="maxpool2", out=np.empty(OUT, F)),
        ArrayError,
        r"out: shape .* must be \(2, 6, 2, 4\)",
    ),
    "out unaligned": (
        conv(out=np.zeros(4 * 480 + 1, np.uint8)[1:].view(F).reshape(OUT)),
        ArrayError,
        "out: starts at no multiple of 4 bytes",
    ),
    "out is z": (lambda: tw.conv2d(X, W, z=Z, out=Z), ArrayError, "out: overlaps z in memory"),
    "out gaps": (conv(out=np.empty((2, 6, 5, 16), F)[..., ::2]), ArrayError, "out: strides.*contiguous"),
    "out fortran": (conv(out=np.empty(OUT, F, order="F")), ArrayError, "out: strides.*contiguous"),
    "out read-only": (conv(out=frozen()), ArrayError, "out: is read-only"),
    "out over x": (lying_over_x, ArrayError, "out: overlaps x in memory"),
    "out is x": (lambda: tw.conv2d(X, some(4, 4, 1, 1), out=X), ArrayError, "out: overlaps x"),
    "out list": (conv(out=[]), ArrayError, "out: a list was given; must be an array: leave it out, or give"),
    "out byte order": (conv(out=np.empty(OUT, ">f4")), ArrayError, f"out: dtype >f4 .* given; {ANEW}"),
    "out masked": (conv(out=np.ma.zeros(OUT, F)), ArrayError, f"out: a masked array was given; {ANEW}"),
    "out integers": (conv(out=np.empty(OUT, int)), ArrayError, f"out: dtype int64 .*float32.*: {ANEW}"),
    "out field": (
        conv(out=np.empty(OUT, [("a", "b"), ("y", "f4")])["y"]),
        ArrayError,
        f"out: strides .* no multiple of 4 bytes; {ANEW}",
    ),
    "device text": (conv(device="gpu"), DeviceError, "device 'gpu': must be cpu, cuda"),
    "device number": (conv(device=0), DeviceError, "device=0: must be text"),
    "device array": (conv(device=np.eye(2)), DeviceError, "device=array.*: must be text"),
    "device none such": (conv(device="opencl:99"), DeviceError, "99"),
    "plan text": (lambda: tw.plan("resnet50"), ProblemError, "'resnet50'.*not a suite.*did you mean resnet"),
    "plan type": (lambda: tw.plan(X), ProblemError, "problem: a NumPy array was given"),
    "plan device": (lambda: tw.plan("c1h1k1r1", "tpu"), DeviceError, "'tpu'"),
    "plan config": (
        lambda: tw.plan("c1h1k1r1", "numpy", config="x"),
        ConfigError,
        "config 'x': must be family:name=value",
    ),
    "plan config that is a family": (
        lambda: tw.plan("c1h1k1r1", "numpy", config="direct"),
        ConfigError,
        "config 'direct': is a family \\(--family direct",
    ),
    "plan config by hand": (
        lambda: tw.plan("c1h1k1r1", "numpy", config=tw.Config("direct", ("x", 1))),  # type: ignore[arg-type]
        ConfigError,
        r"items=\('x', 1\): must be \(name, value\) pairs",
    ),
    "plan config value by hand": (
        lambda: tw.plan("c1h1k1r1", "numpy", config=tw.Config.make("reference", {"v": 1.0})),  # type: ignore[dict-item]
        ConfigError,
        r"items=\(\('v', 1.0\),\): must be .* pairs, each value an integer",
    ),
    "plan config type": (lambda: tw.plan("c1h1k1r1", "numpy", config=5), ConfigError, "config: an int was"),
    "plan config name": (
        lambda: tw.plan("c1h1k1r1", "numpy", config="toy:shared-til"),
        ConfigError,
        "'toy:shared-til'.*names that fit .*toy:shared-tile",
    ),
    "plan deterministic": (
        lambda: tw.plan("c1h1k1r1", "numpy", deterministic=1),
        ConfigError,
        "deterministic=1: must be True or False",
    ),
    "tune again": (
        lambda: tw.tune("c1h1k1r1", "cpu", again="no"),
        ConfigError,
        "again='no': must be True or False",
    ),
    "plan config deterministic": (
        lambda: tw.plan("c1h1k1r1", "numpy", config=ATOMIC, deterministic=True),
        ConfigError,
        "cs=1: adds in an order that varies; leave out deterministic, or the config",
    ),
    "plan config and family": (
        lambda: tw.plan("c1h1k1r1", "numpy", config="x:a=1", family="gemm"),
        ConfigError,
        "config and family: give only one",
    ),
    "plan family": (lambda: tw.plan("c1h1k1r1", "numpy", family="x"), ConfigError, "family 'x': known are"),
    "plan family type": (lambda: tw.plan("c1h1k1r1", "numpy", family=5), ConfigError, "family=5: must be"),
    "plan store": (lambda: tw.plan("c1h1k1r1", "numpy", store="x"), StoreError, "store: a str was given"),
    "plan config family": (
        lambda: tw.plan("c1h1k1r1", "numpy", config="x:a=1"),
        ConfigError,
        "family 'x': known",
    ),
    "plan config value": (
        lambda: tw.plan("c1h1k1r1", "numpy", config="reference:v=2"),
        ConfigError,
        "v=2 must be 1",
    ),
    "tune text": (lambda: tw.tune("resnet50"), ProblemError, "'resnet50'"),
    "tune type": (lambda: tw.tune(None), ProblemError, "problem: None was given"),
    "tune budget": (lambda: tw.tune("c1h1k1r1", "cpu", "5 bananas"), BudgetError, "budget '5 bananas'"),
    "tune budget number": (lambda: tw.tune("c1h1k1r1", "cpu", budget=-20), BudgetError, "seconds=-20"),
    "tune budget nan": (lambda: tw.tune("c1h1k1r1", "cpu", budget=float("nan")), BudgetError, "seconds=nan"),
    "tune budget bool": (lambda: tw.tune("c1h1k1r1", "cpu", budget=True), BudgetError, "budget=True: must"),
    "conv2d family": (lambda: tw.conv2d(X, W, family="dirct"), ConfigError, "'dirct': known are"),
    "none is offered that cannot be chosen": (
        lambda: tw.conv2d(X, W, family="dirct"), ConfigError, f": known are {', '.join(CHOICES)}, plain"
    ),
    "tune families": (
        lambda: tw.tune("c1h1k1r1", "cpu", family="dirct"),
        ConfigError,
        "'dirct': known are",
    ),
    "tune families type": (
        lambda: tw.tune("c1h1k1r1", "cpu", family=3),
        ConfigError,
        "family=3: must be",
    ),
    "tune families None": (
        lambda: tw.tune("c1h1k1r1", "cpu", family=[None]),
        ConfigError,
        "None.: must be",
    ),
    "tune strategy": (lambda: tw.tune("c1h1k1r1", "cpu", strategy="x"), ConfigError, "strategy='x': must be"),
    "tune strategy type": (
        lambda: tw.tune("c1h1k1r1", "cpu", strategy=[]),
        ConfigError,
        "strategy=.*must be",
    ),
    "tune strategy array": (
        lambda: tw.tune("c1h1k1r1", "cpu", strategy=np.array(["model", "all"])),
        ConfigError,
        "strategy=.*must be",
    ),
    "tune progress": (lambda: tw.tune("c1h1k1r1", "cpu", progress=1), ConfigError, "progress=1: must be"),
    "tune seed": (lambda: tw.tune("c1h1k1r1", "cpu", seed="one"), ConfigError, "seed='one': must be"),
    "tune seed negative": (lambda: tw.tune("c1h1k1r1", "cpu", seed=-1), ConfigError, "seed=-1: must be"),
    "tune store": (lambda: tw.tune("c1h1k1r1", "cpu", store="x"), StoreError, "store: a str was given"),
    "tune too large": (
        lambda: tw.tune("n9999999c64h56k64r3p1", "cpu"),
        ProblemError,
        "too large: x 7,4.*GiB, w .*, y .* memory",
    ),
    "budget seconds": (lambda: Budget(seconds=-1), BudgetError, "seconds=-1: must be a number above 0"),
    "budget bool": (lambda: Budget(seconds=True), BudgetError, "seconds=True: must be a number above 0"),
    "budget huge": (lambda: Budget(seconds=10**400), BudgetError, "seconds=10{50,}.*: must be a number"),
    "tune budget huge": (lambda: tw.tune("c1h1k1r1", "cpu", 10**400), BudgetError, "seconds=10{50,}"),
    "budget text": (lambda: Budget(seconds="x"), BudgetError, "seconds='x': must be"),
    "budget trials": (lambda: Budget(trials=0), BudgetError, "trials=0: must be a whole number of 1"),
    "store number": (lambda: tw.Store(5), StoreError, "store: an int was given; must be the path"),
    "store folder": (lambda: tw.Store("/tmp").info(), StoreError, "/tmp: .*no plain file; name another"),
    "import number": (lambda: tw.Store().import_json(5), StoreError, "an int was given; must be the JSON"),
    "tune nothing": (lambda: tw.tune("n0c1h1k1r1", "cpu"), ProblemError, "nothing to tune"),
    "tune device": (lambda: tw.tune("c1h1k1r1", "tpu"), DeviceError, "'tpu'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_call_is_one_clear_line(name: str) -> None:
    call, kind, words = WRONG[name]
    with pytest.raises(kind, match=words) as error:
        call()
    assert "\n" not in str(error.value) and len(str(error.value)) < 700


ADDS = "n2c4h7w9k6r3s2-f32+add"


def plan_of(text: str = "n2c4h7w9k6r3s2-f32") -> Any:
    return tw.plan(text, device="numpy")


def identity() -> Any:
    return plan_of("c1h3k1r1")


WRONG_PLAN: dict[str, tuple[Callable[[], object], str]] = {
    "w not packed": (lambda: plan_of()(X, W), r"a NumPy array was given; must be what plan.pack\(w\)"),
    "w of another layer": (lambda: plan_of()(X, plan_of("n1c1h9k1r1").pack(some(1, 1, 1, 1))), "pack again"),
    "w of another layer by the same kernel": (
        lambda: plan_of()(X, identity().pack(some(1, 1, 1, 1))),
        r"for n1c1h3w3k1r1s1-f32 by reference:v=1>; pack again with this plan, of n2c4h7w9k6r3s2-f32 by ref",
    ),
    "pack shape": (
        lambda: plan_of().pack(W[:5]),
        r"w: shape \(5, 4, 3, 2\) was given; must be \(6, 4, 3, 2\)",
    ),
    "pack dtype": (lambda: plan_of().pack(W.astype("e")), "w: dtype float16 was given; must be float32"),
    "x dtype": (
        lambda: plan_of()(X.astype(float), plan_of().pack(W)),
        r"x: dtype float64 was given; must be float32 for n2c4.*call x.astype\(np.float32\)",
    ),
    "z missing": (lambda: plan_of(ADDS)(X, plan_of(ADDS).pack(W)), "z: is missing"),
    "z superfluous": (lambda: plan_of()(X, plan_of().pack(W), z=Z), "z: is given, but the problem has none"),
    "z shape": (lambda: plan_of(ADDS)(X, plan_of(ADDS).pack(W), z=Z[:1]), r"z: shape \(1, 6, 5, 8\)"),
    "z dtype": (lambda: plan_of(ADDS)(X, plan_of(ADDS).pack(W), z=Z.astype("e")), "z: dtype float16"),
    "z is out": (lambda: plan_of(ADDS)(X, plan_of(ADDS).pack(W), z=Z, out=Z), "out: overlaps z"),
    "x shape": (lambda: plan_of()(X[:1], plan_of().pack(W)), r"x: shape .* must be \(2, 4, 7, 9\) for n2c4"),
    "bias missing": (
        lambda: plan_of("n2c4h7w9k6r3s2+bias")(X, plan_of("n2c4h7w9k6r3s2+bias").pack(W)),
        "missing",
    ),
    "bias superfluous": (lambda: plan_of()(X, plan_of().pack(W), B), "the problem has none"),
    "bias shape": (
        lambda: plan_of("n2c4h7w9k6r3s2+bias")(X, plan_of("n2c4h7w9k6r3s2+bias").pack(W), B[:2]),
        r"bias: shape \(2,\)",
    ),
    "out shape": (lambda: plan_of()(X, plan_of().pack(W), out=X.copy()), "out: shape"),
    "out is x": (lambda: identity()(S, identity().pack(S[:, :, :1, :1].copy()), out=S), "overlaps x"),
}
S = some(1, 1, 3, 3)


@pytest.mark.parametrize("name", WRONG_PLAN)
def test_wrong_use_of_a_plan(name: str) -> None:
    call, words = WRONG_PLAN[name]
    with pytest.raises(ArrayError, match=words):
        call()


def test_numpy_arrays_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(kind: str, index: int) -> None:
        raise DeviceError("no CUDA driver")

    monkeypatch.setattr(arguments.layer, "open_runtime", lambda kind, index: None)
    with pytest.raises(ArrayError, match=r"x: is on cpu, but device='cuda'; .*from_numpy\(x\)"):
        conv(device="cuda")()
    if torch := sys.modules.get("torch"):
        with pytest.raises(ArrayError, match=r"move it there first: x.cuda\(\)"):
            tw.conv2d(torch.from_numpy(X), torch.from_numpy(W), device="cuda")
    monkeypatch.setattr(arguments.layer, "open_runtime", missing)
    with pytest.raises(DeviceError, match="no CUDA driver"):
        conv(device="cuda")()


@pytest.mark.parametrize("name", ["bias", "z", "out", "scale"])
def test_a_wrong_shape_is_found_before_anything_compiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("tilewright.api.layer_plan", lambda *request: asked.append(request))
    kind = np.int8 if name == "scale" else np.float32
    x, w = np.ones((1, 3, 6, 5), kind), np.ones((7, 3, 3, 3), kind)
    wrong = np.ones((8,) if name in ("bias", "scale") else (1, 7, 4, 4), np.float32)
    with pytest.raises(ArrayError, match=f"^{name}: shape"):
        tw.conv2d(x, w, **{name: wrong}, device="numpy")
    assert not asked


def test_nothing_is_half_written_by_a_wrong_call() -> None:
    out = np.full(OUT, 7, F)
    with pytest.raises(TilewrightError):
        tw.conv2d(X, W, B[:5], out=out)
    assert (out == 7).all()


def test_wrong_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, w = torch.from_numpy(X), torch.from_numpy(W)
    last = x.contiguous(memory_format=torch.channels_last)
    y = torch.empty(2, 6, 5, 8)
    negative = torch.complex(x, x).conj().imag
    freed = x.clone()
    freed.untyped_storage().resize_(0)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: tw.conv2d(x.double(), w), r"w: dtype float32.*as x is: call w.to\(torch.float64\)"),
        (lambda: tw.conv2d(x.long(), w), "x: dtype int64 .* e.g. x.to\\(torch.float32\\)"),
        (lambda: tw.conv2d(x.bool(), w), "x: dtype bool was given"),
        (lambda: tw.conv2d(x, w, z=Z), "z: is a numpy array on cpu, but x is a torch"),
        (lambda: tw.conv2d(last, w, z=y[:, :, :, :7]), r"z: .* must be \(2, 6, 5, 8\) .* channels_last"),
        (lambda: tw.conv2d(x.clone().requires_grad_(), w), "x: requires grad.*no_grad"),
        (lambda: tw.conv2d(x, torch.nn.Parameter(w.clone())), "w: requires grad.*w.detach"),
        (lambda: tw.conv2d(negative, w), r"x: .* yet to be negated .*; call x.resolve_neg\(\)"),
        (lambda: tw.conv2d(x, w, out=torch._neg_view(y)), f"out: .* negated .*; {ANEW}"),
        (lambda: tw.conv2d(x, w, out=y.to_sparse()), f"out: a tensor of layout torch.sparse_coo .*; {ANEW}"),
        (lambda: torch.fx.symbolic_trace(lambda one: tw.conv2d(one, w)), "x: a Proxy .* must be an array"),
        (lambda: tw.conv2d(torch.complex(x, x).conj(), w), "x: dtype complex64 was given"),
        (lambda: tw.conv2d(x.to_sparse(), w), "x: a tensor of layout torch.sparse_coo.*to_dense"),
        (lambda: tw.conv2d(x.to("meta"), w), "x: a tensor on meta.*cpu or cuda"),
        (lambda: torch.jit.trace(lambda one: tw.conv2d(one, w), x), "x: torch.jit.trace, or .*plain tensor"),
        (lambda: torch.vmap(lambda one: tw.conv2d(one[None], w))(x), "x: a tensor without memory of its own"),
        (lambda: tw.conv2d(x, torch.nested.nested_tensor([w[0]])), "w: a tensor without memory .*plain"),
        (lambda: torch.func.grad(lambda one: tw.conv2d(one, w).sum())(x), "x: requires grad"),
        (lambda: tw.conv2d(freed, w), "x: a tensor without memory of its own .*freed"),
        (lambda: tw.conv2d(x, W), "w: is a numpy array on cpu, but x is a torch"),
        (lambda: tw.conv2d(X, w), "w: is a torch array on cpu, but x is a numpy"),
        (lambda: tw.conv2d(last, w, out=y), "out: strides.*channels_last, as x is"),
        (
            lambda: tw.conv2d(x, w, out=y.contiguous(memory_format=torch.channels_last)),
            "out: strides.*contiguous",
        ),
        (
            lambda: tw.conv2d(x, w, out=np.empty((2, 6, 5, 8), F)),
            "out: is a numpy array on cpu, but x is a torch",
        ),
    ]
    plan = tw.plan("n2c4h7w9k6r3s2-f32-nhwc", device="cpu")
    turn = r"x: shape .* must be \(2, 7, 9, 4\) for .*, or \(N, C, H, W\) in channels_last: call x.contig"
    wide = torch.zeros(2, 4, 7, 10).contiguous(memory_format=torch.channels_last)
    wrong += [(lambda x=x: plan(x, plan.pack(w)), turn) for x in (x, wide[..., 1:])]  # type: ignore[misc]
    for call, words in wrong:
        with pytest.raises(ArrayError, match=words):
            call()
    with torch.no_grad():
        near(tw.conv2d(x, torch.nn.Parameter(w)).numpy(), expected("n2c4h7w9k6r3s2-f32", X, W))
    near(tw.conv2d(negative.resolve_neg(), w).numpy(), -expected("n2c4h7w9k6r3s2-f32", X, W))


@pytest.mark.parametrize("how", [{}, {"tracing_mode": "fake"}, {"pre_dispatch": True}], ids=str)
def test_what_records_tensors_would_lose_the_kernel(how: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    make_fx = importlib.import_module("torch.fx.experimental.proxy_tensor").make_fx
    x, w = torch.from_numpy(X), torch.from_numpy(W)
    with pytest.raises(ArrayError, match="x: make_fx, or torch.export, .* within a torch.library.custom_op"):
        make_fx(lambda one: tw.conv2d(one, w), **how)(x)


def test_a_custom_op_of_pytorch_is_recorded() -> None:
    torch = pytest.importorskip("torch")
    make_fx = importlib.import_module("torch.fx.experimental.proxy_tensor").make_fx
    x, w = torch.from_numpy(X), torch.from_numpy(W)

    def ours(one: Any) -> Any:
        return tw.conv2d(one, w, stride=2)

    schema = "(Tensor one) -> Tensor"
    op = torch.library.custom_op("tilewright_test::ours", ours, mutates_args=(), schema=schema)
    recorded = make_fx(lambda one: 2 * op(one))(x)
    near(recorded(-x).numpy(), -2 * expected("n2c4h7w9k6r3s2u2-f32", X, W))


def test_a_tangent_is_not_lost_unsaid() -> None:
    torch = pytest.importorskip("torch")
    forward = torch.autograd.forward_ad
    x, w = torch.from_numpy(X), torch.from_numpy(W)
    want = expected("n2c4h7w9k6r3s2-f32", X, W)
    with forward.dual_level():
        for name, given in (("x", (forward.make_dual(x, x), w)), ("w", (x, forward.make_dual(w, w)))):
            with pytest.raises(ArrayError, match=rf"^{name}: has a tangent .*; call {name}.detach\(\)$"):
                tw.conv2d(*given)
            with torch.no_grad(), pytest.raises(ArrayError, match="has a tangent"):  # which does not stop it
                tw.conv2d(*given)
            near(tw.conv2d(*[one.detach() for one in given]).numpy(), want)
            with torch.inference_mode():
                near(tw.conv2d(*given).numpy(), want)
        near(tw.conv2d(x, w).numpy(), want)


def test_wrong_cuda_arrays(cupy: FakeCupy) -> None:
    x, w = cupy.array(X), cupy.array(W)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: tw.conv2d(x, W), "w: is a numpy array on cpu, but x is a cupy array on cuda:0"),
        (lambda: tw.conv2d(X, w), "w: is a cupy array on cuda:0, but x is a numpy array on cpu"),
        (lambda: tw.conv2d(x, cupy.array(W, device=1)), "w: is a cupy array on cuda:1, but x"),
        (lambda: tw.conv2d(x, w, device="cpu"), "x: is on cuda:0, but device='cpu'; leave device out"),
        (lambda: tw.conv2d(x, w, device="cuda:1"), "x: is on cuda:0, but device='cuda:1'"),
        (lambda: tw.conv2d(cupy.array(X.astype(float)), w), r"w: dtype float32.*astype\(cupy.float64\)"),
        (lambda: tw.conv2d(cupy.array(X.astype(int)), w), r"x: dtype int64.*astype\(cupy.float32\)"),
        (lambda: tw.conv2d(x, w, z=Z), "z: is a numpy array on cpu, but x is a cupy array on cuda:0"),
        (
            lambda: plan_of()(x, plan_of().pack(W)),
            "x: is a cupy array on cuda:0; must be on cpu, where the plan",
        ),
        (lambda: plan_of().pack(w), "w: is a cupy array on cuda:0; must be on cpu"),
    ]
    for call, words in wrong:
        with pytest.raises(ArrayError, match=words):
            call()


def test_a_filter_packed_on_another_gpu_of_the_same_model(cupy: FakeCupy) -> None:
    problem, layers = tw.Problem.parse("n2c4h7w9k6r3s2-f32"), []
    for index in (0, 1):
        runtime = FakeCuda(cupy)
        runtime.device = replace(runtime.device, index=index)
        layers.append(LayerPlan(Plan.make(runtime, problem, Config.parse("reference:v=1"))))
    first, second = layers
    assert first.device.key == second.device.key
    packed = second.pack(cupy.array(W, device=1))
    said = "packed_w: is on cuda:1, but the plan runs on cuda:0; pack again with this plan"
    with pytest.raises(ArrayError, match=said):
        first(cupy.array(X), packed)
    near(second(cupy.array(X, device=1), packed, out=cupy.array(np.empty(OUT, F), device=1)).data_,
         expected("n2c4h7w9k6r3s2-f32", X, W))  # fmt: skip
