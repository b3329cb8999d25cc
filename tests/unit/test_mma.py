"""The mma family: what it refuses and why, what its kernels compile to, what the model makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.device import for_architecture
from tilewright.device.architectures import mma_f64, tensor_macs
from tilewright.errors import ConfigError
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.problem import Problem, shapes
from tilewright.search import model
from tilewright.search.guesses import GUESSES

H100 = for_architecture("sm_90")
MMA = family_of("mma")
KINDS = MMA.precisions
Y12 = Problem.parse("n1c256h34w34k512r3s3p1-f16-nhwc")
BASE = dict(x=0, l1=1, mt=4, nt=4, wm=2, wn=2, sb=1, mb=1, fd=2, chunks=8, stages=4, sc=1, sg=1, combine=0)
LAYERS = shapes.load(["resnet"], layout="nhwc")
LAYERS += [layer for layer in shapes.load(["yolo9000"], layout="nhwc") if layer.name in ("Y0", "Y12")]


def _config(**change: int) -> Config:
    return Config.make("mma", BASE | change)


def _us(problem: Problem, **change: int) -> float:
    MMA.check(problem, H100, _config(**change))
    return model.estimate(MMA, problem, H100, _config(**change)).total_us


def test_f64_is_taken_where_tensor_cores_are_faster_than_threads() -> None:
    problem = Y12.with_dtype("f64")
    taken = [MMA.refuses(problem, for_architecture(arch)) is None for arch in ("sm_80", "sm_90")]
    assert all(taken) and mma_f64(86) == mma_f64(100) == 0
    assert "multiply f64 no faster than its threads" in str(MMA.refuses(problem, for_architecture("sm_120")))
    assert MMA.params(problem, H100)[0].values == (0,)
    with pytest.raises(ConfigError, match="rule 'banks'"):
        MMA.check(problem, H100, _config(mt=2, nt=2, fd=1, chunks=4))


def test_a_device_without_tensor_cores_is_refused() -> None:
    assert "no tensor cores" in str(MMA.refuses(Y12, replace(H100, tensor_macs=0)))
    assert tensor_macs(75) == 0 < tensor_macs(120) < tensor_macs(80) < tensor_macs(90)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (dict(mt=8, nt=6), "sums"),
        (dict(stages=8), "shared"),
        (dict(sb=4), "fragments"),
        (dict(combine=3, sg=1), "combine_none"),
        (dict(dtype="accurate"), "sums"),
        (dict(dtype="accurate", mt=2), "promoted"),
        (dict(dtype="f8", mt=2), "promoted"),
        (dict(chunks=2, fd=1, wm=1, wn=1, sc=8, mb=4, mt=3, nt=3), "cluster_meets"),
    ],
)
def test_rules_are_named(change: dict[str, Any], rule: str) -> None:
    problem = Y12.with_dtype(change.get("dtype", "f16"))
    with pytest.raises(ConfigError, match=f"rule '{rule}'"):
        MMA.check(problem, H100, _config(**{name: v for name, v in change.items() if name != "dtype"}))


def test_the_input_is_read_as_its_layout_allows() -> None:
    ways = {text: MMA.params(Problem.parse(text), H100)[0].values for text in (
        "n1c64h9w9k64r3s3p1-f16-nhwc", "n1c64h9w9k64r3s3p1-f16", "n1c12h9w9k64r3s3p1-f16-nhwc",
        "n1c3h9w9k64r3s3p1-i8-nhwc", "n1c128h9w9k64r3s3p1-bf16",
    )}  # fmt: skip
    assert list(ways.values()) == [(0,), (1,), (1, 2), (1, 2), (1,)]  # as it is, copied, gathered


def test_the_model_knows_pipelines_tiles_and_tensor_cores() -> None:
    assert _us(Y12) < _us(Y12, stages=2)  # fewer bytes in flight
    assert _us(Y12, mt=4, nt=2, wm=2, wn=2) < _us(Y12, mt=1, nt=1, wm=1, wn=4, fd=1)  # loads for each product
    large = Problem.parse("n32c256h34w34k512r3s3p1-f16-nhwc")
    slow = replace(H100, tensor_macs=128)
    times = [model.estimate(MMA, large, device, _config()) for device in (H100, slow)]
    assert times[0].total_us < times[1].total_us
    assert times[1].facts["tensor_us"] > 0.8 * times[1].terms_us["main_loop_us"]


# Each layer in half of the kinds of numbers, and for one of two architectures.
HALVES = (("f16", "i8", "tf32", "f8"), ("bf16", "q8", "accurate", "f64"))
CASES = [(layer, dtype, turn // 2) for turn, layer in enumerate(LAYERS) for dtype in HALVES[turn % 2]]


def test_every_dtype_is_compiled_in_both_turns() -> None:
    assert {(dtype, turn % 2) for _, dtype, turn in CASES} == {(d, t) for d in KINDS for t in range(2)}


@pytest.mark.parametrize(("layer", "dtype", "turn"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_first_choice_compiles_here_and_there(
    layer: shapes.Layer, turn: int, dtype: str, kept_cache: None
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from test_winners_compile import a_first_choice_compiles

    problem = layer.problem.with_dtype(dtype)
    if MMA.refuses(problem, H100):
        assert dtype == "accurate" and problem.c * problem.r * problem.s < 256
        return
    a_first_choice_compiles(problem, "mma", turn, GUESSES[:4])


PRODUCTS = (
    ("f16", "HMMA.16816.F32 "), ("bf16", "HMMA.16816.F32.BF16"), ("i8", "IMMA.16832.S8"),
    ("q8", "IMMA.16832.S8"), ("tf32", "HMMA.1688.F32.TF32"),
)  # fmt: skip


@pytest.mark.parametrize(("dtype", "product"), PRODUCTS)
def test_the_main_loop_is_products(dtype: str, product: str, own_cache: None, tmp_path: Path) -> None:
    """64 x 64 outputs a warp: half of the loop is products, and 4 products a fragment read."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from sass import main_loop

    body = main_loop(MMA.blueprint(Y12.with_dtype(dtype), H100, _config()), "sm_90", tmp_path, product)
    count = {name: sum(name in line for line in body) for name in (product, "LDSM", "LDGSTS", "BAR.SYNC")}
    assert count == {product: 128, "LDSM": 32, "LDGSTS": 16, "BAR.SYNC": 1}
    assert len(body) < (3.3 if dtype == "tf32" else 2.3) * count[product]  # tf32: two for each word of x


@pytest.mark.parametrize(
    ("arch", "product", "count"), [("sm_90", "DMMA.16x8x4", 64), ("sm_80", "DMMA.884", 128)]
)
def test_the_main_loop_of_f64_is_products(
    arch: str, product: str, count: int, own_cache: None, tmp_path: Path
) -> None:
    """32 x 64 outputs a warp: 16 numbers of the sum a turn, a load for each of 16 x 4."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from sass import main_loop

    config, problem, device = _config(mt=4, nt=2, fd=1), Y12.with_dtype("f64"), for_architecture(arch)
    MMA.check(problem, device, config)
    body = main_loop(MMA.blueprint(problem, device, config), arch, tmp_path, product)
    assert sum(product in line for line in body) == count
    assert sum("LDS.64" in line for line in body) == 48 and len(body) < 240 + count


@pytest.mark.parametrize(
    ("dtype", "arch", "product", "most"),
    [("accurate", "sm_80", "HMMA.1688.F32.TF32", 7.5), ("accurate", "sm_120", "HMMA.1688.F32.TF32", 8.5),
     ("f8", "sm_120", "QMMA.16832.F32.E4M3.E4M3", 7.0), ("f8", "sm_90", "HMMA.16816.F32", 7.5)],
)  # fmt: skip
def test_the_main_loop_promotes(
    dtype: str, arch: str, product: str, most: float, own_cache: None, tmp_path: Path
) -> None:
    """32 x 64 outputs a warp, a fragment of the sum a turn: three products for one, or 8 sums for two."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from sass import main_loop

    config, problem = _config(mt=2, nt=4, fd=1), Y12.with_dtype(dtype)
    MMA.check(problem, for_architecture(arch), config)
    body = main_loop(MMA.blueprint(problem, for_architecture(arch), config), arch, tmp_path, product)
    count = {name: sum(name in line for line in body) for name in (product, "LDSM", "FADD")}
    products = {"accurate": 48, "f8": 32 if arch == "sm_90" else 16}[dtype]
    assert count[product] == products and count["LDSM"] == 6 and count["FADD"] >= 64
    assert len(body) < most * products


def test_e4m3_is_widened_where_no_unit_takes_it() -> None:
    problem = Y12.with_dtype("f8")
    with pytest.raises(ConfigError, match="rule 'e4m3'"):
        MMA.check(problem, for_architecture("sm_80"), _config(mt=2, fd=1))
    wide = _config(x=3, mt=2, fd=2)
    MMA.check(problem, for_architecture("sm_80"), wide)
    found = MMA.blueprint(problem, for_architecture("sm_80"), wide)
    assert [one.kernel for one in found.launches] == ["nhwc", "mma"]
    assert dict(found.defines)["DTYPE"] == 2 and "PRODUCTS" not in dict(found.defines)
    assert found.workspace[-1].nbytes == 2 * problem.x_bytes


def test_requantised_launches_take_the_scale() -> None:
    problem = Y12.with_dtype("q8")
    for combine, sg in ((0, 1), (2, 2), (3, 2)):
        found = MMA.blueprint(problem, H100, _config(mt=2, combine=combine, sg=sg))
        assert all(one.args[-1] == "scale" for one in found.launches)
        assert [one.kernel for one in found.launches] == ["mma", *["sum_shares"] * (combine == 2)]


def test_the_model_knows_what_a_product_costs() -> None:
    large = Problem.parse("n32c256h34w34k512r3s3p1-f16-nhwc")
    change = dict(mt=2, fd=1)
    times = {
        kind: model.estimate(MMA, large.with_dtype(kind), H100, _config(**change)).total_us
        for kind in ("f16", "tf32", "accurate", "f8", "i8")
    }
    assert times["i8"] < times["f16"] < times["tf32"] < times["accurate"]
    assert times["accurate"] < 8 * times["f16"] and times["f8"] > times["i8"]
