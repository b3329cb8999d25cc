"""Every family on awkward shapes on every backend that is here, against NumPy in f64."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
from here import ALL, DEVICES, KERNELS, agrees, computed, numbers, put

from tilewright.arguments.named import NAMED
from tilewright.errors import CompileError, DeviceError
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.family import Config, Family
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime
from tilewright.search.space import sample

SHAPES = (
    "n1c1h1w1k1r1s1-f32",  # size 1 everywhere
    "n3c1h1w7k1r1s1-f32-nhwc",
    "n2c7h13w11k17r3s3p1-f32",  # primes: tails in every dimension
    "n2c7h13w11k17r3s3p1-f32-nhwc+bias+relu",
    "n1c37h5w5k41r1s1-f32+bias",
    "n1c37h5w5k41r1s1-f32-nchw2nhwc",
    "n1c16h9w9k32r2s2u3-f32",  # stride over filter
    "n1c5h4w4k6r3s3p4-f32-nhwc2nchw",  # padding over filter
    "n1c4h9w8k8r3s2p1.0.0.2-f32+relu",  # asymmetric
    "n1c8h12w10k12r3s3p2d2-f32",
    "n1c6h15w9k9r5s3p2x1u2x1d1x2g3-f32-nhwc+bias",
    "n2c8h6w6k8r3s3p1g8-f32",  # depthwise
    "n1c64h7w7k64r3s3p1-f32",
    "n1c64h7w7k64r3s3p1-f32-nhwc",
    "n1c32h8w8k64r1s1u2-f32+bias+relu",
    "n4c96h1w1k33r1s1-f32+bias",  # a classifier
    "n1c3h33w29k16r7s7p3u2-f32",
    "n1c2h1w40k3r1s9p0x4-f32",
    "n5c4h20w24k9r7s7-f32+bias",  # many images
)
POOLED = ("n1c7h20w23k5r5s5-f32+relu+maxpool2", "n2c5h13w11k6r3s3p1u2-f32-nhwc+bias+relu+maxpool3u2p1")
UNALIGNED = SHAPES[2:4] + SHAPES[12:15]
MOST_TRIED = 30


@pytest.fixture(params=DEVICES)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return open_runtime(request.param)


def _takes(kind: str, family: Family, text: str) -> bool:
    """Whether a family runs there, and takes the layer."""
    if kind == "numpy" and family.name != "reference":
        return False  # NumPy stands in for the reference alone
    return family.refuses(Problem.parse(text), DEVICES[kind]) is None


def _fitting(texts: Sequence[str]) -> pytest.MarkDecorator:
    """Each layer with every family that takes it, on every device that is here."""
    cases = [
        (kind, text, one.name)
        for kind in DEVICES
        for text in texts
        for one in FAMILIES
        if _takes(kind, one, text)
    ]
    return pytest.mark.parametrize(("runtime", "text", "name"), cases, indirect=["runtime"])


def _configs(family: Family, problem: Problem, runtime: Runtime, seed: int) -> Iterator[Config]:
    if not family.tunable:
        yield Config.make(family.name, {p.name: p.values[0] for p in family.params(problem, runtime.device)})
        return
    rng = random.Random(seed)
    while True:
        yield sample(family, problem, runtime.device, rng)


def _plans(family: Family, problem: Problem, runtime: Runtime, seed: int) -> Iterator[Plan]:
    """Plans of configs that compile: one that spills is data, the tuner drops it, and another is drawn."""
    wanted, made = 6 if runtime.device.is_cuda and family.tunable else 1, 0
    for tried, config in enumerate(islice(_configs(family, problem, runtime, seed), MOST_TRIED), 1):
        try:
            yield Plan.make(runtime, problem, config)
            made += 1
        except CompileError as error:
            assert "spilled" in str(error)
        if made and tried >= wanted:
            return
    assert made, f"all {tried} configs spilt"


def _check(name: str, text: str, runtime: Runtime, shift: int = 0) -> None:
    seed = sum(map(ord, text))
    for plan in _plans(family_of(name), Problem.parse(text), runtime, seed + shift):
        _is_right(plan, seed, shift)


def _is_right(plan: Plan, seed: int, shift: int = 0) -> None:
    for normal in (False, True):
        agrees(plan, shift, seed, normal)


@_fitting(SHAPES)
def test_awkward_shapes(name: str, text: str, runtime: Runtime) -> None:
    _check(name, text, runtime)


@_fitting(UNALIGNED)
def test_unaligned_base_pointers(name: str, text: str, runtime: Runtime) -> None:
    _check(name, text, runtime, shift=4)


def _named(turn: int, problem: Problem) -> list[str]:
    """Names that fit, one of each config: where there is no pool, several are the same.

    Every other one: the next layer has the others.
    """
    fitting = [name for name, one in NAMED.items() if one.fits(problem)]
    return [*{NAMED[name].config(problem): name for name in reversed(fitting)}.values()][turn % 2 :: 2]


@pytest.mark.parametrize(
    ("runtime", "text", "name"),
    [
        (kind, text, name)
        for kind in KERNELS
        for turn, text in enumerate((*SHAPES, *POOLED))
        for name in _named(turn, Problem.parse(text))
    ],
    indirect=["runtime"],
)
def test_named_configs(name: str, text: str, runtime: Runtime) -> None:
    problem = Problem.parse(text)
    _is_right(Plan.make(runtime, problem, NAMED[name].config(problem)), sum(map(ord, text)))


@pytest.mark.parametrize("kind", ALL)
def test_what_is_not_here_is_said(kind: str) -> None:
    """Of such a device there are no tests here."""
    if kind not in DEVICES:
        with suppress(DeviceError):
            open_runtime(kind)
            pytest.skip("no OpenCL: NumPy stands in")
        pytest.skip(f"no {kind} here")


def test_every_family_for_a_cpu_is_tried() -> None:
    """Else the tests above would say nothing of it."""
    tried = {(k, one.name) for k in DEVICES for text in SHAPES for one in FAMILIES if _takes(k, one, text)}
    cores = {"direct", "winograd4", "gemv", "grouped", "textbook", "reference"}
    on_cpu = {name for kind, name in tried if kind == "cpu"}
    assert cores <= on_cpu if "cpu" in DEVICES else not on_cpu  # others may be tried by their examples alone
    assert {name for kind, name in tried if kind == "numpy"} == {"reference"}


def test_a_family_whose_configs_all_spill_is_not_right(cpu: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def spills(*_: object) -> Plan:
        raise CompileError("direct for sm_90: 8 bytes of a thread spilled to local memory")

    monkeypatch.setattr(Plan, "make", spills)
    with pytest.raises(AssertionError, match="all 30 configs spilt"):
        _check("direct", SHAPES[0], cpu)


@_fitting(("n0c4h5w5k8r3s3p1-f32",))
def test_zero_batch_launches_nothing(name: str, text: str, runtime: Runtime) -> None:
    problem = Problem.parse(text)
    plan = next(_plans(family_of(name), problem, runtime, 0))
    data = numbers(problem)
    assert computed(plan, data["x"], data["w"]).shape == (0, 8, 5, 5)


def test_times_are_positive_and_versions_are_text(runtime: Runtime) -> None:
    problem = Problem.parse("n1c8h9w9k16r3s3p1-f32")
    plan = Plan.make(runtime, problem, Config.parse("reference:v=1"))
    data = numbers(problem)
    x, w, y = put(runtime, data["x"]), plan.pack(put(runtime, data["w"])), runtime.alloc(problem.y_bytes)
    run = partial(plan.run, dict(x=x, w=w, y=y))
    assert runtime.timed(run) > 0
    assert runtime.timed(run, flush=False) > 0
    assert runtime.warm(run, 3) > 0
    assert all(isinstance(v, str) for v in runtime.versions().values())


def test_calibration_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, runtime: Runtime) -> None:
    from tilewright.measuring import calibrate as calibration
    from tilewright.runtime import rates

    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    before = runtime.device
    if not before.runs_kernels:
        with pytest.raises(DeviceError, match="NumPy"):
            calibration.calibrate(runtime)
        return
    try:
        found = calibration.calibrate(runtime)
        assert found.source == "calibrated"
        assert rates.calibrated(before).rates == found == runtime.device.rates
    finally:
        runtime.device = before


def test_the_packing_kernel_is_made_once(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem.parse(SHAPES[2])
    plans = []
    for family in FAMILIES:
        if family.refuses(problem, runtime.device) is None:
            with suppress(CompileError):  # it spills: data, not a failure
                plans.append(Plan.make(runtime, problem, next(_configs(family, problem, runtime, 0))))
    assert plans
    w = np.zeros(problem.w_shape, np.float32)
    for plan in plans:
        plan.pack(put(runtime, w))
    monkeypatch.setattr(runtime, "compile", None)
    for plan in plans:
        plan.pack(put(runtime, w))
