"""What guards the split of f32 into two of f16 (hopper, x=3): who falls back to strict f32, and when.

Filters look at small numbers alone, of which the split loses most: without the last launch all of these tests
would see it, and some look.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from here import EMULATED_AND_GPU
from test_gpu_path import computed, runtime
from test_hopper_family import BASE, LAST, TWO_PASS, _sums_of_any_length, _used

from tilewright.kernels.error_bound import error_bound
from tilewright.kernels.family import Config
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["_sums_of_any_length", "runtime"]  # fixtures

MANY = 1e9  # of halves_guard.h
SMALL = 2.0**-45  # beside numbers of 1: a split keeps nothing of it
LAYER = ("n1c32h7w6k70r3s3p1-accurate-nhwc", dict(chunks=4, xs=1))
CASES = (
    LAYER,
    ("n2c18h9w7k71r3s3p1-accurate", dict()),
    ("n1c38h11w9k70r3s2p1.0.0.1d2u3x1-accurate-nhwc2nchw+add0.5", dict(chunks=4, batch=2)),
    ("n2c88h9w7k140r3s3p1u2g2-accurate+alpha0.5+leaky0.5", dict(chunks=4, sg=3, combine=LAST)),
    ("n2c24h9w9k70r3s3p1-accurate-nhwc+bias+relu+maxpool3u2p1", dict(xs=1, sg=2, combine=TWO_PASS)),
    ("n1c40h7w19k70r3s3p1-accurate-nhwc+add+maxpool2", dict(chunks=4, tall=1, wn=2)),
    ("n1c24h9w9k68r3s3p1-accurate-nchw2nhwc+avgpool3u2", dict(chunks=4, xs=1, sg=2, combine=TWO_PASS)),
    ("n2c16h13w12k66r3s3p1-accurate+bias+avgpool10u2", dict(xs=1, combine=TWO_PASS)),  # 100 cells
    ("n3c100h6w7k40r1s1u2-accurate-nchw2nhwc", dict(chunks=4, xs=1)),
    ("n2c96h5w7k70r1s1-accurate-nhwc+bias", dict(chunks=4, xs=1)),
    ("n5c96h1w1k33r1s1-accurate+bias+silu", dict(bn=8, chunks=4, xs=1)),
)
each_device = pytest.mark.parametrize("device", EMULATED_AND_GPU)
every_case = pytest.mark.parametrize(("text", "change"), CASES, ids=[text for text, _ in CASES])


def _plan(runtime: Runtime, text: str = LAYER[0], change: Any = None) -> Plan:
    problem, change = Problem.parse(text), LAYER[1] if change is None else change
    used = _used(problem, runtime)
    return Plan.make(used, problem, Config.make("hopper", BASE | dict(x=3, pieces=1, wm=1) | change))


def _numbers(problem: Problem, added: float = 1.0) -> dict[str, Any]:
    """Normal numbers; bias and z, if there are, so much smaller."""
    rng, e = np.random.default_rng(1), problem.epilogue
    shapes = dict(x=problem.x_shape, w=problem.w_shape)
    shapes |= dict(bias=(problem.k,)) if e.bias else {}
    shapes |= dict(z=problem.z_shape) if e.add else {}
    numbers = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    for name in {"bias", "z"} & {*numbers}:
        numbers[name] *= np.float32(added)
    return numbers


def _run(plan: Plan, numbers: dict[str, Any], falls_back: bool = True) -> Any:
    """Run; or all launches but the last."""
    held, launches = plan._aligned, plan._aligned.launches
    assert launches[-1][1].kernel == "fallback"
    plan._aligned = replace(held, launches=launches if falls_back else launches[:-1])
    y = computed(plan, **numbers)
    plan._aligned = held
    return y


def _misfits(plan: Plan) -> float:
    """What the last run found in x."""
    found = np.empty(2, np.float32)
    plan.runtime.download(plan.runtime.slice(plan._aligned.workspace["moved"], 0, 8), found)
    return float(found[1])


def _right(plan: Plan, numbers: dict[str, Any], y: Any) -> bool:
    """Whether each output is within the bound of its own size."""
    ref, size = numpy_conv(plan.problem, *(numbers.get(name) for name in ("x", "w", "bias", "z")))
    chain = plan.family.chain(plan.problem, plan.device, plan.config)
    return bool(error_bound(plan.problem, chain).allows(y, ref, size).all())


def _channels(problem: Problem, x: Any) -> Any:
    """A view of x with channels last."""
    return x if problem.layout_in == "nhwc" else x.transpose(0, 2, 3, 1)


@each_device
@every_case
def test_of_normal_numbers_nothing_is_computed_again(
    device: str, text: str, change: dict[str, int], runtime: Runtime
) -> None:
    plan = _plan(runtime, text, change)
    numbers = _numbers(plan.problem)
    y = _run(plan, numbers)
    assert _misfits(plan) == 0 and _right(plan, numbers, y)
    assert np.array_equal(y, _run(plan, numbers, falls_back=False))


@each_device
@every_case
def test_small_numbers_of_x_count_as_much_as_large_ones(
    device: str, text: str, change: dict[str, int], runtime: Runtime
) -> None:
    """Half of the channels are 2^45 times smaller than the others, and some filters see these alone."""
    plan = _plan(runtime, text, change)
    problem, numbers = plan.problem, _numbers(plan.problem, added=SMALL)
    _channels(problem, numbers["x"])[..., ::2] *= np.float32(SMALL)
    numbers["w"][: problem.k // 2, 1::2] = 0
    y = _run(plan, numbers)
    assert _misfits(plan) >= MANY and _right(plan, numbers, y)
    assert np.array_equal(y, _run(plan, numbers))
    assert not _right(plan, numbers, _run(plan, numbers, falls_back=False))


@each_device
@every_case
def test_a_row_of_the_filter_has_its_tile_computed_again(
    device: str, text: str, change: dict[str, int], runtime: Runtime
) -> None:
    """The last one; of x only channels count where it is small."""
    plan = _plan(runtime, text, change)
    problem, numbers = plan.problem, _numbers(plan.problem, added=SMALL)
    _channels(problem, numbers["x"])[..., 1::2] = 0
    numbers["w"][-1, ::2] *= np.float32(SMALL)
    y, kept = _run(plan, numbers), _run(plan, numbers, falls_back=False)
    assert _misfits(plan) == 0
    assert _right(plan, numbers, y) and not _right(plan, numbers, kept)
    first = problem.k - problem.kg + (problem.kg - 1) // 64 * 64  # of that tile
    same = [np.moveaxis(v, 1, 3) if problem.layout_out == "nchw" else v for v in (y, kept)]
    assert np.array_equal(same[0][..., :first], same[1][..., :first])
    assert not np.array_equal(same[0][..., first:], same[1][..., first:])


@each_device
@pytest.mark.parametrize("where", ["x", "w"])
@pytest.mark.parametrize("text", [LAYER[0], "n1c32h7w6k70r3s3p1-accurate"])
def test_what_is_not_finite_shows_where_the_formula_has_it(
    device: str, where: str, text: str, runtime: Runtime
) -> None:
    """Beside numbers of any size: an infinity times what the split takes for zero would be NaN."""
    plan = _plan(runtime, text)
    numbers = _numbers(plan.problem)
    x, w = _channels(plan.problem, numbers["x"]), numbers["w"]
    (w if where == "x" else x)[...] *= np.float32(2.0**-60)
    x[0, 0, 0, 0], w[3, 7, 1, 1] = 1, 1  # the largest of all, and of a row
    if where == "x":
        x[0, 3, 3, 5], x[0, 0, 0, 2], x[0, 6, 0, 1] = np.inf, np.nan, -np.inf
    else:
        w[3, 8, 1, 1], w[9, 11, 0, 2], w[69, 12, 1, 0] = -np.inf, np.inf, np.nan
    y, (ref, size) = _run(plan, numbers), numpy_conv(plan.problem, numbers["x"], w)
    assert np.array_equal(np.isnan(y), np.isnan(ref)) and np.array_equal(np.isinf(y), np.isinf(ref))
    assert 0 < np.isnan(ref).sum() < ref.size and np.isinf(ref).sum() > 0
    assert np.array_equal(np.sign(y[np.isinf(y)]), np.sign(ref[np.isinf(ref)]))
    finite = np.isfinite(ref) & np.isfinite(size)
    allows = error_bound(plan.problem, plan.family.chain(plan.problem, plan.device, plan.config)).allows
    assert allows(y[finite], ref[finite], size[finite]).all()


@each_device
@pytest.mark.parametrize(("size", "misfits"), [
    (0, 0), (2.0**-28, 0), (0.999 * 2.0**-28, 1), (2.0**-39, 1), (0.999 * 2.0**-39, MANY), (1e-42, MANY),
    (np.inf, MANY), (-np.inf, MANY), (np.nan, MANY),
])  # fmt: skip
def test_what_speaks_against_the_split(device: str, size: float, misfits: float, runtime: Runtime) -> None:
    """Of one number, beside ones."""
    plan = _plan(runtime)
    numbers = _numbers(plan.problem)
    numbers["x"][...] = np.sign(numbers["x"])
    for place in ((0, 0, 0, 0), (0, 6, 5, 31), (0, 3, 2, 17)):
        x = numbers["x"].copy()
        x[place] = -size
        _run(plan, numbers | dict(x=x))
        assert _misfits(plan) == misfits


@each_device
def test_one_number_in_4096_and_one_more_may_be_small(device: str, runtime: Runtime) -> None:
    plan = _plan(runtime, "n1c64h13w11k70r3s3p1-accurate", dict(chunks=4))  # 9152 numbers: 3
    numbers = _numbers(plan.problem)
    x = numbers["x"].reshape(-1)
    x[...] = np.sign(x)
    rng = np.random.default_rng(3)
    for count in (3, 4):
        x[rng.choice(x.size, count - int((abs(x) < 1).sum()), replace=False)] = 2.0**-30
        numbers["w"][0, 0] = np.random.default_rng(count).standard_normal((3, 3), np.float32)
        y, kept = _run(plan, numbers), _run(plan, numbers, falls_back=False)
        assert np.array_equal(y, kept) == (count < 4) and _right(plan, numbers, y)


@each_device
@pytest.mark.parametrize("size", [0, 1e-40, 2.0**-149])
def test_zeros_and_denormals_alone_are_split_without_loss(device: str, size: float, runtime: Runtime) -> None:
    plan = _plan(runtime)
    numbers = _numbers(plan.problem)
    numbers["x"][...] = np.sign(numbers["x"]) * np.float32(size)
    y, (ref, _) = _run(plan, numbers), numpy_conv(plan.problem, numbers["x"], numbers["w"])
    assert _misfits(plan) == 0 and np.allclose(y, ref, rtol=1e-5, atol=1e-44)


@each_device
def test_denormals_beside_others_are_what_they_are(device: str, runtime: Runtime) -> None:
    plan = _plan(runtime)
    numbers = _numbers(plan.problem)
    numbers["x"][..., ::2] *= np.float32(1e-40)
    numbers["w"][:, 1::2] = 0
    y = _run(plan, numbers)
    assert _misfits(plan) >= MANY and _right(plan, numbers, y) and abs(y).min() > 0
